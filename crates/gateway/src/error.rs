//! Errors as clients see them: a status, and OpenAI's error object.

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use baton_core::{Fault, Retry, ServeError};
use baton_text::TextError;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: Option<&'static str>,
    pub(crate) message: String,
    /// The top-level field it is about; the message has the full path.
    pub(crate) param: Option<String>,
    pub(crate) retry_after_ms: Option<u32>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, code: None, message: message.into(), param: None, retry_after_ms: None }
    }

    /// The request is wrong in the field `param`.
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_owned()), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    pub(crate) fn busy(message: impl Into<String>, retry_after_ms: u32) -> Self {
        ServeError::busy(message, retry_after_ms).into()
    }

    #[must_use]
    pub(crate) fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "service_unavailable_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// `{"error": {…}}`, for a body or for an event in a stream that has begun.
    pub(crate) fn body(&self) -> ErrorBody<'_> {
        let (kind, param) = (self.kind(), self.param.as_deref());
        ErrorBody { error: ErrorObject { message: &self.message, kind, param, code: self.code } }
    }
}

#[derive(Serialize)]
pub(crate) struct ErrorBody<'a> {
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

impl From<ServeError> for ApiError {
    fn from(error: ServeError) -> Self {
        let (status, code) = match (error.fault, error.retry) {
            (Fault::Caller, _) => (StatusCode::BAD_REQUEST, None),
            (Fault::Conflict, _) => (StatusCode::CONFLICT, None),
            // It would not fit into an empty engine either.
            (Fault::Capacity, Retry::Never) => (StatusCode::UNPROCESSABLE_ENTITY, None),
            (Fault::Capacity, _) => (StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded")),
            (Fault::Engine, Retry::Never) => (StatusCode::INTERNAL_SERVER_ERROR, None),
            (Fault::Engine, _) => (StatusCode::SERVICE_UNAVAILABLE, None),
        };
        let retry_after_ms = match error.retry {
            Retry::Never => None,
            Retry::Elsewhere => Some(1000),
            Retry::AfterMs(ms) => Some(ms),
        };
        Self { status, code, message: error.message, param: error.param, retry_after_ms }
    }
}

impl ApiError {
    /// `param`: the field the text came from.
    pub(crate) fn of_text(error: &TextError, param: &str) -> Self {
        if error.is_callers_fault() {
            Self::invalid(param, error.to_string())
        } else {
            Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut headers = HeaderMap::new();
        if let Some(ms) = self.retry_after_ms {
            // Whole seconds for everyone; milliseconds for OpenAI's own clients.
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000).max(1)));
            headers.insert("retry-after-ms", HeaderValue::from(ms));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        (self.status, headers, Json(self.body())).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_become_statuses() {
        let engine = |retry| ServeError { retry, ..ServeError::engine("x") };
        for (error, status, kind, retry_after) in [
            (ServeError::caller("x"), 400, "invalid_request_error", None),
            (ServeError::conflict("x"), 409, "invalid_request_error", None),
            (ServeError { retry: Retry::Never, ..ServeError::busy("x", 1) }, 422, "invalid_request_error", None),
            (ServeError::busy("x", 1), 429, "rate_limit_error", Some("1")),
            (ServeError::busy("x", 2001), 429, "rate_limit_error", Some("3")),
            (engine(Retry::Elsewhere), 503, "service_unavailable_error", Some("1")),
            (engine(Retry::AfterMs(5000)), 503, "service_unavailable_error", Some("5")),
            (engine(Retry::Never), 500, "server_error", None),
        ] {
            let error = ApiError::from(error);
            assert_eq!(error.kind(), kind);
            let response = error.into_response();
            let header = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!((response.status().as_u16(), header), (status, retry_after));
        }
    }

    #[test]
    fn the_shape_is_openais() {
        let error = ApiError::invalid("n", "too many").with_code("c");
        let body = serde_json::to_string(&error.body()).unwrap();
        assert_eq!(body, r#"{"error":{"message":"too many","type":"invalid_request_error","param":"n","code":"c"}}"#);
    }
}
