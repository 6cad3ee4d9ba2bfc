//! Bytes from the network to the fields of a JSON object.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::gateway::Gateway;

/// For the whole body: a client that trickles holds a place among the open requests.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How much is read, and thrown away, beyond what is wanted. Most clients look for an answer only after they have sent
/// everything; beyond this the connection is closed on them.
const DRAIN_BYTES: usize = 128 << 20;

/// A place among the open requests comes first: it bounds how many bodies are held.
pub(crate) async fn admit(gateway: &Gateway, body: Body) -> Result<(OwnedSemaphorePermit, Fields), ApiError> {
    let max_bytes = gateway.config.max_body_bytes;
    match gateway.admit() {
        Ok(permit) => Ok((permit, read_fields(body, max_bytes).await?)),
        Err(busy) => {
            discard(body).await;
            Err(busy)
        }
    }
}

/// Reads what comes, so that the client gets to see why it is refused.
pub(crate) async fn discard(body: Body) {
    let _ = tokio::time::timeout(READ_TIMEOUT, read_up_to(body, 0)).await;
}

/// Any content type will do.
async fn read_fields(body: Body, max_bytes: usize) -> Result<Fields, ApiError> {
    let bytes = tokio::time::timeout(READ_TIMEOUT, read_up_to(body, max_bytes)).await.map_err(|_| {
        let message = format!("the body did not arrive within {} s", READ_TIMEOUT.as_secs());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, message)
    })??;
    parse(&bytes)
}

async fn read_up_to(body: Body, max_bytes: usize) -> Result<Vec<u8>, ApiError> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut seen = 0_usize;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk
            .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, format!("the body could not be read: {error}")))?;
        seen = seen.saturating_add(chunk.len());
        if seen <= max_bytes {
            bytes.extend_from_slice(&chunk);
        } else {
            bytes = Vec::new();
        }
        if seen > max_bytes.saturating_add(DRAIN_BYTES) {
            break;
        }
    }
    if seen > max_bytes {
        let message = format!("the body is larger than {max_bytes} bytes");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Result<Fields, ApiError> {
    let wrong = |message: String| ApiError::new(StatusCode::BAD_REQUEST, message);
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(Fields::new(fields)),
        Ok(_) => Err(wrong("the body must be a JSON object".to_owned())),
        Err(error) => Err(wrong(format!("the body is not valid JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_are_bounded_objects() {
        let large = vec![b' '; 300];
        let table: [(&[u8], u16, &str); 8] = [
            (b"", 400, "not valid JSON"),
            (b"{not", 400, "not valid JSON"),
            (b"[1]", 400, "JSON object"),
            (b"{\"a\": NaN}", 400, "not valid JSON"),
            (b"{\"a\": 1e999}", 400, "out of range"),
            (b"{\"a\": \"\xff\"}", 400, "not valid JSON"),
            (b"{\"a\": \"\\ud800\"}", 400, "not valid JSON"),
            (&large, 413, "100 bytes"),
        ];
        for (body, status, message) in table {
            let error = read_fields(Body::from(body.to_vec()), 100).await.err().unwrap();
            assert!(error.status.as_u16() == status && error.message.contains(message), "{error:?}");
        }
        assert!(read_fields(Body::from(r#"{"a": 1}"#), 100).await.is_ok());
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow() {
        let error = parse("[".repeat(100_000).as_bytes()).err().unwrap();
        assert!(error.message.contains("recursion limit"), "{error:?}");
    }
}
