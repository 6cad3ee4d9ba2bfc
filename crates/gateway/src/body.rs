//! Bytes from the network to the fields of a JSON object.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::http::StatusCode;
use futures_util::StreamExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::budget::{Phase, Share};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::gateway::Gateway;
use crate::json::Json;

/// For the whole body: a client that trickles holds a place among the open requests.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How much, and for how long, is read and thrown away after a refusal. Most clients look for an answer only after they
/// have sent everything, and lose it when the connection is closed on them before.
const DRAIN_BYTES: usize = 128 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// The most memory that a byte of a body can take until its prompts are token ids: the byte itself, its text, and what
/// template and tokenizer make of that. `tests/test_robust.py` measures it.
pub(crate) const BYTES_PER_BODY_BYTE: usize = 8;
const SMALL_BODY_BYTES: usize = 32 << 10;

/// A request that has been read, a place among the open requests, and a share of the memory for bodies.
pub(crate) struct Received {
    permit: OwnedSemaphorePermit,
    text: String,
    share: Share,
}

/// A place among the open requests comes first: it bounds how many bodies there are.
pub(crate) async fn admit(gateway: &Gateway, body: Body) -> Result<Received, ApiError> {
    let permit = match gateway.admit() {
        Ok(permit) => permit,
        Err(busy) => {
            discard(body).await;
            return Err(busy);
        }
    };
    let read = read(body, gateway.bodies.share(), gateway.max_body_bytes());
    let (text, share) = timeout(READ_TIMEOUT, read).await.map_err(|_| late())??;
    Ok(Received { permit, text, share })
}

/// A small body, without a place among the open requests: a router can be changed also when all of them are taken.
pub(crate) async fn read_small(gateway: &Gateway, body: Body) -> Result<String, ApiError> {
    let read = read(body, gateway.bodies.share(), SMALL_BODY_BYTES.min(gateway.max_body_bytes()));
    Ok(timeout(READ_TIMEOUT, read).await.map_err(|_| late())??.0)
}

impl Received {
    /// Any content type will do.
    pub(crate) fn fields(&self) -> Result<Fields<'_>, ApiError> {
        parse(&self.text)
    }

    /// For when nothing of the body is needed any more: its memory is given back, the place is kept.
    pub(crate) fn into_permit(self) -> OwnedSemaphorePermit {
        self.permit
    }

    /// For answers that are as large as the body.
    pub(crate) fn into_parts(self) -> (OwnedSemaphorePermit, Share) {
        (self.permit, self.share)
    }
}

/// Answers can go out at once: what still arrives is read in the background.
pub(crate) async fn discard(body: Body) {
    drain(body.into_data_stream());
}

async fn read(body: Body, mut share: Share, max_bytes: usize) -> Result<(String, Share), ApiError> {
    let too_large = || {
        let message = format!("the body is larger than {max_bytes} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let announced = body.size_hint().lower();
    let mut chunks = body.into_data_stream();
    if announced > max_bytes as u64 {
        drain(chunks);
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| bad_request(format!("the body could not be read: {error}")))?;
        let size = bytes.len() + chunk.len();
        let room = if size > max_bytes { Err(too_large()) } else { share.grow_to(size, Phase::Reading).await };
        if let Err(refused) = room {
            drain(chunks);
            return Err(refused);
        }
        bytes.extend_from_slice(&chunk);
    }
    share.grow_to(bytes.len() * BYTES_PER_BODY_BYTE, Phase::Parsing).await?;
    let text = String::from_utf8(bytes).map_err(|error| bad_request(format!("the body is not valid JSON: {error}")))?;
    Ok((text, share))
}

fn late() -> ApiError {
    let message = format!("the body did not arrive within {} s", READ_TIMEOUT.as_secs());
    ApiError::new(StatusCode::REQUEST_TIMEOUT, message)
}

fn drain(mut chunks: BodyDataStream) {
    let drained = async move {
        let mut left = DRAIN_BYTES;
        while let Some(Ok(chunk)) = chunks.next().await
            && chunk.len() <= left
        {
            left -= chunk.len();
        }
    };
    tokio::spawn(timeout(DRAIN_TIMEOUT, drained));
}

pub(crate) fn parse(text: &str) -> Result<Fields<'_>, ApiError> {
    let json = Json::parse(text).map_err(|error| bad_request(format!("the body is not valid JSON: {error}")))?;
    if !json.is_object() {
        return Err(bad_request("the body must be a JSON object".to_owned()));
    }
    Fields::of(json).map_err(|mismatch| bad_request(mismatch.to_string()))
}

fn bad_request(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::BodyBudget;

    async fn refusal(body: Body) -> ApiError {
        let share = BodyBudget::new(1 << 20).share();
        match read(body, share, 100).await {
            Ok((text, _)) => parse(&text).err().unwrap(),
            Err(error) => error,
        }
    }

    #[tokio::test]
    async fn bodies_are_bounded_objects() {
        let large = vec![b' '; 300];
        let table: [(&[u8], u16, &str); 7] = [
            (b"", 400, "not valid JSON"),
            (b"{not", 400, "not valid JSON"),
            (b"[1]", 400, "JSON object"),
            (b"{\"a\": NaN}", 400, "not valid JSON"),
            (b"{\"a\": \"\xff\"}", 400, "not valid JSON"),
            (b"{\"a\": 1} {}", 400, "not valid JSON"),
            (&large, 413, "100 bytes"),
        ];
        for (body, status, message) in table {
            let error = refusal(Body::from(body.to_vec())).await;
            assert!(error.status.as_u16() == status && error.message.contains(message), "{error:?}");
        }
        assert!(parse(r#"{"a": 1}"#).is_ok());
    }

    #[tokio::test]
    async fn the_limit_counts_what_arrives() {
        let chunks = std::iter::repeat_with(|| Ok::<_, std::io::Error>("x".repeat(60)));
        let error = refusal(Body::from_stream(futures_util::stream::iter(chunks))).await;
        assert_eq!(error.status.as_u16(), 413);
    }

    #[tokio::test]
    async fn a_length_beyond_the_limit_is_refused_before_anything_arrives() {
        struct Announced;
        impl axum::body::HttpBody for Announced {
            type Data = axum::body::Bytes;
            type Error = std::io::Error;

            fn poll_frame(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
                std::task::Poll::Pending
            }

            fn size_hint(&self) -> hyper::body::SizeHint {
                hyper::body::SizeHint::with_exact(101)
            }
        }
        assert_eq!(refusal(Body::new(Announced)).await.status.as_u16(), 413);
    }

    #[test]
    fn unknown_fields_may_be_anything_that_is_json() {
        let deep = format!(r#"{{"zz": {}{}, "a": 1}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&deep).unwrap().has("a"));
        assert!(parse(&"[".repeat(100_000)).is_err());
    }
}
