//! Server-sent events, byte by byte.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::Stream;
use serde::Serialize;

pub(crate) const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// JSON has no line breaks of its own, so one `data:` line holds it.
pub(crate) fn event(data: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    let mut bytes = b"data: ".to_vec();
    serde_json::to_writer(&mut bytes, data)?;
    bytes.extend_from_slice(b"\n\n");
    Ok(bytes.into())
}

pub(crate) fn response(events: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies such as nginx would collect events otherwise.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_is_one_line() {
        assert_eq!(event(&["a\nb"]).unwrap(), "data: [\"a\\nb\"]\n\n");
    }
}
