//! Who may change the router: holders of the deployment's secret, from wherever they call and whatever the API key is.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use baton_protocol::Secret;

use crate::auth::{bearer, refuse};
use crate::body;
use crate::error::ApiError;

pub(super) fn guarded(routes: Router, secret: &Secret) -> Router {
    routes.layer(middleware::from_fn_with_state(Arc::new(secret.clone()), check))
}

async fn check(State(secret): State<Arc<Secret>>, request: Request, next: Next) -> Response {
    // Any web page could use a route that needs no secret: a browser on this machine would send its requests.
    if secret.is_none() {
        body::discard(request.into_body()).await;
        let message = "this deployment has no secret (--no-engine-auth), so it cannot be changed while it serves";
        return ApiError::new(StatusCode::FORBIDDEN, message).into_response();
    }
    let offered = bearer(request.headers());
    if secret.admits(offered) {
        return next.run(request).await;
    }
    let message = match offered {
        Some(_) => "this is not the secret of this deployment",
        None => "this needs the deployment's secret: send the header `Authorization: Bearer SECRET`",
    };
    refuse(request, message).await
}
