//! What stands behind a listening engine: the side of [`serve_sessions`](crate::serve_sessions) that does the work.

use baton_core::{EngineInfo, ServeError};
use tokio::sync::mpsc;

use crate::{Command, Heartbeat, StepReply};

/// One router's connection, as the engine behind it knows it. Never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// An engine as sessions see it. None of these block: commands are queued for the step loop, replies come by the outbox.
pub trait SessionHost: Send + Sync + 'static {
    fn info(&self) -> EngineInfo;

    /// Replies for the new session go to `outbox`; dropping it reports to the router that the engine has ended.
    fn open(&self, outbox: mpsc::UnboundedSender<StepReply>) -> SessionId;

    /// A refusal ends the command's request; the session goes on.
    fn send(&self, session: SessionId, command: Command) -> Result<(), ServeError>;

    /// How it is now. Called by a task of the session, so it must not wait for the step loop.
    fn heartbeat(&self) -> Heartbeat;

    /// Aborts all that belonged to the session.
    fn close(&self, session: SessionId);
}
