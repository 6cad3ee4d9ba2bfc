//! Who follows what an engine's prefix cache holds.

use std::sync::Arc;

use baton_core::CacheUpdate;

/// Gets an engine's cache events, in the order in which they arrive; see
/// [`Engine::follow_cache`](crate::Engine::follow_cache).
pub trait CacheFollower: Send + Sync {
    /// Called by the task that reads the session, before streams get the events of the same reply: it must not wait.
    /// A follower that misses events may call `follow_cache` again from here.
    fn cache_changed(self: Arc<Self>, update: CacheUpdate);
}
