//! [`Call`]: one request over all its attempts.
//!
//! Picks a host, sends, and decides with the retry policy whether to retry: on another host, or in
//! another locality or priority when those tried cannot be reached. `retry` holds the conditions,
//! `replay` buffers the request for another attempt.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use plimsoll_core::host::Host;
use plimsoll_core::picker::PickArgs;
use plimsoll_xds::clock::Clock;
use plimsoll_xds::upstream::UpstreamOptions;
use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use crate::cluster::{Cluster, RetryBudget, RetryPermit};
use crate::error::{Error, ErrorKind};
use crate::request::admission::{self, Receiver};
use crate::request::attempt_span::{AttemptSpan, SpanParent};
use crate::request::body::{RequestBody, RequestTracker, ResponseBody};
use crate::request::destination::{self, Destination, Pick};
use crate::request::options::{RequestOptions, RetryPolicy};
use crate::request::replay::Replay;
use crate::request::request_end::RequestEnd;
use crate::upstream::endpoint::{SendContext, SendOutcome};

pub(crate) struct Call {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) upstream: Arc<UpstreamOptions>,
    pub(crate) options: RequestOptions,
    pub(crate) pool: usize,
    /// Hosts of earlier attempts, avoided while another host is available.
    tried: Vec<Arc<Host>>,
    /// Unreachable hosts, and other hosts of localities and priorities avoided because of them.
    unreachable: Vec<Arc<Host>>,
    /// Hosts that a dial did not reach. A silent host must cost one `connect_timeout`, not several.
    failed_dials: Vec<Arc<Host>>,
    /// Error of the latest of these dials.
    dial_error: Option<Error>,
    /// The call has waited for discovery, so that an open circuit breaker makes it wait.
    waited: bool,
    /// When the call first waited for a circuit breaker.
    waits_since: Option<Instant>,
    /// A whole priority could not be reached; one extra attempt goes to another priority.
    failed_over: bool,
    retries: u32,
    budget: Option<RetryPermit>,
    request_end: Option<RequestEnd>,
    /// Host of the latest attempt, for the error of a timeout.
    latest: Option<SocketAddr>,
    /// The request must not go out in plain text.
    needs_tls: bool,
    /// Parent of the attempts' spans; `None` without a tracer provider.
    parent: Option<SpanParent>,
    pub(crate) span: Span,
}

enum AttemptOutcome {
    Response(Response<Incoming>, Box<RequestTracker>),
    Unsent(Error),
    Failed(Error),
}

impl Call {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        upstream: Arc<UpstreamOptions>,
        options: RequestOptions,
        pool: usize,
    ) -> Self {
        Self {
            span: span(&cluster.name),
            cluster,
            upstream,
            options,
            pool,
            tried: Vec::new(),
            unreachable: Vec::new(),
            failed_dials: Vec::new(),
            dial_error: None,
            waited: false,
            waits_since: None,
            failed_over: false,
            retries: 0,
            budget: None,
            request_end: None,
            latest: None,
            needs_tls: false,
            parent: None,
        }
    }

    /// Lets timeouts begin with the end of the request.
    pub(crate) fn with_request_end(mut self, end: Option<RequestEnd>) -> Self {
        self.request_end = end;
        self
    }

    /// Lets the call wait if a circuit breaker is open, because it waited for routes.
    pub(crate) fn with_waited(mut self, waited: bool) -> Self {
        self.waited = waited;
        self
    }

    /// Fails attempts on hosts without TLS.
    pub(crate) fn with_needs_tls(mut self, needs_tls: bool) -> Self {
        self.needs_tls = needs_tls;
        self
    }

    /// Gives attempts a span.
    pub(crate) fn with_parent(mut self, parent: Option<SpanParent>) -> Self {
        self.parent = parent;
        self
    }

    /// Sends the request until it gets a response that is not retried, or no attempt is left.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps a second copy of everything it is given"
    )]
    pub(crate) fn run(
        mut self,
        first: Result<Pick, Error>,
        mut source: RequestSource,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Error>> {
        async move {
            let limit = self.options.timeout;
            let end = self.request_end.clone();
            let done = {
                let sent = pin!(self.send(first?, &mut source));
                within(limit, end.as_ref(), sent).await
            };
            match done {
                Ok(sent) => sent,
                Err(limit) => {
                    let stats = &self.cluster.limits.stats;
                    stats.upstream_rq_timeout.increment();
                    Err(self.timed_out(limit))
                }
            }
        }
    }

    async fn send(
        &mut self,
        mut next: Pick,
        source: &mut RequestSource,
    ) -> Result<Response<ResponseBody>, Error> {
        loop {
            let to = match next {
                Pick::Host(to) => to,
                // Boxed: this large future is rare and would otherwise grow that of every request.
                pick => Box::pin(self.wait_for_host(pick)).await?,
            };
            self.latest = Some(to.host.address());
            let mut is_failed_dial = false;
            let backs_off = match self.attempt(&to, source.refill()).await {
                AttemptOutcome::Response(response, tracker) => {
                    let (status, grpc_status) = tracker.statuses();
                    let policy = &self.options.retry;
                    let retriable = policy.retries_response(status, grpc_status);
                    if !(retriable && source.has_request() && self.may_retry_sent()) {
                        return Ok(self.finish(response, tracker));
                    }
                    tracker.fail(http_body::Body::is_end_stream(response.body()));
                    true
                }
                AttemptOutcome::Unsent(error) if error.kind() == ErrorKind::Overflow => {
                    next = Pick::Full(Some(error));
                    continue;
                }
                AttemptOutcome::Unsent(error) => {
                    let retriable = self.options.retry.retries_error(error.kind());
                    if !(retriable && self.may_retry_unsent(&to.host)) {
                        return Err(error);
                    }
                    if error.is_failed_dial() {
                        self.failed_dials.push(Arc::clone(&to.host));
                        self.dial_error = Some(error);
                        is_failed_dial = true;
                    }
                    false
                }
                AttemptOutcome::Failed(error) => {
                    let retriable = self.options.retry.retries_error(error.kind());
                    if !(retriable && source.has_request() && self.may_retry_sent()) {
                        return Err(error);
                    }
                    true
                }
            };
            if backs_off {
                Box::pin(self.back_off()).await;
            }
            self.tried.push(to.host);
            next = if is_failed_dial {
                self.pick_reachable()?
            } else {
                self.pick_again()?
            };
            self.cluster.limits.stats.upstream_rq_retry.increment();
        }
    }

    async fn wait_for_host(&mut self, pick: Pick) -> Result<Destination, Error> {
        let Self {
            cluster,
            upstream,
            waited,
            waits_since,
            options,
            tried,
            unreachable,
            ..
        } = self;
        let avoid = [tried.as_slice(), unreachable.as_slice()].concat();
        let to = Receiver {
            cluster,
            upstream,
            waited,
            waits_since,
        };
        let repick = |cluster: &Cluster, upstream: &UpstreamOptions| {
            pick_avoiding(cluster, upstream, options, &avoid)
        };
        let to = admission::wait_for_host(to, pick, repick).await?;
        if !self.has_failed_dial(&to.host) {
            return Ok(to);
        }
        match self.pick_reachable()? {
            Pick::Host(to) => Ok(to),
            // Others have filled the circuit breakers again.
            _ => Err(self.take_dial_error()),
        }
    }

    async fn attempt(
        &self,
        to: &Destination,
        request: &mut Option<Request<RequestBody>>,
    ) -> AttemptOutcome {
        let stats = &self.cluster.limits.stats;
        self.trace(to);
        let parent = self.parent.as_ref();
        let span = match request {
            Some(request) => AttemptSpan::start(parent, &self.cluster, to, self.retries, request),
            None => AttemptSpan::default(),
        };
        let started = Clock::system().now();
        // Reserve before the first await: a request that waits for a dial counts as active.
        let reserved = to.host.reserve_request();
        let context = SendContext {
            pool: self.pool,
            breakers: &self.upstream.circuit_breakers,
            authority: &self.cluster.authority,
            needs_tls: self.needs_tls,
            now: started,
        };
        let sent = pin!(to.endpoint.send(request, reserved, context));
        let limit = self.options.per_try_timeout;
        match within(limit, self.request_end.as_ref(), sent).await {
            Ok(SendOutcome::Response {
                response,
                active,
                sent_at,
                lease,
            }) => {
                stats.count_status(response.status().as_u16());
                let mut tracker = Box::new(RequestTracker::new(active, started, lease));
                tracker.span = span;
                tracker.observe_headers(response.status(), response.headers());
                tracker.observe_response_time(sent_at);
                AttemptOutcome::Response(response, tracker)
            }
            Ok(SendOutcome::Unsent(error)) => {
                self.cluster.limits.backlog.notify();
                span.fail(&error);
                AttemptOutcome::Unsent(error)
            }
            Ok(SendOutcome::Refused(error)) => {
                self.cluster.limits.backlog.notify();
                span.fail(&error);
                AttemptOutcome::Failed(error)
            }
            Ok(SendOutcome::Failed(error)) => {
                span.fail(&error);
                self.fail_attempt(&to.host);
                AttemptOutcome::Failed(error)
            }
            Err(limit) => {
                stats.upstream_rq_per_try_timeout.increment();
                self.fail_attempt(&to.host);
                let error = self.timed_out(limit);
                span.fail(&error);
                AttemptOutcome::Failed(error)
            }
        }
    }

    /// Counts an error of the host.
    #[cold]
    fn fail_attempt(&self, host: &Host) {
        let limits = &self.cluster.limits;
        limits.handle_error(host);
        limits.backlog.notify();
    }

    #[cold]
    fn timed_out(&self, limit: Duration) -> Error {
        let cluster = &self.cluster;
        let of = (self.latest).map_or_else(String::new, |host| format!(" of {host}"));
        let message = format!("cluster {}: no response{of} within {limit:?}", cluster.name);
        let error = if cluster.is_ready() {
            Error::new(ErrorKind::Timeout, message)
        } else {
            let message = format!("{message}; no endpoints yet; {}", cluster.pending_reason());
            Error::new(ErrorKind::Timeout, message).with_side(cluster.not_ready().side())
        };
        error.with_cluster(&cluster.name).with_address(self.latest)
    }

    fn trace(&self, to: &Destination) {
        let span = &self.span;
        if span.is_disabled() {
            return;
        }
        span.record("locality", tracing::field::display(to.host.locality()));
        span.record("host", tracing::field::display(to.host.address()));
        span.record("source", tracing::field::debug(to.source));
        span.record("retries", self.retries);
    }

    fn finish(
        &self,
        response: Response<Incoming>,
        tracker: Box<RequestTracker>,
    ) -> Response<ResponseBody> {
        if self.retries > 0 {
            let stats = &self.cluster.limits.stats;
            stats.upstream_rq_retry_success.increment();
        }
        response.map(|body| ResponseBody::new(body, tracker))
    }

    /// Whether to retry an unsent request; after `num_retries`, once more in another priority.
    /// Needs no retry budget, like gRPC's transparent retries (gRFC A6): they multiply neither
    /// load, since no host did any work, nor connections, since unreachable hosts are in backoff.
    fn may_retry_unsent(&mut self, host: &Arc<Host>) -> bool {
        let limit = self.options.retry.num_retries;
        let mut picker = self.cluster.checkout_picker();
        destination::avoid_unreachable(&mut self.unreachable, host, &mut picker);
        if limit > 0 && self.retries >= limit && !self.failed_over {
            self.failed_over = destination::avoid_priorities(&mut self.unreachable, &mut picker);
        }
        self.cluster.return_picker(picker);
        self.may_retry()
    }

    fn may_retry(&mut self) -> bool {
        let limit = self.options.retry.num_retries;
        if self.retries >= limit.saturating_add(self.failed_over.into()) {
            let stats = &self.cluster.limits.stats;
            stats.upstream_rq_retry_limit_exceeded.increment();
            return false;
        }
        self.retries += 1;
        true
    }

    /// Whether to retry a request that a host may have seen, which the retry budget must allow.
    fn may_retry_sent(&mut self) -> bool {
        if !self.may_retry() {
            return false;
        }
        self.budget = None;
        self.budget = RetryBudget::try_acquire(&self.cluster, &self.upstream);
        if self.budget.is_none() {
            let stats = &self.cluster.limits.stats;
            stats.upstream_rq_retry_overflow.increment();
        }
        self.budget.is_some()
    }

    async fn back_off(&self) {
        let backoff = self
            .options
            .retry
            .backoff(self.retries, self.cluster.next_draw());
        tokio::time::sleep(backoff).await;
    }

    fn pick_again(&self) -> Result<Pick, Error> {
        let avoid = [self.tried.as_slice(), self.unreachable.as_slice()].concat();
        pick_avoiding(&self.cluster, &self.upstream, &self.options, &avoid)
    }

    /// Picks a host for the attempt after a failed dial; returns the error of the dial if there are
    /// only hosts that this request could not reach, or none any more.
    fn pick_reachable(&mut self) -> Result<Pick, Error> {
        // Localities with unreachable hosts may have others, which `pick_again` avoids.
        let wider = || pick_avoiding(&self.cluster, &self.upstream, &self.options, &self.tried);
        let is_reachable = |pick: &Pick| match pick {
            Pick::Host(to) => !self.has_failed_dial(&to.host),
            Pick::NoEndpoints | Pick::Full(_) => true,
        };
        let again = self.pick_again().ok().filter(is_reachable);
        again
            .or_else(|| wider().ok().filter(is_reachable))
            .ok_or_else(|| self.take_dial_error())
    }

    fn has_failed_dial(&self, host: &Arc<Host>) -> bool {
        let mut dialed = self.failed_dials.iter();
        dialed.any(|dialed| Arc::ptr_eq(dialed, host))
    }

    /// Returns the error of the latest failed dial.
    fn take_dial_error(&mut self) -> Error {
        let error = self.dial_error.take();
        error.unwrap_or_else(|| Error::new(ErrorKind::Connect, "no host could be reached"))
    }
}

fn pick_avoiding(
    cluster: &Cluster,
    upstream: &UpstreamOptions,
    options: &RequestOptions,
    avoid: &[Arc<Host>],
) -> Result<Pick, Error> {
    let mut picker = cluster.checkout_picker();
    let args = PickArgs {
        hash: options.hash,
        avoid,
        metadata_match: options.metadata_match.as_ref(),
        _non_exhaustive: (),
    };
    let picked = destination::pick(cluster, &mut picker, upstream, args);
    cluster.return_picker(picker);
    picked
}

/// Span of a call: host of the last attempt, how it was chosen, and the number of retries.
fn span(cluster: &str) -> Span {
    tracing::debug_span!(
        "upstream_call",
        cluster,
        locality = Empty,
        host = Empty,
        source = Empty,
        retries = Empty,
    )
}

/// The request to send. Passed by reference: it is large, and a future stores every argument.
pub(crate) struct RequestSource {
    next: Option<Request<RequestBody>>,
    /// Buffered request, if the policy may retry requests that a host has seen.
    replay: Option<Box<Replay>>,
}

impl RequestSource {
    pub(crate) fn new(request: Request<RequestBody>, policy: &RetryPolicy) -> Self {
        if policy.num_retries == 0 || !policy.retry_on.needs_replay() {
            return Self {
                next: Some(request),
                replay: None,
            };
        }
        let replay = Replay::new(request, policy.max_replay_bytes);
        Self {
            next: None,
            replay: Some(Box::new(replay)),
        }
    }

    fn refill(&mut self) -> &mut Option<Request<RequestBody>> {
        if let (None, Some(replay)) = (&self.next, &self.replay) {
            self.next = replay.next();
        }
        &mut self.next
    }

    fn has_request(&mut self) -> bool {
        self.refill().is_some()
    }
}

/// Applies an optional timeout, which begins with `end` if that is given, and returns it if it
/// elapses. Takes the future by reference, since moving it would copy it.
async fn within<F: Future>(
    limit: Option<Duration>,
    end: Option<&RequestEnd>,
    mut work: Pin<&mut F>,
) -> Result<F::Output, Duration> {
    let Some(limit) = limit else {
        return Ok(work.await);
    };
    let mut wait = limit;
    loop {
        if let Ok(done) = tokio::time::timeout(wait, work.as_mut()).await {
            return Ok(done);
        }
        wait = end.map_or(Duration::ZERO, |end| end.remaining(limit));
        if wait.is_zero() {
            return Err(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::retry::RetryOn;

    #[tokio::test(start_paused = true)]
    async fn timeouts_begin_with_the_end_of_the_request() {
        let limit = Some(Duration::from_secs(15));
        let end = RequestEnd::default();
        let marking = end.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(40)).await;
            assert!(marking.mark());
            assert!(!marking.mark());
        });
        let started = Instant::now();
        let never = pin!(std::future::pending::<()>());
        let elapsed = within(limit, Some(&end), never).await.unwrap_err();
        assert_eq!(Some(elapsed), limit);
        assert_eq!(started.elapsed().as_secs(), 55);
        let never = pin!(std::future::pending::<()>());
        assert!(within(limit, None, never).await.is_err());
        assert_eq!(started.elapsed().as_secs(), 70);
    }

    /// Two hosts of priority 0 and one of priority 1.
    fn call(retry: RetryPolicy, upstream: UpstreamOptions) -> (crate::Client, Call) {
        let spare = crate::Endpoint::from("127.0.0.1:3").priority(1);
        let orders = crate::Cluster::new("orders")
            .zone("a", ["127.0.0.1:1", "127.0.0.1:2"])
            .zone("b", [spare]);
        let builder = crate::Client::builder().cluster(orders).seed(1);
        let client = builder.build().unwrap();
        let cluster = client.find("orders").unwrap();
        let options = RequestOptions::new().retry(retry);
        let call = Call::new(cluster, Arc::new(upstream), options, 0);
        (client, call)
    }

    fn policy(num_retries: u32) -> RetryPolicy {
        RetryPolicy {
            num_retries,
            ..RetryPolicy::default()
        }
    }

    #[tokio::test]
    async fn retries_of_sent_requests_are_limited_and_counted() {
        for num_retries in [0, 1, 3] {
            let (_client, mut call) = call(policy(num_retries), UpstreamOptions::default());
            let allowed = (0..5).filter(|_| call.may_retry_sent()).count();
            assert_eq!(allowed, num_retries as usize);
            assert_eq!(call.retries, num_retries);
            let stats = &call.cluster.limits.stats;
            let exceeded = stats.upstream_rq_retry_limit_exceeded.get();
            assert_eq!(exceeded, 5 - u64::from(num_retries));
            assert_eq!(stats.upstream_rq_retry_overflow.get(), 0);
            // One permit per request, however often it is retried.
            let in_flight = call.cluster.retries.in_flight();
            assert_eq!(in_flight, u64::from(num_retries > 0));
        }
        let mut none = UpstreamOptions::default();
        none.circuit_breakers.max_retries = 0;
        let (_client, mut call) = call(policy(3), none);
        assert!(!call.may_retry_sent());
        let stats = &call.cluster.limits.stats;
        assert_eq!(stats.upstream_rq_retry_overflow.get(), 1);
        assert_eq!(stats.upstream_rq_retry_limit_exceeded.get(), 0);
    }

    #[tokio::test]
    async fn the_last_retry_of_an_unsent_request_is_in_another_priority() {
        let (_client, mut call) = call(policy(1), UpstreamOptions::default());
        let mut ports = Vec::new();
        for (retries, failed_over) in [(1, false), (2, true)] {
            let to = call.pick_again().unwrap().host().unwrap();
            ports.push(to.host.address().port());
            assert!(call.may_retry_unsent(&to.host));
            assert_eq!((call.retries, call.failed_over), (retries, failed_over));
        }
        ports.sort_unstable();
        assert_eq!(ports, [1, 2]);
        let to = call.pick_again().unwrap().host().unwrap();
        assert_eq!(to.host.address().port(), 3);
        assert!(!call.may_retry_unsent(&to.host), "no attempt is left");
        assert_eq!(call.cluster.retries.in_flight(), 0, "no budget is needed");
    }

    #[tokio::test]
    async fn a_request_without_retries_stays_in_its_priority() {
        let (_client, mut call) = call(policy(0), UpstreamOptions::default());
        let to = call.pick_again().unwrap().host().unwrap();
        assert!(!call.may_retry_unsent(&to.host));
        assert!(!call.failed_over);
    }

    #[test]
    fn only_requests_that_may_be_sent_again_are_buffered() {
        let request = || {
            let body = RequestBody::new(http_body_util::Empty::new());
            Request::get("/").body(body).unwrap()
        };
        let source = |conditions: &str, num_retries| {
            let policy = RetryPolicy {
                retry_on: RetryOn::parse(conditions).unwrap(),
                ..policy(num_retries)
            };
            RequestSource::new(request(), &policy)
        };
        for (conditions, num_retries, buffered) in [
            ("5xx", 1, true),
            ("5xx", 0, false),
            ("connect-failure", 1, false),
        ] {
            let mut source = source(conditions, num_retries);
            assert_eq!(
                source.replay.is_some(),
                buffered,
                "{conditions} {num_retries}"
            );
            assert!(source.refill().take().is_some());
            assert_eq!(source.has_request(), buffered, "{conditions} {num_retries}");
        }
    }

    #[tokio::test]
    async fn a_host_that_could_not_be_reached_is_not_dialed_again() {
        let (_client, mut call) = call(policy(9), UpstreamOptions::default());
        let failed = || Error::new(ErrorKind::Connect, "").with_failed_dial();
        let mut ports = Vec::new();
        let mut next = call.pick_again();
        while let Ok(Pick::Host(to)) = next {
            assert!(call.may_retry_unsent(&to.host));
            ports.push(to.host.address().port());
            call.failed_dials.push(Arc::clone(&to.host));
            call.tried.push(to.host);
            call.dial_error = Some(failed());
            next = call.pick_reachable();
        }
        ports.sort_unstable();
        assert_eq!(ports, [1, 2, 3]);
        assert!(next.unwrap_err().is_connect());
        // Nor after it waited for a circuit breaker.
        (call.waited, call.dial_error) = (true, Some(failed()));
        let waited = call.wait_for_host(Pick::Full(None)).await;
        assert!(waited.unwrap_err().is_connect());
    }

    #[tokio::test]
    async fn a_timeout_names_the_cluster_and_the_time() {
        let (_client, mut call) = call(policy(0), UpstreamOptions::default());
        let error = call.timed_out(Duration::from_millis(20));
        assert_eq!(error.address(), None);
        let host: SocketAddr = ([127, 0, 0, 1], 7).into();
        call.latest = Some(host);
        let error = call.timed_out(Duration::from_millis(20));
        assert!(error.is_timeout());
        assert_eq!(error.address(), Some(host));
        assert_eq!(error.cluster(), Some("orders"));
        assert!(error.to_string().contains("20ms"), "{error}");
    }
}
