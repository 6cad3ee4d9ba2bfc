//! How routers talk to engines. Commands arrive from a router; step replies with token events leave for it.
//!
//! [`Engine`] is the seam. [`SessionClient`] is an engine at the other end of a TCP connection, [`serve_sessions`] the
//! listening side of it: one connection per router and engine, all requests on it, one frame per step, and a [`Heartbeat`]
//! at regular times. The end of the connection is the end of its requests, on both sides. A [`HostedEngine`] is one in this
//! process, for callers without a session.

mod cache;
mod caller;
mod client;
mod command;
mod engine;
mod error;
mod frame;
mod handshake;
mod heartbeat;
mod host;
mod hosted;
mod keepalive;
mod message;
mod open_requests;
mod outbox;
mod reservation;
mod secret;
mod server;
mod token_stream;

pub use cache::CacheFollower;
pub use caller::{Caller, CommandSink};
pub use client::SessionClient;
pub use command::{Command, PrepRecv, RemoteSend, StepReply};
pub use engine::Engine;
pub use error::{FrameError, SessionError};
pub use frame::FIRST_BYTE;
pub use heartbeat::{HEARTBEAT_INTERVAL, Heartbeat, Heartbeats};
pub use host::{SessionHost, SessionId};
pub use hosted::HostedEngine;
pub use open_requests::OpenRequests;
pub use reservation::{Destination, Reservation, Sent};
pub use secret::Secret;
pub use server::{serve_session, serve_sessions};
pub use token_stream::TokenStream;
