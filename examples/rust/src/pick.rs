//! How these strategies choose among engines.

use baton_core::ServeError;
use baton_router::{Candidates, Pick};

/// The engine with the least of something.
pub(crate) fn fewest<K: Ord>(engines: &Candidates, of: impl Fn(&Pick) -> K) -> Result<Pick, ServeError> {
    let engine = engines.iter().min_by_key(|engine| of(engine));
    engine.cloned().ok_or_else(|| ServeError::engine("no such engine is ready"))
}
