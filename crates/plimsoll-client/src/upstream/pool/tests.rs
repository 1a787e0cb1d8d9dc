//! Tests of the pool with connections to servers in memory.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::FutureExt as _;
use http_body_util::{Empty, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use plimsoll_xds::upstream::CircuitBreakers;

use super::*;
use crate::upstream::connection::ConnectionLimits;

fn options(http_version: HttpVersion) -> UpstreamOptions {
    UpstreamOptions {
        http_version,
        ..UpstreamOptions::default()
    }
}

/// A connection that can send a request, opened at the clock's origin.
async fn connection(
    options: &UpstreamOptions,
    name: Option<&Arc<str>>,
    tasks: &Arc<Tasks>,
) -> HttpConnection {
    let (client, server) = tokio::io::duplex(1 << 16);
    let service = service_fn(|_| async {
        let body = Full::new(bytes::Bytes::from_static(b"hello"));
        Ok::<_, Infallible>(Response::new(body))
    });
    tokio::spawn(async move {
        let builder = auto::Builder::new(TokioExecutor::new());
        let _ = builder
            .serve_connection(TokioIo::new(server), service)
            .await;
    });
    let limits = Arc::new(ConnectionLimits::default());
    let permit = limits.try_acquire_connection(&Arc::default(), &CircuitBreakers::default());
    let state = ConnectionState::new(name.cloned(), permit.unwrap(), Instant::ORIGIN);
    let opened = HttpConnection::open(Box::new(client), Arc::new(state), options, tasks).await;
    opened.unwrap().ready().await.unwrap()
}

fn at(seconds: u64) -> Instant {
    Instant::ORIGIN.saturating_add(Duration::from_secs(seconds))
}

async fn until_closed(connection: &HttpConnection) {
    while connection.is_ready() {
        tokio::task::yield_now().await;
    }
}

fn names() -> [Arc<str>; 2] {
    ["a".into(), "b".into()]
}

#[tokio::test]
async fn a_connection_sends_requests_while_its_task_runs() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let tasks = Arc::new(Tasks::default());
        let mut open = connection(&options(version), None, &tasks).await;
        assert!(open.is_ready());
        assert_eq!(open.is_shared(), version == HttpVersion::Http2);
        assert_eq!(open.share().is_some(), open.is_shared());
        let request = Request::get("http://h/").body(RequestBody::new(Empty::new()));
        let response = open.try_send(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        drop(response);
        tasks.abort();
        until_closed(&open).await;
        assert!(open.ready().await.is_none());
    }
}

#[tokio::test]
async fn tasks_are_forgotten_when_they_end() {
    let tasks = Tasks::default();
    tasks.spawn(async {});
    tasks.spawn(std::future::pending());
    assert_eq!(tasks.lock().len(), 2);
    while !tasks.lock()[0].is_finished() {
        tokio::task::yield_now().await;
    }
    tasks.spawn(std::future::pending());
    assert_eq!(tasks.lock().len(), 2);
    let running: Vec<AbortHandle> = tasks.lock().clone();
    tasks.abort();
    assert!(tasks.lock().is_empty());
    while !running.iter().all(AbortHandle::is_finished) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn idle_connections_are_used_again_by_server_name() {
    let options = options(HttpVersion::Http1);
    let (pool, tasks, [a, b]) = (Pool::default(), Arc::default(), names());
    assert!(pool.checkout(Some(&a), &options, at(0)).is_none());
    for name in [&b, &a] {
        pool.put(connection(&options, Some(name), &tasks).await);
    }
    assert_eq!(pool.idle_count(), 2);
    assert!(pool.checkout(None, &options, at(0)).is_none());
    assert_eq!(pool.idle_count(), 2, "others are put back");
    let found = pool.checkout(Some(&a), &options, at(0)).unwrap();
    assert_eq!(found.state.server_name, Some(a.clone()));
    assert!(pool.checkout(Some(&a), &options, at(0)).is_none());
    assert!(pool.checkout(Some(&b), &options, at(0)).is_some());
    assert_eq!(pool.idle_count(), 0);
}

#[tokio::test]
async fn closed_and_expired_connections_are_not_used_again() {
    let options = UpstreamOptions {
        max_connection_duration: Some(Duration::from_secs(10)),
        ..options(HttpVersion::Http1)
    };
    let pool = Pool::default();
    let [closed, kept] = [(); 2].map(|()| Arc::new(Tasks::default()));
    let [a, b] = names();
    pool.put(connection(&options, Some(&a), &closed).await);
    pool.put(connection(&options, Some(&b), &closed).await);
    let both = [pool.pop_idle().unwrap(), pool.pop_idle().unwrap()];
    closed.abort();
    for connection in both {
        until_closed(&connection).await;
        pool.put(connection);
    }
    assert!(pool.checkout(Some(&a), &options, at(0)).is_none());
    assert_eq!(pool.idle_count(), 0, "closed ones are dropped");
    pool.put(connection(&options, Some(&a), &kept).await);
    assert!(pool.checkout(Some(&a), &options, at(10)).is_none());
    assert_eq!(pool.idle_count(), 0, "expired ones are dropped");
}

#[tokio::test]
async fn expired_connections_are_removed_and_others_stay() {
    let idle = |seconds| UpstreamOptions {
        idle_timeout: Some(Duration::from_secs(seconds)),
        ..options(HttpVersion::Http1)
    };
    let (pool, tasks) = (Pool::default(), Arc::default());
    for used in [0, 5, 0] {
        let connection = connection(&idle(10), None, &tasks).await;
        connection.state.begin_request();
        connection.state.end_request(at(used));
        pool.put(connection);
    }
    pool.remove_expired(&idle(10), at(9));
    assert_eq!(pool.idle_count(), 3);
    pool.remove_expired(&idle(10), at(10));
    assert_eq!(pool.idle_count(), 1);
    let left = pool.checkout(None, &idle(10), at(14)).unwrap();
    assert!(left.is_ready());

    let shared = UpstreamOptions {
        http_version: HttpVersion::Http2,
        ..idle(10)
    };
    for used in [0, 5] {
        let connection = connection(&shared, None, &tasks).await;
        connection.state.begin_request();
        connection.state.end_request(at(used));
        pool.put(connection);
    }
    pool.remove_expired(&shared, at(9));
    assert_eq!(pool.shared.load().len(), 2);
    pool.remove_expired(&shared, at(10));
    assert_eq!(pool.shared.load().len(), 1);
    pool.clear();
    assert_eq!(pool.shared.load().len(), 0);
}

#[tokio::test]
async fn more_connections_than_most_pools_need_are_kept_up_to_a_limit() {
    let options = options(HttpVersion::Http1);
    let (pool, tasks) = (Pool::default(), Arc::default());
    for count in 1..=FEW_IDLE + 2 {
        pool.put(connection(&options, None, &tasks).await);
        assert_eq!(pool.idle_count(), count);
    }
    let capacity = |queue: &OnceLock<ArrayQueue<_>>| queue.get().unwrap().capacity();
    assert_eq!(capacity(&pool.idle) + capacity(&pool.more_idle), MAX_IDLE);
    for count in (0..FEW_IDLE + 2).rev() {
        assert!(pool.checkout(None, &options, at(0)).is_some());
        assert_eq!(pool.idle_count(), count);
    }
    pool.put(connection(&options, None, &tasks).await);
    pool.clear();
    assert_eq!(pool.idle_count(), 0);
}

#[tokio::test]
async fn the_oldest_waiter_gets_a_connection() {
    let options = options(HttpVersion::Http1);
    let (pool, tasks) = (Pool::default(), Arc::default());
    let gone = pool.enqueue();
    let [first, second] = [pool.enqueue(), pool.enqueue()];
    drop(gone);
    pool.put(connection(&options, None, &tasks).await);
    assert!(second.connection().now_or_never().is_none());
    let got = first.connection().now_or_never().flatten();
    assert!(got.is_some());
    assert_eq!(pool.idle_count(), 0);
    // A connection that a waiter got but did not use returns to the pool.
    pool.put(got.unwrap());
    assert_eq!(pool.idle_count(), 0);
    drop(second);
    assert_eq!(pool.idle_count(), 1);
}

#[tokio::test]
async fn http2_connections_are_shared_up_to_their_limit_of_streams() {
    let mut options = options(HttpVersion::Http2);
    options.http2.max_concurrent_streams = Some(2);
    let (pool, tasks, [a, b]) = (Pool::default(), Arc::default(), names());
    pool.put(connection(&options, Some(&a), &tasks).await);
    assert!(pool.checkout(Some(&b), &options, at(0)).is_none());
    assert!(pool.checkout_full(Some(&b)).is_none());
    for _ in 0..2 {
        let shared = pool.checkout(Some(&a), &options, at(0)).unwrap();
        shared.state.begin_request();
    }
    assert!(pool.checkout(Some(&a), &options, at(0)).is_none());
    let full = pool.checkout_full(Some(&a)).unwrap();
    assert_eq!(full.state.streams(), 2);
    full.state.end_request(at(0));
    assert!(pool.checkout(Some(&a), &options, at(0)).is_some());
    // A closed connection leaves the list with the next one that is added.
    tasks.abort();
    until_closed(&full).await;
    assert!(pool.checkout_full(Some(&a)).is_none());
    let other = Arc::default();
    pool.put(connection(&options, Some(&a), &other).await);
    assert_eq!(pool.shared.load().len(), 1);
    assert!(pool.checkout_full(Some(&a)).is_some());
}
