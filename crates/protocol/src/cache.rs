//! Who follows what an engine's prefix cache holds.

use baton_core::CacheUpdate;

/// Gets an engine's cache events, in the order in which they arrive; see
/// [`Engine::follow_cache`](crate::Engine::follow_cache).
pub trait CacheFollower: Send + Sync {
    /// Called by the task that reads the session, before streams get the events of the same reply: it must not wait.
    fn cache_changed(&self, update: CacheUpdate);
}
