//! Tests of an endpoint with connections in memory: stale connections, leases and errors.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Empty;
use plimsoll_core::picker::PickArgs;
use plimsoll_xds::upstream::UpstreamTls;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpListener;

use super::*;
use crate::cluster::Cluster;
use crate::request::destination::{Destination, pick};

/// A host that refuses connections, of a cluster with these options.
struct Fixture {
    _client: crate::Client,
    cluster: Arc<Cluster>,
    destination: Destination,
}

impl Fixture {
    fn new(options: UpstreamOptions) -> Self {
        let orders = crate::Cluster::new("orders").endpoints(["127.0.0.1:1"]);
        let builder = crate::Client::builder().cluster(orders.options(options));
        let client = builder.seed(1).build().unwrap();
        let cluster = client.find("orders").unwrap();
        let mut picker = cluster.checkout_picker();
        let options = cluster.options.load_full();
        let picked = pick(&cluster, &mut picker, &options, PickArgs::default());
        Self {
            destination: picked.unwrap().host().unwrap(),
            cluster,
            _client: client,
        }
    }

    fn endpoint(&self) -> &Arc<Endpoint> {
        &self.destination.endpoint
    }

    async fn send(&self, slot: &mut Option<Request<RequestBody>>) -> SendOutcome {
        let context = SendContext {
            // More than there are pools: the workers share them.
            pool: 3,
            breakers: &CircuitBreakers::default(),
            authority: &self.cluster.authority,
            needs_tls: false,
            now: now(),
        };
        let reserved = self.destination.host.reserve_request();
        self.endpoint().send(slot, reserved, context).await
    }

    /// Opens a connection whose socket is `transport`.
    async fn connect(&self, transport: Chained) -> HttpConnection {
        let endpoint = self.endpoint();
        let permit = endpoint
            .limits
            .try_acquire_connection(&endpoint.connection_count, &CircuitBreakers::default());
        let state = Arc::new(ConnectionState::new(None, permit.unwrap(), now()));
        let socket = Box::new(transport);
        let opened = HttpConnection::open(socket, state, &endpoint.options, &endpoint.tasks).await;
        opened.unwrap().ready().await.unwrap()
    }

    fn idle(&self) -> usize {
        let options = &self.endpoint().options;
        let checkout = || self.endpoint().pools[0].checkout(None, options, now());
        let connections: Vec<_> = std::iter::from_fn(checkout).collect();
        let count = connections.len();
        for connection in connections {
            self.endpoint().pools[0].put(connection);
        }
        count
    }
}

fn now() -> Instant {
    Clock::system().now()
}

fn request() -> Option<Request<RequestBody>> {
    let request = Request::get("/").body(RequestBody::new(Empty::new()));
    Some(request.unwrap())
}

/// The client's end of a connection in memory; closing it closes another connection too.
struct Chained {
    inner: DuplexStream,
    _next: Option<DuplexStream>,
}

/// A chain of connections, and the server's end of the first.
fn chain(length: usize) -> (Vec<Chained>, DuplexStream) {
    let (mut clients, mut server) = (Vec::new(), None);
    for _ in 0..length {
        let (inner, other) = tokio::io::duplex(1 << 10);
        let next = server.replace(other);
        clients.push(Chained { inner, _next: next });
    }
    clients.reverse();
    (clients, server.unwrap())
}

impl AsyncRead for Chained {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Chained {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[test]
fn draws_differ() {
    let state = AtomicU64::new(0);
    let draws: std::collections::BTreeSet<u64> = (0..100).map(|_| next_draw(&state)).collect();
    assert_eq!(draws.len(), 100);
}

/// Sends a request with this many pooled connections. Each closes when the one before it was
/// tried, before its task could notice. Returns how many were tried and how many were dialed.
async fn send_on_stale(connections: usize) -> (u64, u64) {
    let fixture = Fixture::new(UpstreamOptions::default());
    let (clients, first) = chain(connections);
    for client in clients {
        let connection = fixture.connect(client).await;
        fixture.endpoint().pools[0].put(connection);
    }
    drop(first);
    let mut slot = request();
    let SendOutcome::Unsent(error) = fixture.send(&mut slot).await else {
        panic!("{connections} stale connections: not unsent");
    };
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(slot.is_some(), "the request is given back");
    assert_eq!(fixture.cluster.load.active(), 0);
    let endpoint = fixture.endpoint();
    let tried = endpoint.limits.stats.upstream_rq_total.get();
    (tried, endpoint.connection_counts().total)
}

#[tokio::test]
async fn a_request_tries_a_limited_number_of_stale_connections() {
    let limit = u64::from(MAX_STALE_CONNECTIONS);
    for (stale, expected) in [(1, (1, 1)), (8, (limit, 1)), (20, (limit + 1, 0))] {
        // Spawned, so that it runs in turn with the tasks of the connections.
        let sent = tokio::spawn(send_on_stale(stale)).await.unwrap();
        assert_eq!(sent, expected, "{stale} stale connections");
    }
}

#[tokio::test]
async fn a_request_is_sent_once() {
    let fixture = Fixture::new(UpstreamOptions::default());
    let SendOutcome::Failed(error) = fixture.send(&mut None).await else {
        panic!("there is no request");
    };
    assert_eq!(error.kind(), ErrorKind::Closed);
    let text = "the request was already sent by an earlier attempt";
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn a_refused_connection_starts_the_backoff_and_is_counted() {
    let fixture = Fixture::new(UpstreamOptions::default());
    let endpoint = fixture.endpoint();
    assert_eq!(endpoint.to_string(), "127.0.0.1:1 of cluster orders");
    assert!(!endpoint.is_in_backoff());
    let SendOutcome::Unsent(error) = fixture.send(&mut request()).await else {
        panic!("the host refuses connections");
    };
    assert!(endpoint.is_in_backoff());
    assert_eq!(error.cluster(), Some("orders"));
    assert_eq!(error.address(), Some(([127, 0, 0, 1], 1).into()));
    let text = "cannot connect to 127.0.0.1:1 of cluster orders";
    assert_eq!(error.to_string(), text);
    let counts = endpoint.connection_counts();
    assert_eq!(
        (counts.total, counts.connect_fail, counts.active),
        (1, 1, 0)
    );
    let stats = &endpoint.limits().stats;
    assert_eq!(stats.upstream_cx_connect_fail.get(), 1);
    assert_eq!(stats.upstream_cx_connect_timeout.get(), 0);
    assert_eq!(stats.upstream_rq_pending_total.get(), 1);
    // An endpoint that replaces this one goes on counting, but not its backoff.
    let context = EndpointContext {
        options: Arc::clone(&endpoint.options),
        dialer: Arc::clone(&endpoint.dialer),
        limits: Arc::clone(&endpoint.limits),
        pools: 0,
    };
    let next = Endpoint::new(endpoint.target.clone(), context).with_counters_of(endpoint);
    assert_eq!(next.connection_counts().connect_fail, 1);
    assert!(!next.is_in_backoff());
    assert_eq!(next.pools.len(), 1, "at least one");
}

#[tokio::test]
async fn addresses_names_and_settings_distinguish_endpoints() {
    let fixture = Fixture::new(UpstreamOptions::default());
    let endpoint = fixture.endpoint();
    let target = endpoint.target.clone();
    assert!(endpoint.dials_same(&target, &endpoint.dialer));
    let other = Arc::new(Dialer::new(&endpoint.options));
    assert!(!endpoint.dials_same(&target, &other));
    let moved = DialTarget {
        addresses: [([127, 0, 0, 1], 2).into()].into(),
        ..target.clone()
    };
    assert!(!endpoint.dials_same(&moved, &endpoint.dialer));
    let renamed = DialTarget {
        hostname: "other".into(),
        ..target
    };
    assert!(!endpoint.dials_same(&renamed, &endpoint.dialer));
}

#[tokio::test]
async fn only_one_connection_is_opened_in_advance() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = Fixture::new(UpstreamOptions::default());
    let context = EndpointContext {
        options: Arc::clone(&fixture.endpoint().options),
        dialer: Arc::clone(&fixture.endpoint().dialer),
        limits: Arc::default(),
        pools: 1,
    };
    let target = DialTarget {
        addresses: [listener.local_addr().unwrap()].into(),
        ..fixture.endpoint().target.clone()
    };
    let endpoint = Arc::new(Endpoint::new(target, context));
    for _ in 0..2 {
        endpoint.preconnect(&CircuitBreakers::default()).await;
        let counts = endpoint.connection_counts();
        assert_eq!((counts.total, counts.active), (1, 1));
    }
    let address = listener.local_addr().unwrap().to_string();
    assert_eq!(endpoint.to_string(), address, "it has no cluster");
    endpoint.remove_expired(now().saturating_add(std::time::Duration::from_secs(7200)));
    while endpoint.connection_counts().active > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_server_name_follows_the_request_only_with_auto_sni_and_tls() {
    let tls = || Some(UpstreamTls::default());
    for (auto_sni, tls, expected) in [
        (true, tls(), Some("users.example")),
        (false, tls(), None),
        (true, None, None),
    ] {
        let fixture = Fixture::new(UpstreamOptions::default());
        let options = UpstreamOptions {
            auto_sni,
            tls,
            ..UpstreamOptions::default()
        };
        let context = EndpointContext {
            options: Arc::new(options),
            dialer: Arc::clone(&fixture.endpoint().dialer),
            limits: Arc::default(),
            pools: 1,
        };
        let endpoint = Endpoint::new(fixture.endpoint().target.clone(), context);
        let uri = "https://users.example:8443/a";
        let request = Request::get(uri).body(RequestBody::new(Empty::new()));
        let name = endpoint.server_name(&request.unwrap());
        assert_eq!(name.as_deref(), expected);
    }
}

#[tokio::test]
async fn a_connection_returns_to_the_pool_after_a_complete_response() {
    let once = UpstreamOptions {
        max_requests_per_connection: Some(1),
        ..UpstreamOptions::default()
    };
    let many = UpstreamOptions::default();
    for (options, complete, idle) in [(&many, true, 1), (&many, false, 0), (&once, true, 0)] {
        let fixture = Fixture::new(options.clone());
        let (mut clients, _server) = chain(1);
        let connection = fixture.connect(clients.remove(0)).await;
        let state = Arc::clone(&connection.state);
        state.begin_request();
        let lease = Lease::new(fixture.endpoint(), 0, &state).with(connection);
        assert!(lease.is_exclusive());
        assert!(Arc::ptr_eq(lease.state(), &state));
        assert!(Arc::ptr_eq(lease.endpoint(), fixture.endpoint()));
        lease.end(complete, now());
        assert_eq!(state.streams(), 0, "counted once");
        assert_eq!(fixture.idle(), idle, "complete: {complete}");
    }
}

#[tokio::test]
async fn a_dropped_lease_ends_its_request_and_closes_the_connection() {
    let fixture = Fixture::new(UpstreamOptions::default());
    let (mut clients, _server) = chain(1);
    let connection = fixture.connect(clients.remove(0)).await;
    let state = Arc::clone(&connection.state);
    state.begin_request();
    let lease = Lease::new(fixture.endpoint(), 0, &state);
    assert!(!lease.is_exclusive());
    drop(lease.with(connection));
    assert_eq!((state.streams(), fixture.idle()), (0, 0));
}

#[tokio::test]
async fn close_connections_closes_idle_ones_too() {
    let fixture = Fixture::new(UpstreamOptions::default());
    let (clients, _server) = chain(2);
    for client in clients {
        let connection = fixture.connect(client).await;
        fixture.endpoint().pools[0].put(connection);
    }
    assert_eq!(fixture.idle(), 2);
    fixture.endpoint().close_connections();
    assert_eq!(fixture.idle(), 0);
}
