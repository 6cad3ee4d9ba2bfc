use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::leg::Leg;
use crate::roster::Roster;
use crate::strategies::kind::{Parameter, PrefillUse, StrategyKind};
use crate::strategy::{Parameters, Strategy};

/// The engine that holds most of the prompt in its prefix cache, among those that have little more to do than the least
/// loaded. A hot prefix so spreads to as many engines as its load needs (Preble, arXiv 2407.00023; SGLang's router).
pub struct PrefixAware {
    load_slack: u32,
}

pub(super) const LOAD_SLACK: Parameter = Parameter {
    name: "load_slack",
    about: "sequences that an engine may have more than the least loaded one",
    default: 8.0,
    at_least: 0.0,
    below: 65536.0,
    is_whole: true,
};

impl PrefixAware {
    pub const KIND: StrategyKind = StrategyKind {
        name: "prefix-aware",
        about: "The engine that holds most of the prompt in its prefix cache, within a bound on its load",
        prefill: PrefillUse::Never,
        parameters: &[LOAD_SLACK],
        make: |given| Arc::new(Self::new(LOAD_SLACK.of(given) as u32)),
    };

    /// An engine may have `load_slack` sequences more than the least loaded one and still be chosen for what it holds.
    pub fn new(load_slack: u32) -> Self {
        Self { load_slack }
    }
}

impl Strategy for PrefixAware {
    fn name(&self) -> &str {
        Self::KIND.name
    }

    fn parameters(&self) -> Parameters {
        Parameters::from([(LOAD_SLACK.name.to_owned(), self.load_slack.into())])
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        let load_slack = self.load_slack.into();
        Box::pin(async move {
            let engine = roster.serving().within(load_slack).longest_match()?;
            engine.start_generate(request, None).await
        })
    }
}
