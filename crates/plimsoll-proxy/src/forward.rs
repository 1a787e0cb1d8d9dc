//! The journey of a request: route, header fields, cluster, response.
//!
//! One function per leg. Which host a cluster sends to, and trying again, is the client's. What the
//! proxy answers itself is in `local_reply`, tunnels are in `upgrade`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, SERVER, TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::time::Instant;

use crate::body::{ProxyBody, RequestStream, RequestWatch};
use crate::config::HttpOptions;
use crate::connection::Connection;
use crate::exchange::{Exchange, protocol};
use crate::headers::{self, X_FORWARDED_HOST, X_REQUEST_ID};
use crate::listener::ListenerRuntime;
use crate::local_reply::{self, LocalReply};
use crate::router::{
    Action, Forward, HashPolicy, HashSource, RequestView, Route, WeightedCluster, is_grpc,
};
use crate::substitution::Facts;
use crate::upgrade;
use crate::worker::{self, UpstreamResponse};

/// Answers a request.
pub(crate) async fn handle(
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, Infallible> {
    let last = connection.is_last();
    let mut response = answer(connection, request).await;
    if last {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

async fn answer(connection: Arc<Connection>, request: Request<Incoming>) -> Response<ProxyBody> {
    let runtime = connection.listener.runtime();
    let mut exchange = Exchange::begin(connection, request.version());
    let view = view(&request, exchange.connection().scheme);
    let Some(view) = view.filter(|_| !exchange.connection().is_ambiguous()) else {
        return LocalReply::BAD_REQUEST.response(false, exchange);
    };
    if !runtime.logs.is_empty() {
        let pending = runtime.logs.iter().map(|log| log.begin(&view)).collect();
        exchange.log(pending, request.version());
    }
    let stats = &exchange.connection().stats;
    let worker = &exchange.connection().worker;
    let Some(route) = runtime.routes.route(&view, || worker.draw()) else {
        stats.no_route.inc();
        return LocalReply::NO_ROUTE.response(is_grpc(request.headers()), exchange);
    };
    let mut facts = route
        .needs_facts
        .then(|| facts(&view, route, &exchange, request.version()));
    let mut response = match &route.action {
        Action::Forward(forward) => {
            let leg = Leg {
                runtime: &runtime,
                route,
                forward,
                weighted: None,
            };
            leg.forward(request, exchange, facts.as_deref_mut()).await
        }
        Action::Redirect(redirect) => {
            stats.rq_redirect.inc();
            let location = local_reply::location(redirect, &route.path, &view);
            local_reply::redirect(redirect.status, location, exchange)
        }
        Action::Direct(direct) => {
            stats.rq_direct_response.inc();
            let mut response = Response::new(());
            *response.status_mut() = direct.status;
            exchange.response(&response);
            response.map(|()| ProxyBody::own(direct.body.clone(), exchange))
        }
    };
    if let Some(facts) = &mut facts {
        facts.status = Some(response.status().as_u16());
    }
    let rules = &route.response_rules;
    rules.apply_to_response(response.headers_mut(), facts.as_deref());
    if let Some(server) = &runtime.config.http.server {
        response.headers_mut().insert(SERVER, server.clone());
    }
    response
}

/// What header rules may make values of.
fn facts(
    view: &RequestView<'_>,
    route: &Route,
    exchange: &Exchange,
    version: Version,
) -> Box<Facts> {
    let connection = exchange.connection();
    Box::new(Facts {
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

/// What routes look at; `None` for requests without a host, with two, or with a strange one.
fn view<'a>(request: &'a Request<Incoming>, scheme: &'static str) -> Option<RequestView<'a>> {
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
    // HTTP/1.0 had no hosts.
    let old = (request.version() == Version::HTTP_10).then_some("");
    let host = uri
        .authority()
        .map(http::uri::Authority::as_str)
        .or(field)
        .or(old)?;
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

/// What a request that goes to a cluster needs.
#[derive(Clone, Copy)]
struct Leg<'a> {
    runtime: &'a ListenerRuntime,
    route: &'a Route,
    forward: &'a Forward,
    /// The entry of the cluster, once it is chosen by weight.
    weighted: Option<&'a WeightedCluster>,
}

impl Leg<'_> {
    async fn forward(
        &self,
        mut request: Request<Incoming>,
        mut exchange: Exchange,
        mut facts: Option<&mut Facts>,
    ) -> Response<ProxyBody> {
        let options = &self.runtime.config.http;
        let grpc = is_grpc(request.headers());
        if request.method() == Method::CONNECT {
            return LocalReply::NO_ROUTE.response(grpc, exchange);
        }
        if too_large(&request, options) {
            exchange.connection().stats.downstream_rq_too_large.inc();
            return LocalReply::TOO_LARGE.response(grpc, exchange);
        }
        let tunnel = match wanted_upgrade(&mut request, options) {
            Ok(tunnel) => tunnel,
            Err(reply) => return reply.response(grpc, exchange),
        };
        let worker = Arc::clone(&exchange.connection().worker);
        let target = &self.forward.target;
        let Some(chosen) = target.choose(request.headers(), || worker.draw()) else {
            exchange.connection().stats.no_cluster.inc();
            return LocalReply::NO_CLUSTER.response(grpc, exchange);
        };
        let (cluster, weighted) = (chosen.cluster, chosen.weighted);
        self.note_cluster(&cluster, &mut exchange, facts.as_deref_mut());
        let leg = Self { weighted, ..*self };
        let prepared = leg.prepare(
            &mut request,
            &exchange,
            tunnel.as_ref(),
            facts.as_deref_mut(),
        );
        if let Err(reply) = prepared {
            return reply.response(grpc, exchange);
        }
        let id = echoed_id(&request, options);
        let watch = watch(&request, options, &mut exchange);
        let request = request.map(|body| RequestStream::new(body, watch.clone()));
        let call = worker.call((self.forward, weighted), cluster, request);
        let result = match call {
            Ok(call) => call.await,
            Err(error) => Err(error),
        };
        let mut response = match result {
            Ok(response) => {
                note_host(response.body().host(), &mut exchange, facts.as_deref_mut());
                self.finish(response, tunnel, exchange)
            }
            Err(_) if watch.is_some_and(|watch| watch.too_large()) => {
                exchange.connection().stats.downstream_rq_too_large.inc();
                LocalReply::TOO_LARGE.response(grpc, exchange)
            }
            Err(error) => {
                tracing::debug!(%error, "no response from upstream");
                LocalReply::of_error(&error).response(grpc, exchange)
            }
        };
        if let Some(id) = id {
            response.headers_mut().insert(X_REQUEST_ID, id);
        }
        if let Some(weighted) = weighted {
            apply_weighted(weighted, &mut response, facts);
        }
        response
    }

    fn note_cluster(&self, cluster: &Arc<str>, exchange: &mut Exchange, facts: Option<&mut Facts>) {
        if exchange.is_logged() {
            exchange.note(|outcome| {
                outcome.cluster = Some(Arc::clone(cluster));
                outcome.route = Arc::clone(&self.route.name);
            });
        }
        if let Some(facts) = facts {
            facts.cluster = Some(Arc::clone(cluster));
        }
    }

    /// Makes the request one of ours.
    fn prepare(
        &self,
        request: &mut Request<Incoming>,
        exchange: &Exchange,
        tunnel: Option<&Tunnel>,
        facts: Option<&mut Facts>,
    ) -> Result<(), LocalReply> {
        let options = &self.runtime.config.http;
        let connection = exchange.connection();
        let hash = self.hash(request, connection);
        let silent_about_body = has_unexpected_body(request);
        *request.version_mut() = Version::HTTP_11;
        let fields = request.headers_mut();
        headers::remove_hop_by_hop_of_request(fields);
        let client = headers::Client {
            address: &connection.peer_ip,
            scheme: connection.scheme,
        };
        if silent_about_body {
            fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        headers::add_forwarded(fields, &client, options);
        headers::add_request_id(fields, options, || connection.worker.draw());
        if let Some(tunnel) = tunnel {
            fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            fields.insert(UPGRADE, tunnel.protocol.clone());
        }
        let weighted = self.weighted.map(|weighted| &weighted.request_rules);
        let rules = weighted.into_iter().chain([&self.route.request_rules]);
        match facts {
            None => rules.for_each(|rules| rules.apply_to_request(fields, None)),
            Some(facts) => {
                facts.headers.clone_from(fields);
                rules.for_each(|rules| rules.apply_to_request(fields, Some(facts)));
                facts.headers.clone_from(fields);
            }
        }
        self.rewrite(request)?;
        if hash.is_some() {
            let options = worker::options(self.forward, self.weighted, hash);
            request.extensions_mut().insert(options);
        }
        Ok(())
    }

    /// Replaces path and host as the route says.
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

    /// What a response from upstream becomes.
    fn finish(
        &self,
        response: UpstreamResponse,
        tunnel: Option<Tunnel>,
        mut exchange: Exchange,
    ) -> Response<ProxyBody> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(tunnel) = tunnel else {
                return LocalReply::UPGRADE_REFUSED.response(false, exchange);
            };
            return upgrade::accept(response, tunnel, exchange);
        }
        let (mut head, body) = response.into_parts();
        headers::remove_hop_by_hop(&mut head.headers);
        let deadline = self
            .forward
            .timeout
            .map(|timeout| Instant::from_std(exchange.started()) + timeout);
        let head = Response::from_parts(head, ());
        exchange.response(&head);
        head.map(|()| ProxyBody::upstream(body, deadline, exchange))
    }

    /// Hash for policies that hash (Envoy: each value is mixed into the one before).
    fn hash(&self, request: &Request<Incoming>, connection: &Connection) -> Option<u64> {
        let mut hash: Option<u64> = None;
        for HashPolicy { source, terminal } in &self.forward.hash_policy {
            let value = match source {
                HashSource::Header(name) => request.headers().get(name).map(HeaderValue::as_bytes),
                HashSource::SourceIp => Some(connection.peer_ip.as_bytes()),
            };
            if let Some(value) = value {
                let new = xxhash_rust::xxh64::xxh64(value, 0);
                hash = Some(hash.map_or(new, |old| old.rotate_left(1) ^ new));
                if *terminal {
                    break;
                }
            }
        }
        hash
    }
}

/// A host has answered.
fn note_host(host: SocketAddr, exchange: &mut Exchange, facts: Option<&mut Facts>) {
    exchange.note(|outcome| outcome.upstream_host = Some(host));
    if let Some(facts) = facts {
        facts.upstream_host = Some(host);
    }
}

/// What the entry of a cluster that was chosen by weight does to a response.
fn apply_weighted(
    weighted: &WeightedCluster,
    response: &mut Response<ProxyBody>,
    mut facts: Option<&mut Facts>,
) {
    if let Some(facts) = &mut facts {
        facts.status = Some(response.status().as_u16());
    }
    let rules = &weighted.response_rules;
    rules.apply_to_response(response.headers_mut(), facts.as_deref());
}

/// The id that the response has too, if it shall.
fn echoed_id(request: &Request<Incoming>, options: &HttpOptions) -> Option<HeaderValue> {
    let wanted = options.always_set_request_id_in_response;
    let id = || request.headers().get(&X_REQUEST_ID).cloned();
    wanted.then(id).flatten()
}

/// Whether a request says itself that it is too large.
fn too_large(request: &Request<Incoming>, options: &HttpOptions) -> bool {
    let Some(limit) = options.max_request_bytes else {
        return false;
    };
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    length.is_some_and(|length| length > limit)
}

/// Whether there is a body of unknown length with a method that has none as a rule: HTTP/1.1 would
/// be sent without it. HTTP/2 has no such field, and takes it off again.
fn has_unexpected_body(request: &Request<Incoming>) -> bool {
    let rarely = matches!(*request.method(), Method::GET | Method::HEAD);
    rarely && !request.body().is_end_stream() && request.body().size_hint().exact().is_none()
}

/// Counts a body if somebody wants to know or there is a limit.
fn watch(
    request: &Request<Incoming>,
    options: &HttpOptions,
    exchange: &mut Exchange,
) -> Option<Arc<RequestWatch>> {
    if request.body().is_end_stream() {
        return None;
    }
    if options.max_request_bytes.is_none() && !exchange.is_logged() {
        return None;
    }
    let watch = Arc::new(RequestWatch::new(options.max_request_bytes));
    exchange.watch(Arc::clone(&watch));
    Some(watch)
}

/// The client's end of a tunnel that may come to be.
pub(crate) struct Tunnel {
    pub(crate) client: OnUpgrade,
    protocol: HeaderValue,
}

/// The upgrade that a request asks for, if it may.
fn wanted_upgrade(
    request: &mut Request<Incoming>,
    options: &HttpOptions,
) -> Result<Option<Tunnel>, LocalReply> {
    let Some(protocol) = headers::upgrade_of(request.headers()).cloned() else {
        return Ok(None);
    };
    let named = |allowed: &String| protocol.as_bytes().eq_ignore_ascii_case(allowed.as_bytes());
    if protocol.as_bytes().eq_ignore_ascii_case(b"h2c") {
        // An offer that may be ignored (RFC 9113, 3.1).
        return Ok(None);
    }
    if !options.upgrades.iter().any(named) {
        return Err(LocalReply::UPGRADE_REFUSED);
    }
    Ok(Some(Tunnel {
        client: hyper::upgrade::on(request),
        protocol,
    }))
}
