//! Who may come in: holders of the gateway's API key, if it has one.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use crate::body;
use crate::error::ApiError;

/// What load balancers and monitoring request, and what costs nothing. All other paths need the key, also those that do
/// not exist.
const OPEN: [&str; 3] = ["/health", "/ready", "/metrics"];

/// What clients send as a bearer token. Only a hash of it is kept, so that no message can show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ApiKey(blake3::Hash);

impl ApiKey {
    pub fn new(key: &str) -> Self {
        Self::of(key.as_bytes())
    }

    fn of(key: &[u8]) -> Self {
        Self(blake3::Hash::from(blake3::derive_key("baton http 1 API key", key)))
    }

    /// Takes the same time whatever is different: hashes compare in constant time.
    fn admits(&self, offered: &[u8]) -> bool {
        *self == Self::of(offered)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

pub(crate) fn guarded(routes: Router, key: ApiKey) -> Router {
    routes.layer(middleware::from_fn_with_state(Arc::new(key), check))
}

async fn check(State(key): State<Arc<ApiKey>>, request: Request, next: Next) -> Response {
    let offered = bearer(request.headers());
    if OPEN.contains(&request.uri().path()) || offered.is_some_and(|offered| key.admits(offered)) {
        return next.run(request).await;
    }
    let message = match offered {
        Some(_) => "this is not the API key of this server",
        None => "this server needs an API key: send the header `Authorization: Bearer KEY`",
    };
    refuse(request, message).await
}

pub(crate) async fn refuse(request: Request, message: &str) -> Response {
    body::discard(request.into_body()).await;
    ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key").into_response()
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_may_be_written_either_way() {
        let cases: [(&str, Option<&str>); 7] = [
            ("Bearer s", Some("s")),
            ("bearer s", Some("s")),
            ("BEARER  s ", Some("s")),
            ("Bearer ", Some("")),
            ("Bearer", None),
            ("Basic dTpw", None),
            ("", None),
        ];
        for (value, token) in cases {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(bearer(&headers), token.map(str::as_bytes), "{value:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn a_key_admits_itself_and_is_never_shown() {
        let key = ApiKey::new("s3cret");
        assert!(key.admits(b"s3cret"));
        for other in ["", "s3cre", "s3cret ", "S3CRET"] {
            assert!(!key.admits(other.as_bytes()), "{other:?}");
        }
        assert_eq!(format!("{key:?}"), "ApiKey(…)");
    }
}
