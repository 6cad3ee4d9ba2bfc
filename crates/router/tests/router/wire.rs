//! What wired engines are scripted to do, and the wire between them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use baton_core::ServeError;
use tokio::sync::watch;

pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;

/// What an engine does on `prep_recv`.
#[derive(Clone, Debug)]
pub(crate) enum OnPrepRecv {
    Fail(ServeError),
    Die,
    Hang,
}

/// What an engine does on `remote_send`. All takes 10 ms.
#[derive(Clone, Debug)]
pub(crate) enum OnRemoteSend {
    /// Only this many tokens arrive intact.
    Damage {
        verified: u32,
    },
    Fail(ServeError),
    Die,
    Hang,
}

/// What an engine does when a request starts on it.
#[derive(Clone, Debug)]
pub(crate) enum OnGenerate {
    Refuse(ServeError),
    /// While it waits for KV, or computes the prompt.
    DieBeforePrompt,
    FailAfter(u32, ServeError),
    DieAfter(u32),
}

#[derive(Default)]
pub(crate) struct Script {
    pub(crate) prep_recv: VecDeque<OnPrepRecv>,
    pub(crate) remote_send: VecDeque<OnRemoteSend>,
    pub(crate) generate: VecDeque<OnGenerate>,
}

/// What arrived for one reservation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Landing {
    pub(crate) verified: u32,
    pub(crate) no_more: bool,
}

/// Where targets lead to: all engines of a test share it.
#[derive(Default)]
pub(crate) struct Wire(Mutex<Vec<watch::Sender<Landing>>>);

impl Wire {
    pub(crate) fn open(&self) -> usize {
        let mut landings = self.0.lock().unwrap();
        landings.push(watch::Sender::default());
        landings.len() - 1
    }

    pub(crate) fn landing(&self, target: usize) -> watch::Sender<Landing> {
        self.0.lock().unwrap()[target].clone()
    }
}
