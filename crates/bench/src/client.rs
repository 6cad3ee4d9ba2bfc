//! HTTP/1.1 to one server: connections that are kept, requests, and answers as streams of events.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::error::BenchError;
use crate::record::RequestFailure;
use crate::sse::{Chunk, Lines, error_message};
use crate::target::ServerUrl;

/// Where the key is taken from when none is given: the one of a Baton server on this machine comes first.
const API_KEYS: [&str; 2] = ["BATON_API_KEY", "OPENAI_API_KEY"];
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);
/// Answers that are no streams are small.
const MOST_ANSWER_BYTES: usize = 16 << 20;

pub(crate) struct HttpClient {
    pub(crate) target: ServerUrl,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    open: Arc<Semaphore>,
}

/// A connection that is in use. Put back when an answer was read to its end; dropping it closes it.
struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    _open: OwnedSemaphorePermit,
}

impl HttpClient {
    pub(crate) fn new(
        target: ServerUrl,
        api_key: Option<String>,
        max_connections: usize,
    ) -> Result<Arc<Self>, BenchError> {
        let from_env = |name| std::env::var(name).ok().filter(|key| !key.is_empty());
        let api_key = api_key.or_else(|| API_KEYS.into_iter().find_map(from_env));
        let header = |value: String| {
            HeaderValue::from_str(&value)
                .map_err(|_| BenchError::Usage("the API key has characters no header can hold".into()))
        };
        Ok(Arc::new(Self {
            host: header(target.authority())?,
            authorization: api_key.map(|key| header(format!("Bearer {key}"))).transpose()?,
            idle: Mutex::default(),
            open: Arc::new(Semaphore::new(max_connections)),
            target,
        }))
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Bytes, RequestFailure> {
        let mut answer = self.call(Method::GET, path, Bytes::new(), &mut None).await?;
        let body = read_all(&mut answer.body).await?;
        answer.finish(self).await;
        Ok(body)
    }

    /// `sent` is when the request was handed to its connection, also if no answer comes.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: Bytes,
        sent: &mut Option<Instant>,
    ) -> Result<StreamingReply, RequestFailure> {
        self.call(Method::POST, path, body, sent).await
    }

    /// Anything but a 2xx is a failure.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        sent: &mut Option<Instant>,
    ) -> Result<StreamingReply, RequestFailure> {
        loop {
            let (mut connection, fresh) = self.connection().await?;
            *sent = Some(Instant::now());
            let response = match connection.sender.try_send_request(self.request(&method, path, &body)?).await {
                Ok(response) => response,
                // The server closed a kept connection instead of answering, before or after it saw the request. What it does
                // with prompts may be done twice.
                Err(error) if !fresh && (error.message().is_some() || error.error().is_incomplete_message()) => {
                    continue;
                }
                Err(error) => return Err(RequestFailure::Cut(error.into_error().to_string())),
            };
            return StreamingReply::new(response, connection).await;
        }
    }

    fn request(&self, method: &Method, path: &str, body: &Bytes) -> Result<Request<Full<Bytes>>, RequestFailure> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.target.base))
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Full::new(body.clone())).map_err(|error| RequestFailure::Malformed(error.to_string()))
    }

    /// An idle one, or a new one (`true`).
    async fn connection(&self) -> Result<(HttpConnection, bool), RequestFailure> {
        let closed = |_| RequestFailure::Connect("the client is closed".into());
        let open = Arc::clone(&self.open).acquire_owned().await.map_err(closed)?;
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(sender) = idle() {
            if sender.is_ready() {
                return Ok((HttpConnection { sender, _open: open }, false));
            }
        }
        let connect = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(self.target.authority()));
        let failed = |error: &dyn std::error::Error| RequestFailure::Connect(error.to_string());
        let socket = connect.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        socket.set_nodelay(true).map_err(|error| failed(&error))?;
        let (sender, driver) = handshake(TokioIo::new(socket)).await.map_err(|error| failed(&error))?;
        // What ends a connection is seen by the request on it.
        tokio::spawn(async { drop(driver.await) });
        Ok((HttpConnection { sender, _open: open }, true))
    }
}

pub(crate) struct StreamingReply {
    body: Incoming,
    lines: Lines,
    connection: HttpConnection,
    pub(crate) is_done: bool,
}

impl StreamingReply {
    async fn new(response: Response<Incoming>, connection: HttpConnection) -> Result<Self, RequestFailure> {
        let (head, mut body) = response.into_parts();
        if head.status.is_success() {
            return Ok(Self { body, lines: Lines::default(), connection, is_done: false });
        }
        let text = read_all(&mut body).await.unwrap_or_default();
        Err(RequestFailure::Status { status: head.status.as_u16(), message: status_message(head.status, &text) })
    }

    /// `None` at the end: after `[DONE]`, which is noted, or when the server sends no more.
    pub(crate) async fn next(&mut self) -> Result<Option<Chunk<'_>>, RequestFailure> {
        while !self.lines.has_next() {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| RequestFailure::Cut(error.to_string()))?;
            if let Some(data) = frame.data_ref() {
                self.lines.feed(data)?;
            }
        }
        let chunk = self.lines.next().map_or(Ok(None), Chunk::parse)?;
        self.is_done |= chunk.is_none();
        Ok(chunk)
    }

    /// After the last event: the connection serves others.
    pub(crate) async fn finish(mut self, client: &HttpClient) {
        let rest = async {
            while let Some(Ok(_)) = self.body.frame().await {}
            self.connection.sender.ready().await
        };
        // What follows the last event is the end of the body, unless a server wants to talk for ever.
        if let Ok(Ok(())) = tokio::time::timeout(FINISH_TIMEOUT, rest).await {
            client.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.connection.sender);
        }
    }
}

async fn read_all(body: &mut Incoming) -> Result<Bytes, RequestFailure> {
    match Limited::new(body, MOST_ANSWER_BYTES).collect().await {
        Ok(all) => Ok(all.to_bytes()),
        Err(error) => Err(RequestFailure::Cut(error.to_string())),
    }
}

/// OpenAI's error shape, or the first words of whatever came instead.
fn status_message(status: StatusCode, body: &[u8]) -> String {
    let parsed = serde_json::from_slice::<serde_json::Value>(body).ok();
    let error = parsed.as_ref().map(|body| body.get("error").unwrap_or(body));
    let message = match error {
        Some(error) => error_message(error),
        None => String::from_utf8_lossy(body).trim().to_owned(),
    };
    if message.is_empty() {
        return status.canonical_reason().unwrap_or("no message").to_owned();
    }
    message.chars().take(300).collect()
}
