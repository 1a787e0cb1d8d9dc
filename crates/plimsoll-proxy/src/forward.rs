//! Handles requests: selects the route, rewrites headers, sends upstream, returns the response.
//!
//! The Plimsoll client selects the upstream host and retries. Responses that the proxy generates
//! itself are in `local_reply`; upgraded connections are in `upgrade`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, SERVER, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use plimsoll_core::log_line;

use crate::body::{BodyMeter, MeteredBody, ProxyBody};
use crate::client_cert;
use crate::config::HttpOptions;
use crate::connection::Connection;
use crate::exchange::{Exchange, protocol};
use crate::filters::apply_filters;
use crate::header_rules::HeaderRules;
use crate::headers::{self, X_FORWARDED_HOST, X_REQUEST_ID};
use crate::listener::ChainRuntime;
use crate::local_reply::{self, LocalReply};
use crate::log_lines;
use crate::mirror;
use crate::request_policy::{self, Refused};
use crate::router::{
    CompiledAction, CompiledRoute, DirectResponse, Forward, HashPolicy, HashSource, RequestView,
    SelectedCluster, WeightedCluster, is_grpc,
};
use crate::stream_timeouts::{Expiry, RouteLimits, StreamTimeouts};
use crate::substitution::RequestInfo;
use crate::trace::{TRACEPARENT, TraceContext};
use crate::upgrade;
use crate::worker::{self, UpstreamResponse};

/// Handles one request; the entry point that hyper calls. `stream` has the limits of an HTTP/2
/// stream.
pub(crate) async fn handle(
    connection: Arc<Connection>,
    stream: Option<Arc<StreamTimeouts>>,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, Infallible> {
    // The bytes behind CONNECT may belong to a tunnel, which is never opened.
    let last = connection.announces_close()
        || request.method() == Method::CONNECT && !connection.is_http2();
    let mut response = respond(connection, stream, request).await;
    // A tunnel has no further response: its `connection: upgrade` must stay.
    if last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

async fn respond(
    connection: Arc<Connection>,
    stream: Option<Arc<StreamTimeouts>>,
    mut request: Request<Incoming>,
) -> Response<ProxyBody> {
    let listener = connection.listener.runtime();
    let runtime = listener.chain(connection.chain);
    let options = &runtime.config().http;
    let mut exchange = Exchange::begin(connection, stream, request.version(), options);
    exchange.note_request_end(&request);
    let port = exchange.connection().local_port();
    if let Err(refused) = request_policy::apply(&mut request, options, port) {
        return refuse(refused, exchange);
    }
    exchange.begin_trace(runtime.tracer.as_ref(), request.headers_mut(), options);
    let view = request_view(&request, exchange.connection().scheme);
    let Some(view) = view.filter(|_| !exchange.connection().has_malformed_head()) else {
        return LocalReply::BAD_REQUEST.response(false, exchange);
    };
    start_log(runtime, &view, &mut exchange, request.version());
    let (selected, cors) = apply_filters(runtime, &view, exchange.connection());
    let route = match selected {
        Ok(route) => route,
        Err(reply) => return reply.response(is_grpc(request.headers()), exchange, cors),
    };
    let stats = &exchange.connection().stats;
    let mut info = route
        .needs_request_info
        .then(|| request_info(&view, route, &exchange, request.version()));
    let mut response = match &route.action {
        CompiledAction::Forward(forward) => {
            let upstream = UpstreamRequest {
                runtime,
                route,
                forward,
                weighted: None,
            };
            upstream
                .forward(request, exchange, info.as_deref_mut())
                .await
        }
        CompiledAction::Redirect(redirect) => {
            stats.rq_redirect.increment();
            let location = local_reply::location(redirect, &route.path, &view);
            local_reply::redirect(redirect.status, location, exchange)
        }
        CompiledAction::Direct(direct) => {
            stats.rq_direct_response.increment();
            direct_response(direct, exchange)
        }
    };
    apply_response_rules(&route.response_rules, &mut response, info.as_deref_mut());
    if let Some(cors) = cors {
        cors.apply(&mut response);
    }
    if let Some(server) = &options.server {
        response.headers_mut().insert(SERVER, server.clone());
    }
    response
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

/// Collects the values that header formats such as `%UPSTREAM_HOST%` refer to.
fn request_info(
    view: &RequestView<'_>,
    route: &CompiledRoute,
    exchange: &Exchange,
    version: Version,
) -> Box<RequestInfo> {
    let connection = exchange.connection();
    Box::new(RequestInfo {
        start: SystemTime::now(),
        protocol: protocol(version),
        peer: connection.peer,
        method: view.method.clone(),
        path: view.path_and_query.to_owned(),
        authority: view.host.to_owned(),
        scheme: connection.scheme,
        headers: view.headers.clone(),
        route: Arc::clone(&route.name),
        cluster: None,
        upstream_host: None,
        status: None,
    })
}

/// Returns the values that routes match on; `None` if `Host` is missing, repeated or malformed.
fn request_view<'a>(
    request: &'a Request<Incoming>,
    scheme: &'static str,
) -> Option<RequestView<'a>> {
    let headers = request.headers();
    let mut fields = headers.get_all(HOST).iter();
    let field = fields.next();
    if fields.next().is_some() {
        return None;
    }
    let field = match field {
        Some(field) => Some(field.to_str().ok()?),
        None => None,
    };
    let uri = request.uri();
    let host = uri.authority().map(Authority::as_str).or(field)?;
    if host
        .bytes()
        .any(|byte| matches!(byte, b'/' | b'?' | b'#' | b'@' | b' '))
    {
        return None;
    }
    Some(RequestView {
        host,
        path: uri.path(),
        path_and_query: uri.path_and_query().map_or("", PathAndQuery::as_str),
        method: request.method(),
        scheme,
        headers,
    })
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

impl UpstreamRequest<'_> {
    async fn forward(
        &self,
        mut request: Request<Incoming>,
        mut exchange: Exchange,
        mut info: Option<&mut RequestInfo>,
    ) -> Response<ProxyBody> {
        let options = &self.runtime.config().http;
        let grpc = is_grpc(request.headers());
        if request.method() == Method::CONNECT {
            return LocalReply::NO_ROUTE.response(grpc, exchange);
        }
        if too_large(&request, options) {
            return reply_too_large(grpc, exchange);
        }
        let tunnel = match requested_upgrade(&mut request, options) {
            Ok(tunnel) => tunnel,
            Err(reply) => return reply.response(grpc, exchange),
        };
        let worker = Arc::clone(&exchange.connection().worker);
        let selector = &self.forward.cluster;
        let Some(selected) = selector.select(request.headers(), || worker.draw()) else {
            exchange.connection().stats.no_cluster.increment();
            return LocalReply::NO_CLUSTER.response(grpc, exchange);
        };
        let SelectedCluster { cluster, weighted } = selected;
        self.record_cluster(&cluster, &mut exchange, info.as_deref_mut());
        let upstream = Self { weighted, ..*self };
        let prepared = upstream.prepare(
            &mut request,
            &exchange,
            tunnel.as_ref(),
            info.as_deref_mut(),
        );
        if let Err(reply) = prepared {
            return reply.response(grpc, exchange);
        }
        exchange.timeouts().apply_route(self.limits());
        let id = response_request_id(&request, options);
        let meter = meter(&mut request, options, &mut exchange);
        let mirrors = mirror::start(self.forward, &request, tunnel.is_some(), &exchange);
        let request = request.map(|body| MeteredBody::new(body, meter.clone(), mirrors));
        let call = worker.call(self.forward, weighted, cluster, request);
        let result = match call {
            Ok(call) => match exchange.await_response(call).await {
                Ok(result) => result,
                Err(expiry) => return expired(expiry, grpc, exchange),
            },
            Err(error) => Err(error),
        };
        let mut response = match result {
            Ok(mut response) => {
                record_host(response.body().host(), &mut exchange, info.as_deref_mut());
                if !options.suppress_envoy_headers {
                    set_service_time(&mut response, meter.as_deref(), &exchange);
                }
                self.downstream_response(response, tunnel, exchange)
            }
            Err(error) => failed(&error, meter.as_deref(), grpc, exchange),
        };
        if let Some(id) = id {
            response.headers_mut().insert(X_REQUEST_ID, id);
        }
        if let Some(weighted) = weighted {
            apply_response_rules(&weighted.response_rules, &mut response, info);
        }
        response
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
        let hash = self.hash(request, connection);
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

    fn downstream_response(
        &self,
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

    /// Computes the hash for consistent hashing, combining the `hash_policy` entries as Envoy does.
    fn hash(&self, request: &Request<Incoming>, connection: &Connection) -> Option<u64> {
        let mut hash: Option<u64> = None;
        for HashPolicy { source, terminal } in &self.forward.hash_policy {
            let value = match source {
                HashSource::Header(name) => request.headers().get(name).map(HeaderValue::as_bytes),
                HashSource::SourceIp => Some(connection.peer_ip.as_bytes()),
            };
            if let Some(value) = value {
                hash = Some(combine_hash(hash, value));
                if *terminal {
                    break;
                }
            }
        }
        hash
    }
}

/// Adds a value of a request to the hash of the values before it.
fn combine_hash(before: Option<u64>, value: &[u8]) -> u64 {
    let new = xxhash_rust::xxh64::xxh64(value, 0);
    before.map_or(new, |before| before.rotate_left(1) ^ new)
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
    let meter = Arc::new(BodyMeter::new(exchange, options.max_request_bytes));
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

    #[test]
    fn hashes_are_combined_as_in_envoy() {
        // XXH64 of the empty text and of "a", with seed 0.
        let (empty, a) = (0xef46_db37_51d8_e999_u64, 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(combine_hash(None, b""), empty);
        assert_eq!(combine_hash(None, b"a"), a);
        assert_eq!(combine_hash(Some(0b101), b"a"), a ^ 0b1010);
        assert_eq!(combine_hash(Some(1 << 63), b"a"), a ^ 1);
        assert_ne!(combine_hash(Some(a), b"a"), combine_hash(None, b"a"));
    }
}
