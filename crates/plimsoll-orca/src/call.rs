//! [`Call`]: one request from its arrival to the end of its response: counted in and out, and its
//! report written.
//!
//! Carried by `layer` until there is a response, and by `body` until that ends. Dropping it, at
//! any time, counts the request out.

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

/// A request that is being served.
#[derive(Debug)]
pub(crate) struct Call {
    shared: Arc<Shared>,
    recorder: OrcaRecorder,
    /// What the request asked for.
    asked: Option<OrcaFormat>,
    grpc: bool,
    failed: bool,
}

impl Call {
    /// Counts a request in, and gives it its recorder. `None` for one that asks for reports: it
    /// stays for ever, and is no load.
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
            asked: asked(request.headers()),
            grpc: false,
            failed: false,
        })
    }

    /// The response begins. An HTTP response has its report in the headers. A gRPC response has it
    /// in the trailers, except when it has no others: then its headers are its trailers.
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

    /// A gRPC response ends; the trailers of others are none of our business.
    pub(crate) fn handle_trailers(&mut self, trailers: &mut HeaderMap) {
        if !self.grpc {
            return;
        }
        let ok = |status: &HeaderValue| status == "0";
        self.failed |= !trailers.get(GRPC_STATUS).is_some_and(ok);
        self.report(trailers, self.shared.settings().grpc_format);
    }

    /// There is no response, or no rest of it.
    pub(crate) const fn handle_error(&mut self) {
        self.failed = true;
    }

    /// A report that the handler has written itself stays.
    fn report(&self, headers: &mut HeaderMap, format: OrcaFormat) {
        if self.asked.is_none() && self.shared.settings().when == When::OnRequest {
            return;
        }
        let names = [ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN];
        if names.iter().any(|name| headers.contains_key(name)) {
            return;
        }
        if let Some((name, value)) = self.header(self.asked.unwrap_or(format)) {
            headers.insert(name, value);
        }
    }

    fn header(&self, format: OrcaFormat) -> Option<Header> {
        let newest = self.shared.published();
        match self.recorder.over(newest.report()) {
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

/// The form that a request wants. A form that nobody knows is no wish.
fn asked(headers: &HeaderMap) -> Option<OrcaFormat> {
    let wish = headers.get(ENDPOINT_LOAD_METRICS_FORMAT)?.as_bytes();
    let forms = [
        ("TEXT", OrcaFormat::Text),
        ("JSON", OrcaFormat::Json),
        ("BIN", OrcaFormat::Bin),
    ];
    let mut forms = forms.into_iter();
    let found = forms.find(|(name, _)| wish.eq_ignore_ascii_case(name.as_bytes()));
    found.map(|(_, format)| format)
}

/// Whether a message with these headers is gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| content_type::is_grpc(value.as_bytes()))
}

#[cfg(test)]
mod tests;
