//! [`Call`]: tracks one request from its arrival to the end of its response, and writes its report.
//!
//! A `Call` is held by `layer` until there is a response, and by `body` until the response ends.
//! Dropping a `Call`, at any time, ends the request.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use plimsoll_xds::content_type;
use plimsoll_xds::orca::OrcaFormat;
use plimsoll_xds::orca::oob::PATH;

use crate::builder::When;
use crate::published::{self, ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN, Header};
use crate::recorder::OrcaRecorder;
use crate::state::Shared;

const ENDPOINT_LOAD_METRICS_FORMAT: HeaderName =
    HeaderName::from_static("endpoint-load-metrics-format");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

#[derive(Debug)]
pub(crate) struct Call {
    shared: Arc<Shared>,
    recorder: OrcaRecorder,
    requested_format: Option<OrcaFormat>,
    grpc: bool,
    failed: bool,
}

impl Call {
    /// `None` for an out-of-band report stream, which never ends and must not count as load.
    pub(crate) fn begin<B>(shared: &Arc<Shared>, request: &mut Request<B>) -> Option<Self> {
        if request.uri().path() == PATH {
            return None;
        }
        let recorder = OrcaRecorder::default();
        request.extensions_mut().insert(recorder.clone());
        shared.begin_request();
        Some(Self {
            shared: Arc::clone(shared),
            recorder,
            requested_format: requested_format(request.headers()),
            grpc: false,
            failed: false,
        })
    }

    /// gRPC responses carry the report in the trailers; a trailers-only response in its headers.
    pub(crate) fn handle_headers(&mut self, status: StatusCode, headers: &mut HeaderMap) {
        self.grpc = is_grpc(headers);
        self.failed |= status.is_server_error();
        if self.grpc && !headers.contains_key(GRPC_STATUS) {
            return;
        }
        if self.grpc {
            self.handle_trailers(headers);
        } else {
            self.report(headers, self.shared.settings().http_format);
        }
    }

    /// Trailers of responses other than gRPC are left alone.
    pub(crate) fn handle_trailers(&mut self, trailers: &mut HeaderMap) {
        if !self.grpc {
            return;
        }
        let ok = |status: &HeaderValue| status == "0";
        self.failed |= !trailers.get(GRPC_STATUS).is_some_and(ok);
        self.report(trailers, self.shared.settings().grpc_format);
    }

    /// Counts the request as failed: the service or the response body returned an error.
    pub(crate) const fn handle_error(&mut self) {
        self.failed = true;
    }

    /// Writes the load report, unless the handler has written its own.
    fn report(&self, headers: &mut HeaderMap, format: OrcaFormat) {
        if self.requested_format.is_none() && self.shared.settings().when == When::OnRequest {
            return;
        }
        let names = [ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN];
        if names.iter().any(|name| headers.contains_key(name)) {
            return;
        }
        if let Some((name, value)) = self.header(self.requested_format.unwrap_or(format)) {
            headers.insert(name, value);
        }
    }

    fn header(&self, format: OrcaFormat) -> Option<Header> {
        let newest = self.shared.published();
        match self.recorder.applied_to(newest.report()) {
            Some(report) => published::header(&report, format),
            None => newest.header(format).cloned(),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.shared.end_request(self.failed);
    }
}

fn requested_format(headers: &HeaderMap) -> Option<OrcaFormat> {
    let value = headers.get(ENDPOINT_LOAD_METRICS_FORMAT)?.as_bytes();
    let formats = [
        ("TEXT", OrcaFormat::Text),
        ("JSON", OrcaFormat::Json),
        ("BIN", OrcaFormat::Bin),
    ];
    let (_, format) = formats
        .into_iter()
        .find(|(name, _)| value.eq_ignore_ascii_case(name.as_bytes()))?;
    Some(format)
}

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| content_type::is_grpc(value.as_bytes()))
}

#[cfg(test)]
mod tests;
