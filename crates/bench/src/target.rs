//! Where the server is.

use std::fmt;
use std::str::FromStr;

use hyper::http::Uri;

/// `http://host:port`, with or without `/v1` and a path before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Before `/models`: `/v1`.
    pub(crate) base: String,
}

impl ServerUrl {
    /// The value of the `host` header, and what a TCP connection goes to.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = with_scheme.parse().map_err(|_| format!("`{text}` is not a URL: write http://HOST:PORT"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err("https is not supported: measure behind the TLS proxy, over http".into()),
            _ => return Err(format!("`{text}` is not an http URL")),
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| format!("`{text}` names no host"))?;
        let path = uri.path().trim_end_matches('/');
        let base = if path.ends_with("/v1") { path.to_owned() } else { format!("{path}/v1") };
        Ok(Self { host: host.to_owned(), port: uri.port_u16().unwrap_or(80), base })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.base.trim_end_matches("/v1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, authority, base, shown) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000", "/v1", "http://127.0.0.1:8000"),
            ("http://h:1/v1/", "h:1", "/v1", "http://h:1"),
            ("h:1", "h:1", "/v1", "http://h:1"),
            ("http://h/proxy", "h:80", "/proxy/v1", "http://h:80/proxy"),
            ("http://[::1]:9/v1", "[::1]:9", "/v1", "http://[::1]:9"),
        ] {
            let target: ServerUrl = text.parse().unwrap();
            assert_eq!((target.authority().as_str(), target.base.as_str()), (authority, base), "{text}");
            assert_eq!(target.to_string(), shown);
        }
        for text in ["https://h", "ftp://h", "http://", "a b"] {
            assert!(text.parse::<ServerUrl>().is_err(), "{text}");
        }
    }
}
