//! A whole deployment without bytes, sockets and threads, under virtual time: the real router, engine core, scheduler, KV
//! ledger and session protocol, with a seeded network, seeded faults, and a model whose tokens depend on every KV entry it
//! reads. A seed arrives; totals leave, or the first broken rule with the events before it.
//!
//! ```text
//!   clients ─▶ Dispatcher, strategies, token log ─▶ Session (Caller) ═ Wire ═▶ Process: Stepper, Scheduler, PageLedger
//!   scripts ─▶ the three calls ─────────────────▶      in order, or broken      │ HandOff      │ Backend
//!                                                                                ▼ Fabric ═ Link ═▶ other processes
//!                                                                                  offers, fences    Memory: KV as hashes
//! ```
//! One thread runs everything: tasks in an order that the seed draws, then the next event of the clock. So a seed replays a
//! run exactly. Rules are not copied from production code: that code runs. Only the fabric is a model of `crates/fabric`,
//! message by message.
//!
//! **Mutations** break one rule each, at a port that the simulation implements anyway (the session's commands and replies, the
//! hand-off port), so production code carries no hooks for them; tests demand that the named checker notices.

mod arrivals;
mod backend;
mod cache_checker;
mod changes;
mod client;
mod client_requests;
mod clock;
mod connection;
mod event;
mod event_log;
mod executor;
mod fabric;
mod faults;
mod hang_checker;
mod hang_scenario;
mod hangs;
mod ids;
mod lifecycle;
mod log_entry;
mod memory;
mod model;
mod mutation;
mod peer;
mod process;
mod progress;
mod random;
mod request_draw;
mod run;
mod scenario;
mod script;
mod session;
mod stall;
mod stream_checker;
mod totals;
mod wire;
mod world;

pub use client_requests::ClientCounts;
pub use event_log::{Checker, Violation};
pub use fabric::TransferCounts;
pub use mutation::Mutation;
pub use run::{Failure, Outcome, Run};
pub use totals::{HangCounts, Totals};
