//! Handles requests: selects the route, rewrites headers, sends upstream, returns the response.
//!
//! The Plimsoll client selects the upstream host and retries. Responses that the proxy generates
//! itself are in `local_reply`; upgraded connections are in `upgrade`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, SERVER, TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use plimsoll_core::log_line;

use crate::body::{BodyMeter, MeteredBody, ProxyBody};
use crate::client_cert;
use crate::config::{HttpOptions, OverloadAction};
use crate::connection::Connection;
use crate::cors::CorsHeaders;
use crate::exchange::Exchange;
use crate::filters::apply_filters;
use crate::hash_policy;
use crate::header_rules::HeaderRules;
use crate::headers::{self, X_FORWARDED_HOST, X_REQUEST_ID};
use crate::listener::ChainRuntime;
use crate::local_reply::{self, LocalReply};
use crate::log_lines;
use crate::mirror;
use crate::request_policy::{self, Refused};
use crate::request_view::{request_info, request_view};
use crate::router::{
    CompiledAction, CompiledRoute, DirectResponse, Forward, RequestView, SelectedCluster,
    WeightedCluster, is_grpc,
};
use crate::stream_timeouts::{Expiry, RouteLimits, StreamTimeouts};
use crate::substitution::RequestInfo;
use crate::trace::{TRACEPARENT, TraceContext};
use crate::upgrade;
use crate::worker::{self, ClusterCall, UpstreamResponse};

/// Handles one request; the entry point that hyper calls. `stream` has the limits of an HTTP/2
/// stream. Only what is needed after the upstream's response is kept until then: there is one such
/// future per request.
pub(crate) async fn handle(
    connection: Arc<Connection>,
    stream: Option<Arc<StreamTimeouts>>,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, Infallible> {
    let listener = connection.listener.runtime();
    let runtime = listener.chain(connection.chain);
    connection.limit_reuse(&runtime.config().http);
    // The bytes behind CONNECT may belong to a tunnel, which is never opened.
    let last = connection.announces_close()
        || request.method() == Method::CONNECT && !connection.is_http2();
    let mut response = match start(runtime, connection, stream, request) {
        Started::Unrouted(response) => response,
        Started::Routed(mut routed, Answer::Local(response)) => routed.finish(response),
        Started::Routed(mut routed, Answer::Upstream(waiting, call)) => {
            let result = match call {
                Ok(call) => waiting.exchange.await_response(call).await,
                Err(error) => Ok(Err(error)),
            };
            let response = waiting.respond(result, routed.info.as_deref_mut());
            routed.finish(response)
        }
    };
    // A tunnel has no further response: its `connection: upgrade` must stay.
    if last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// What became of a request.
enum Started<'a> {
    /// No route was selected; this is the reply.
    Unrouted(Response<ProxyBody>),
    Routed(Routed<'a>, Answer<'a>),
}

/// Request with a route: what its response needs.
struct Routed<'a> {
    runtime: &'a ChainRuntime,
    route: &'a CompiledRoute,
    info: Option<Box<RequestInfo>>,
    cors: Option<CorsHeaders>,
}

/// Origin of a response.
enum Answer<'a> {
    Local(Response<ProxyBody>),
    Upstream(Waiting<'a>, Result<ClusterCall, plimsoll_client::Error>),
}

impl Routed<'_> {
    /// Applies the settings of route and listener to a response.
    fn finish(&mut self, mut response: Response<ProxyBody>) -> Response<ProxyBody> {
        let info = self.info.as_deref_mut();
        apply_response_rules(&self.route.response_rules, &mut response, info);
        if let Some(cors) = self.cors.take() {
            cors.apply(&mut response);
        }
        if let Some(server) = &self.runtime.config().http.server {
            response.headers_mut().insert(SERVER, server.clone());
        }
        response
    }
}

/// Selects the route of a request and, if that leads to a cluster, sends it upstream.
fn start(
    runtime: &ChainRuntime,
    connection: Arc<Connection>,
    stream: Option<Arc<StreamTimeouts>>,
    mut request: Request<Incoming>,
) -> Started<'_> {
    let options = &runtime.config().http;
    let mut exchange = Exchange::begin(connection, stream, request.version(), options);
    exchange.note_request_end(&request);
    let port = exchange.connection().local_port();
    if let Err(refused) = request_policy::apply(&mut request, options, port) {
        return Started::Unrouted(refuse(refused, exchange));
    }
    exchange.begin_trace(runtime.tracer.as_ref(), request.headers_mut(), options);
    let view = request_view(&request, exchange.connection().scheme);
    let Some(view) = view.filter(|_| !exchange.connection().has_malformed_head()) else {
        return Started::Unrouted(LocalReply::BAD_REQUEST.response(false, exchange));
    };
    start_log(runtime, &view, &mut exchange, request.version());
    if is_overloaded(&exchange) {
        let grpc = is_grpc(request.headers());
        return Started::Unrouted(LocalReply::OVERLOADED.response(grpc, exchange));
    }
    let (selected, cors) = apply_filters(runtime, &view, exchange.connection());
    let route = match selected {
        Ok(route) => route,
        Err(reply) => {
            let grpc = is_grpc(request.headers());
            return Started::Unrouted(reply.response(grpc, exchange, cors));
        }
    };
    let mut info = route
        .needs_request_info
        .then(|| request_info(&view, route, &exchange, request.version()));
    let stats = &exchange.connection().stats;
    let answer = match &route.action {
        CompiledAction::Forward(forward) => {
            let upstream = UpstreamRequest {
                runtime,
                route,
                forward,
                weighted: None,
            };
            upstream.send(request, exchange, info.as_deref_mut())
        }
        CompiledAction::Redirect(redirect) => {
            stats.rq_redirect.increment();
            let location = local_reply::location(redirect, &route.path, &view);
            Answer::Local(local_reply::redirect(redirect.status, location, exchange))
        }
        CompiledAction::Direct(direct) => {
            stats.rq_direct_response.increment();
            Answer::Local(direct_response(direct, exchange))
        }
    };
    let routed = Routed {
        runtime,
        route,
        info,
        cors,
    };
    Started::Routed(routed, answer)
}

fn apply_response_rules(
    rules: &HeaderRules,
    response: &mut Response<ProxyBody>,
    mut info: Option<&mut RequestInfo>,
) {
    if let Some(info) = &mut info {
        info.status = Some(response.status().as_u16());
    }
    rules.apply_to_response(response.headers_mut(), info.as_deref());
}

/// Whether the overload manager refuses requests; counts this one.
fn is_overloaded(exchange: &Exchange) -> bool {
    let connection = exchange.connection();
    let overload = &connection.worker.overload;
    let refused = overload.is_active(OverloadAction::StopAcceptingRequests);
    if refused {
        connection.stats.downstream_rq_overload_close.increment();
    }
    refused
}

/// Starts the access log entries and the span of a request.
fn start_log(
    runtime: &ChainRuntime,
    view: &RequestView<'_>,
    exchange: &mut Exchange,
    version: Version,
) {
    let tracing = runtime.tracer.as_ref().zip(exchange.trace);
    let options = &runtime.config().http;
    let span = tracing.and_then(|(tracer, context)| tracer.start_span(context, view, options));
    if span.is_some() || !runtime.logs.is_empty() {
        let pending = runtime.logs.iter().map(|log| log.begin(view)).collect();
        exchange.start_log(pending, span, version);
    }
}

fn refuse(refused: Refused, exchange: Exchange) -> Response<ProxyBody> {
    match refused {
        Refused::Reply(reply) => reply.response(false, exchange),
        Refused::Redirect(path) => {
            let location = HeaderValue::from_str(path.as_str()).ok();
            local_reply::redirect(StatusCode::TEMPORARY_REDIRECT, location, exchange)
        }
    }
}

fn direct_response(direct: &DirectResponse, mut exchange: Exchange) -> Response<ProxyBody> {
    let mut response = Response::new(());
    *response.status_mut() = direct.status;
    exchange.record_response(&response);
    response.map(|()| ProxyBody::local(direct.body.clone(), exchange))
}

fn expired(expiry: Expiry, grpc: bool, exchange: Exchange) -> Response<ProxyBody> {
    exchange.count_expiry(expiry);
    let ended = exchange.timeouts().has_request_ended();
    LocalReply::from_expiry(expiry, ended).response(grpc, exchange)
}

/// Answers a request that got no response. A body that was refused is the client's fault.
fn failed(
    error: &plimsoll_client::Error,
    meter: Option<&BodyMeter>,
    grpc: bool,
    exchange: Exchange,
) -> Response<ProxyBody> {
    if meter.is_some_and(BodyMeter::limit_exceeded) {
        return reply_too_large(grpc, exchange);
    }
    if meter.is_some_and(BodyMeter::is_malformed) {
        return LocalReply::BAD_REQUEST.response(grpc, exchange);
    }
    let chain = format_args!("{error:#}");
    log_line!(log_lines::UPSTREAM_REQUEST_FAILED, error = %chain);
    LocalReply::from_client_error(error).response(grpc, exchange)
}

#[derive(Clone, Copy)]
struct UpstreamRequest<'a> {
    runtime: &'a ChainRuntime,
    route: &'a CompiledRoute,
    forward: &'a Forward,
    weighted: Option<&'a WeightedCluster>,
}

impl<'a> UpstreamRequest<'a> {
    /// Sends the request, unless it is refused.
    fn send(
        self,
        mut request: Request<Incoming>,
        mut exchange: Exchange,
        mut info: Option<&mut RequestInfo>,
    ) -> Answer<'a> {
        let options = &self.runtime.config().http;
        let grpc = is_grpc(request.headers());
        if request.method() == Method::CONNECT {
            return Answer::Local(LocalReply::NO_ROUTE.response(grpc, exchange));
        }
        if too_large(&request, options) {
            return Answer::Local(reply_too_large(grpc, exchange));
        }
        let tunnel = match requested_upgrade(&mut request, options) {
            Ok(tunnel) => tunnel,
            Err(reply) => return Answer::Local(reply.response(grpc, exchange)),
        };
        let worker = Arc::clone(&exchange.connection().worker);
        let selector = &self.forward.cluster;
        let Some(selected) = selector.select(request.headers(), || worker.draw()) else {
            exchange.connection().stats.no_cluster.increment();
            return Answer::Local(LocalReply::NO_CLUSTER.response(grpc, exchange));
        };
        let SelectedCluster { cluster, weighted } = selected;
        self.record_cluster(&cluster, &mut exchange, info.as_deref_mut());
        let upstream = Self { weighted, ..self };
        let prepared = upstream.prepare(&mut request, &exchange, tunnel.as_ref(), info);
        if let Err(reply) = prepared {
            return Answer::Local(reply.response(grpc, exchange));
        }
        exchange.timeouts().apply_route(self.limits());
        let id = response_request_id(&request, options);
        let meter = meter(&mut request, options, &mut exchange);
        let mirrors = mirror::start(self.forward, &request, tunnel.is_some(), &exchange);
        let metered = request.map(|body| MeteredBody::new(body, meter.clone(), mirrors));
        let call = worker.call(self.forward, weighted, cluster, metered);
        let waiting = Waiting {
            upstream,
            exchange,
            grpc,
            tunnel,
            id,
            meter,
        };
        Answer::Upstream(waiting, call)
    }

    const fn limits(&self) -> RouteLimits {
        RouteLimits {
            timeout: self.forward.timeout,
            idle_timeout: self.forward.idle_timeout,
            max_stream_duration: self.forward.max_stream_duration,
        }
    }

    fn record_cluster(
        &self,
        cluster: &Arc<str>,
        exchange: &mut Exchange,
        info: Option<&mut RequestInfo>,
    ) {
        if exchange.is_logged() {
            exchange.update_log(|outcome| {
                outcome.cluster = Some(Arc::clone(cluster));
                outcome.route = Arc::clone(&self.route.name);
            });
        }
        if let Some(info) = info {
            info.cluster = Some(Arc::clone(cluster));
        }
    }

    /// Rewrites the request for the upstream: hop-by-hop headers, header rules, path and `Host`.
    fn prepare(
        &self,
        request: &mut Request<Incoming>,
        exchange: &Exchange,
        tunnel: Option<&Tunnel>,
        info: Option<&mut RequestInfo>,
    ) -> Result<(), LocalReply> {
        let options = &self.runtime.config().http;
        let connection = exchange.connection();
        let hash = hash_policy::hash(
            &self.forward.hash_policy,
            request.headers(),
            &connection.peer_ip,
        );
        let needs_chunked = has_unexpected_body(request);
        *request.version_mut() = Version::HTTP_11;
        let fields = request.headers_mut();
        headers::remove_request_hop_by_hop(fields);
        let downstream = headers::Downstream {
            address: &connection.peer_ip,
            scheme: connection.scheme,
        };
        if needs_chunked {
            fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        headers::sanitize(fields, &downstream, options);
        let client_cert = connection.client_cert();
        client_cert::apply(fields, options.forward_client_cert, client_cert);
        headers::add_forwarded(fields, &downstream, options);
        if exchange.trace.is_none() {
            headers::add_request_id(fields, options, || connection.worker.draw());
        }
        if let Some(tunnel) = tunnel {
            fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            fields.insert(UPGRADE, tunnel.protocol.clone());
        }
        let weighted = self.weighted.map(|weighted| &weighted.request_rules);
        let rules = weighted.into_iter().chain([&self.route.request_rules]);
        match info {
            None => rules.for_each(|rules| rules.apply_to_request(fields, None)),
            Some(info) => {
                info.headers.clone_from(fields);
                rules.for_each(|rules| rules.apply_to_request(fields, Some(info)));
                info.headers.clone_from(fields);
            }
        }
        if let Some(value) = exchange.trace.as_ref().and_then(TraceContext::traceparent) {
            fields.insert(TRACEPARENT, value);
        }
        self.rewrite(request)?;
        if hash.is_some() {
            let options = worker::request_options(self.forward, self.weighted, hash);
            request.extensions_mut().insert(options);
        }
        Ok(())
    }

    /// Applies `prefix_rewrite` and `host_rewrite_literal`.
    fn rewrite(&self, request: &mut Request<Incoming>) -> Result<(), LocalReply> {
        if self.forward.prefix_rewrite.is_none() && self.forward.host_rewrite.is_none() {
            return Ok(());
        }
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        if let (Some(replacement), Some(path)) =
            (&self.forward.prefix_rewrite, &parts.path_and_query)
        {
            let mut rewritten = self.route.path.rewrite(path.path(), replacement);
            if let Some(query) = path.query() {
                rewritten.push('?');
                rewritten.push_str(query);
            }
            let rewritten = PathAndQuery::try_from(rewritten);
            parts.path_and_query = Some(rewritten.map_err(|_| LocalReply::BAD_REQUEST)?);
        }
        if let Some(host) = &self.forward.host_rewrite {
            let before = parts
                .authority
                .as_ref()
                .map(|authority| authority.as_str().to_owned());
            if parts.authority.is_some() {
                let authority = host.as_bytes().try_into();
                parts.authority = Some(authority.map_err(|_| LocalReply::BAD_REQUEST)?);
            }
            let fields = request.headers_mut();
            let replaced = fields.insert(HOST, host.clone());
            let before = before
                .and_then(|host| HeaderValue::try_from(host).ok())
                .or(replaced);
            if let (true, Some(before)) = (self.forward.append_x_forwarded_host, before) {
                fields.append(X_FORWARDED_HOST, before);
            }
        }
        *request.uri_mut() = Uri::from_parts(parts).map_err(|_| LocalReply::BAD_REQUEST)?;
        Ok(())
    }
}

/// Request that was sent upstream.
struct Waiting<'a> {
    upstream: UpstreamRequest<'a>,
    exchange: Exchange,
    grpc: bool,
    tunnel: Option<Tunnel>,
    /// `x-request-id` for the response.
    id: Option<HeaderValue>,
    meter: Option<Arc<BodyMeter>>,
}

impl Waiting<'_> {
    /// Makes the response for the client from the result of the request.
    fn respond(
        mut self,
        result: Result<Result<UpstreamResponse, plimsoll_client::Error>, Expiry>,
        mut info: Option<&mut RequestInfo>,
    ) -> Response<ProxyBody> {
        let (id, weighted) = (self.id.take(), self.upstream.weighted);
        let mut response = match result {
            Ok(Ok(mut response)) => {
                let host = response.body().host();
                record_host(host, &mut self.exchange, info.as_deref_mut());
                if !self.upstream.runtime.config().http.suppress_envoy_headers {
                    set_service_time(&mut response, self.meter.as_deref(), &self.exchange);
                }
                downstream_response(response, self.tunnel, self.exchange)
            }
            Ok(Err(error)) => failed(&error, self.meter.as_deref(), self.grpc, self.exchange),
            Err(expiry) => return expired(expiry, self.grpc, self.exchange),
        };
        if let Some(id) = id {
            response.headers_mut().insert(X_REQUEST_ID, id);
        }
        if let Some(weighted) = weighted {
            apply_response_rules(&weighted.response_rules, &mut response, info);
        }
        response
    }
}

fn downstream_response(
    response: UpstreamResponse,
    tunnel: Option<Tunnel>,
    mut exchange: Exchange,
) -> Response<ProxyBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(tunnel) = tunnel else {
            return LocalReply::UPSTREAM_PROTOCOL_ERROR.response(false, exchange);
        };
        return upgrade::start_tunnel(response, tunnel, exchange);
    }
    let (mut head, body) = response.into_parts();
    if !headers::unify_length(&mut head.headers) {
        return LocalReply::UPSTREAM_PROTOCOL_ERROR.response(false, exchange);
    }
    headers::remove_hop_by_hop(&mut head.headers);
    let head = Response::from_parts(head, ());
    exchange.record_response(&head);
    head.map(|()| ProxyBody::upstream(body, exchange))
}

/// Sets the time since the request was received; not if the upstream responds earlier, as in Envoy.
fn set_service_time(
    response: &mut UpstreamResponse,
    meter: Option<&BodyMeter>,
    exchange: &Exchange,
) {
    let time = match meter {
        Some(meter) => meter.end().elapsed(),
        None => Some(exchange.elapsed()),
    };
    if let Some(time) = time {
        headers::set_service_time(response.headers_mut(), time);
    }
}

fn record_host(host: SocketAddr, exchange: &mut Exchange, info: Option<&mut RequestInfo>) {
    exchange.update_log(|outcome| outcome.upstream_host = Some(host));
    if let Some(info) = info {
        info.upstream_host = Some(host);
    }
}

fn response_request_id(request: &Request<Incoming>, options: &HttpOptions) -> Option<HeaderValue> {
    let enabled = options.always_set_request_id_in_response;
    let id = || request.headers().get(&X_REQUEST_ID).cloned();
    enabled.then(id).flatten()
}

fn reply_too_large(grpc: bool, exchange: Exchange) -> Response<ProxyBody> {
    let stats = &exchange.connection().stats;
    stats.downstream_rq_too_large.increment();
    LocalReply::TOO_LARGE.response(grpc, exchange)
}

/// Whether `content-length` exceeds `max_request_bytes`.
fn too_large(request: &Request<Incoming>, options: &HttpOptions) -> bool {
    let Some(limit) = options.max_request_bytes else {
        return false;
    };
    request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok())
        .is_some_and(|length| length > limit)
}

/// Whether a GET or HEAD request has a body of unknown length. To an HTTP/1.1 upstream, hyper would
/// omit the body unless `transfer-encoding` is set; for HTTP/2 that header is dropped again.
fn has_unexpected_body(request: &Request<Incoming>) -> bool {
    let bodiless = matches!(*request.method(), Method::GET | Method::HEAD);
    bodiless && !request.body().is_end_stream() && request.body().size_hint().exact().is_none()
}

/// Meters the request body, unless it is empty. The client's timeouts begin with its end.
fn meter(
    request: &mut Request<Incoming>,
    options: &HttpOptions,
    exchange: &mut Exchange,
) -> Option<Arc<BodyMeter>> {
    if request.body().is_end_stream() {
        return None;
    }
    let meter = Arc::new(BodyMeter::new(exchange, options));
    request.extensions_mut().insert(meter.end().clone());
    exchange.set_request_meter(Arc::clone(&meter));
    Some(meter)
}

/// Downstream half of a request that may be upgraded to a tunnel.
pub(crate) struct Tunnel {
    pub(crate) client: OnUpgrade,
    protocol: HeaderValue,
}

/// Returns the upgrade that a request asks for, or an error reply if it is not allowed.
fn requested_upgrade(
    request: &mut Request<Incoming>,
    options: &HttpOptions,
) -> Result<Option<Tunnel>, LocalReply> {
    let Some(protocol) = headers::requested_protocol(request.headers()).cloned() else {
        return Ok(None);
    };
    let matches = |allowed: &String| protocol.as_bytes().eq_ignore_ascii_case(allowed.as_bytes());
    if protocol.as_bytes().eq_ignore_ascii_case(b"h2c") {
        // A server may ignore an offer to upgrade to h2c (RFC 9113, 3.1).
        return Ok(None);
    }
    if !options.upgrades.iter().any(matches) {
        return Err(LocalReply::UPGRADE_REFUSED);
    }
    Ok(Some(Tunnel {
        client: hyper::upgrade::on(request),
        protocol,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One lives per request: its size is memory of every stream, and is copied.
    #[test]
    fn the_future_of_a_request_is_small() {
        type Arguments = (
            Arc<Connection>,
            Option<Arc<StreamTimeouts>>,
            Request<Incoming>,
        );
        fn size_of_output<F>(_: impl FnOnce(Arguments) -> F) -> usize {
            size_of::<F>()
        }
        let size = size_of_output(|(connection, stream, request): Arguments| {
            handle(connection, stream, request)
        });
        assert!(size <= 1536, "{size} bytes");
    }
}
