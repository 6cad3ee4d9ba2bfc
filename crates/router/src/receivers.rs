//! Which engines have reserved room for KV in one attempt: a call that sends to an engine ends when that shows no sign of
//! life, whoever waits for it.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_protocol::Destination;
use tokio::sync::watch;

use crate::engine::EngineId;
use crate::liveness::{Liveness, until_hung};

/// Shared by the picks of one roster.
#[derive(Clone, Default)]
pub(crate) struct Receivers(Arc<Mutex<Vec<Receiver>>>);

#[derive(Clone)]
struct Receiver {
    target: Arc<[u8]>,
    engine: EngineId,
    liveness: watch::Receiver<Liveness>,
}

impl Receivers {
    pub(crate) fn add(&self, to: &Destination, engine: EngineId, liveness: watch::Receiver<Liveness>) {
        self.lock().push(Receiver { target: Arc::clone(&to.target), engine, liveness });
    }

    /// Waits until the engine behind `to` shows no sign of life, and returns which it is.
    pub(crate) fn hung(&self, to: &Destination) -> impl Future<Output = EngineId> + Send + 'static {
        let receiver = self.lock().iter().find(|receiver| receiver.target == to.target).cloned();
        async {
            let Some(Receiver { engine, liveness, .. }) = receiver else { return pending().await };
            until_hung(liveness).await;
            engine
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Receiver>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
