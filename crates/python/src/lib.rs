//! Baton as a Python module: deployments, and routers written in Python. Read the files in this order: `command` is the binary;
//! `deployment` starts what the binary would; `strategy` brings each request to a router as an `attempt`, which composes
//! the calls of `engines` and ends with the leg of `leg`. Rust and Python meet in `event_loop`.
//!
//! ```text
//!   Dispatcher ─▶ PythonStrategy ─▶ Attempt ═══▶ route(request, fleet)      ═══ crosses to Python's event loop
//!                        ▲                            │ prep_recv, remote_send, start_generate
//!                        └───────── Leg ◀═════════════┘
//! ```

mod attempt;
mod command;
mod deployment;
mod engines;
mod error;
mod event_loop;
mod interrupt;
mod leg;
mod request;
mod strategy;
mod tokenizer;

use pyo3::pymodule;

/// The native part of the package `baton`.
#[pymodule]
mod _baton {
    #[pymodule_export]
    use crate::attempt::{Attempt, Fleet};
    #[pymodule_export]
    use crate::command::{embed, main, warn};
    #[pymodule_export]
    use crate::deployment::Deployment;
    #[pymodule_export]
    use crate::engines::{Engine, Engines, Reservation, Sending};
    #[pymodule_export]
    use crate::event_loop::EventLoop;
    #[pymodule_export]
    use crate::leg::{Chunk, Leg, Reader};
    #[pymodule_export]
    use crate::request::Request;
    #[pymodule_export]
    use crate::tokenizer::Tokenizer;
}
