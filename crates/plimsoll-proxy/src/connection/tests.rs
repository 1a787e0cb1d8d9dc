//! Tests of the timeouts of a connection, tick by tick and without a socket.

use plimsoll_client::Client;

use super::*;
use crate::access_log::Sinks;
use crate::config::{ListenerConfig, ProxyConfig};
use crate::listener::ListenerRuntime;

impl Connection {
    pub(crate) fn last_activity(&self) -> u32 {
        self.last_activity.load(Ordering::Relaxed)
    }

    pub(crate) fn has_read_ahead(&self) -> bool {
        self.has_read_ahead.load(Ordering::Relaxed)
    }

    pub(crate) fn request_probe(&self) {
        self.probe_requested.store(true, Ordering::Relaxed);
    }
}

/// A listener of plain HTTP without routes.
pub(crate) fn listener_config(name: &str, port: u16) -> Arc<ListenerConfig> {
    let text = format!(
        "static_resources:
  listeners:
  - name: {name}
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.\
         v3.HttpConnectionManager
          stat_prefix: {name}
          route_config: {{virtual_hosts: []}}
"
    );
    let mut config = ProxyConfig::parse(&text).unwrap();
    config.listeners.swap_remove(0)
}

pub(crate) fn listener(config: Arc<ListenerConfig>, workers: usize) -> Arc<Listener> {
    let runtime = ListenerRuntime::new(config, &Sinks::default(), None).unwrap();
    Arc::new(Listener::new(runtime, workers))
}

/// Creates a connection at tick 0 of its worker.
pub(crate) fn connection() -> Arc<Connection> {
    let client = Client::builder().build().unwrap();
    let worker = Arc::new(Worker::new(0, client, Arc::default(), 1));
    let listener = listener(listener_config("front", 0), 1);
    let peer = "[::ffff:10.0.0.7]:4242".parse().unwrap();
    let permit = ConnectionPermit::for_tests();
    Arc::new(Connection::new(worker, listener, 0, peer, permit))
}

pub(crate) fn advance(connection: &Connection, ticks: u32) {
    for _ in 0..ticks {
        connection.worker.tick();
    }
}

/// Options in which each limit has another number of ticks: 10 of headers, 20 of an idle
/// connection, 30 of an idle stream, 40 of a connection.
pub(crate) fn options() -> HttpOptions {
    HttpOptions {
        request_headers_timeout: Some(Duration::from_secs(1)),
        idle_timeout: Some(Duration::from_secs(2)),
        stream_idle_timeout: Some(Duration::from_secs(3)),
        max_connection_duration: Some(Duration::from_secs(4)),
        ..Default::default()
    }
}

pub(crate) fn without_limits() -> HttpOptions {
    HttpOptions {
        request_headers_timeout: None,
        idle_timeout: None,
        stream_idle_timeout: None,
        ..Default::default()
    }
}

/// Returns the counters that are not zero.
fn counted(connection: &Connection) -> Vec<(&'static str, u64)> {
    let stats = connection.stats.iter();
    stats.filter(|(_, value)| *value > 0).collect()
}

/// Returns what of `counted` a new HTTP/1.1 connection does not have.
fn events(connection: &Connection) -> Vec<(&'static str, u64)> {
    let known = ["downstream_cx_total", "downstream_cx_active"];
    let mut counted = counted(connection);
    counted.retain(|(name, _)| !known.contains(name));
    counted
}

#[tokio::test]
async fn connections_and_requests_are_counted_by_protocol_and_outcome() {
    let connection = connection();
    let stats = Arc::clone(&connection.stats);
    assert_eq!(connection.peer_ip, "10.0.0.7");
    assert_eq!(connection.scheme, "http");
    connection.set_protocol(false);
    assert!(!connection.is_http2());
    connection.request_started(Version::HTTP_10);
    connection.request_finished(204);
    connection.set_protocol(true);
    assert!(connection.is_http2());
    connection.request_started(Version::HTTP_2);
    connection.request_started(Version::HTTP_2);
    connection.request_finished(0);
    let expected = [
        ("downstream_cx_total", 1),
        ("downstream_cx_active", 1),
        ("downstream_cx_http1_total", 1),
        ("downstream_cx_http2_total", 1),
        ("downstream_rq_total", 3),
        ("downstream_rq_active", 1),
        ("downstream_rq_http1_total", 1),
        ("downstream_rq_http2_total", 2),
        ("downstream_rq_2xx", 1),
        ("downstream_rq_rx_reset", 1),
    ];
    assert_eq!(counted(&connection), expected);
    drop(connection);
    let active = stats
        .iter()
        .find(|(name, _)| *name == "downstream_cx_active");
    assert_eq!(active.unwrap().1, 0);
}

#[tokio::test]
async fn what_is_known_of_the_client_is_kept() {
    let connection = connection();
    assert_eq!(connection.client_cert(), None);
    connection.set_client_cert(HeaderValue::from_static("URI=spiffe://td/a"));
    assert_eq!(connection.client_cert().unwrap(), "URI=spiffe://td/a");
    assert_eq!(connection.local_port(), 0);
    connection.set_local_port(8080);
    assert_eq!(connection.local_port(), 8080);
}

#[tokio::test]
async fn a_read_starts_headers_only_between_requests() {
    let connection = connection();
    assert!(connection.record_read());
    assert!(!connection.record_read(), "more of the same headers");
    connection.request_started(Version::HTTP_2);
    connection.request_started(Version::HTTP_2);
    assert!(!connection.record_read());
    connection.request_finished(200);
    assert!(!connection.record_read(), "one request is still active");
    connection.request_finished(200);
    assert!(connection.record_read());
}

#[tokio::test]
async fn headers_must_arrive_in_time_on_http1() {
    let connection = connection();
    advance(&connection, 5);
    connection.record_read();
    advance(&connection, 5);
    connection.record_read();
    connection.check_timeouts(15, &options());
    assert_eq!(connection.drain_level(), DrainLevel::Serve);
    assert!(!connection.header_timed_out());
    connection.check_timeouts(16, &options());
    assert_eq!(connection.drain_level(), DrainLevel::Close);
    assert!(connection.header_timed_out());
    connection.check_timeouts(17, &options());
    assert_eq!(events(&connection), [("downstream_rq_header_timeout", 1)]);
}

#[tokio::test]
async fn frames_between_requests_of_http2_are_no_headers() {
    let connection = connection();
    connection.set_protocol(true);
    connection.record_read();
    connection.check_timeouts(20, &options());
    assert_eq!(connection.drain_level(), DrainLevel::Serve);
    connection.check_timeouts(21, &options());
    assert_eq!(connection.drain_level(), DrainLevel::Drain);
    assert!(!connection.header_timed_out());
}

#[tokio::test]
async fn an_idle_connection_is_drained_and_counted_once() {
    let connection = connection();
    connection.request_started(Version::HTTP_11);
    connection.check_timeouts(30, &options());
    assert_eq!(connection.drain_level(), DrainLevel::Serve, "not idle");
    advance(&connection, 5);
    connection.request_finished(200);
    let before = events(&connection).len();
    connection.check_timeouts(25, &options());
    assert_eq!(connection.drain_level(), DrainLevel::Serve);
    for now in 26..29 {
        connection.check_timeouts(now, &options());
        assert_eq!(connection.drain_level(), DrainLevel::Drain);
    }
    let events = events(&connection);
    assert!(
        events.contains(&("downstream_cx_idle_timeout", 1)),
        "{events:?}"
    );
    assert_eq!(events.len(), before + 1, "{events:?}");
}

#[tokio::test]
async fn an_old_connection_is_drained_and_counted_once() {
    let connection = connection();
    connection.request_started(Version::HTTP_11);
    connection.check_timeouts(40, &options());
    assert_eq!(connection.drain_level(), DrainLevel::Serve);
    for now in 41..44 {
        connection.check_timeouts(now, &options());
        assert_eq!(connection.drain_level(), DrainLevel::Drain);
    }
    let name = "downstream_cx_max_duration_reached";
    assert!(events(&connection).contains(&(name, 1)));
    // One that is drained already is not counted.
    let drained = self::connection();
    drained.request_started(Version::HTTP_11);
    drained.start_drain(DRAIN_GRACE);
    drained.check_timeouts(41, &options());
    assert_eq!(drained.drain_level(), DrainLevel::Announce);
    assert!(!events(&drained).iter().any(|(counted, _)| *counted == name));
}

#[tokio::test]
async fn a_drain_waits_for_the_next_request_of_an_idle_connection() {
    let limits = without_limits();
    let connection = connection();
    advance(&connection, 5);
    connection.start_drain(DRAIN_GRACE);
    assert_eq!(events(&connection), [("downstream_cx_drain_close", 1)]);
    connection.check_timeouts(15, &limits);
    assert_eq!(connection.drain_level(), DrainLevel::Announce);
    connection.check_timeouts(16, &limits);
    assert_eq!(connection.drain_level(), DrainLevel::Drain);
    // The grace begins again with the end of a request.
    let busy = self::connection();
    busy.start_drain(DRAIN_GRACE);
    busy.request_started(Version::HTTP_11);
    busy.check_timeouts(100, &limits);
    assert_eq!(busy.drain_level(), DrainLevel::Announce);
    advance(&busy, 5);
    busy.request_finished(200);
    busy.check_timeouts(15, &limits);
    assert_eq!(busy.drain_level(), DrainLevel::Announce);
    busy.check_timeouts(16, &limits);
    assert_eq!(busy.drain_level(), DrainLevel::Drain);
}

#[tokio::test]
async fn a_drained_connection_without_requests_is_closed() {
    let limits = without_limits();
    for busy in [false, true] {
        let connection = connection();
        if busy {
            connection.request_started(Version::HTTP_11);
        }
        advance(&connection, 5);
        assert!(connection.raise(DrainLevel::Drain));
        connection.check_timeouts(305, &limits);
        assert_eq!(connection.drain_level(), DrainLevel::Drain);
        connection.check_timeouts(306, &limits);
        let closed = connection.drain_level() == DrainLevel::Close;
        assert_eq!(closed, !busy);
    }
}

#[tokio::test]
async fn the_limits_of_a_request_close_its_http1_connection() {
    for http2 in [false, true] {
        let connection = connection();
        connection.set_protocol(http2);
        connection.request_started(Version::HTTP_11);
        connection.stream.start(&options(), 0);
        connection.stream.response_started(0);
        advance(&connection, 5);
        connection.record_read();
        connection.check_timeouts(35, &options());
        assert_eq!(connection.drain_level(), DrainLevel::Serve);
        connection.check_timeouts(36, &options());
        let closed = connection.drain_level() == DrainLevel::Close;
        assert_eq!(closed, !http2);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    // (busy, HTTP/2, closed by the limit of writes)
    for (busy, http2, closed) in [
        (false, false, true),
        (true, false, false),
        (true, true, true),
    ] {
        let connection = connection();
        connection.set_protocol(http2);
        if busy {
            connection.request_started(Version::HTTP_11);
        }
        let limits = HttpOptions {
            stream_idle_timeout: Some(Duration::from_secs(3)),
            ..without_limits()
        };
        connection.record_write(&Poll::<()>::Pending);
        assert!(connection.is_write_blocked());
        advance(&connection, 5);
        connection.record_write(&Poll::<()>::Pending);
        connection.check_timeouts(31, &limits);
        assert_eq!(connection.drain_level(), DrainLevel::Serve);
        connection.check_timeouts(32, &without_limits());
        assert_eq!(connection.drain_level(), DrainLevel::Serve);
        connection.check_timeouts(32, &limits);
        connection.check_timeouts(33, &limits);
        let level = connection.drain_level();
        assert_eq!(level == DrainLevel::Close, closed, "{busy} {http2}");
        let counted = events(&connection).contains(&("downstream_rq_idle_timeout", 1));
        assert_eq!(counted, closed);
    }
}

#[tokio::test]
async fn a_write_that_succeeds_is_progress() {
    let connection = connection();
    connection.record_write(&Poll::<()>::Pending);
    advance(&connection, 7);
    connection.record_write(&Poll::Ready(()));
    assert!(!connection.is_write_blocked());
    assert_eq!(connection.last_activity.load(Ordering::Relaxed), 7);
    connection.check_timeouts(1000, &without_limits());
    assert_eq!(connection.drain_level(), DrainLevel::Serve);
}

#[tokio::test]
async fn only_http1_announces_the_close_in_responses() {
    let connection = connection();
    assert!(!connection.announces_close());
    connection.raise(DrainLevel::Announce);
    assert!(connection.announces_close());
    connection.set_protocol(true);
    assert!(!connection.announces_close());
}

#[tokio::test]
async fn drain_levels_only_increase_and_wake_the_connection() {
    let connection = connection();
    assert!(connection.raise(DrainLevel::Drain));
    assert_eq!(connection.drain_level_changed().await, DrainLevel::Drain);
    assert!(!connection.raise(DrainLevel::Drain));
    assert!(!connection.raise(DrainLevel::Announce));
    assert_eq!(connection.drain_level(), DrainLevel::Drain);
    assert!(connection.raise(DrainLevel::Close));
    assert_eq!(connection.drain_level_changed().await, DrainLevel::Close);
}

#[tokio::test]
async fn a_probe_is_requested_while_hyper_does_not_read() {
    let connection = connection();
    let requested = || connection.probe_requested.load(Ordering::Relaxed);
    connection.request_started(Version::HTTP_11);
    connection.check_timeouts(10, &without_limits());
    assert!(!requested(), "nothing was read ahead");
    connection.has_read_ahead.store(true, Ordering::Relaxed);
    connection.check_timeouts(11, &without_limits());
    assert!(!requested(), "not on every tick");
    connection.check_timeouts(20, &without_limits());
    assert!(requested());
    assert_eq!(connection.drain_level_changed().await, DrainLevel::Serve);
    connection.probe_requested.store(false, Ordering::Relaxed);
    connection.became_tunnel();
    connection.check_timeouts(30, &without_limits());
    assert!(!requested(), "both ends of a tunnel are read");
}
