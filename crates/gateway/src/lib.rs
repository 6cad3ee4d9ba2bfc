//! The HTTP API. HTTP requests in OpenAI's shape arrive from clients; what leaves is JSON or a stream of server-sent
//! events. In between a request is parsed, checked, rendered, tokenized and handed to the router as token ids, and the
//! tokens that come back become text again.
//!
//! ```text
//!   serve → connections → connection → routes → auth → body → json → fields → completions | chat (request → prompt)
//!                 answer (JSON | SSE) ← choice ← prompt_run ← generation ←┘
//! ```
//!
//! `admin` changes the router while it serves. `microserving` puts the same in front of a single engine, beside the calls that routers make. This crate is the only
//! place where an error has a status code.

mod admin;
mod answer;
mod auth;
mod body;
mod budget;
mod card;
mod chat;
mod choice;
mod completions;
mod connection;
mod connections;
mod decisions;
mod error;
mod fallbacks;
mod fields;
mod gateway;
mod generation;
mod json;
mod membership;
mod metrics;
mod microserving;
mod params;
mod preemptions;
mod prompt;
mod prompt_run;
mod routes;
mod serve;
mod service;
mod sse;
mod timings;
mod tokenize;
mod usage;
mod warn_limit;

pub use auth::ApiKey;
pub use card::{ModelCard, SamplingDefaults};
pub use gateway::{Gateway, GatewayConfig};
pub use membership::{Admin, Membership};
pub use microserving::{EngineFace, LazyCard, serve_engine};
pub use routes::router;
pub use serve::serve;
