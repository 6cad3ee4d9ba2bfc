use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::leg::Leg;
use crate::roster::Roster;
use crate::strategy::Strategy;

/// The engine that holds most of the prompt in its prefix cache, among those that have little more to do than the least
/// loaded. A hot prefix so spreads to as many engines as its load needs (Preble, arXiv 2407.00023; SGLang's router).
pub struct PrefixAware {
    load_slack: u32,
}

impl PrefixAware {
    pub const DEFAULT_LOAD_SLACK: u32 = 8;

    /// An engine may have `load_slack` sequences more than the least loaded one and still be chosen for what it holds.
    pub fn new(load_slack: u32) -> Self {
        Self { load_slack }
    }
}

impl Strategy for PrefixAware {
    fn name(&self) -> &str {
        "prefix-aware"
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        let load_slack = self.load_slack.into();
        Box::pin(async move {
            let engine = roster.serving().within(load_slack).longest_match()?;
            engine.start_generate(request, None).await
        })
    }
}
