use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::leg::Leg;
use crate::roster::Roster;
use crate::strategies::hand_over::hand_over;
use crate::strategies::kind::{PrefillUse, StrategyKind};
use crate::strategies::prefix_aware::LOAD_SLACK;
use crate::strategy::{Parameters, Strategy};

/// A conversation stays on the engine that holds its beginning. When that has too much to do, its KV moves to another one with the
/// next turn, which so computes nothing that was computed before (context migration of MicroServing, arXiv 2412.12488).
pub struct ContextMigration {
    load_slack: u32,
}

/// Fewer tokens than these are computed again sooner than they are handed over.
const WORTH_MOVING: u32 = 64;

impl ContextMigration {
    pub const KIND: StrategyKind = StrategyKind {
        name: "context-migration",
        about: "As prefix-aware, and what a busy engine holds of the prompt moves to the one that takes over",
        prefill: PrefillUse::Never,
        parameters: &[LOAD_SLACK],
        make: |given| Arc::new(Self::new(LOAD_SLACK.of(given) as u32)),
    };

    /// An engine may have `load_slack` sequences more than the least loaded one and still keep its conversations.
    pub fn new(load_slack: u32) -> Self {
        Self { load_slack }
    }
}

impl Strategy for ContextMigration {
    fn name(&self) -> &str {
        Self::KIND.name
    }

    fn parameters(&self) -> Parameters {
        Parameters::from([(LOAD_SLACK.name.to_owned(), self.load_slack.into())])
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        let load_slack = self.load_slack.into();
        Box::pin(async move {
            let holder = roster.serving().longest_match()?;
            let target = roster.serving().within(load_slack).longest_match()?;
            let held = holder.cached_tokens().min(request.prompt.len().saturating_sub(1) as u32);
            let holder = roster.serving().pairing_with(&target).only(holder.id());
            let saved = held.saturating_sub(target.cached_tokens());
            if holder.is_empty() || saved < WORTH_MOVING || request.needs_whole_prompt() {
                return target.start_generate(request, None).await;
            }
            hand_over(holder, &target, request, held).await
        })
    }
}
