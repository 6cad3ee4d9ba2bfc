//! The HTTP server of a mock: reads request bodies, sends whole or streamed responses.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

use super::engine::DialectEngine;
use super::error::ErrorResponse;
use super::stream::ResponseStream;

/// The gateway's default.
const MAX_BODY_BYTES: usize = 32 << 20;
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// Serves connections until the future is dropped.
pub(super) async fn serve<A, F>(listener: TcpListener, engine: Arc<DialectEngine>, answer: A)
where
    A: Fn(Arc<DialectEngine>, Request<Incoming>) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = Response<Reply>> + Send,
{
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        // Each token is sent at once. Without this option tokens would be late, not lost.
        let _ = socket.set_nodelay(true);
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answered = answer(Arc::clone(&engine), request);
                async { Ok::<_, Infallible>(answered.await) }
            });
            if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
}

pub(super) async fn read(mut body: Incoming, engine: &DialectEngine) -> Result<Vec<u8>, ErrorResponse> {
    let mut bytes = Vec::with_capacity(body.size_hint().lower().min(MAX_BODY_BYTES as u64) as usize);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let data = frame
            .map_err(|error| ErrorResponse::bad(engine, format!("the connection ended inside the body: {error}")))?
            .into_data();
        bytes.extend_from_slice(&data.unwrap_or_default());
        if bytes.len() > MAX_BODY_BYTES {
            return Err(ErrorResponse::new(engine, StatusCode::PAYLOAD_TOO_LARGE, "the body is too large".to_owned()));
        }
    }
    Ok(bytes)
}

/// A response body: known in full, or streamed token by token.
pub(super) enum Reply {
    Whole(Option<Bytes>),
    Tokens(Box<ResponseStream>),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Tokens(tokens) => tokens.poll_next(context).map(|event| event.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Tokens(_) => SizeHint::default(),
        }
    }
}

pub(super) fn whole(content_type: &'static str, bytes: impl Into<Bytes>) -> Response<Reply> {
    let mut response = Response::new(Reply::Whole(Some(bytes.into())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(super) fn json(value: &Value) -> Response<Reply> {
    whole("application/json", value.to_string())
}

/// Responds with an event stream, or with one JSON document after the last token.
pub(super) async fn tokens(mut tokens: ResponseStream, stream: bool) -> Result<Response<Reply>, ErrorResponse> {
    if stream {
        return Ok(events(tokens));
    }
    tokens.generate_all().await?;
    Ok(whole("application/json", tokens.document(None)))
}

pub(super) fn events(tokens: ResponseStream) -> Response<Reply> {
    let mut response = Response::new(Reply::Tokens(Box::new(tokens)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    response
}

pub(super) fn error(error: ErrorResponse) -> Response<Reply> {
    let mut response = json(&error.body);
    *response.status_mut() = error.status;
    response
}
