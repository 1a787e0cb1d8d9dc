//! [`Host`]: what outlives a snapshot; the only shared mutable memory of the data path (atomics).
//!
//! A host is kept alive by the snapshots and the requests that use it. The balancer creates it and
//! writes weight and slow-start factor; requests count themselves in and out. Everything that is
//! decided from these numbers lives in `balancer` and `endpoint_picking`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::endpoint_picking::client_side_weighted_round_robin::OrcaWeightSlot;
use crate::model::assignment::LbEndpoint;
use crate::model::cluster::ClusterConfig;
use crate::model::endpoint_policy::EndpointPolicy;
use crate::model::load_report::MetricStats;
use crate::model::locality::Locality;
use crate::model::orca::OrcaLoadReport;
use crate::time::Instant;

mod cluster_load;
pub(crate) mod in_flight;
pub(crate) mod load_metrics;
mod metric_sum;
mod response_times;
mod totals;

pub use cluster_load::ClusterLoad;
pub(crate) use cluster_load::DropCounts;
use in_flight::Counter;
use load_metrics::MetricSums;
use response_times::ResponseTimes;
pub(crate) use response_times::{Reading, Window};
pub use totals::RequestCounts;
use totals::Totals;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// A response that is no error (HTTP below 500, gRPC OK).
    Success,
    /// An error response, a reset, a timeout.
    Error,
}

/// One upstream host.
#[derive(Debug)]
pub struct Host {
    /// Requests in flight; counted beside those of the other hosts.
    active: Counter,
    // What schedules read stands together, first.
    weight: AtomicU32,
    /// Bits of an f64 in 0.0..=1.0.
    slow_start_factor: AtomicU64,
    totals: Totals,
    /// Errors since the last success.
    errors_in_a_row: AtomicU32,
    response_times: ResponseTimes,
    utilization: UtilizationSlot,
    client_weight: OrcaWeightSlot,
    /// Sums for load reports; unset while no metrics are asked for.
    metrics: OnceLock<MetricSums>,
    address: SocketAddr,
    locality: Locality,
    hostname: Arc<str>,
    hash_key: Option<Arc<str>>,
    cluster: Arc<ClusterLoad>,
}

impl Host {
    /// The host of `endpoint` in `locality`; `active` is its own.
    pub(crate) fn new(
        endpoint: &LbEndpoint,
        locality: &Locality,
        cluster: Arc<ClusterLoad>,
        active: Counter,
    ) -> Self {
        Self {
            active,
            weight: AtomicU32::new(endpoint.weight().max(1)),
            slow_start_factor: AtomicU64::new(1.0_f64.to_bits()),
            totals: Totals::new(),
            errors_in_a_row: AtomicU32::new(0),
            response_times: ResponseTimes::default(),
            utilization: UtilizationSlot::default(),
            client_weight: OrcaWeightSlot::default(),
            metrics: OnceLock::new(),
            address: endpoint.address,
            locality: locality.clone(),
            hostname: Arc::clone(&endpoint.hostname),
            hash_key: endpoint.hash_key.clone(),
            cluster,
        }
    }

    /// Counts a request in. Keep the value until the request has ended.
    #[inline]
    pub fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        self.reserve_request().issue()
    }

    /// Counts a request that waits for a connection: in flight, but not yet issued, because the
    /// host may never see it.
    #[inline]
    pub fn reserve_request(self: &Arc<Self>) -> ReservedRequest {
        self.occupy();
        ReservedRequest(Some(Arc::clone(self)))
    }

    fn occupy(&self) {
        self.active.increment();
        self.cluster.active.fetch_add(1, Ordering::Relaxed);
    }

    fn vacate(&self) {
        self.active.decrement();
        self.cluster.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes a load report for everybody who wants one: load_aware_locality and the weights of
    /// client_side_weighted_round_robin. Returns whether anybody could use it; a report that says
    /// nothing leaves what was there before.
    pub fn observe_orca(
        &self,
        report: &OrcaLoadReport,
        config: &ClusterConfig,
        now: Instant,
    ) -> bool {
        let mut used = false;
        if let Some(settings) = config.load_aware_locality() {
            let names = settings.metric_names();
            let value = report.utilization(names, settings.utilization_precedence());
            used |= self.utilization.store(value, now);
        }
        if let EndpointPolicy::ClientSideWeightedRoundRobin(settings) = config.endpoint_policy() {
            used |= self.client_weight.observe(report, settings, now).is_ok();
        }
        used
    }

    /// Takes a report that came with a response: as [`Self::observe_orca`], and its metrics count
    /// for load reports (`lrs_report_endpoint_metrics`). To be called at most once per response;
    /// out-of-band reports belong to no request and count for no load report (gRFC A85).
    pub fn observe_response_orca(
        &self,
        report: &OrcaLoadReport,
        config: &ClusterConfig,
        now: Instant,
    ) -> bool {
        let summed = self.metrics.get();
        if let Some(sums) = summed {
            self.cluster.metrics.add(report, sums);
        }
        self.observe_orca(report, config, now) || summed.is_some()
    }

    /// From now on metrics of reports are summed.
    pub(crate) fn sum_metrics(&self) {
        self.metrics.get_or_init(load_metrics::empty_sums);
    }

    /// Takes away what the first slots summed so far; `names` says which metric each slot is.
    /// Metrics learned since `names` were read wait for the next time.
    pub(crate) fn take_metrics<'n>(
        &self,
        names: &'n [Arc<str>],
    ) -> impl Iterator<Item = (&'n Arc<str>, MetricStats)> {
        let sums = self.metrics.get().into_iter().flatten();
        names.iter().zip(sums).filter_map(|(name, sum)| {
            let (count, total) = sum.take();
            let stats = MetricStats {
                num_requests_finished_with_metric: count,
                total_metric_value: total,
            };
            (count > 0 || total != 0.0).then_some((name, stats))
        })
    }

    /// Utilization last reported, 0.0 to 1.0, and when.
    pub fn utilization(&self) -> Option<(f64, Instant)> {
        self.utilization.load()
    }

    /// Weight that client_side_weighted_round_robin made of the last report it could use; whether
    /// it counts yet (blackout, expiration) is the balancer's business.
    pub fn orca_weight(&self) -> Option<u32> {
        let state = self.client_weight.load();
        state.last_update.map(|_| state.weight)
    }

    pub(crate) const fn client_weight(&self) -> (&OrcaWeightSlot, &AtomicU32) {
        (&self.client_weight, &self.weight)
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it is.
    pub const fn locality(&self) -> &Locality {
        &self.locality
    }

    /// Its name in the assignment, may be empty.
    pub const fn hostname(&self) -> &Arc<str> {
        &self.hostname
    }

    /// Key for consistent hashing that overrides address and name.
    pub const fn hash_key(&self) -> Option<&Arc<str>> {
        self.hash_key.as_ref()
    }

    /// Requests in flight.
    #[inline]
    pub fn active_requests(&self) -> u64 {
        u64::from(self.active.get())
    }

    /// Requests issued, succeeded and failed since the host was first seen.
    pub fn totals(&self) -> (u64, u64, u64) {
        let counts = self.request_counts();
        (counts.issued, counts.succeeded, counts.failed)
    }

    /// The same by name.
    pub fn request_counts(&self) -> RequestCounts {
        self.totals.read()
    }

    /// Errors since the last success: what outlier detection calls consecutive.
    pub fn consecutive_errors(&self) -> u32 {
        self.errors_in_a_row.load(Ordering::Relaxed)
    }

    /// Counters of OBSERVED_LOAD.
    pub(crate) fn observed(&self) -> Reading {
        self.response_times.read(self.totals.read().issued)
    }

    /// Requests in flight whose response headers have not arrived, as far as anybody observes
    /// headers. Those that wait for a connection are among them.
    pub(crate) fn waiting_requests(&self) -> u64 {
        let streaming = self.response_times.streaming();
        self.active_requests().saturating_sub(streaming)
    }

    /// Weight in force, at least 1.
    #[inline]
    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Weight after slow start had its say.
    #[inline]
    pub fn scheduled_weight(&self) -> f64 {
        let factor = f64::from_bits(self.slow_start_factor.load(Ordering::Relaxed));
        f64::from(self.weight()) * factor
    }

    /// Requests of the whole cluster in flight.
    pub fn cluster_load(&self) -> &ClusterLoad {
        &self.cluster
    }

    pub(crate) const fn counter(&self) -> &Counter {
        &self.active
    }

    pub(crate) fn set_weight(&self, weight: u32) {
        self.weight.store(weight.max(1), Ordering::Relaxed);
    }

    pub(crate) fn set_slow_start_factor(&self, factor: f64) {
        self.slow_start_factor
            .store(factor.to_bits(), Ordering::Relaxed);
    }

    fn end_request(&self, outcome: RequestOutcome) {
        self.vacate();
        match outcome {
            RequestOutcome::Success => {
                // Mostly there is nothing to forget, and so nothing to write.
                if self.errors_in_a_row.load(Ordering::Relaxed) != 0 {
                    self.errors_in_a_row.store(0, Ordering::Relaxed);
                }
                self.totals.succeed();
            }
            RequestOutcome::Error => {
                self.errors_in_a_row.fetch_add(1, Ordering::Relaxed);
                self.totals.fail();
            }
        }
    }
}

/// The utilization a host reported last. The value is stored before the time (release), so whoever
/// sees the time sees that value or a newer one.
#[derive(Debug, Default)]
struct UtilizationSlot {
    /// Bits of an f64 in 0.0..=1.0.
    value: AtomicU64,
    /// Nanoseconds plus one; 0 = never.
    at: AtomicU64,
}

impl UtilizationSlot {
    /// What is not positive or not finite is no sample (envoy-semantics §4.2); above 1 counts as 1.
    fn store(&self, value: f64, now: Instant) -> bool {
        if !(value > 0.0 && value.is_finite()) {
            return false;
        }
        self.value
            .store(value.min(1.0).to_bits(), Ordering::Relaxed);
        self.at
            .store(now.as_nanos().saturating_add(1), Ordering::Release);
        true
    }

    fn load(&self) -> Option<(f64, Instant)> {
        let at = self.at.load(Ordering::Acquire).checked_sub(1)?;
        Some((
            f64::from_bits(self.value.load(Ordering::Relaxed)),
            Instant::from_nanos(at),
        ))
    }
}

/// A request that waits for its connection. Dropped without [`ReservedRequest::issue`] it was never
/// sent, and no load report will speak of it.
#[derive(Debug)]
#[must_use = "the request is given up when this is dropped"]
pub struct ReservedRequest(Option<Arc<Host>>);

impl ReservedRequest {
    /// It is sent now.
    #[inline]
    pub fn issue(mut self) -> ActiveRequest {
        let host = self
            .0
            .take()
            .expect("a reservation holds its host until it is issued");
        host.totals.issue();
        ActiveRequest {
            host,
            answered: false,
            ended: false,
        }
    }
}

impl Drop for ReservedRequest {
    fn drop(&mut self) {
        if let Some(host) = self.0.take() {
            host.vacate();
        }
    }
}

/// A request in flight. Dropped without [`ActiveRequest::finish`] it counts as an error: a request
/// that was cancelled or whose task died did not succeed.
#[derive(Debug)]
#[must_use = "the request counts as failed when this is dropped"]
pub struct ActiveRequest {
    host: Arc<Host>,
    /// Response headers have arrived and were observed.
    answered: bool,
    ended: bool,
}

impl ActiveRequest {
    /// The request has ended.
    pub fn finish(mut self, outcome: RequestOutcome) {
        self.end(outcome);
    }

    /// Response headers arrived `latency` after the request was issued: what OBSERVED_LOAD goes
    /// by. From here on the request waits for nobody, however long its body, stream or tunnel
    /// lasts. Errors are not timed: a refusal is quick and says nothing about how long work takes.
    pub fn answered(&mut self, outcome: RequestOutcome, latency: Duration) {
        if !std::mem::replace(&mut self.answered, true) {
            let timed = (outcome == RequestOutcome::Success).then_some(latency);
            self.host.response_times.answer(timed);
        }
    }

    /// Response headers arrived after `latency`, and nothing came after them.
    pub fn finish_after(mut self, outcome: RequestOutcome, latency: Duration) {
        self.answered(outcome, latency);
        self.end(outcome);
    }

    fn end(&mut self, outcome: RequestOutcome) {
        self.ended = true;
        if self.answered {
            self.host.response_times.end_answered();
        }
        self.host.end_request(outcome);
    }

    /// The connection gave the request back unsent: as if it had never been issued.
    pub fn withdraw(mut self) {
        self.ended = true;
        self.host.vacate();
        self.host.totals.withdraw();
    }

    /// The host that serves it.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if !self.ended {
            self.end(RequestOutcome::Error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::in_flight::Counters;
    use super::*;

    fn host(weight: Option<u32>) -> Arc<Host> {
        host_with(weight, Counters::default().take())
    }

    pub(super) fn host_with(weight: Option<u32>, active: Counter) -> Arc<Host> {
        let mut endpoint = LbEndpoint::new(SocketAddr::from(([10, 0, 0, 1], 80)));
        endpoint.load_balancing_weight = weight;
        Arc::new(Host::new(
            &endpoint,
            &Locality::zone_only("a"),
            Arc::default(),
            active,
        ))
    }

    #[test]
    fn requests_count_in_and_out() {
        let host = host(None);
        let (one, two, three) = (
            host.begin_request(),
            host.begin_request(),
            host.begin_request(),
        );
        assert_eq!(
            (host.active_requests(), host.cluster_load().active()),
            (3, 3)
        );
        one.finish(RequestOutcome::Success);
        two.finish(RequestOutcome::Error);
        drop(three);
        assert_eq!(
            (host.active_requests(), host.cluster_load().active()),
            (0, 0)
        );
        assert_eq!(host.totals(), (3, 1, 2));
    }

    #[test]
    fn what_was_never_sent_is_in_flight_but_not_issued() {
        let host = host(None);
        let (given_up, sent) = (host.reserve_request(), host.reserve_request());
        assert_eq!(host.active_requests(), 2);
        assert_eq!(host.totals(), (0, 0, 0));
        drop(given_up);
        let sent = sent.issue();
        assert_eq!(host.totals(), (1, 0, 0));
        sent.withdraw();
        assert_eq!(host.totals(), (0, 0, 0));
        assert_eq!(
            (host.active_requests(), host.cluster_load().active()),
            (0, 0)
        );
    }

    #[test]
    fn weights_are_at_least_one_and_slow_start_scales_them() {
        let host = host(Some(8));
        host.set_slow_start_factor(0.25);
        assert_eq!((host.weight(), host.scheduled_weight()), (8, 2.0));
        host.set_weight(0);
        assert_eq!(host.weight(), 1);
    }
}
