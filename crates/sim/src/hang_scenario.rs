//! Scenarios in which engines hang. Their time limits are those of a real deployment, so everything lasts seconds.

use std::time::Duration;

use baton_engine::EngineConfig;
use baton_router::{RetryPolicy, Role};

use crate::random::Random;
use crate::scenario::{EngineSetup, Network, Scenario, Theme};

/// The default of `--hang-timeout`.
pub(crate) const LIMIT: Duration = Duration::from_secs(3);
/// Of a step with three layers: a layer stays far enough below the limit that no heartbeat has to report it as slow.
const LONGEST_SLOW_STEP_MS: u64 = 7000;
const FAULTS_MS: u64 = 30_000;

/// What such a deployment does beside hanging.
#[derive(Clone, Copy)]
pub(crate) struct HangScenario {
    /// The first router has started the engines, and starts them again.
    pub(crate) supervised: bool,
    /// Some steps take longer than an engine may be silent.
    pub(crate) slow: bool,
}

pub(crate) fn slow_step(random: &mut Random) -> Duration {
    random.millis(3500, LONGEST_SLOW_STEP_MS)
}

impl HangScenario {
    /// Two engines at least generate, so that a request never has to wait for one to come back.
    pub(crate) fn draw(scenario: Scenario, random: &mut Random) -> Scenario {
        use Role::{Decode, Mixed, Prefill};
        let fleets: [&[Role]; 4] = [
            &[Prefill, Prefill, Decode, Decode],
            &[Prefill, Decode, Decode],
            &[Mixed, Mixed, Mixed],
            &[Prefill, Decode, Mixed],
        ];
        let hangs = Self { supervised: random.percent(60), slow: random.percent(40) };
        let one = EngineSetup {
            role: Mixed,
            pages: 200,
            slots: 16,
            steps_in_flight: 1,
            config: EngineConfig { prefix_cache: random.percent(70), max_running: 16, ..EngineConfig::default() },
            step: random.millis(10, 40),
            token: random.micros(20, 200),
            slow_steps_per_mille: if hangs.slow { 20 } else { 0 },
        };
        let roles = fleets[random.index(fleets.len())].iter();
        let engines = roles.map(|&role| EngineSetup { role, ..one.clone() }).collect();
        let mut routers = scenario.routers;
        for router in &mut routers {
            (router.retry, router.max_in_flight) = (RetryPolicy::default(), 1000);
        }
        Scenario {
            theme: Theme::Hangs,
            engines,
            routers,
            clients: random.between(20, 60),
            scripts: 0,
            faults_end_at: Duration::from_millis(FAULTS_MS),
            network: Network { loss_per_mille: 0, ..scenario.network },
            faults: 0,
            sequence_failures_per_mille: 0,
            hangs: Some(hangs),
            ..scenario
        }
    }

    /// The longest that a stream may stand still: an engine is noticed, and another one begins with the prompt.
    pub(crate) fn longest_stall(self) -> Option<Duration> {
        (!self.slow).then_some(2 * LIMIT)
    }

    /// The longest that a layer takes.
    pub(crate) fn slowest_layer(self) -> Duration {
        Duration::from_millis(if self.slow { LONGEST_SLOW_STEP_MS / 3 } else { 100 })
    }
}
