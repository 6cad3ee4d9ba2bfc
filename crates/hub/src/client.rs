//! The part of the hub's HTTP API that downloads need.

use std::io::Read;
use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;
use ureq::http::{HeaderMap, Response};
use ureq::tls::{RootCerts, TlsConfig};

use crate::HubError;
use crate::model_ref::{RepoName, is_safe_path};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for the next byte, also in the middle of a transfer.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 5;
/// Listings of repositories are far smaller.
const MAX_JSON_BYTES: u64 = 64 << 20;

pub(crate) struct HubClient {
    agent: Agent,
    pub(crate) endpoint: String,
    token: Option<String>,
}

/// The commit that `main` names, and its files.
pub(crate) struct Revision {
    pub(crate) commit: String,
    pub(crate) files: Vec<String>,
}

pub(crate) struct RemoteFile {
    pub(crate) name: String,
    pub(crate) etag: String,
    pub(crate) len: u64,
    /// The hub's own URL; what it redirects to is signed and expires soon.
    url: String,
}

pub(crate) struct Transfer {
    /// The offset in the file of the first byte.
    pub(crate) begin: u64,
    pub(crate) bytes: Box<dyn Read + Send>,
}

impl HubClient {
    pub(crate) fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let tls = TlsConfig::builder().root_certs(authorities()).build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Redirects are followed here, so that the token goes to the hub alone.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(READ_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT))
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
        struct RevisionReply {
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
        let answer: RevisionReply = serde_json::from_str(&text).map_err(|error| self.unexpected(error.to_string()))?;
        if answer.sha.is_empty() || !answer.sha.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(self.unexpected("a commit that is not a hash".to_owned()));
        }
        // A name that would lead out of the snapshot is dropped.
        let files = answer.siblings.into_iter().map(|file| file.rfilename).filter(|file| is_safe_path(file)).collect();
        Ok(Revision { commit: answer.sha, files })
    }

    /// Etag and size of a file. Those of a large file, which lies elsewhere, are headers of the hub's redirect.
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
            let etag_and_len = linked.or_else(|| header(headers, "etag").zip(header(headers, "content-length")));
            let etag_and_len = etag_and_len.and_then(|(etag, len)| Some((plain_etag(etag)?, len.parse().ok()?)));
            let Some((etag, len)) = etag_and_len else {
                return Err(self.unexpected(format!("no etag and size for {name}")));
            };
            return Ok(RemoteFile { name: name.to_owned(), etag, len, url });
        }
        Err(self.unexpected(format!("{name} is redirected more than {MAX_REDIRECTS} times")))
    }

    /// The file's bytes from `begin` on if the server supports ranges, else from the start.
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
        Err(self.unexpected(format!("{} is redirected more than {MAX_REDIRECTS} times", file.name)))
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

    fn unexpected(&self, problem: String) -> HubError {
        HubError::Unexpected { endpoint: self.endpoint.clone(), problem }
    }
}

/// The machine's certificate authorities. Small containers have none; unless the environment names some, those of browsers are used.
fn authorities() -> RootCerts {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    let none = !named && rustls_native_certs::load_native_certs().certs.is_empty();
    if none { RootCerts::WebPki } else { RootCerts::PlatformVerifier }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// An etag that is safe as a file's name.
fn plain_etag(etag: &str) -> Option<String> {
    let etag = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
    let plain = !etag.is_empty() && etag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    plain.then(|| etag.to_owned())
}
