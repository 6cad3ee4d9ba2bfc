//! The scenario that a seed draws before the run: engines, routers, clients, network, and rates of faults.

use std::time::Duration;

use baton_core::Guarantee;
use baton_engine::EngineConfig;
use baton_router::{RetryPolicy, Role};

use crate::hang_scenario::HangScenario;
use crate::random::Random;

pub(crate) struct Scenario {
    pub(crate) theme: Theme,
    /// Equal for all engines, so that a stream ends at the same token wherever it runs.
    pub(crate) context_tokens: usize,
    pub(crate) engines: Vec<EngineSetup>,
    pub(crate) routers: Vec<RouterSetup>,
    pub(crate) clients: u64,
    /// Share of prompts that may be as long as the context.
    pub(crate) long_prompts_percent: u64,
    pub(crate) scripts: u64,
    pub(crate) guarantee: Guarantee,
    /// Requests arrive and faults happen before this.
    pub(crate) faults_end_at: Duration,
    pub(crate) network: Network,
    pub(crate) transfers: Transfers,
    pub(crate) faults: u64,
    /// Changes of strategy and roles; they do no harm, so fair deployments have them too.
    pub(crate) changes: u64,
    /// Rate at which computed tokens fail their sequence.
    pub(crate) sequence_failures_per_mille: u64,
    /// Heartbeats are sent and checked.
    pub(crate) hangs: Option<HangScenario>,
}

/// What a seed has more of than others: rare combinations of two faults need many of both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    /// No faults, though there may be overload.
    Fair,
    /// Something of everything.
    Mixed,
    /// Engines are stopped and continued; routers lose patience quickly.
    Stops,
    Crashes,
    /// Links break and lag, blocks come damaged, late, twice and out of order.
    BadLinks,
    /// More requests than the pools have room for.
    Crowd,
    /// Engines hang and routers are suspended, with real time limits; nothing else goes wrong.
    Hangs,
}

#[derive(Clone)]
pub(crate) struct EngineSetup {
    pub(crate) role: Role,
    pub(crate) pages: usize,
    pub(crate) slots: usize,
    pub(crate) steps_in_flight: usize,
    pub(crate) config: EngineConfig,
    pub(crate) step: Duration,
    pub(crate) token: Duration,
    /// Rate of steps that take seconds, though their layers are done one after the other.
    pub(crate) slow_steps_per_mille: u64,
}

#[derive(Clone)]
pub(crate) struct RouterSetup {
    pub(crate) strategy: StrategyChoice,
    pub(crate) retry: RetryPolicy,
    pub(crate) max_in_flight: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum StrategyChoice {
    RoundRobin,
    LeastLoaded,
    PrefixAware {
        load_slack: u32,
    },
    SessionAffinity {
        load_slack: u32,
    },
    Disagg {
        pd_balance_factor: f64,
    },
    /// The example of a strategy of one's own: one call after the other.
    LongPromptsApart {
        long_tokens: usize,
    },
}

/// Of native sessions.
#[derive(Clone, Copy)]
pub(crate) struct Network {
    pub(crate) loss_per_mille: u64,
    pub(crate) late_per_mille: u64,
    /// Cache events of a reply.
    pub(crate) cache_loss_per_mille: u64,
}

/// Of KV.
#[derive(Clone, Copy)]
pub(crate) struct Transfers {
    pub(crate) transport: Transport,
    pub(crate) flip_per_mille: u64,
    /// TCP does neither, but an unordered transport may, and it must do no harm.
    pub(crate) repeat_per_mille: u64,
    pub(crate) reorder_per_mille: u64,
    late_per_mille: u64,
    lag_per_mille: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Shm,
    Tcp,
}

impl Scenario {
    /// Every eighth deployment has engines that hang: there the same draws are the beginning of another scenario.
    pub(crate) fn of(seed: u64, random: &mut Random) -> Self {
        let scenario = Self::draw(random);
        let mut scenario = if seed % 8 == 7 { HangScenario::draw(scenario, random) } else { scenario };
        for engine in &mut scenario.engines {
            engine.steps_in_flight = random.between(1, 2) as usize;
        }
        if scenario.theme != Theme::Fair && random.percent(30) {
            scenario.network.cache_loss_per_mille = random.pick(&[20, 200]);
        }
        scenario.changes = if random.percent(30) { random.between(1, 30) } else { 0 };
        scenario
    }

    fn draw(random: &mut Random) -> Self {
        use Theme::{BadLinks, Crashes, Crowd, Fair, Mixed, Stops};
        let theme = random.pick(&[Fair, Mixed, Mixed, Stops, Stops, Crashes, BadLinks, Crowd]);
        let context_tokens = random.between(64, 320) as usize;
        let prefix_cache = random.percent(70);
        let engines = roles(random)
            .into_iter()
            .map(|role| EngineSetup::draw(role, theme, context_tokens, prefix_cache, random))
            .collect();
        let routers = (0..random.pick(&[1, 1, 2])).map(|_| RouterSetup::draw(theme, random)).collect();
        let (clients, faults) = match theme {
            Fair => (random.between(8, 28), 0),
            Crowd => (random.between(25, 60), random.below(2)),
            Mixed | BadLinks | Theme::Hangs => (random.between(8, 28), random.between(0, 5)),
            Stops | Crashes => (random.between(8, 28), random.between(2, 8)),
        };
        Self {
            theme,
            context_tokens,
            engines,
            routers,
            clients,
            long_prompts_percent: if theme == Crowd { 60 } else { 25 },
            scripts: random.pick(&[0, 2, 6]),
            faults_end_at: if theme == Crowd { random.millis(50, 200) } else { random.millis(100, 500) },
            network: Network::draw(theme, random),
            transfers: Transfers::draw(theme, random),
            faults,
            changes: 0,
            sequence_failures_per_mille: if theme == Mixed && random.percent(30) { 3 } else { 0 },
            guarantee: if random.percent(40) { Guarantee::ByOrigin } else { Guarantee::ByToken },
            hangs: None,
        }
    }

    /// Whether requests may fail only because of overload or of their own.
    pub(crate) fn may_only_be_busy(&self) -> bool {
        self.faults == 0 && self.network.loss_per_mille == 0 && self.sequence_failures_per_mille == 0
    }
}

/// Every fleet has an engine that can decode.
fn roles(random: &mut Random) -> Vec<Role> {
    use Role::{Decode, Mixed, Prefill};
    let fleets: [&[Role]; 8] = [
        &[Prefill, Decode],
        &[Prefill, Decode, Decode],
        &[Prefill, Prefill, Decode],
        &[Prefill, Prefill, Decode, Decode],
        &[Mixed, Mixed],
        &[Mixed],
        &[Prefill, Decode, Mixed],
        &[Mixed, Mixed, Mixed],
    ];
    fleets[random.index(fleets.len())].to_vec()
}

impl EngineSetup {
    fn draw(role: Role, theme: Theme, context_tokens: usize, prefix_cache: bool, random: &mut Random) -> Self {
        let fits = context_tokens.div_ceil(32) as u64;
        let config = EngineConfig {
            prefix_cache,
            step_tokens: random.pick(&[16, 48, 100, 512]),
            max_running: random.between(1, 16) as usize,
            max_waiting: random.between(6, 40) as usize,
            landing_timeout: random.millis(10, 120),
            delivery_timeout: random.millis(30, 300),
            ..EngineConfig::default()
        };
        Self {
            role,
            pages: random.between(fits, fits + if theme == Theme::Crowd { 6 } else { 20 }) as usize,
            slots: random.between(1, 12) as usize,
            steps_in_flight: 1,
            config,
            step: random.micros(300, 2000),
            token: random.micros(2, 30),
            slow_steps_per_mille: 0,
        }
    }
}

impl StrategyChoice {
    pub(crate) fn draw(random: &mut Random) -> Self {
        match random.below(10) {
            0 => Self::RoundRobin,
            1 => Self::LeastLoaded,
            2 => Self::LongPromptsApart { long_tokens: random.between(1, 60) as usize },
            3 => Self::PrefixAware { load_slack: random.below(6) as u32 },
            4 => Self::SessionAffinity { load_slack: random.below(6) as u32 },
            5..7 => Self::Disagg { pd_balance_factor: 0.0 },
            _ => Self::Disagg { pd_balance_factor: random.pick(&[0.1, 0.5, 0.9]) },
        }
    }
}

impl RouterSetup {
    fn draw(theme: Theme, random: &mut Random) -> Self {
        let strategy = StrategyChoice::draw(random);
        let retry = RetryPolicy {
            max_attempts: 16,
            max_outage: Duration::from_secs(4),
            max_busy: Duration::from_secs(1),
            max_silence: if theme == Theme::Stops { random.millis(25, 150) } else { random.millis(150, 1500) },
            first_backoff: Duration::from_millis(5),
            max_backoff: Duration::from_millis(200),
        };
        Self { strategy, retry, max_in_flight: if random.percent(10) { 3 } else { 1000 } }
    }
}

impl Network {
    fn draw(theme: Theme, random: &mut Random) -> Self {
        let bad = theme != Theme::Fair;
        Self {
            loss_per_mille: if bad && random.percent(30) { 3 } else { 0 },
            late_per_mille: if bad && random.percent(50) { 30 } else { 0 },
            cache_loss_per_mille: 0,
        }
    }

    pub(crate) fn calm(self) -> Self {
        Self { loss_per_mille: 0, late_per_mille: 0, cache_loss_per_mille: 0 }
    }

    pub(crate) fn latency(&self, random: &mut Random) -> Duration {
        if random.per_mille(self.late_per_mille) { random.millis(2, 60) } else { random.micros(20, 400) }
    }
}

impl Transfers {
    fn draw(theme: Theme, random: &mut Random) -> Self {
        let chance = match theme {
            Theme::Fair => 0,
            Theme::BadLinks => 70,
            _ => 30,
        };
        let mut sometimes = |per_mille: u64| if random.percent(chance) { per_mille } else { 0 };
        Self {
            flip_per_mille: sometimes(15),
            repeat_per_mille: sometimes(40),
            reorder_per_mille: sometimes(40),
            late_per_mille: sometimes(100),
            lag_per_mille: sometimes(100),
            transport: random.pick(&[Transport::Shm, Transport::Tcp]),
        }
    }

    pub(crate) fn calm(self) -> Self {
        Self {
            flip_per_mille: 0,
            repeat_per_mille: 0,
            reorder_per_mille: 0,
            late_per_mille: 0,
            lag_per_mille: 0,
            transport: self.transport,
        }
    }

    pub(crate) fn latency(&self, random: &mut Random) -> Duration {
        if random.per_mille(self.late_per_mille) { random.millis(2, 100) } else { random.micros(20, 300) }
    }

    /// How long the receiving thread copies one offer: longer when the rest of a block is late.
    pub(crate) fn copy_time(&self, random: &mut Random) -> Duration {
        if random.per_mille(self.late_per_mille) { random.millis(1, 50) } else { random.micros(1, 40) }
    }

    /// Delay before the sending thread takes its next job.
    pub(crate) fn lag(&self, random: &mut Random) -> Duration {
        if random.per_mille(self.lag_per_mille) { random.millis(1, 60) } else { random.micros(2, 60) }
    }
}
