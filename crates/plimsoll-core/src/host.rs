//! Upstream hosts: the state that outlives snapshots, and the only shared mutable memory of the
//! data path (atomics).
//!
//! A [`Host`] is kept alive by the snapshots and the requests that use it. The balancer creates it
//! and sets weight and slow-start factor; [`Host::begin_request`] returns a guard that counts a
//! request until it is finished or dropped.
//!
//! ```
//! use std::sync::Arc;
//! use plimsoll_core::host::{Host, RequestOutcome};
//!
//! fn send(host: &Arc<Host>, try_send: impl FnOnce() -> bool) {
//!     let request = host.begin_request(); // an early return would count as an error
//!     let succeeded = try_send();
//!     request.finish(if succeeded { RequestOutcome::Success } else { RequestOutcome::Error });
//! }
//! ```

use std::fmt;
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
use in_flight::InFlightCounter;
use load_metrics::MetricSums;
use response_times::ResponseTimes;
pub(crate) use response_times::{ResponseCounters, Window};
pub use totals::RequestCounts;
use totals::Totals;

/// How a request ended, for load reports and outlier detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// A response other than an error (HTTP below 500, gRPC OK).
    Success,
    /// An error response, a reset or a timeout.
    Error,
}

/// One upstream host with its weight and counters.
pub struct Host {
    /// Requests in flight; stored side by side with those of other hosts.
    active: InFlightCounter,
    // Fields that schedules read come first, close together.
    weight: AtomicU32,
    /// Bits of an f64 in 0.0..=1.0.
    slow_start_factor: AtomicU64,
    totals: Totals,
    consecutive_errors: AtomicU32,
    response_times: ResponseTimes,
    utilization: UtilizationSlot,
    rates: RateSlot,
    client_weight: OrcaWeightSlot,
    /// Backend metric sums for LRS; unset unless `lrs_report_endpoint_metrics` is configured.
    metrics: OnceLock<MetricSums>,
    address: SocketAddr,
    locality: Locality,
    hostname: Arc<str>,
    hash_key: Option<Arc<str>>,
    cluster: Arc<ClusterLoad>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("address", &self.address)
            .field("locality", &format_args!("{}", self.locality))
            .field("weight", &self.weight)
            .field("active", &self.active)
            .finish_non_exhaustive()
    }
}

impl Host {
    pub(crate) fn new(
        endpoint: &LbEndpoint,
        locality: &Locality,
        cluster: Arc<ClusterLoad>,
        active: InFlightCounter,
    ) -> Self {
        Self {
            active,
            weight: AtomicU32::new(endpoint.weight().max(1)),
            slow_start_factor: AtomicU64::new(1.0_f64.to_bits()),
            totals: Totals::new(),
            consecutive_errors: AtomicU32::new(0),
            response_times: ResponseTimes::default(),
            utilization: UtilizationSlot::default(),
            rates: RateSlot::default(),
            client_weight: OrcaWeightSlot::default(),
            metrics: OnceLock::new(),
            address: endpoint.address,
            locality: locality.clone(),
            hostname: Arc::clone(&endpoint.hostname),
            hash_key: endpoint.hash_key.clone(),
            cluster,
        }
    }

    /// Counts a request as issued and in flight. Keep the guard until the request has ended.
    #[inline]
    pub fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        self.reserve_request().issue()
    }

    /// Counts a request that waits for a connection: in flight, but not issued yet, because it may
    /// never reach the host.
    #[inline]
    pub fn reserve_request(self: &Arc<Self>) -> ReservedRequest {
        self.increment_active();
        ReservedRequest(Some(Arc::clone(self)))
    }

    fn increment_active(&self) {
        self.active.increment();
        self.cluster.active.fetch_add(1, Ordering::Relaxed);
    }

    fn decrement_active(&self) {
        self.active.decrement();
        self.cluster.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Applies a load report (ORCA) to the policies that use such reports: load_aware_locality and
    /// client_side_weighted_round_robin. Returns whether any of them could use it; a report without
    /// usable values changes nothing.
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
            self.rates.store(report, now);
        }
        if let EndpointPolicy::ClientSideWeightedRoundRobin(settings) = config.endpoint_policy() {
            used |= self.client_weight.observe(report, settings, now).is_ok();
        }
        used
    }

    /// Applies a load report that came with a response. In addition to [`Self::observe_orca`], its
    /// metrics are summed for LRS (`lrs_report_endpoint_metrics`). To be called at most once per
    /// response; out-of-band reports belong to no request and are not summed (gRFC A85).
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

    pub(crate) fn sum_metrics(&self) {
        self.metrics.get_or_init(load_metrics::empty_sums);
    }

    /// Takes the sums of all metrics in `names`, which are in slot order. Metrics that got a slot
    /// after `names` was read wait for the next LRS report.
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

    /// Returns the last reported utilization, 0.0 to 1.0, and when it was reported.
    pub fn utilization(&self) -> Option<(f64, Instant)> {
        self.utilization.load()
    }

    /// Returns the requests and errors per second that the host reported last, and when.
    pub(crate) fn reported_rates(&self) -> Option<((f32, f32), Instant)> {
        self.rates.load()
    }

    /// Returns the weight that client_side_weighted_round_robin computed from the last usable load
    /// report. Whether that weight is in force (blackout, expiration) is up to the balancer.
    pub fn orca_weight(&self) -> Option<u32> {
        let state = self.client_weight.load();
        state.last_update.map(|_| state.weight)
    }

    pub(crate) const fn client_weight(&self) -> (&OrcaWeightSlot, &AtomicU32) {
        (&self.client_weight, &self.weight)
    }

    getters! {
        /// Returns the address that the host listens on.
        address: SocketAddr,
        /// Returns the locality of the host.
        locality: &Locality,
        /// Returns the hostname from the assignment, which may be empty.
        hostname: &Arc<str>,
        /// Returns the key for consistent hashing that overrides address and hostname.
        hash_key: Option<&Arc<str>>,
    }

    /// Returns a small number that is unique among the hosts of its balancer while this host is
    /// alive. It indexes the per-host data of a driver ([`DriverSnapshot`]).
    ///
    /// [`DriverSnapshot`]: crate::snapshot::DriverSnapshot
    #[inline]
    pub const fn index(&self) -> usize {
        self.active.index
    }

    /// Returns the number of requests in flight.
    #[inline]
    pub fn active_requests(&self) -> u64 {
        u64::from(self.active.get())
    }

    /// Returns the requests issued, succeeded and failed since the host was first seen.
    pub fn totals(&self) -> (u64, u64, u64) {
        let counts = self.request_counts();
        (counts.issued, counts.succeeded, counts.failed)
    }

    /// Returns the counts of [`Self::totals`] as a struct.
    pub fn request_counts(&self) -> RequestCounts {
        self.totals.read()
    }

    /// Returns the errors since the last success, for the consecutive-errors check of outlier
    /// detection.
    pub fn consecutive_errors(&self) -> u32 {
        self.consecutive_errors.load(Ordering::Relaxed)
    }

    pub(crate) fn observed(&self) -> ResponseCounters {
        self.response_times.read(self.totals.read().issued)
    }

    /// Requests in flight without response headers, including those that wait for a connection.
    pub(crate) fn waiting_requests(&self) -> u64 {
        let streaming = self.response_times.streaming();
        self.active_requests().saturating_sub(streaming)
    }

    /// Returns the weight in force, at least 1.
    #[inline]
    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Returns the weight scaled by slow start.
    #[inline]
    pub fn scheduled_weight(&self) -> f64 {
        let factor = f64::from_bits(self.slow_start_factor.load(Ordering::Relaxed));
        f64::from(self.weight()) * factor
    }

    /// Returns the load of the whole cluster.
    pub fn cluster_load(&self) -> &ClusterLoad {
        &self.cluster
    }

    pub(crate) const fn counter(&self) -> &InFlightCounter {
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
        self.decrement_active();
        match outcome {
            RequestOutcome::Success => {
                // Usually the counter is 0 already; then its cache line is not written.
                if self.consecutive_errors.load(Ordering::Relaxed) != 0 {
                    self.consecutive_errors.store(0, Ordering::Relaxed);
                }
                self.totals.succeed();
            }
            RequestOutcome::Error => {
                self.consecutive_errors.fetch_add(1, Ordering::Relaxed);
                self.totals.fail();
            }
        }
    }
}

/// Last reported utilization. The value is stored before the time (release), so a reader that sees
/// the time sees that value or a newer one.
#[derive(Debug, Default)]
struct UtilizationSlot {
    /// Bits of an f64 in 0.0..=1.0.
    value: AtomicU64,
    /// When the value was reported, in nanoseconds plus one; 0 = never.
    at: AtomicU64,
}

impl UtilizationSlot {
    /// Stores a sample, at most 1. Ignores those not positive or not finite (envoy-semantics §4.2).
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

/// Requests per second of a host that are accepted: hosts may report anything.
const MAX_PLAUSIBLE_RATE: f64 = 1e7;

/// Last reported requests and errors per second; ordered like [`UtilizationSlot`].
#[derive(Debug, Default)]
struct RateSlot {
    /// Bits of two f32, requests in the high half: no reader sees one without the other.
    rates: AtomicU64,
    /// When they were reported, in nanoseconds plus one; 0 = never.
    at: AtomicU64,
}

impl RateSlot {
    /// Stores the rates of a report. Ignores those that are not positive; there are at most as many
    /// errors as requests.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "24 bits are precise enough"
    )]
    fn store(&self, report: &OrcaLoadReport, now: Instant) {
        if report.rps_fractional.is_nan() || report.rps_fractional <= 0.0 {
            return;
        }
        let requests = report.rps_fractional.min(MAX_PLAUSIBLE_RATE);
        let errors = if report.eps > 0.0 {
            report.eps.min(requests)
        } else {
            0.0
        };
        let [requests, errors] = [requests, errors].map(|rate| u64::from((rate as f32).to_bits()));
        self.rates
            .store((requests << 32) | errors, Ordering::Relaxed);
        self.at
            .store(now.as_nanos().saturating_add(1), Ordering::Release);
    }

    #[expect(clippy::cast_possible_truncation, reason = "two halves of a word")]
    fn load(&self) -> Option<((f32, f32), Instant)> {
        let at = self.at.load(Ordering::Acquire).checked_sub(1)?;
        let rates = self.rates.load(Ordering::Relaxed);
        let [requests, errors] = [rates >> 32, rates].map(|bits| f32::from_bits(bits as u32));
        Some(((requests, errors), Instant::from_nanos(at)))
    }
}

/// A request that waits for a connection. If it is dropped without [`ReservedRequest::issue`], it
/// was never sent and does not appear in load reports.
#[derive(Debug)]
#[must_use = "dropping this cancels the request"]
pub struct ReservedRequest(Option<Arc<Host>>);

impl ReservedRequest {
    /// Counts the request as issued: it is being sent now.
    #[inline]
    pub fn issue(mut self) -> ActiveRequest {
        let host = self
            .0
            .take()
            .expect("the host is present until the reservation is issued");
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
            host.decrement_active();
        }
    }
}

/// A request in flight. If it is dropped without [`ActiveRequest::finish`], it counts as an error:
/// a request that was canceled or whose task panicked did not succeed.
#[derive(Debug)]
#[must_use = "the request counts as failed when this is dropped"]
pub struct ActiveRequest {
    host: Arc<Host>,
    answered: bool,
    ended: bool,
}

impl ActiveRequest {
    /// Ends the request and counts its outcome.
    pub fn finish(mut self, outcome: RequestOutcome) {
        self.end(outcome);
    }

    /// Records that response headers arrived `latency` after the request was issued, the signal of
    /// OBSERVED_LOAD. From here on the request no longer counts as waiting, however long its body,
    /// stream or tunnel lasts. Errors are not timed: a refusal is quick and says nothing about how
    /// long work takes.
    pub fn response_started(&mut self, outcome: RequestOutcome, latency: Duration) {
        if !std::mem::replace(&mut self.answered, true) {
            let timed = (outcome == RequestOutcome::Success).then_some(latency);
            self.host.response_times.answer(timed);
        }
    }

    /// Ends a request whose response headers arrived after `latency` and that has no body to wait
    /// for.
    pub fn finish_with_latency(mut self, outcome: RequestOutcome, latency: Duration) {
        self.response_started(outcome, latency);
        self.end(outcome);
    }

    fn end(&mut self, outcome: RequestOutcome) {
        self.ended = true;
        if self.answered {
            self.host.response_times.end_answered();
        }
        self.host.end_request(outcome);
    }

    /// Undoes the request because the connection returned it unsent, as if it had never been
    /// issued.
    pub fn withdraw(mut self) {
        self.ended = true;
        self.host.decrement_active();
        self.host.totals.withdraw();
    }

    /// Returns the host that serves the request.
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
    use super::in_flight::InFlightCounters;
    use super::*;
    use crate::model::cluster::{ClusterConfigParts, LocalityPolicy};
    use crate::model::load_aware_locality::{LoadAwareLocality, LoadAwareLocalityParts};

    fn host(weight: Option<u32>) -> Arc<Host> {
        host_with(weight, InFlightCounters::default().take())
    }

    pub(super) fn host_with(weight: Option<u32>, active: InFlightCounter) -> Arc<Host> {
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
    fn debug_is_one_readable_line() {
        let host = host(Some(3));
        let _request = host.begin_request();
        let text = "Host { address: 10.0.0.1:80, locality: a, weight: 3, active: 1, .. }";
        assert_eq!(format!("{host:?}"), text);
    }

    #[test]
    fn requests_are_counted_from_begin_to_end() {
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
    fn reported_rates_are_requests_and_errors_per_second() {
        let host = host(None);
        let settings = LoadAwareLocality::try_new(LoadAwareLocalityParts::default()).unwrap();
        let config = ClusterConfig::try_new(ClusterConfigParts {
            name: "orders".into(),
            locality_policy: LocalityPolicy::LoadAwareLocality(settings),
            ..ClusterConfigParts::default()
        })
        .unwrap();
        let report = |rps_fractional, eps, second| {
            let report = OrcaLoadReport {
                rps_fractional,
                eps,
                ..OrcaLoadReport::default()
            };
            host.observe_orca(&report, &config, Instant::from_secs(second));
            host.reported_rates()
        };
        let at = Instant::from_secs;
        assert_eq!(report(0.0, 5.0, 1), None, "errors of no requests");
        assert_eq!(report(-1.0, 5.0, 1), None);
        assert_eq!(report(f64::NAN, 5.0, 2), None);
        assert_eq!(report(80.0, 20.5, 3), Some(((80.0, 20.5), at(3))));
        assert_eq!(report(8.0, 20.0, 4), Some(((8.0, 8.0), at(4))));
        assert_eq!(report(8.0, f64::NAN, 5), Some(((8.0, 0.0), at(5))));
        assert_eq!(report(8.0, -1.0, 6), Some(((8.0, 0.0), at(6))));
        assert_eq!(report(0.0, 0.0, 7), Some(((8.0, 0.0), at(6))), "kept");
        assert_eq!(report(f64::INFINITY, 1.0, 8), Some(((1e7, 1.0), at(8))));
    }

    #[test]
    fn unsent_requests_are_in_flight_but_not_issued() {
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
