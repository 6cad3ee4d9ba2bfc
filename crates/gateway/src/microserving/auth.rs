//! Who may come in: holders of the deployment's secret. Callers on this machine may look at health and metrics without it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use baton_protocol::Secret;

use crate::body;
use crate::error::ApiError;

const OPEN_NEARBY: [&str; 2] = ["/health", "/metrics"];

struct Guard {
    secret: Secret,
    near: bool,
}

/// `near`: for callers on this machine.
pub(super) fn guarded(routes: Router, secret: &Secret, near: bool) -> Router {
    let guard = Arc::new(Guard { secret: secret.clone(), near });
    routes.layer(middleware::from_fn_with_state(guard, check))
}

async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let open = guard.near && OPEN_NEARBY.contains(&request.uri().path());
    let offered = bearer(request.headers());
    if open || guard.secret.admits(offered) {
        return next.run(request).await;
    }
    let message = match offered {
        Some(_) => "this is not the secret of the engine's deployment",
        None => "engines need the deployment's secret: send the header `Authorization: Bearer SECRET`",
    };
    body::discard(request.into_body()).await;
    ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key").into_response()
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
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
}
