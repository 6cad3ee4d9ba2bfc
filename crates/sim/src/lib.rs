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
mod book;
mod client;
mod clock;
mod connections;
mod executor;
mod fabric;
mod faults;
mod hang_checker;
mod hangs;
mod happening;
mod journal;
mod lifecycle;
mod machine;
mod memory;
mod model;
mod mutation;
mod random;
mod requests;
mod router;
mod run;
mod script;
mod session;
mod stall;
mod stream;
mod totals;
mod weather;
mod wire;
mod world;

pub use book::ClientCounts;
pub use fabric::TransferCounts;
pub use journal::{Checker, Violation};
pub use mutation::Mutation;
pub use run::{Failure, Outcome, Run};
pub use totals::{HangCounts, Totals};
