//! [`StreamTimeouts`]: time limits of one request, and [`StreamExecutor`], which spawns the task of
//! an HTTP/2 stream so that it can be aborted.
//!
//! Limits are checked on the worker's tick, not by timers of the body: hyper does not poll a body
//! while flow control or the socket blocks it. Before the response starts, an expired request gets
//! a local reply (`Exchange::await_response`); afterwards its stream is reset, or with HTTP/1.1 its
//! connection is closed.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::task::AbortHandle;

use crate::config::HttpOptions;
use crate::worker::{Worker, to_ticks};

/// Time limits of one request. Ticks and limits are those of `Worker`; a limit of 0 is none.
#[derive(Debug, Default)]
pub(crate) struct StreamTimeouts {
    started: AtomicU32,
    /// Tick of the end of the request; 0 while the request body is incomplete.
    request_ended: AtomicU32,
    last_progress: AtomicU32,
    /// `stream_idle_timeout`, or `idle_timeout` of the route.
    idle: AtomicU32,
    /// `request_timeout`: limit of receiving the request.
    request: AtomicU32,
    /// `timeout` of the route, from the end of the request.
    timeout: AtomicU32,
    max_duration: AtomicU32,
    responding: AtomicBool,
    expired: AtomicU8,
    waker: AtomicWaker,
    /// Task of an HTTP/2 stream. Locked by one thread only.
    task: Mutex<Option<AbortHandle>>,
}

/// The limit that a request has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Idle = 1,
    Request = 2,
    Timeout = 3,
    MaxDuration = 4,
}

impl Expiry {
    /// Envoy's response flags for the access log.
    pub(crate) const fn flags(self) -> &'static str {
        match self {
            Self::Idle => "SI",
            Self::Request => "",
            Self::Timeout => "UT",
            Self::MaxDuration => "DT",
        }
    }
}

/// Limits of the selected route. `Some(Duration::ZERO)` disables a limit of the listener.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RouteLimits {
    pub(crate) timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) max_stream_duration: Option<Duration>,
}

impl StreamTimeouts {
    pub(crate) fn start(&self, options: &HttpOptions, now: u32) {
        let ticks = |limit: Option<Duration>| limit.map_or(0, to_ticks);
        self.started.store(now, Ordering::Relaxed);
        self.request_ended.store(0, Ordering::Relaxed);
        self.last_progress.store(now, Ordering::Relaxed);
        self.idle
            .store(ticks(options.stream_idle_timeout), Ordering::Relaxed);
        self.request
            .store(ticks(options.request_timeout), Ordering::Relaxed);
        self.timeout.store(0, Ordering::Relaxed);
        self.max_duration
            .store(ticks(options.max_stream_duration), Ordering::Relaxed);
        self.responding.store(false, Ordering::Relaxed);
        self.expired.store(0, Ordering::Relaxed);
    }

    pub(crate) fn apply_route(&self, limits: RouteLimits) {
        let stores = [
            (&self.timeout, limits.timeout),
            (&self.idle, limits.idle_timeout),
            (&self.max_duration, limits.max_stream_duration),
        ];
        for (limit, value) in stores {
            if let Some(value) = value {
                limit.store(to_ticks(value), Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn record_progress(&self, now: u32) {
        self.last_progress.store(now, Ordering::Relaxed);
    }

    /// Starts the route's `timeout`, as the request has been received completely.
    pub(crate) fn request_ended(&self, now: u32) {
        self.request_ended.store(now.max(1), Ordering::Relaxed);
    }

    pub(crate) fn has_request_ended(&self) -> bool {
        self.request_ended.load(Ordering::Relaxed) != 0
    }

    /// From now on, an expired limit aborts the stream. A limit that expired before has been
    /// answered with a local reply, for which only the idle timeout still counts.
    pub(crate) fn response_started(&self, now: u32) {
        if self.expired.swap(0, Ordering::Relaxed) != 0 {
            self.timeout.store(0, Ordering::Relaxed);
            self.max_duration.store(0, Ordering::Relaxed);
            self.request.store(0, Ordering::Relaxed);
        }
        self.record_progress(now);
        self.responding.store(true, Ordering::Relaxed);
    }

    /// The request became a tunnel, which the route's `timeout` does not limit, as in Envoy.
    pub(crate) fn became_tunnel(&self) {
        self.timeout.store(0, Ordering::Relaxed);
        self.request.store(0, Ordering::Relaxed);
    }

    pub(crate) fn expired(&self) -> Option<Expiry> {
        let expired = self.expired.load(Ordering::Relaxed);
        let all = [
            Expiry::Idle,
            Expiry::Request,
            Expiry::Timeout,
            Expiry::MaxDuration,
        ];
        all.into_iter().find(|one| *one as u8 == expired)
    }

    pub(crate) const fn waker(&self) -> &AtomicWaker {
        &self.waker
    }

    /// Checks the limits. Returns true if the stream must be aborted; before the response, wakes
    /// the task that sends the local reply instead. `progress` is the tick of the last progress.
    pub(crate) fn check(&self, now: u32, progress: u32) -> bool {
        let exceeded = |start: u32, limit: &AtomicU32| {
            let limit = limit.load(Ordering::Relaxed);
            limit != 0 && now.wrapping_sub(start) > limit
        };
        let started = self.started.load(Ordering::Relaxed);
        let ended = self.request_ended.load(Ordering::Relaxed);
        let expiry = if exceeded(started, &self.max_duration) {
            Expiry::MaxDuration
        } else if ended == 0 && exceeded(started, &self.request) {
            Expiry::Request
        } else if ended != 0 && exceeded(ended, &self.timeout) {
            Expiry::Timeout
        } else if exceeded(progress, &self.idle) {
            Expiry::Idle
        } else {
            return false;
        };
        self.expired.store(expiry as u8, Ordering::Relaxed);
        if self.responding.load(Ordering::Relaxed) {
            return true;
        }
        self.waker.wake();
        false
    }

    /// Like [`Self::check`], for an HTTP/2 stream: aborts its task, which resets the stream.
    pub(crate) fn check_http2(&self, now: u32) {
        if self.check(now, self.last_progress.load(Ordering::Relaxed))
            && let Some(task) = self.task().take()
        {
            task.abort();
        }
    }

    /// Releases the task's memory, which an abort handle keeps.
    pub(crate) fn release_task(&self) {
        drop(self.task().take());
    }

    fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// The stream whose task hyper is about to spawn: it calls the service and the executor in
    /// succession, without giving the executor a reference to the request.
    static STARTING: RefCell<Option<Arc<StreamTimeouts>>> = const { RefCell::new(None) };
}

/// Creates the limits of an HTTP/2 stream, which the worker checks until the stream ends.
pub(crate) fn begin_http2(worker: &Worker) -> Arc<StreamTimeouts> {
    let stream = Arc::new(StreamTimeouts::default());
    worker.watch_stream(Arc::clone(&stream));
    STARTING.set(Some(Arc::clone(&stream)));
    stream
}

/// Executor of HTTP/2 connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamExecutor;

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, future: F) {
        let stream = STARTING.take();
        let task = tokio::spawn(future);
        if let Some(stream) = stream {
            *stream.task() = Some(task.abort_handle());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> StreamTimeouts {
        let limits = StreamTimeouts::default();
        let options = HttpOptions {
            stream_idle_timeout: Some(Duration::from_secs(5)),
            request_timeout: Some(Duration::from_secs(2)),
            max_stream_duration: Some(Duration::from_secs(60)),
            ..Default::default()
        };
        limits.start(&options, 100);
        limits
    }

    #[test]
    fn each_limit_has_its_own_start() {
        let waiting = limits();
        assert!(!waiting.check(120, 100), "two seconds are allowed");
        assert_eq!(waiting.expired(), None);
        assert!(
            !waiting.check(121, 100),
            "before the response nothing is aborted"
        );
        assert_eq!(waiting.expired(), Some(Expiry::Request));

        let ended = limits();
        ended.apply_route(RouteLimits {
            timeout: Some(Duration::from_secs(1)),
            ..Default::default()
        });
        ended.request_ended(118);
        ended.check(128, 128);
        assert_eq!(
            ended.expired(),
            None,
            "the timeout begins with the end of the request"
        );
        ended.check(129, 128);
        assert_eq!(ended.expired(), Some(Expiry::Timeout));

        let idle = limits();
        idle.request_ended(100);
        idle.check(151, 101);
        assert_eq!(idle.expired(), None);
        idle.check(152, 101);
        assert_eq!(idle.expired(), Some(Expiry::Idle));

        let long = limits();
        long.request_ended(100);
        long.check(701, 701);
        assert_eq!(long.expired(), Some(Expiry::MaxDuration));
    }

    #[test]
    fn a_route_overrides_and_disables_limits_of_the_listener() {
        let stream = limits();
        stream.request_ended(100);
        stream.apply_route(RouteLimits {
            idle_timeout: Some(Duration::ZERO),
            max_stream_duration: Some(Duration::from_secs(70)),
            ..Default::default()
        });
        stream.check(701, 100);
        assert_eq!(stream.expired(), None);
        stream.check(801, 100);
        assert_eq!(stream.expired(), Some(Expiry::MaxDuration));
    }

    #[test]
    fn a_response_in_progress_is_aborted_and_a_local_reply_is_not() {
        let stream = limits();
        stream.request_ended(100);
        stream.response_started(110);
        assert!(stream.check(161, 110));
        let replied = limits();
        assert!(!replied.check(701, 701));
        replied.response_started(701);
        assert!(!replied.check(702, 701), "the local reply may be sent");
        assert!(
            replied.check(760, 701),
            "but not for longer than the idle timeout"
        );
    }
}
