//! [`Call`]: one request over all its tries.
//!
//! Picks, sends, and decides with the retry policy whether to do so again: on another host, and on
//! one of another locality or priority when those of one cannot be reached. Conditions are in
//! `retry`, keeping a request for another try in `replay`.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use plimsoll_core::host::Host;
use plimsoll_core::picker::PickArgs;
use plimsoll_xds::driver::Clock;
use plimsoll_xds::upstream::UpstreamOptions;
use tracing::Span;
use tracing::field::Empty;

use crate::body::{Account, RequestBody, ResponseBody};
use crate::cluster::{Cluster, Retry, RetryBudget};
use crate::destination::{self, Target};
use crate::endpoint::{Sending, Sent};
use crate::error::{Error, ErrorKind};
use crate::options::{RequestOptions, RetryPolicy};
use crate::replay::Replay;

/// One call, over all its tries.
pub(crate) struct Call {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) upstream: Arc<UpstreamOptions>,
    pub(crate) options: RequestOptions,
    pub(crate) pool: usize,
    /// Hosts that are not picked again while there is another.
    tried: Vec<Arc<Host>>,
    /// Hosts of those that could not be reached.
    unreachable: Vec<Arc<Host>>,
    /// A whole priority could not be reached; the last try goes to another one.
    failed_over: bool,
    retries: u32,
    budget: Option<Retry>,
    /// What the call leaves in a trace.
    pub(crate) span: Span,
}

/// What became of one try.
enum Try {
    Response(Response<Incoming>, Box<Account>),
    /// The request is back in its place.
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
            failed_over: false,
            retries: 0,
            budget: None,
        }
    }

    /// Sends what `supply` has until there is a response that is good enough, or no more to try.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps a second copy of everything it is given"
    )]
    pub(crate) fn run(
        mut self,
        first: Result<Option<Target>, Error>,
        mut supply: Supply,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Error>> {
        async move {
            let limit = self.options.timeout;
            let done = {
                let sent = pin!(self.send(first?, &mut supply));
                within(limit, sent).await
            };
            if done.is_err() {
                let stats = &self.cluster.limits.stats;
                stats.upstream_rq_timeout.increment();
            }
            done?
        }
    }

    async fn send(
        &mut self,
        mut target: Option<Target>,
        supply: &mut Supply,
    ) -> Result<Response<ResponseBody>, Error> {
        loop {
            let Some(found) = target else {
                Box::pin(self.wait_until_ready()).await?;
                target = self.pick_again()?;
                continue;
            };
            let pauses = match self.attempt(&found, supply.fill()).await {
                Try::Response(response, account) => {
                    let (status, grpc_status) = account.statuses();
                    let policy = &self.options.retry;
                    let wanted = policy.retries_response(status, grpc_status);
                    if !(wanted && supply.is_full() && self.may_retry_seen()) {
                        return Ok(self.finish(response, account));
                    }
                    account.fail(http_body::Body::is_end_stream(response.body()));
                    true
                }
                Try::Unsent(error) => {
                    let wanted = self.options.retry.retries_error(error.kind());
                    if !(wanted && self.may_retry_unsent(&found.host)) {
                        return Err(error);
                    }
                    false
                }
                Try::Failed(error) => {
                    let wanted = self.options.retry.retries_error(error.kind());
                    if !(wanted && supply.is_full() && self.may_retry_seen()) {
                        return Err(error);
                    }
                    true
                }
            };
            if pauses {
                Box::pin(self.pause()).await;
            }
            self.tried.push(found.host);
            self.cluster.limits.stats.upstream_rq_retry.increment();
            target = self.pick_again()?;
        }
    }

    async fn attempt(&self, target: &Target, request: &mut Option<Request<RequestBody>>) -> Try {
        let stats = &self.cluster.limits.stats;
        self.trace(target);
        let started = Clock::system().now();
        // Reserved before the first await: a request counts while its connection is dialled.
        let reserved = target.host.reserve_request();
        let sending = Sending {
            pool: self.pool,
            breakers: &self.upstream.circuit_breakers,
            authority: &self.cluster.authority,
            now: started,
        };
        let sent = pin!(target.endpoint.send(request, reserved, sending));
        match within(self.options.per_try_timeout, sent).await {
            Ok(Sent::Response {
                response,
                active,
                issued_at,
                lease,
            }) => {
                stats.count_status(response.status().as_u16());
                let config = Arc::clone(&target.config);
                let mut account = Box::new(Account::new(active, config, started, lease));
                account.look_at_headers(response.status(), response.headers());
                account.observe_response_time(issued_at);
                Try::Response(response, account)
            }
            Ok(Sent::Unsent(error)) => {
                if error.kind() == ErrorKind::Overflow {
                    self.cluster.load.record_drop();
                }
                Try::Unsent(error)
            }
            Ok(Sent::Refused(error)) => Try::Failed(error),
            Ok(Sent::Failed(error)) => {
                self.cluster.limits.handle_error(&target.host);
                Try::Failed(error)
            }
            Err(error) => {
                stats.upstream_rq_per_try_timeout.increment();
                self.cluster.limits.handle_error(&target.host);
                Try::Failed(error)
            }
        }
    }

    fn trace(&self, target: &Target) {
        let span = &self.span;
        if span.is_disabled() {
            return;
        }
        span.record("locality", tracing::field::display(target.host.locality()));
        span.record("host", tracing::field::display(target.host.address()));
        span.record("source", tracing::field::debug(target.source));
        span.record("retries", self.retries);
    }

    fn finish(
        &self,
        response: Response<Incoming>,
        account: Box<Account>,
    ) -> Response<ResponseBody> {
        if self.retries > 0 {
            let stats = &self.cluster.limits.stats;
            stats.upstream_rq_retry_success.increment();
        }
        response.map(|body| ResponseBody::new(body, account))
    }

    /// One more try of what no host has seen, in another priority if none of one can be reached.
    ///
    /// It needs no budget, as gRPC's transparent retries (gRFC A6): no host had work with it, so
    /// that retries cannot multiply load. Nor can they multiply connections, because hosts that
    /// could not be reached are left alone for a while.
    fn may_retry_unsent(&mut self, host: &Arc<Host>) -> bool {
        let limit = self.options.retry.num_retries;
        let mut worker = self.cluster.lend_worker();
        destination::avoid_unreachable(&mut self.unreachable, host, &mut worker);
        if limit > 0 && self.retries >= limit && !self.failed_over {
            self.failed_over = destination::avoid_priorities(&mut self.unreachable, &mut worker);
        }
        self.cluster.give_back(worker);
        self.may_retry()
    }

    /// One more try, if there were not enough.
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

    /// One more try of what a host may have seen.
    fn may_retry_seen(&mut self) -> bool {
        if !self.may_retry() {
            return false;
        }
        self.budget = None;
        self.budget = RetryBudget::take(&self.cluster, &self.upstream);
        if self.budget.is_none() {
            let stats = &self.cluster.limits.stats;
            stats.upstream_rq_retry_overflow.increment();
        }
        self.budget.is_some()
    }

    async fn pause(&self) {
        let pause = self
            .options
            .retry
            .pause(self.retries, self.cluster.next_draw());
        tokio::time::sleep(pause).await;
    }

    fn pick_again(&self) -> Result<Option<Target>, Error> {
        let mut worker = self.cluster.lend_worker();
        let avoid = [self.tried.as_slice(), self.unreachable.as_slice()].concat();
        let args = PickArgs {
            hash: self.options.hash,
            avoid: &avoid,
            metadata_match: self.options.metadata_match.as_ref(),
        };
        let picked = destination::pick(&self.cluster, &mut worker, &self.upstream, args);
        self.cluster.give_back(worker);
        picked
    }

    async fn wait_until_ready(&self) -> Result<(), Error> {
        let mut ready = self.cluster.ready.clone();
        let waited = ready.wait_for(|ready| *ready).await;
        let closed = |_| Error::new(ErrorKind::Closed, "the client is shut down");
        waited.map(|_| ()).map_err(closed)
    }
}

/// What a call leaves in a trace: where the last try went and why, and how many there were.
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

/// Where tries get their request from. It stays in one place while it is passed down, because a
/// request is large and a future keeps every argument.
pub(crate) struct Supply {
    next: Option<Request<RequestBody>>,
    /// Where there is another one, when a host has seen the first.
    replay: Option<Box<Replay>>,
}

impl Supply {
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

    /// The place of the request, with the next one in it if there is one.
    fn fill(&mut self) -> &mut Option<Request<RequestBody>> {
        if let (None, Some(replay)) = (&self.next, &self.replay) {
            self.next = replay.next();
        }
        &mut self.next
    }

    /// Whether there is a request for another try.
    fn is_full(&mut self) -> bool {
        self.fill().is_some()
    }
}

/// Takes its work by reference: futures that are moved into others are copied each time.
async fn within<F: Future>(limit: Option<Duration>, work: Pin<&mut F>) -> Result<F::Output, Error> {
    let Some(limit) = limit else {
        return Ok(work.await);
    };
    let done = tokio::time::timeout(limit, work).await;
    done.map_err(|_| {
        let message = format!("no response within {limit:?}");
        Error::new(ErrorKind::Timeout, message)
    })
}
