use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::leg::Leg;
use crate::roster::Roster;
use crate::strategies::kind::{PrefillUse, StrategyKind};
use crate::strategies::prefix_aware::LOAD_SLACK;
use crate::strategy::{Parameters, Strategy};

/// Requests with one affinity key go to one engine for as long as that is there and has little more to do than the least
/// loaded; then to the key's next one (rendezvous hashing with bounded loads, arXiv 1608.01350). Those without a key go to the
/// least loaded engine. Routers that share engines agree without a word.
pub struct SessionAffinity {
    load_slack: u32,
}

impl SessionAffinity {
    pub const KIND: StrategyKind = StrategyKind {
        name: "session-affinity",
        about: "One engine for all requests of a user or conversation, within a bound on its load",
        prefill: PrefillUse::Never,
        parameters: &[LOAD_SLACK],
        make: |given| Arc::new(Self::new(LOAD_SLACK.of(given) as u32)),
    };

    /// An engine may have `load_slack` sequences more than the least loaded one and still keep its keys.
    pub fn new(load_slack: u32) -> Self {
        Self { load_slack }
    }
}

impl Strategy for SessionAffinity {
    fn name(&self) -> &str {
        Self::KIND.name
    }

    fn parameters(&self) -> Parameters {
        Parameters::from([(LOAD_SLACK.name.to_owned(), self.load_slack.into())])
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        let load_slack = self.load_slack.into();
        Box::pin(async move {
            let engines = roster.serving().within(load_slack);
            let engine = match request.affinity {
                Some(key) => engines.home_of(key)?,
                None => engines.least_loaded()?,
            };
            engine.start_generate(request, None).await
        })
    }
}
