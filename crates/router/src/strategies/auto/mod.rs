//! Decides for each request whether prompt and generation are apart, where the prompt is split, and which engines do what: by
//! what each engine's steps cost, as it measures them while it serves, what it has to do, and what its prefix cache holds.
//! The placement with the least expected time is taken, the time that all other requests lose by it included.
//!
//! ```text
//!   engines' reports, prefix indexes ─▶ EngineView ─┐
//!   the request, learned answer lengths ─▶ Task ────┴▶ plan ─▶ Forecasts, best first ─▶ the three calls
//!                     ▲                                                                    │
//!                     └────────── learned: loads, hand-offs, answers ◀── what happened ◀───┘
//! ```

mod engine_view;
mod learned;
mod plan;
mod roles;
mod running_fit;

use std::collections::BTreeSet;
use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use self::engine_view::EngineView;
use self::learned::Learned;
use self::plan::{Planned, Targets, Task, plan};
use crate::decision::Explanation;
use crate::engine::{EngineId, Role};
use crate::leg::Leg;
use crate::roster::Roster;
use crate::strategies::hand_over::hand_over;
use crate::strategies::kind::{Parameter, PrefillUse, StrategyKind};
use crate::strategy::{Parameters, Strategy};

/// Alternatives that are kept to explain a decision.
const EXPLAINED: usize = 4;

pub struct Auto {
    targets: Targets,
    moves_roles: bool,
    learned: Arc<Learned>,
}

const TTFT_MS: Parameter = Parameter {
    name: "ttft_ms",
    about: "milliseconds to the first token that are to be kept; 0: as few as can be",
    default: 0.0,
    at_least: 0.0,
    below: 3_600_000.0,
    is_whole: false,
};

const TPOT_MS: Parameter = Parameter {
    name: "tpot_ms",
    about: "milliseconds per further token that are to be kept; 0: as few as can be",
    default: 0.0,
    at_least: 0.0,
    below: 60_000.0,
    is_whole: false,
};

const MOVE_ROLES: Parameter = Parameter {
    name: "move_roles",
    about: "1: engines change between prefill and decode with the traffic; 0: they keep their roles",
    default: 1.0,
    at_least: 0.0,
    below: 2.0,
    is_whole: true,
};

impl Auto {
    pub const KIND: StrategyKind = StrategyKind {
        name: "auto",
        about: "Decides for each request, by measured costs, whether and where prompt and generation are apart",
        prefill: PrefillUse::IfThere,
        parameters: &[TTFT_MS, TPOT_MS, MOVE_ROLES],
        make: |given| Arc::new(Self::new(TTFT_MS.of(given), TPOT_MS.of(given), MOVE_ROLES.of(given) != 0.0)),
    };

    /// Placements that are expected to miss a target count for less the more they miss it; 0 is no target.
    pub fn new(ttft_ms: f64, tpot_ms: f64, moves_roles: bool) -> Self {
        Self { targets: Targets { ttft_ms, tpot_ms }, moves_roles, learned: Arc::default() }
    }
}

impl Strategy for Auto {
    fn name(&self) -> &str {
        Self::KIND.name
    }

    fn parameters(&self) -> Parameters {
        let Targets { ttft_ms, tpot_ms } = self.targets;
        let given = [(TTFT_MS.name, ttft_ms), (TPOT_MS.name, tpot_ms), (MOVE_ROLES.name, self.moves_roles.into())];
        given.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        let (learned, targets) = (Arc::clone(&self.learned), self.targets);
        Box::pin(async move {
            let engines = EngineView::all(&roster, &learned);
            let task = Task::of(&request, &learned);
            let mut planned = plan(&engines, &task, &learned.hand_off_cost(), &targets).into_iter();
            let Some(best) = planned.next() else {
                return roster.serving().least_loaded()?.start_generate(request, None).await;
            };
            learned.placed(&best, &engines, roster.now());
            // Other splits between the same engines are no alternatives to look at.
            let mut seen = BTreeSet::from([best.engines()]);
            let others = planned.filter(|planned| seen.insert(planned.engines())).take(EXPLAINED);
            let alternatives = others.map(|planned| planned.forecast(&engines)).collect();
            let chosen = best.forecast(&engines);
            let explanation = Explanation { chosen, alternatives, learner: Some(learned) };
            let leg = carry_out(&best, &engines, &roster, request).await?;
            // What became something else says nothing of what was expected.
            Ok(if leg.is_fed() == best.prefill.is_some() { leg.explained(explanation) } else { leg })
        })
    }

    fn role_change(&self, roster: &Roster) -> Option<(EngineId, Role)> {
        if !self.moves_roles || !self.learned.roles_are_due(roster.now()) {
            return None;
        }
        let engines = EngineView::all(roster, &self.learned);
        // Engines that cannot hand KV to each other are of use in the roles that they were given.
        if engines.windows(2).any(|pair| !pair[0].pick.is_exact_with(&pair[1].pick)) {
            return None;
        }
        let states: Vec<_> = engines.iter().map(|view| (view.pick.role(), &view.state)).collect();
        let (engine, role) = roles::change(&states)?;
        self.learned.role_changed(roster.now());
        Some((engines[engine].pick.id(), role))
    }
}

async fn carry_out(
    planned: &Planned,
    engines: &[EngineView],
    roster: &Roster,
    request: GenerateRequest,
) -> Result<Leg, ServeError> {
    let decode = &engines[planned.decode].pick;
    match planned.prefill {
        None => decode.start_generate(request, None).await,
        Some((prefill, end)) => {
            // Requests that are placed before this one's KV is sent see that it will be.
            let _claim = engines[prefill]
                .pick
                .load
                .prefill(u64::from(end) - engines[prefill].state.cached_tokens.min(end.into()));
            let senders = roster.prefill().pairing_with(decode).preferring(engines[prefill].pick.id());
            hand_over(senders, decode, request, end).await
        }
    }
}
