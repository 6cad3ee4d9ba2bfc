//! The face of engines: real engines, real sockets, and callers that do what they like.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
#[allow(dead_code, reason = "shared with the tests of the gateway")]
#[path = "../gateway/client.rs"]
mod client;
#[cfg(test)]
mod engines;
#[cfg(test)]
mod listener;
#[cfg(test)]
mod names;
#[cfg(test)]
mod three_calls;
