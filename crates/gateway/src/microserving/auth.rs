//! Who may come in: holders of the deployment's secret. Callers on this machine may look at health and metrics without it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use baton_protocol::Secret;

use crate::auth::{bearer, refuse};

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
    refuse(request, message).await
}
