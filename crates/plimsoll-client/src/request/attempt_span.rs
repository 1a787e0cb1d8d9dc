//! [`AttemptSpan`]: OpenTelemetry span of one attempt of a request, of kind CLIENT.
//!
//! Names and attributes follow OpenTelemetry's conventions for HTTP and gRPC clients, where every
//! attempt has its own span and hands its context to the host. Without a tracer provider, or
//! without the feature `opentelemetry`, the types here do nothing and trace headers of the program
//! pass through unchanged.

#[cfg(not(feature = "opentelemetry"))]
pub(crate) use disabled::{AttemptSpan, SpanParent, Tracing};
#[cfg(feature = "opentelemetry")]
pub(crate) use enabled::{AttemptSpan, SpanParent, Tracing};

#[cfg(not(feature = "opentelemetry"))]
mod disabled {
    use http::{Request, StatusCode};

    use crate::cluster::Cluster;
    use crate::error::Error;
    use crate::request::destination::Destination;

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Tracing {}

    #[derive(Debug)]
    pub(crate) enum SpanParent {}

    #[derive(Debug, Default)]
    pub(crate) struct AttemptSpan {}

    impl Tracing {
        pub(crate) const fn parent<B>(&self, _: &Request<B>) -> Option<SpanParent> {
            None
        }
    }

    impl AttemptSpan {
        pub(crate) const fn start<B>(
            _: Option<&SpanParent>,
            _: &Cluster,
            _: &Destination,
            _: u32,
            _: &mut Request<B>,
        ) -> Self {
            Self {}
        }

        pub(crate) const fn fail(self, _: &Error) {}

        pub(crate) const fn end(self, _: StatusCode, _: Option<u32>) {}
    }
}

#[cfg(feature = "opentelemetry")]
mod enabled {
    use std::sync::Arc;

    use http::header::HOST;
    use http::uri::Authority;
    use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Version};
    use opentelemetry::global::{BoxedSpan, BoxedTracer};
    use opentelemetry::trace::{
        Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
        TraceId, TraceState, Tracer, TracerProvider,
    };
    use opentelemetry::{Context, InstrumentationScope, KeyValue};
    use plimsoll_xds::content_type::is_grpc;

    use crate::cluster::Cluster;
    use crate::error::Error;
    use crate::request::destination::Destination;

    const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
    const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

    /// Tracer of a client; none unless the program sets a tracer provider.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Tracing(Option<Arc<BoxedTracer>>);

    impl Tracing {
        pub(crate) fn new<P>(provider: &P) -> Self
        where
            P: TracerProvider,
            P::Tracer: Send + Sync + 'static,
            <P::Tracer as Tracer>::Span: Send + Sync + 'static,
        {
            let scope = InstrumentationScope::builder(env!("CARGO_PKG_NAME"))
                .with_version(env!("CARGO_PKG_VERSION"))
                .build();
            let tracer = provider.tracer_with_scope(scope);
            Self(Some(Arc::new(BoxedTracer::new(Box::new(tracer)))))
        }

        /// Returns the parent of the spans of a request: the active span of the caller, or else the
        /// trace context in the request's headers.
        pub(crate) fn parent<B>(&self, request: &Request<B>) -> Option<SpanParent> {
            let tracer = Arc::clone(self.0.as_ref()?);
            let current = Context::current();
            let active = current.span().span_context().is_valid();
            let context = if active {
                current
            } else {
                let remote = extract(request.headers());
                remote.map_or(current, |remote| {
                    Context::new().with_remote_span_context(remote)
                })
            };
            Some(SpanParent { tracer, context })
        }
    }

    #[derive(Debug)]
    pub(crate) struct SpanParent {
        tracer: Arc<BoxedTracer>,
        context: Context,
    }

    /// Ends with the response, or as an error if it is dropped before.
    #[derive(Default)]
    pub(crate) struct AttemptSpan(Option<Box<BoxedSpan>>);

    impl AttemptSpan {
        /// Starts the span of an attempt and makes it the parent of the host's.
        pub(crate) fn start<B>(
            parent: Option<&SpanParent>,
            cluster: &Cluster,
            to: &Destination,
            resend_count: u32,
            request: &mut Request<B>,
        ) -> Self {
            let Some(parent) = parent else {
                return Self(None);
            };
            let (name, mut attributes) = described(request, &cluster.authority);
            let address = to.host.address();
            let locality = to.host.locality();
            attributes.extend([
                KeyValue::new("network.peer.address", address.ip().to_string()),
                KeyValue::new("network.peer.port", i64::from(address.port())),
                KeyValue::new("plimsoll.cluster", cluster.name.to_string()),
            ]);
            for (key, value) in [
                ("plimsoll.upstream.region", locality.region()),
                ("plimsoll.upstream.zone", locality.zone()),
                ("plimsoll.upstream.sub_zone", locality.sub_zone()),
            ] {
                if !value.is_empty() {
                    attributes.push(KeyValue::new(key, value.to_owned()));
                }
            }
            if resend_count > 0 {
                let count = KeyValue::new("http.request.resend_count", i64::from(resend_count));
                attributes.push(count);
            }
            let tracer = &parent.tracer;
            let builder = tracer
                .span_builder(name)
                .with_kind(SpanKind::Client)
                .with_attributes(attributes);
            let span = tracer.build_with_context(builder, &parent.context);
            inject(span.span_context(), request.headers_mut());
            Self(Some(Box::new(span)))
        }

        /// Ends the span of an attempt that got no response.
        pub(crate) fn fail(mut self, error: &Error) {
            if let Some(mut span) = self.0.take() {
                let kind = format!("{:?}", error.kind());
                span.set_attribute(KeyValue::new("error.type", kind));
                span.set_status(Status::error(error.to_string()));
                span.end();
            }
        }

        /// Ends the span with the status of the response.
        pub(crate) fn end(mut self, status: StatusCode, grpc_status: Option<u32>) {
            let Some(mut span) = self.0.take() else {
                return;
            };
            let code = i64::from(status.as_u16());
            span.set_attribute(KeyValue::new("http.response.status_code", code));
            if let Some(number) = grpc_status {
                let number = i64::from(number);
                span.set_attribute(KeyValue::new("rpc.grpc.status_code", number));
            }
            // Clients count 4xx as errors, too.
            let failure = match grpc_status {
                Some(0) | None if code < 400 => None,
                Some(number @ 1..) => Some(number.to_string()),
                _ => Some(code.to_string()),
            };
            if let Some(kind) = failure {
                span.set_attribute(KeyValue::new("error.type", kind));
                span.set_status(Status::error(""));
            }
            span.end();
        }
    }

    impl Drop for AttemptSpan {
        fn drop(&mut self) {
            if let Some(span) = &mut self.0 {
                span.set_attribute(KeyValue::new("error.type", "canceled"));
                span.set_status(Status::error("canceled before the response ended"));
                span.end();
            }
        }
    }

    impl std::fmt::Debug for AttemptSpan {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("AttemptSpan")
        }
    }

    /// Name of the span and attributes of the request.
    fn described<B>(request: &Request<B>, default: &Authority) -> (String, Vec<KeyValue>) {
        let uri = request.uri();
        let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
        let named = host.and_then(|host| Authority::try_from(host).ok());
        let authority = uri.authority().or(named.as_ref()).unwrap_or(default);
        let scheme = uri.scheme_str().unwrap_or("http");
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let port = authority.port_u16();
        // Without userinfo, which may hold a password.
        let address = match port {
            Some(port) => format!("{}:{port}", authority.host()),
            None => authority.host().to_owned(),
        };
        let method = request.method().as_str();
        let mut attributes = vec![
            KeyValue::new("http.request.method", method.to_owned()),
            KeyValue::new("url.full", format!("{scheme}://{address}{path}")),
            KeyValue::new("server.address", authority.host().to_owned()),
        ];
        if let Some(port) = port {
            attributes.push(KeyValue::new("server.port", i64::from(port)));
        }
        if request.version() == Version::HTTP_2 {
            attributes.push(KeyValue::new("network.protocol.version", "2"));
        }
        let content_type = request.headers().get(http::header::CONTENT_TYPE);
        let grpc = content_type.is_some_and(|value| is_grpc(value.as_bytes()));
        match uri
            .path()
            .strip_prefix('/')
            .and_then(|path| path.split_once('/'))
        {
            Some((service, rpc)) if grpc => {
                attributes.extend([
                    KeyValue::new("rpc.system", "grpc"),
                    KeyValue::new("rpc.service", service.to_owned()),
                    KeyValue::new("rpc.method", rpc.to_owned()),
                ]);
                (format!("{service}/{rpc}"), attributes)
            }
            _ => (method.to_owned(), attributes),
        }
    }

    /// Writes the trace context into the headers, unless the tracer has made no span.
    fn inject(context: &SpanContext, headers: &mut HeaderMap) {
        if !context.is_valid() {
            return;
        }
        let (trace, span) = (context.trace_id(), context.span_id());
        let sampled = u8::from(context.is_sampled());
        let text = format!("00-{trace:032x}-{span:016x}-{sampled:02x}");
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(TRACEPARENT, value);
        }
        let state = context.trace_state().header();
        if state.is_empty() {
            headers.remove(TRACESTATE);
        } else if let Ok(value) = HeaderValue::try_from(state) {
            headers.insert(TRACESTATE, value);
        }
    }

    /// Reads the trace context that the program has put into the headers.
    fn extract(headers: &HeaderMap) -> Option<SpanContext> {
        let text = headers.get(TRACEPARENT)?.to_str().ok()?;
        let mut fields = text.split('-');
        let mut next = |length: usize| fields.next().filter(|field| field.len() == length);
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        if version != "00" || fields.next().is_some() {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let state = headers
            .get(TRACESTATE)
            .and_then(|state| state.to_str().ok());
        let context = SpanContext::new(
            TraceId::from_hex(trace).ok()?,
            SpanId::from_hex(span).ok()?,
            TraceFlags::new(flags) & TraceFlags::SAMPLED,
            true,
            state
                .and_then(|state| state.parse::<TraceState>().ok())
                .unwrap_or_default(),
        );
        context.is_valid().then_some(context)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn headers(traceparent: &str) -> HeaderMap {
            let mut headers = HeaderMap::new();
            headers.insert(TRACEPARENT, traceparent.parse().unwrap());
            headers.insert(TRACESTATE, "a=1".parse().unwrap());
            headers
        }

        #[test]
        fn contexts_of_headers_are_read_and_written() {
            let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            let context = extract(&headers(text)).unwrap();
            assert!(context.is_remote() && context.is_sampled());
            let mut written = HeaderMap::new();
            inject(&context, &mut written);
            assert_eq!(written[TRACEPARENT], text);
            assert_eq!(written[TRACESTATE], "a=1");
            for wrong in [
                "",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
                "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            ] {
                assert!(extract(&headers(wrong)).is_none(), "{wrong}");
            }
        }

        #[test]
        fn spans_are_named_by_method_or_rpc() {
            let authority = Authority::from_static("orders");
            let request = Request::get("http://user:secret@host:81/a?b=1")
                .body(())
                .unwrap();
            let (name, attributes) = described(&request, &authority);
            assert_eq!(name, "GET");
            let url = KeyValue::new("url.full", "http://host:81/a?b=1");
            assert!(attributes.contains(&url), "{attributes:?}");
            let request =
                Request::post("/pkg.Orders/Get").header("content-type", "application/grpc");
            let (name, attributes) = described(&request.body(()).unwrap(), &authority);
            assert_eq!(name, "pkg.Orders/Get");
            let method = KeyValue::new("rpc.method", "Get");
            assert!(attributes.contains(&method), "{attributes:?}");
        }
    }
}
