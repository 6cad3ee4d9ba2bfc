//! The two ways to make load. A closed loop waits for answers; an open loop looks only at the clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::error::BenchError;
use crate::quantity::Ramp;
use crate::run::LoadRun;
use crate::schedule::{Arrivals, StopRule, open_times, user_starts};
use crate::workload::Chat;

/// How often a waiting thread looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Chats with their numbers, until this many requests have been handed out.
fn chats(run: &LoadRun) -> impl Iterator<Item = (u64, Chat)> + Send + use<> {
    let most = match run.load.stop {
        StopRule::Requests(requests) => requests,
        StopRule::After(_) | StopRule::AtTheEnd => u64::MAX,
    };
    let mut requests = 0;
    run.load.workload.chats().zip(0..).map_while(move |(chat, number)| {
        let wanted = requests < most;
        requests += chat.turns.len() as u64;
        wanted.then_some((number, chat))
    })
}

/// Each user takes the next chat when its last one has ended.
pub(crate) async fn closed_loop(run: &Arc<LoadRun>, users: Ramp) {
    let ramp_time = match run.load.stop {
        StopRule::After(time) => time,
        StopRule::Requests(_) | StopRule::AtTheEnd => Duration::ZERO,
    };
    let chats = Arc::new(Mutex::new(chats(run)));
    let mut tasks = JoinSet::new();
    for start in user_starts(users, ramp_time) {
        let (run, chats) = (Arc::clone(run), Arc::clone(&chats));
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = run.cancelled() => return,
                () = sleep_until(run.started + start) => {}
            }
            while !run.is_over(Instant::now()) {
                let Some((number, chat)) = chats.lock().unwrap_or_else(PoisonError::into_inner).next() else { return };
                let body = run.load.dialect.body(&chat, 0);
                run.play(number, &chat, body, Instant::now()).await;
            }
        });
    }
    tasks.join_all().await;
}

/// A thread of its own keeps the time, since timers of a runtime are a millisecond late; each chat is a task of its own, so
/// the slowest server delays none.
pub(crate) async fn open_loop(run: &Arc<LoadRun>) -> Result<(), BenchError> {
    // Each task holds a sender; when the last is gone, all have ended.
    let (alive, mut ended) = mpsc::channel::<()>(1);
    let (clock, runtime) = (Arc::clone(run), Handle::current());
    let keep_time = move || {
        for ((number, chat), at) in arrivals(&clock) {
            let intended = clock.started + at;
            if clock.is_over(intended) {
                return;
            }
            // Before its time has come: a long prompt takes a while to write.
            let body = clock.load.dialect.body(&chat, 0);
            if !wait_until(&clock, intended) {
                return;
            }
            let (run, alive) = (Arc::clone(&clock), alive.clone());
            runtime.spawn(async move {
                run.play(number, &chat, body, intended).await;
                drop(alive);
            });
        }
    };
    let named = thread::Builder::new().name("arrivals".into());
    named.spawn(keep_time).map_err(|error| BenchError::System(format!("no thread to keep the time: {error}")))?;
    let _nothing_is_ever_sent = ended.recv().await;
    Ok(())
}

fn arrivals(run: &LoadRun) -> Box<dyn Iterator<Item = ((u64, Chat), Duration)>> {
    let Arrivals::Open { rate, spacing } = run.load.arrivals else {
        return Box::new(chats(run).filter_map(|(number, chat)| chat.at.map(|at| ((number, chat), at))));
    };
    let ramp_time = match run.load.stop {
        StopRule::After(time) => time,
        StopRule::Requests(requests) => Duration::try_from_secs_f64(requests as f64 / rate.mean()).unwrap_or_default(),
        StopRule::AtTheEnd => {
            let requests = run.load.workload.chats().count();
            Duration::try_from_secs_f64(requests as f64 / rate.mean()).unwrap_or_default()
        }
    };
    Box::new(chats(run).zip(open_times(rate, spacing, ramp_time, run.load.workload.seed)))
}

/// `false` when the run was cancelled.
fn wait_until(run: &LoadRun, time: Instant) -> bool {
    loop {
        let left = time.saturating_duration_since(Instant::now());
        if run.is_cancelled() {
            return false;
        }
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(LOOK_EVERY));
    }
}
