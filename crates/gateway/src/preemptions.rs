//! Warns when engines have too few KV pages for what they run: a sequence that loses its pages to others is computed again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use baton_core::EngineCounters;
use baton_router::EngineId;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::gateway::Gateway;

const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Counts begin anew after it, and there is one warning in it at most.
const PERIOD: Duration = Duration::from_secs(60);
/// Fewer are a burst that is over already.
const LEAST: u64 = 10;
/// One preemption in this many finished requests, each of which computes its prompt and half of its answer again, costs an
/// engine up to 5 % of its time: less is not worth a change.
const ONE_IN: u64 = 20;

/// Looks at what engines report, for as long as the gateway serves.
pub(crate) async fn watch(gateway: Arc<Gateway>) {
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watched: BTreeMap<EngineId, Watched> = BTreeMap::new();
    loop {
        let now = look.tick().await;
        let engines = gateway.dispatcher.fleet_status();
        watched.retain(|id, _| engines.iter().any(|engine| engine.id == *id));
        for engine in &engines {
            let counters = engine.report.counters;
            let watched = watched.entry(engine.id).or_insert(Watched { began: now, base: counters, warned: None });
            if let Some(rate) = watched.look(now, counters) {
                tracing::warn!(
                    engine = engine.name,
                    "KV pages run out: {} sequences lost theirs within {} s, while {} requests finished, and are computed \
                     again. Give the engine more pages (--kv-memory, or --kv-dtype int8 for smaller ones), let fewer \
                     sequences run at once (--max-slots), or add decode engines (--decode)",
                    rate.preempted,
                    rate.seconds,
                    rate.finished
                );
            }
        }
    }
}

/// One engine.
struct Watched {
    /// When the counters were as in `base`.
    began: Instant,
    base: EngineCounters,
    warned: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
struct Rate {
    preempted: u64,
    finished: u64,
    seconds: u64,
}

impl Watched {
    /// The rate, when it is time to warn of it.
    fn look(&mut self, now: Instant, counters: EngineCounters) -> Option<Rate> {
        let since = |now: u64, base: u64| now.checked_sub(base);
        let counts =
            since(counters.preemptions, self.base.preemptions).zip(since(counters.finished, self.base.finished));
        let Some((preempted, finished)) = counts else {
            // Another process has the engine's place.
            (self.began, self.base) = (now, counters);
            return None;
        };
        let is_high = preempted >= LEAST && preempted * ONE_IN >= finished;
        let warns = is_high && self.warned.is_none_or(|warned| now - warned >= PERIOD);
        let rate = Rate { preempted, finished, seconds: (now - self.began).as_secs() };
        if warns || now - self.began >= PERIOD {
            (self.began, self.base) = (now, counters);
        }
        warns.then(|| {
            self.warned = Some(now);
            rate
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_high_rate_is_warned_of_once_a_minute() {
        let start = Instant::now();
        let mut watched = Watched { began: start, base: EngineCounters::default(), warned: None };
        // (at second, preemptions, finished) → preempted in the warning
        for (at, preemptions, finished, warning) in [
            (2, 9, 0, None),
            (4, 10, 201, None),
            (6, 11, 220, Some(11)),
            (8, 500, 221, None),
            (64, 900, 300, None),
            (66, 901, 301, Some(890)),
            // More than a minute with little of it.
            (130, 905, 900, None),
            (132, 914, 901, None),
            // A new process, whose counts begin anew.
            (134, 3, 1, None),
            (136, 12, 2, None),
            (138, 13, 3, Some(10)),
        ] {
            let counters = EngineCounters { preemptions, finished, ..EngineCounters::default() };
            let rate = watched.look(start + Duration::from_secs(at), counters);
            assert_eq!(rate.map(|rate| rate.preempted), warning, "at {at} s");
        }
    }
}
