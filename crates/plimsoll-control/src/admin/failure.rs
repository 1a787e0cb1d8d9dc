//! [`ApiError`]: an error response with `error` and, if known, the request `field` that caused it.

use axum::Json;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use plimsoll_core::units::FieldError;

use super::responses;
use crate::explain::ExplainError;
use crate::server::Stopped;

#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    body: responses::Error,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        let body = responses::Error {
            error: error.into(),
            field: None,
        };
        Self { status, body }
    }

    /// Names the request field that caused the error; an empty path names none.
    fn at(mut self, path: &str) -> Self {
        self.body.field = Some(path.to_owned()).filter(|path| !path.is_empty());
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

impl From<Stopped> for ApiError {
    fn from(stopped: Stopped) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string())
    }
}

impl From<ExplainError> for ApiError {
    fn from(error: ExplainError) -> Self {
        match error {
            ExplainError::Stopped(stopped) => stopped.into(),
            ExplainError::Question(error) => error.into(),
            busy @ ExplainError::Busy => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, busy.to_string())
            }
        }
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.reason()).at(error.path())
    }
}

impl From<QueryRejection> for ApiError {
    /// Extracts the field name, with which axum's message begins if axum knows it.
    fn from(rejection: QueryRejection) -> Self {
        let text = rejection.body_text();
        let prefix = "Failed to deserialize query string: ";
        let reason = text.strip_prefix(prefix).unwrap_or(&text);
        match reason.split_once(": ") {
            Some((field, reason)) if !field.contains(' ') => FieldError::new(field, reason).into(),
            _ => Self::new(StatusCode::BAD_REQUEST, reason),
        }
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

pub(super) fn body_error(error: serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let path = error.path().to_string();
    let path = if path == "." { "" } else { &path };
    ApiError::new(StatusCode::BAD_REQUEST, error.inner().to_string()).at(path)
}
