//! OTLP over HTTP: one export request to a collector, as gRPC or as a protobuf body.
//!
//! Collectors are clusters, so the Plimsoll client balances, dials and encrypts exports like any
//! other request. Which failures may be retried is said by the specification
//! (<https://opentelemetry.io/docs/specs/otlp/>).

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use plimsoll_client::{Client, RequestOptions, ResponseBody};
use plimsoll_serve::otlp::ExportRequest;
use plimsoll_xds::grpc_frame;
use prost::Message as _;
use tower_service::Service as _;

use super::messages::{ExportResponse, Span};
use crate::config::{CollectorConfig, OtlpProtocol};

const AGENT: &str = concat!("OTel-OTLP-Exporter-Plimsoll/", env!("CARGO_PKG_VERSION"));
/// Longest response that is read; the answer to an export has a few bytes.
const MAX_RESPONSE: usize = 64 << 10;
/// gRPC statuses after which an export may be repeated: CANCELLED, DEADLINE_EXCEEDED, ABORTED,
/// OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS.
const RETRIABLE: [&str; 6] = ["1", "4", "10", "11", "14", "15"];

/// An export that failed.
#[derive(Debug)]
pub(super) struct ExportError {
    pub(super) reason: String,
    pub(super) retriable: bool,
}

impl ExportError {
    fn transport(reason: impl ToString) -> Self {
        Self {
            reason: reason.to_string(),
            retriable: true,
        }
    }
}

/// Sends one export request, from pool `pool` of the client; returns the number of spans that the
/// collector has rejected.
pub(super) async fn export(
    client: &Client,
    pool: usize,
    collector: &CollectorConfig,
    message: Bytes,
) -> Result<u64, ExportError> {
    let mut service = client
        .service_on(&collector.cluster, pool)
        .map_err(ExportError::transport)?
        .with_defaults(RequestOptions::new().timeout(collector.timeout));
    let exchange = async {
        let response = service.call(request(collector, message)).await;
        let response = response.map_err(|error| ExportError::transport(format!("{error:#}")))?;
        read(response, collector.protocol).await
    };
    let limited = tokio::time::timeout(collector.timeout, exchange).await;
    limited.unwrap_or_else(|_| {
        let timeout = collector.timeout;
        let reason = format!("no response within {timeout:?}");
        Err(ExportError::transport(reason))
    })
}

/// Encodes an export request; gRPC puts the length in front.
pub(super) fn encode(message: &ExportRequest<Span>, protocol: OtlpProtocol) -> Bytes {
    let message = message.encode_to_vec();
    match protocol {
        OtlpProtocol::Grpc => grpc_frame::frame(&message),
        OtlpProtocol::Http => message.into(),
    }
}

fn request(collector: &CollectorConfig, message: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(message));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from(collector.path.clone());
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    let content_type = match collector.protocol {
        OtlpProtocol::Grpc => {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            "application/grpc"
        }
        OtlpProtocol::Http => "application/x-protobuf",
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(authority) = &collector.authority
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(HOST, host);
    }
    for (name, value) in &collector.headers {
        headers.append(name, value.clone());
    }
    request
}

async fn read(
    response: Response<ResponseBody>,
    protocol: OtlpProtocol,
) -> Result<u64, ExportError> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_RESPONSE).collect().await;
    let body = body.map_err(ExportError::transport)?;
    if head.status != StatusCode::OK {
        return Err(ExportError {
            reason: format!("status {}", head.status),
            retriable: matches!(head.status.as_u16(), 429 | 502..=504),
        });
    }
    let message = match protocol {
        OtlpProtocol::Http => body.to_bytes(),
        OtlpProtocol::Grpc => {
            let trailers = body.trailers().cloned().unwrap_or_default();
            check_grpc_status(&head.headers, &trailers)?;
            let bytes = body.to_bytes();
            let message = grpc_frame::split(&bytes, MAX_RESPONSE).ok().flatten();
            message.map_or_else(Bytes::new, |(message, _)| bytes.slice_ref(message))
        }
    };
    // An answer that cannot be read does not undo the export.
    let answer = ExportResponse::decode(message).unwrap_or_default();
    let rejected = answer.partial_success.map_or(0, |part| part.rejected_spans);
    Ok(rejected.try_into().unwrap_or(0))
}

fn check_grpc_status(headers: &HeaderMap, trailers: &HeaderMap) -> Result<(), ExportError> {
    let field = |name: &str| {
        let value = trailers.get(name).or_else(|| headers.get(name))?;
        value.to_str().ok()
    };
    let Some(status) = field("grpc-status") else {
        return Err(ExportError::transport("response without grpc-status"));
    };
    if status == "0" {
        return Ok(());
    }
    let message = field("grpc-message").unwrap_or_default();
    Err(ExportError {
        reason: format!("gRPC status {status} {message}"),
        retriable: RETRIABLE.contains(&status),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields.iter();
        fields
            .map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn grpc_statuses_say_whether_to_retry() {
        let none = HeaderMap::new();
        let check = |status| check_grpc_status(&none, &headers(&[("grpc-status", status)]));
        assert!(check("0").is_ok());
        for (status, retriable) in [("14", true), ("4", true), ("3", false), ("16", false)] {
            assert_eq!(check(status).unwrap_err().retriable, retriable, "{status}");
        }
        let trailers_only = headers(&[("grpc-status", "7"), ("grpc-message", "no")]);
        let error = check_grpc_status(&trailers_only, &none).unwrap_err();
        assert_eq!(error.reason, "gRPC status 7 no");
        assert!(check_grpc_status(&none, &none).unwrap_err().retriable);
    }

    #[test]
    fn grpc_messages_begin_with_their_length() {
        let message = ExportRequest {
            resource_items: vec![Default::default()],
        };
        assert_eq!(&encode(&message, OtlpProtocol::Http)[..], [10, 0]);
        assert_eq!(
            &encode(&message, OtlpProtocol::Grpc)[..],
            [0, 0, 0, 0, 2, 10, 0]
        );
    }
}
