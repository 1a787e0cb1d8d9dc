//! [`Failure`]: what went wrong, as JSON: `error` says it, `field` says where if it is known.

use axum::Json;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use plimsoll_core::units::FieldError;
use serde_json::json;

use crate::server::Stopped;

/// What went wrong.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    error: String,
    field: Option<String>,
}

impl Failure {
    /// A failure that no single field is to blame for.
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
            field: None,
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.error, "field": self.field });
        (self.status, Json(body)).into_response()
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string())
    }
}

impl From<FieldError> for Failure {
    fn from(error: FieldError) -> Self {
        let field = error.path().to_owned();
        Self {
            field: Some(field).filter(|field| !field.is_empty()),
            ..Self::new(StatusCode::BAD_REQUEST, error.reason())
        }
    }
}

impl From<QueryRejection> for Failure {
    /// The text of the library begins with the field where there is one.
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

impl From<BytesRejection> for Failure {
    fn from(rejection: BytesRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

/// A body that is no question.
pub(super) fn body_error(error: serde_path_to_error::Error<serde_json::Error>) -> Failure {
    let field = Some(error.path().to_string()).filter(|path| path != ".");
    Failure {
        field,
        ..Failure::new(StatusCode::BAD_REQUEST, error.into_inner().to_string())
    }
}
