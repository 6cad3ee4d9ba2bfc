//! What an engine is to the router: its id, its role, and what people see of it.

use std::str::FromStr;

use baton_core::{EngineInfo, EngineReport};

use crate::load::InFlight;

/// An engine's place in the fleet: the same over restarts, and never used for another engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineId(pub usize);

/// What an engine is used for. Every engine can do both; a role can change at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Mixed,
    Prefill,
    Decode,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Prefill, Self::Decode, Self::Mixed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|role| role.name() == text);
        known.ok_or_else(|| format!("{text:?} is not a role; roles are prefill, decode and mixed"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// Not ready yet; its process may still be loading.
    Starting,
    /// Can be sent requests.
    Ready,
    /// Shows no sign of life.
    Hung,
    Down,
    /// Gets no more requests, and leaves the fleet when those it has have ended.
    Leaving,
}

impl EngineState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Hung => "hung",
            Self::Down => "down",
            Self::Leaving => "leaving",
        }
    }
}

/// One engine, for metrics and people.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineStatus {
    pub id: EngineId,
    pub name: String,
    pub role: Role,
    pub state: EngineState,
    /// `None` until it has been ready once.
    pub info: Option<EngineInfo>,
    pub report: EngineReport,
    /// Of this router; others may use the engine too.
    pub in_flight: InFlight,
    pub restarts: u64,
    /// Times it stopped showing signs of life.
    pub hangs: u64,
}

impl EngineStatus {
    pub fn is_ready(&self) -> bool {
        self.state == EngineState::Ready
    }
}
