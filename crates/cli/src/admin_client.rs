//! One call at a time to a gateway's routes for administration.

use std::time::Duration;

use baton_protocol::Secret;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::Agent;
use ureq::http::{Method, Request};

use crate::failure::Failure;

/// An engine that joins may be looked for, and has to generate a token.
const TIMEOUT: Duration = Duration::from_secs(180);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct AdminClient {
    agent: Agent,
    url: String,
    authorization: String,
}

/// OpenAI's shape.
#[derive(Deserialize)]
struct Refused {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    message: String,
}

impl AdminClient {
    pub(crate) fn new(url: &str, secret: &Secret) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // The secret is for the router alone.
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(TIMEOUT));
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        Self {
            agent: config.build().into(),
            url: url.trim_end_matches('/').trim_end_matches("/v1").to_owned(),
            authorization: format!("Bearer {}", secret.reveal()),
        }
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::GET, path, None)
    }

    pub(crate) fn put<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        self.call(Method::PUT, path, Some(body))
    }

    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        self.call(Method::POST, path, Some(body))
    }

    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::DELETE, path, None)
    }

    fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<&Value>) -> Result<T, Failure> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        let request = request.header("authorization", &self.authorization);
        let request = request.header("content-type", "application/json");
        let wrong = |error: ureq::http::Error| Failure::user(format!("{:?} is not a URL: {error}", self.url));
        let unreachable = |error: ureq::Error| {
            let failure = Failure::ours(format!("no answer from {}: {error}", self.url));
            failure.hint("is it running? --url names another")
        };
        let answer = match body {
            Some(body) => self.agent.run(request.body(body.to_string()).map_err(wrong)?),
            None => self.agent.run(request.body(()).map_err(wrong)?),
        };
        let mut answer = answer.map_err(unreachable)?;
        let status = answer.status();
        let text = answer.body_mut().read_to_string().map_err(unreachable)?;
        let no_router = || {
            let failure = Failure::user(format!("{} answers {status}, and not as a router does", self.url));
            failure.hint("is it the gateway of `baton serve` or `baton router`, of this version?")
        };
        if status.is_success() {
            return serde_json::from_str(&text).map_err(|_| no_router());
        }
        match serde_json::from_str::<Refused>(&text) {
            Ok(Refused { error }) if status.is_server_error() => Err(Failure::ours(error.message)),
            Ok(Refused { error }) => Err(Failure::user(error.message)),
            Err(_) => Err(no_router()),
        }
    }
}
