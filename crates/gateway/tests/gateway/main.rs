//! The gateway over real sockets and the real router, with an engine whose every event a test decides.

#[cfg(test)]
mod admin;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod api_key;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod client;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod hang_up;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod server;
#[cfg(test)]
mod service;
#[cfg(test)]
mod streams;
