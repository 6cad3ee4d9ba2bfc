//! What a way of serving is: a function from a request and the engines that are ready to one attempt under way.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::engine::{EngineId, Role};
use crate::leg::Leg;
use crate::roster::Roster;

/// Of a strategy, by name.
pub type Parameters = BTreeMap<String, f64>;

/// Sees engines only through the roster. Failures of an attempt are errors, at once or on its leg: the caller takes
/// care of the next attempt.
pub trait Strategy: Send + Sync {
    fn name(&self) -> &str;

    /// What it was made with.
    fn parameters(&self) -> Parameters {
        Parameters::new()
    }

    /// Starts one attempt at `request` on engines of the roster, which is never empty. The strategy may be replaced while
    /// the attempt is under way.
    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>>;

    /// An engine that should have another role from now on. Called after each request that was routed, so it must be quick.
    fn role_change(&self, _roster: &Roster) -> Option<(EngineId, Role)> {
        None
    }
}

/// A strategy that is a function.
pub fn from_fn<F, R>(name: &'static str, route: F) -> impl Strategy
where
    F: Fn(Arc<Roster>, GenerateRequest) -> R + Send + Sync,
    R: Future<Output = Result<Leg, ServeError>> + Send + 'static,
{
    FromFn { name, route }
}

struct FromFn<F> {
    name: &'static str,
    route: F,
}

impl<F, R> Strategy for FromFn<F>
where
    F: Fn(Arc<Roster>, GenerateRequest) -> R + Send + Sync,
    R: Future<Output = Result<Leg, ServeError>> + Send + 'static,
{
    fn name(&self) -> &str {
        self.name
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        Box::pin((self.route)(roster, request))
    }
}

/// The strategy in use. An attempt takes the one that is there when it begins.
pub(crate) struct StrategySwitch(RwLock<Arc<dyn Strategy>>);

impl StrategySwitch {
    pub(crate) fn new(strategy: Arc<dyn Strategy>) -> Self {
        Self(RwLock::new(strategy))
    }

    pub(crate) fn current(&self) -> Arc<dyn Strategy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, strategy: Arc<dyn Strategy>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = strategy;
    }
}
