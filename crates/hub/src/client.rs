//! The hub's HTTP API, as far as files need it.

use std::io::Read;
use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;
use ureq::http::{HeaderMap, Response};
use ureq::tls::{RootCerts, TlsConfig};

use crate::HubError;
use crate::wanted::{RepoName, is_safe_path};

const CONNECT: Duration = Duration::from_secs(10);
/// Without a byte; also of a transfer under way.
const SILENCE: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 5;
/// Listings of repositories are far smaller.
const MAX_JSON_BYTES: u64 = 64 << 20;

pub(crate) struct Client {
    agent: Agent,
    pub(crate) endpoint: String,
    token: Option<String>,
}

/// What `main` is at this moment.
pub(crate) struct Revision {
    pub(crate) commit: String,
    pub(crate) files: Vec<String>,
}

pub(crate) struct RemoteFile {
    pub(crate) name: String,
    pub(crate) etag: String,
    pub(crate) len: u64,
    /// At the hub: where that leads is signed, and soon over.
    url: String,
}

pub(crate) struct Transfer {
    /// The byte of the file that comes first.
    pub(crate) begin: u64,
    pub(crate) bytes: Box<dyn Read + Send>,
}

impl Client {
    pub(crate) fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let tls = TlsConfig::builder().root_certs(authorities()).build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // By hand: where they lead says who may see the token.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .user_agent(concat!("baton/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls);
        Self {
            agent: config.build().into(),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: variable("HF_TOKEN"),
        }
    }

    pub(crate) fn revision(&self, repo: &RepoName) -> Result<Revision, HubError> {
        #[derive(Deserialize)]
        struct Answer {
            sha: String,
            siblings: Vec<Sibling>,
        }
        #[derive(Deserialize)]
        struct Sibling {
            rfilename: String,
        }
        let url = format!("{}/api/models/{repo}/revision/main", self.endpoint);
        let response = self.authorized(self.agent.get(&url)).call().map_err(|error| self.unreachable(&error))?;
        self.check(&repo.to_string(), &response)?;
        let text = response.into_body().into_with_config().limit(MAX_JSON_BYTES).read_to_string();
        let text = text.map_err(|error| self.unreachable(&error))?;
        let answer: Answer = serde_json::from_str(&text).map_err(|error| self.strange(error.to_string()))?;
        if answer.sha.is_empty() || !answer.sha.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(self.strange("a commit that is no hash".to_owned()));
        }
        // A name that would lead out of the snapshot is nobody's model file.
        let files = answer.siblings.into_iter().map(|file| file.rfilename).filter(|file| is_safe_path(file)).collect();
        Ok(Revision { commit: answer.sha, files })
    }

    /// Large files are promised by the hub and lie elsewhere; the promise is in the headers beside the redirect.
    pub(crate) fn file(&self, repo: &RepoName, commit: &str, name: &str) -> Result<RemoteFile, HubError> {
        let mut url = format!("{}/{repo}/resolve/{commit}/{name}", self.endpoint);
        for _ in 0..MAX_REDIRECTS {
            let request = self.authorized(self.agent.head(&url)).header("accept-encoding", "identity");
            let response = request.call().map_err(|error| self.unreachable(&error))?;
            let headers = response.headers();
            let location = header(headers, "location").map(str::to_owned);
            let linked = header(headers, "x-linked-etag").zip(header(headers, "x-linked-size"));
            if let Some(path) = location.as_deref().filter(|path| path.starts_with('/') && linked.is_none()) {
                url = format!("{}{path}", self.endpoint);
                continue;
            }
            if location.is_none() {
                self.check(&format!("{repo}:{name}"), &response)?;
            }
            let promise = linked.or_else(|| header(headers, "etag").zip(header(headers, "content-length")));
            let promise = promise.and_then(|(etag, len)| Some((plain_etag(etag)?, len.parse().ok()?)));
            let Some((etag, len)) = promise else {
                return Err(self.strange(format!("no etag and size for {name}")));
            };
            return Ok(RemoteFile { name: name.to_owned(), etag, len, url });
        }
        Err(self.strange(format!("{name} is redirected more than {MAX_REDIRECTS} times")))
    }

    /// From `begin` on if the server can do that, from the start if not.
    pub(crate) fn transfer(&self, file: &RemoteFile, begin: u64) -> Result<Transfer, HubError> {
        let mut url = file.url.clone();
        for _ in 0..MAX_REDIRECTS {
            let mut request = self.agent.get(&url).header("accept-encoding", "identity");
            if url.starts_with(&format!("{}/", self.endpoint)) {
                request = self.authorized(request);
            }
            if begin > 0 {
                request = request.header("range", format!("bytes={begin}-"));
            }
            let response = request.call().map_err(|error| self.unreachable(&error))?;
            if let Some(location) = header(response.headers(), "location") {
                url = if location.starts_with('/') {
                    format!("{}{location}", self.endpoint)
                } else {
                    location.to_owned()
                };
                continue;
            }
            self.check(&file.name, &response)?;
            let resumed = response.status() == 206;
            let bytes = Box::new(response.into_body().into_reader());
            return Ok(Transfer { begin: if resumed { begin } else { 0 }, bytes });
        }
        Err(self.strange(format!("{} is redirected more than {MAX_REDIRECTS} times", file.name)))
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    fn check<B>(&self, what: &str, response: &Response<B>) -> Result<(), HubError> {
        let (what, endpoint) = (what.to_owned(), self.endpoint.clone());
        match response.status().as_u16() {
            200..300 => Ok(()),
            401 | 403 => Err(HubError::NotAllowed { what, endpoint, with_token: self.token.is_some() }),
            404 => Err(HubError::NotFound { what, endpoint }),
            status => Err(HubError::Refused { what, endpoint, status }),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> HubError {
        HubError::Unreachable { endpoint: self.endpoint.clone(), problem: error.to_string() }
    }

    fn strange(&self, problem: String) -> HubError {
        HubError::Strange { endpoint: self.endpoint.clone(), problem }
    }
}

/// Whom this machine trusts; or, since small containers trust nobody and nobody said otherwise, whom browsers do.
fn authorities() -> RootCerts {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    let none = !named && rustls_native_certs::load_native_certs().certs.is_empty();
    if none { RootCerts::WebPki } else { RootCerts::PlatformVerifier }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// It becomes a file's name.
fn plain_etag(etag: &str) -> Option<String> {
    let etag = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
    let plain = !etag.is_empty() && etag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    plain.then(|| etag.to_owned())
}
