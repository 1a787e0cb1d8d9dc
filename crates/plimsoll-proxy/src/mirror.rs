//! Mirroring (`request_mirror_policies`): copies of requests to other clusters.
//!
//! A copy is sent by a task of its own, and its response is discarded, so that its failure or
//! slowness has no effect on the request. The body is copied as it is forwarded: frames are shared,
//! not duplicated unless they are short, and a copy that lags more than `MAX_LAG` behind is
//! aborted. A worker sends at most `MAX_MIRRORS` copies at a time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use plimsoll_client::RequestEnd;
use plimsoll_xds::route::RuntimeFraction;

use crate::body::BoxError;
use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::router::{Forward, ForwardId};
use crate::worker::{ClusterCall, Worker};

/// Limit of the memory of a body that a copy has not sent yet, in bytes. More would let a slow
/// cluster take memory for each request; less would abort copies whose cluster is merely further
/// away.
const MAX_LAG: usize = 256 << 10;
/// Memory of a queued frame besides its bytes.
const FRAME_OVERHEAD: usize = 128;
/// Frames that are shorter are duplicated: one that shares a read buffer keeps all of it allocated.
const MIN_SHARED: usize = 4 << 10;
/// Limit of the copies that a worker sends at a time; Envoy's default of `max_requests`.
const MAX_MIRRORS: u32 = 1024;

const X_ENVOY_INTERNAL: HeaderName = HeaderName::from_static("x-envoy-internal");

/// Where copies of requests of a route are sent, and which fraction of them.
#[derive(Debug)]
pub struct MirrorPolicy {
    pub id: ForwardId,
    pub target: MirrorTarget,
    /// Fraction of requests that are mirrored; `None` is all.
    pub fraction: Option<RuntimeFraction>,
    /// Whether `-shadow` is appended to the host.
    pub append_suffix: bool,
}

/// How a mirror policy names its cluster.
#[derive(Debug)]
pub enum MirrorTarget {
    Cluster(Arc<str>),
    ClusterHeader(HeaderName),
}

impl MirrorPolicy {
    fn cluster(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        match &self.target {
            MirrorTarget::Cluster(name) => Some(Arc::clone(name)),
            MirrorTarget::ClusterHeader(name) => Some(headers.get(name)?.to_str().ok()?.into()),
        }
    }
}

/// The copies of one request body.
#[derive(Debug)]
pub(crate) struct BodyMirrors {
    queues: Vec<Arc<MirrorQueue>>,
    connection: Arc<Connection>,
}

impl BodyMirrors {
    /// Passes a frame on to all copies.
    pub(crate) fn push(&mut self, frame: &Frame<Bytes>) {
        self.queues.retain(|queue| match queue.push(frame) {
            Push::Queued => true,
            Push::Closed => false,
            Push::Lagging => {
                self.connection.stats.rq_mirror_aborted.increment();
                false
            }
        });
    }

    /// The body has ended.
    pub(crate) fn end(&mut self) {
        for queue in self.queues.drain(..) {
            queue.request_end.mark();
            queue.close(State::Ended);
        }
    }
}

impl Drop for BodyMirrors {
    /// A body that did not end aborts its copies.
    fn drop(&mut self) {
        for queue in self.queues.drain(..) {
            queue.close(State::Aborted);
        }
    }
}

/// Frames that a copy has not sent yet. Locked by one thread only: copies stay on their worker.
#[derive(Debug, Default)]
struct MirrorQueue {
    queued: Mutex<Queued>,
    /// Starts the timeouts of the copy when the request has been received.
    request_end: RequestEnd,
}

#[derive(Debug, Default)]
struct Queued {
    frames: VecDeque<Frame<Bytes>>,
    /// Memory that the frames keep allocated.
    bytes: usize,
    state: State,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Ended,
    Aborted,
}

#[derive(Debug, PartialEq, Eq)]
enum Push {
    Queued,
    /// The copy has been given up.
    Closed,
    /// The copy lags behind and has been aborted.
    Lagging,
}

impl MirrorQueue {
    fn lock(&self) -> MutexGuard<'_, Queued> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, frame: &Frame<Bytes>) -> Push {
        let mut queued = self.lock();
        if queued.state == State::Aborted {
            return Push::Closed;
        }
        let copy = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) if data.len() < MIN_SHARED => Frame::data(Bytes::copy_from_slice(data)),
            (Some(data), _) => Frame::data(data.clone()),
            (None, Some(trailers)) => Frame::trailers(trailers.clone()),
            (None, None) => return Push::Queued,
        };
        queued.bytes += memory_of(&copy);
        if queued.bytes > MAX_LAG {
            drop(queued);
            self.close(State::Aborted);
            return Push::Lagging;
        }
        queued.frames.push_back(copy);
        wake(queued);
        Push::Queued
    }

    fn close(&self, state: State) {
        let mut queued = self.lock();
        queued.state = state;
        if state == State::Aborted {
            queued.frames.clear();
        }
        wake(queued);
    }
}

fn memory_of(frame: &Frame<Bytes>) -> usize {
    let content = match (frame.data_ref(), frame.trailers_ref()) {
        (Some(data), _) => data.len(),
        (None, Some(trailers)) => {
            let fields = trailers.iter();
            fields
                .map(|(name, value)| name.as_str().len() + value.len() + FRAME_OVERHEAD)
                .sum()
        }
        (None, None) => 0,
    };
    content + FRAME_OVERHEAD
}

fn wake(mut queued: MutexGuard<'_, Queued>) {
    let waker = queued.waker.take();
    drop(queued);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Body of a copy.
#[derive(Debug)]
pub(crate) struct MirrorBody {
    /// `None` if the request has no body.
    queue: Option<Arc<MirrorQueue>>,
}

impl Body for MirrorBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(queue) = &self.queue else {
            return Poll::Ready(None);
        };
        let mut queued = queue.lock();
        if let Some(frame) = queued.frames.pop_front() {
            queued.bytes -= memory_of(&frame);
            return Poll::Ready(Some(Ok(frame)));
        }
        match queued.state {
            State::Open => {
                queued.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Ended => Poll::Ready(None),
            State::Aborted => Poll::Ready(Some(Err("the mirrored request was aborted".into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let ended = |queue: &Arc<MirrorQueue>| {
            let queued = queue.lock();
            queued.state == State::Ended && queued.frames.is_empty()
        };
        self.queue.as_ref().is_none_or(ended)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.queue {
            None => SizeHint::with_exact(0),
            Some(_) => SizeHint::default(),
        }
    }
}

impl Drop for MirrorBody {
    /// The copy has ended, perhaps without its whole body: no more frames are queued.
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            queue.close(State::Aborted);
        }
    }
}

/// Counts the copies that a worker sends.
#[derive(Debug, Default)]
pub(crate) struct MirrorCount(AtomicU32);

struct MirrorPermit(Arc<Worker>);

impl MirrorPermit {
    fn try_new(worker: &Arc<Worker>) -> Option<Self> {
        let active = &worker.mirrors.0;
        let added = active.fetch_add(1, Ordering::Relaxed);
        let permit = Self(Arc::clone(worker));
        (added < MAX_MIRRORS).then_some(permit)
    }
}

impl Drop for MirrorPermit {
    fn drop(&mut self) {
        self.0.mirrors.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends the copies of a request that is ready for its upstream. Returns what passes its body on to
/// them. Tunnels are not mirrored.
pub(crate) fn start(
    forward: &Forward,
    request: &Request<Incoming>,
    is_tunnel: bool,
    exchange: &Exchange,
) -> Option<Box<BodyMirrors>> {
    if forward.mirrors.is_empty() || is_tunnel {
        return None;
    }
    let connection = exchange.connection();
    let mut queues = Vec::new();
    for policy in &forward.mirrors {
        let draw = || connection.worker.draw();
        let included = policy.fraction.is_none_or(|part| part.includes(draw()));
        let cluster = policy.cluster(request.headers());
        if let (true, Some(cluster)) = (included, cluster) {
            queues.extend(send(policy, cluster, forward, request, connection));
        }
    }
    let mirrors = BodyMirrors {
        queues,
        connection: Arc::clone(connection),
    };
    (!mirrors.queues.is_empty()).then(|| Box::new(mirrors))
}

/// Sends one copy. Returns the queue of its body, if it has one.
fn send(
    policy: &MirrorPolicy,
    cluster: Arc<str>,
    forward: &Forward,
    request: &Request<Incoming>,
    connection: &Arc<Connection>,
) -> Option<Arc<MirrorQueue>> {
    let Some(permit) = MirrorPermit::try_new(&connection.worker) else {
        connection.stats.rq_mirror_overflow.increment();
        return None;
    };
    let queue = (!request.body().is_end_stream()).then(Arc::<MirrorQueue>::default);
    let body = MirrorBody {
        queue: queue.clone(),
    };
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy.headers_mut()
        .insert(X_ENVOY_INTERNAL, HeaderValue::from_static("true"));
    if policy.append_suffix {
        append_suffix(&mut copy);
    }
    if let Some(queue) = &queue {
        copy.extensions_mut().insert(queue.request_end.clone());
    }
    let worker = &connection.worker;
    // An unknown cluster is no error of the request.
    let call = worker
        .call_mirror(policy.id, cluster, forward.timeout, copy)
        .ok()?;
    connection.stats.rq_mirrored.increment();
    tokio::spawn(finish(call, forward.timeout, permit));
    queue
}

/// Appends `-shadow` to the host of a request, in front of its port.
fn append_suffix<B>(request: &mut Request<B>) {
    let host = request.headers().get(HOST).and_then(|host| {
        let host = shadow_host(host.to_str().ok()?);
        HeaderValue::try_from(host).ok()
    });
    if let Some(host) = host {
        request.headers_mut().insert(HOST, host);
    }
    let Some(authority) = request.uri().authority() else {
        return;
    };
    let shadow = Authority::try_from(shadow_host(authority.as_str()));
    let mut parts = request.uri().clone().into_parts();
    parts.authority = shadow.ok().or(parts.authority);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

fn shadow_host(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => format!("{name}-shadow:{port}"),
        _ => format!("{host}-shadow"),
    }
}

/// Waits for the response of a copy and discards it. `timeout` limits each of both.
async fn finish(call: ClusterCall, timeout: Option<Duration>, permit: MirrorPermit) {
    let Ok(response) = call.await else {
        return;
    };
    let mut body = response.into_body();
    let reading =
        async { while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {} };
    match timeout {
        Some(timeout) => drop(tokio::time::timeout(timeout, reading).await),
        None => reading.await,
    }
    drop(permit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_is_in_front_of_the_port() {
        // Expected values are from a running Envoy 1.40.
        for (host, expected) in [
            ("h.com", "h.com-shadow"),
            ("h.com:88", "h.com-shadow:88"),
            ("[::1]:80", "[::1]-shadow:80"),
        ] {
            assert_eq!(shadow_host(host), expected);
        }
        let mut request = Request::get("http://h:1/x")
            .header(HOST, "h:1")
            .body(())
            .unwrap();
        append_suffix(&mut request);
        assert_eq!(request.uri(), "http://h-shadow:1/x");
        assert_eq!(request.headers()[HOST], "h-shadow:1");
    }

    #[test]
    fn a_copy_that_lags_behind_is_aborted_and_forgets_its_frames() {
        let queue = MirrorQueue::default();
        let frame = |length: usize| Frame::data(Bytes::from(vec![0; length]));
        assert_eq!(queue.push(&frame(MAX_LAG - FRAME_OVERHEAD)), Push::Queued);
        assert_eq!(queue.push(&frame(1)), Push::Lagging);
        assert!(queue.lock().frames.is_empty());
        assert_eq!(queue.push(&frame(1)), Push::Closed);
    }

    #[test]
    fn short_frames_count_with_their_overhead_and_keep_no_read_buffer() {
        let queue = MirrorQueue::default();
        let read = Bytes::from(vec![0; MAX_LAG]);
        let byte = Frame::data(read.slice(..1));
        let queued = (0..).take_while(|_| queue.push(&byte) == Push::Queued);
        assert_eq!(queued.count(), MAX_LAG / (FRAME_OVERHEAD + 1));
        let queue = MirrorQueue::default();
        assert_eq!(queue.push(&byte), Push::Queued);
        drop(byte);
        assert!(read.is_unique(), "the queued frame shares the read buffer");
    }

    #[tokio::test]
    async fn sent_frames_no_longer_count() {
        use http_body_util::BodyExt as _;

        let queue = Arc::<MirrorQueue>::default();
        let mut body = MirrorBody {
            queue: Some(Arc::clone(&queue)),
        };
        let mut trailers = HeaderMap::new();
        trailers.insert(HOST, HeaderValue::from_static("h"));
        for frame in [
            Frame::data(Bytes::from_static(b"a")),
            Frame::trailers(trailers),
        ] {
            assert_eq!(queue.push(&frame), Push::Queued);
            assert!(queue.lock().bytes > FRAME_OVERHEAD);
            body.frame().await.unwrap().unwrap();
            assert_eq!(queue.lock().bytes, 0);
        }
    }
}
