//! [`ApiError`]: an error response with `error` and, if known, the request `field` that caused it.

use axum::Json;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use plimsoll_core::evacuation::Refusal;
use plimsoll_core::units::FieldError;

use super::responses;
use crate::evacuation::EvacuationError;
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

impl From<EvacuationError> for ApiError {
    fn from(error: EvacuationError) -> Self {
        match error {
            EvacuationError::Stopped(stopped) => stopped.into(),
            EvacuationError::Question(error) => error.into(),
            EvacuationError::Refused(Refusal::Invalid(error)) => error.into(),
            EvacuationError::Refused(refusal) => {
                Self::new(StatusCode::CONFLICT, refusal.to_string())
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

#[cfg(test)]
mod tests {
    use axum::extract::Query;
    use axum::http::Uri;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Question {
        #[expect(dead_code, reason = "only read by the extractor")]
        count: u32,
    }

    #[derive(Debug, serde::Deserialize)]
    struct OddlyNamed {
        #[serde(rename = "its name: odd")]
        #[expect(dead_code, reason = "only read by the extractor")]
        odd: u32,
    }

    fn parts(error: ApiError) -> (StatusCode, String, Option<String>) {
        (error.status, error.body.error, error.body.field)
    }

    #[test]
    fn errors_name_their_field_if_it_is_known() {
        let bad = StatusCode::BAD_REQUEST;
        let named = parts(FieldError::new("services[0]", "is wrong").into());
        assert_eq!(
            named,
            (bad, "is wrong".to_owned(), Some("services[0]".to_owned()))
        );
        let unnamed = parts(FieldError::new("", "is wrong").into());
        assert_eq!(unnamed, (bad, "is wrong".to_owned(), None));
        let stopped = parts(Stopped.into());
        assert_eq!(stopped.0, StatusCode::SERVICE_UNAVAILABLE);
        let busy = parts(ExplainError::Busy.into());
        assert_eq!(busy.0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(busy.1, ExplainError::Busy.to_string());
    }

    #[test]
    fn errors_of_queries_and_bodies_name_the_field() {
        let query = |text: &str| {
            let uri: Uri = format!("/explain?{text}").parse().unwrap();
            let rejection = Query::<Question>::try_from_uri(&uri).unwrap_err();
            parts(rejection.into())
        };
        let (status, error, field) = query("count=x");
        assert_eq!(
            (status, field.as_deref()),
            (StatusCode::BAD_REQUEST, Some("count"))
        );
        assert!(error.starts_with("invalid digit"), "{error}");
        let (_, error, field) = query("");
        assert_eq!(field, None);
        assert!(error.starts_with("missing field"), "{error}");
        let uri = Uri::from_static("/explain?");
        let rejection = Query::<OddlyNamed>::try_from_uri(&uri).unwrap_err();
        let (_, error, field) = parts(rejection.into());
        let expected = "missing field `its name: odd`";
        assert_eq!((&*error, field), (expected, None), "no name has a space");
        let body = |text: &str| {
            let mut read = serde_json::Deserializer::from_str(text);
            let read = serde_path_to_error::deserialize::<_, Vec<Question>>(&mut read);
            parts(body_error(read.unwrap_err()))
        };
        assert_eq!(body("[{\"count\": \"x\"}]").2.as_deref(), Some("[0].count"));
        assert_eq!(body("7").2, None);
        let response = ApiError::new(StatusCode::NOT_FOUND, "no such service");
        assert_eq!(response.into_response().status(), StatusCode::NOT_FOUND);
    }
}
