//! What is answered where no route is.

use axum::Router;
use axum::http::{Method, StatusCode, Uri};

use crate::error::ApiError;

pub(crate) fn with_fallbacks(routes: Router) -> Router {
    routes.fallback(unknown_path).method_not_allowed_fallback(wrong_method)
}

async fn unknown_path(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is nothing at {}", uri.path()))
}

pub(crate) async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not answer to {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}
