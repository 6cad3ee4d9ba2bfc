//! What a way of serving is: a function from a request and the engines that are ready to one attempt under way.

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::leg::Leg;
use crate::roster::Roster;

/// Sees engines only through the roster. Failures of an attempt are errors, at once or on its leg: the caller takes
/// care of the next attempt.
pub trait Strategy: Send + Sync {
    fn name(&self) -> &'static str;

    /// Starts one attempt at `request` on engines of the roster, which is never empty.
    fn route<'a>(&'a self, roster: &'a Roster, request: GenerateRequest) -> BoxFuture<'a, Result<Leg, ServeError>>;
}
