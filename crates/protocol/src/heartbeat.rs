//! What an engine reports of itself at regular times, whatever its step loop does: that its process lives, and whether its work
//! moves.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::frame::Kind;
use crate::message::Message;

/// Of heartbeats on a session. Far below the time after which a router holds an engine for hung.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The step loop is awake, in a step or between two: `progress` has to change.
    pub working: bool,
    /// Another number after every piece of a step and every turn of the step loop. Backends count layers at least.
    pub progress: u64,
    /// The longest that `progress` has stayed the same in the middle of work and changed again.
    pub slowest_layer: Duration,
}

/// What a router has received from an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeats {
    pub received: u64,
    pub newest: Heartbeat,
}

impl Message for Heartbeat {
    const KIND: Kind = Kind::Heartbeat;
}

impl Heartbeats {
    pub(crate) fn receive(&mut self, heartbeat: Heartbeat) {
        *self = Self { received: self.received + 1, newest: heartbeat };
    }
}
