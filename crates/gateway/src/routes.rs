//! Which path is answered by whom, and what every answer gets: CORS headers and a place in the statistics.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::chat::chat_completions;
use crate::completions::completions;
use crate::decisions::decisions;
use crate::fallbacks::with_fallbacks;
use crate::gateway::Gateway;
use crate::metrics::Counted;
use crate::{admin, auth, service, tokenize};

pub fn router(gateway: Arc<Gateway>) -> Router {
    let debug = Router::new().route("/debug/route", get(decisions)).with_state(Arc::clone(&gateway));
    let routes = with_fallbacks(openai(&gateway).merge(debug));
    let routes = match gateway.config.api_key {
        Some(key) => auth::guarded(routes, key),
        None => routes,
    };
    // The secret is needed whether there is an API key or not, and no key opens these.
    let routes = match &gateway.admin {
        Some(admin) => routes.merge(admin::routes(&gateway, admin)),
        None => routes,
    };
    counted(routes, gateway)
}

pub(crate) fn openai(gateway: &Arc<Gateway>) -> Router {
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/models", get(service::models))
        .route("/v1/models/{*id}", get(service::model))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/health", get(service::health))
        .route("/ready", get(service::ready))
        .route("/metrics", get(service::metrics))
        .with_state(Arc::clone(gateway))
}

pub(crate) fn counted(routes: Router, gateway: Arc<Gateway>) -> Router {
    routes.layer(middleware::from_fn_with_state(gateway, around))
}

async fn around(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    let counted = Counted::new(gateway, label(request.uri().path()));
    let preflight = request.method() == Method::OPTIONS;
    let wanted = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response = if preflight { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    allow_any_origin(response.headers_mut(), preflight, wanted);
    counted.answered(response.status());
    response
}

/// A page from anywhere may talk to this server: there are no cookies it could abuse.
fn allow_any_origin(headers: &mut HeaderMap, preflight: bool, wanted: Option<HeaderValue>) {
    let mut set = |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    set(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
    if !preflight {
        set(header::ACCESS_CONTROL_EXPOSE_HEADERS, "x-request-id, x-baton-route, retry-after, retry-after-ms");
        return;
    }
    set(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS");
    set(header::ACCESS_CONTROL_MAX_AGE, "86400");
    // A wildcard would not cover `authorization`.
    let wanted = wanted.unwrap_or(HeaderValue::from_static("authorization, content-type"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
}

/// A closed set, so that no client can make new time series.
fn label(path: &str) -> &'static str {
    const PATHS: [&str; 15] = [
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/models",
        "/tokenize",
        "/detokenize",
        "/health",
        "/ready",
        "/metrics",
        "/microserving/prep_recv",
        "/microserving/remote_send",
        "/microserving/start_generate",
        "/debug/audit",
        "/debug/route",
        "/admin/router",
        "/admin/engines",
    ];
    let known = PATHS.into_iter().find(|known| *known == path);
    known.unwrap_or(match path {
        path if path.starts_with("/v1/models/") => "/v1/models/{id}",
        path if path.starts_with("/admin/engines/") && path.ends_with("/role") => "/admin/engines/{name}/role",
        path if path.starts_with("/admin/engines/") => "/admin/engines/{name}",
        _ => "other",
    })
}
