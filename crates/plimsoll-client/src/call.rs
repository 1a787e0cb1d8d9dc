//! [`Call`]: one request over all its tries.
//!
//! Picks, sends, and decides with the retry policy whether to do so again: on another host, and on
//! one of another locality or priority when those of one cannot be reached. Conditions are in
//! `retry`, keeping a request for another try in `replay`.

use std::future::Future;
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
}

/// What became of one try.
enum Try {
    Response(Response<Incoming>, Box<Account>),
    Unsent(Request<RequestBody>, Error),
    Failed(Error),
}

impl Call {
    pub(crate) const fn new(
        cluster: Arc<Cluster>,
        upstream: Arc<UpstreamOptions>,
        options: RequestOptions,
        pool: usize,
    ) -> Self {
        Self {
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

    /// What the call leaves in a trace: where the last try went and why, and how many there were.
    pub(crate) fn span(&self) -> Span {
        tracing::debug_span!(
            "upstream_call",
            cluster = %self.cluster.name,
            locality = Empty,
            host = Empty,
            source = Empty,
            retries = Empty,
        )
    }

    /// Sends `request` until it has a response that is good enough, or there is no more to try.
    pub(crate) async fn run(
        mut self,
        first: Result<Option<Target>, Error>,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Error> {
        let limit = self.options.timeout;
        let stats = Arc::clone(&self.cluster.limits.stats);
        let done = within(limit, self.send(first?, request)).await;
        if let Err(error) = &done
            && error.kind() == ErrorKind::Timeout
        {
            stats.upstream_rq_timeout.increment();
        }
        done
    }

    async fn send(
        &mut self,
        mut target: Option<Target>,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Error> {
        let mut supply = Supply::new(request, &self.options.retry);
        loop {
            let Some(found) = target else {
                self.wait_until_ready().await?;
                target = self.pick_again()?;
                continue;
            };
            let Some(request) = supply.next() else {
                return Err(Error::new(ErrorKind::Closed, "the request is gone"));
            };
            let host = Arc::clone(&found.host);
            match self.attempt(found, request).await {
                Try::Response(response, account) => {
                    let (status, grpc_status) = account.statuses();
                    let policy = &self.options.retry;
                    let wanted = policy.retries_response(status, grpc_status);
                    if !(wanted && supply.is_full() && self.may_retry_seen()) {
                        return Ok(self.finish(response, *account));
                    }
                    account.fail(http_body::Body::is_end_stream(response.body()));
                    self.pause().await;
                }
                Try::Unsent(unsent, error) => {
                    let wanted = self.options.retry.retries_error(error.kind());
                    if !(wanted && self.may_retry_unsent(&host)) {
                        return Err(error);
                    }
                    supply.give_back(unsent);
                }
                Try::Failed(error) => {
                    let wanted = self.options.retry.retries_error(error.kind());
                    if !(wanted && supply.is_full() && self.may_retry_seen()) {
                        return Err(error);
                    }
                    self.pause().await;
                }
            }
            self.tried.push(host);
            self.cluster.limits.stats.upstream_rq_retry.increment();
            target = self.pick_again()?;
        }
    }

    async fn attempt(&self, target: Target, request: Request<RequestBody>) -> Try {
        let stats = &self.cluster.limits.stats;
        self.trace(&target);
        let started = Clock::system().now();
        // Reserved before the first await: a request counts while its connection is dialled.
        let reserved = target.host.reserve_request();
        let sending = Sending {
            pool: self.pool,
            breakers: &self.upstream.circuit_breakers,
            authority: &self.cluster.authority,
            now: started,
        };
        let sent = target.endpoint.send(request, reserved, sending);
        let limit = self.options.per_try_timeout;
        match within(limit, async { Ok(sent.await) }).await {
            Ok(Sent::Response {
                response,
                active,
                lease,
            }) => {
                stats.count_status(response.status().as_u16());
                let mut account = Account::new(active, target.config, started, lease);
                account.look_at_headers(response.status(), response.headers());
                Try::Response(response, Box::new(account))
            }
            Ok(Sent::Unsent(request, error)) => {
                if error.kind() == ErrorKind::Overflow {
                    self.cluster.load.record_drop();
                }
                Try::Unsent(request, error)
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
        let span = Span::current();
        if span.is_disabled() {
            return;
        }
        span.record("locality", tracing::field::display(target.host.locality()));
        span.record("host", tracing::field::display(target.host.address()));
        span.record("source", tracing::field::debug(target.source));
        span.record("retries", self.retries);
    }

    fn finish(&self, response: Response<Incoming>, account: Account) -> Response<ResponseBody> {
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

/// Where tries get their request from.
enum Supply {
    /// It can be sent until a host has seen it.
    Once(Option<Request<RequestBody>>),
    /// It can be sent again.
    Replay(Box<Replay>, Option<Request<RequestBody>>),
}

impl Supply {
    fn new(request: Request<RequestBody>, policy: &RetryPolicy) -> Self {
        if policy.num_retries == 0 || !policy.retry_on.needs_replay() {
            return Self::Once(Some(request));
        }
        let replay = Replay::new(request, policy.max_replay_bytes);
        Self::Replay(Box::new(replay), None)
    }

    fn next(&mut self) -> Option<Request<RequestBody>> {
        match self {
            Self::Once(request) => request.take(),
            Self::Replay(replay, next) => next.take().or_else(|| replay.next()),
        }
    }

    /// Whether there is a request for another try.
    fn is_full(&mut self) -> bool {
        if let Self::Replay(replay, next @ None) = self {
            *next = replay.next();
        }
        matches!(self, Self::Once(Some(_)) | Self::Replay(_, Some(_)))
    }

    /// No host has seen it.
    fn give_back(&mut self, request: Request<RequestBody>) {
        if let Self::Once(place) = self {
            *place = Some(request);
        }
    }
}

async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(limit) = limit else {
        return work.await;
    };
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => {
            let message = format!("no response within {limit:?}");
            Err(Error::new(ErrorKind::Timeout, message))
        }
    }
}
