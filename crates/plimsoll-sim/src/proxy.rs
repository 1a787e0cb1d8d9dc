//! [`Proxy`]: one balancer and one worker of the production engine, with the counters for load
//! reports. The core decides. This is its driver: it drains the balancer after every input,
//! publishes snapshots, keeps its timer, finds hosts by number and counts requests for LRS.

use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::Explanation;
use plimsoll_core::host::Host;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::outlier_detection::OutlierDetection;
use plimsoll_core::outlier_detection::{HostSample, OutlierDetector};
use plimsoll_core::picker::Picker;
use plimsoll_core::publish::{self, Publisher};
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;

use crate::ignored_zones::{Ignored, IgnoredZones};
use crate::num;
use crate::policy::CLUSTER;
use crate::scenario::NEVER;
use crate::topology;
use crate::unreachable::Unreachable;

#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) node: Node,
    pub(crate) picker: Picker,
    balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    config: Arc<ClusterConfig>,
    hosts: Vec<Arc<Host>>,
    window: Window,
    local: LocalStreak,
    outliers: Option<Outliers>,
    unreachable: Unreachable,
    ignored: IgnoredZones,
}

#[derive(Debug)]
struct Outliers {
    detector: OutlierDetector,
    /// Consecutive errors that eject a host.
    threshold: u32,
    rng: Xoshiro256,
}

#[derive(Debug)]
struct Window {
    since: u64,
    /// Request counts by upstream zone.
    zones: Vec<Counts>,
    dropped: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    issued: u64,
    succeeded: u64,
    failed: u64,
}

/// Time since the last request to the proxy's own zone.
#[derive(Clone, Copy, Debug, Default)]
struct LocalStreak {
    since: u64,
    requests: u64,
}

/// Consecutive cross-zone requests before a proxy counts as locked out; fewer may be chance.
const LOCKED_OUT_REQUESTS: u64 = 50;

impl Proxy {
    /// Creates a proxy that starts now, without any assignment yet.
    pub(crate) fn new(
        config: Arc<ClusterConfig>,
        node: Node,
        zones: usize,
        rng: Xoshiro256,
        now: u64,
    ) -> Self {
        let at = Instant::from_nanos(now);
        let balancer = Balancer::new(Arc::clone(&config), node.locality.clone(), at);
        let (publisher, reader) = publish::channel(balancer.initial_snapshot(at));
        Self {
            node,
            picker: Picker::new(reader, rng),
            balancer,
            publisher,
            config,
            hosts: Vec::new(),
            window: Window {
                since: now,
                zones: vec![Counts::default(); zones],
                dropped: 0,
            },
            local: LocalStreak {
                since: now,
                requests: 0,
            },
            outliers: None,
            unreachable: Unreachable::default(),
            ignored: IgnoredZones::default(),
        }
    }

    /// Ejects hosts as outliers from now on.
    pub(crate) fn detect_outliers(
        &mut self,
        settings: Arc<OutlierDetection>,
        rng: Xoshiro256,
        now: u64,
    ) {
        self.outliers = Some(Outliers {
            threshold: settings.consecutive_5xx().unwrap_or(u32::MAX),
            detector: OutlierDetector::new(settings, &[], Instant::from_nanos(now)),
            rng,
        });
    }

    pub(crate) fn handle_config(&mut self, config: Arc<ClusterConfig>, now: u64) {
        self.config = Arc::clone(&config);
        self.balancer
            .handle_config(config, Instant::from_nanos(now));
        self.drain(now);
    }

    pub(crate) fn handle_assignment(&mut self, assignment: ClusterLoadAssignment, now: u64) {
        self.balancer
            .handle_assignment(assignment, Instant::from_nanos(now));
        self.drain(now);
        let mut hosts: Vec<Arc<Host>> = self.picker.snapshot().hosts().cloned().collect();
        hosts.sort_by_key(|host| topology::host_number(host.address()));
        self.hosts = hosts;
        if let Some(outliers) = &mut self.outliers {
            let hosts: Vec<_> = self.hosts.iter().map(|host| HostSample::of(host)).collect();
            outliers.detector.handle_hosts(&hosts);
        }
    }

    pub(crate) fn handle_fleet_assignment(&mut self, assignment: ClusterLoadAssignment, now: u64) {
        self.balancer
            .handle_fleet_assignment(assignment, Instant::from_nanos(now));
        self.drain(now);
    }

    pub(crate) fn handle_observed_traffic(&mut self, fractions: FractionMap, now: u64) {
        self.balancer
            .handle_observed_traffic(fractions, Instant::from_nanos(now));
        self.drain(now);
    }

    pub(crate) fn handle_timeout(&mut self, now: u64) {
        let at = Instant::from_nanos(now);
        self.balancer.handle_timeout(at);
        if let Some(outliers) = &mut self.outliers
            && outliers
                .detector
                .poll_timeout()
                .is_some_and(|due| due <= at)
        {
            let hosts: Vec<_> = self.hosts.iter().map(|host| HostSample::of(host)).collect();
            outliers.detector.handle_tick(&hosts, &mut outliers.rng, at);
        }
        self.apply_outliers(at);
        self.drain(now);
    }

    /// Handles the end of a request to `host` that failed.
    pub(crate) fn handle_error(&mut self, host: &Host, now: u64) {
        let at = Instant::from_nanos(now);
        if let Some(outliers) = &mut self.outliers
            && host.consecutive_errors() >= outliers.threshold
        {
            let sample = HostSample::of(host);
            let rng = &mut outliers.rng;
            outliers
                .detector
                .handle_consecutive_errors(&sample, rng, at);
            self.apply_outliers(at);
            self.drain(now);
        }
    }

    fn apply_outliers(&mut self, now: Instant) {
        let Some(outliers) = &mut self.outliers else {
            return;
        };
        while let Some((address, signal)) = outliers.detector.poll_signal() {
            self.balancer.handle_health(address, signal, now);
        }
    }

    pub(crate) fn poll_timeout(&self) -> u64 {
        let detection = self.outliers.as_ref();
        let sweep = detection.and_then(|outliers| outliers.detector.poll_timeout());
        let timers = [self.balancer.poll_timeout(), sweep];
        let next = timers.into_iter().flatten().min();
        next.map_or(NEVER, Instant::as_nanos)
    }

    pub(crate) fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Returns the host of a number, as this proxy knows it.
    pub(crate) fn host(&self, number: usize) -> Option<&Arc<Host>> {
        self.hosts.get(number)
    }

    /// Picks a host for a request that could not be sent to the hosts `tried`.
    pub(crate) fn pick(&mut self, tried: &[Arc<Host>], now: u64) -> Option<Arc<Host>> {
        self.unreachable.pick(&mut self.picker, tried, now)
    }

    /// Handles a failed connection to a host.
    pub(crate) fn handle_unreachable(&mut self, host: &Host, now: u64) {
        self.unreachable.handle_failure(host.address(), now);
    }

    pub(crate) fn handle_reached(&mut self, host: &Host) {
        self.unreachable.handle_success(host.address());
    }

    pub(crate) fn explain(&mut self) -> Explanation {
        self.picker.snapshot().explain()
    }

    /// Records from now on when zones are ignored.
    pub(crate) const fn record_ignored_zones(&mut self) {
        self.ignored.records = true;
    }

    /// Returns when and why zones were ignored, up to `now`.
    pub(crate) fn take_ignored_zones(&mut self, now: u64) -> Vec<Ignored> {
        self.ignored.end(now);
        std::mem::take(&mut self.ignored.past)
    }

    pub(crate) fn count_issued(&mut self, zone: usize) {
        self.window.zones[zone].issued += 1;
    }

    pub(crate) fn count_dropped(&mut self) {
        self.window.dropped += 1;
    }

    pub(crate) fn count_response(&mut self, zone: usize, success: bool) {
        let counts = &mut self.window.zones[zone];
        if success {
            counts.succeeded += 1;
        } else {
            counts.failed += 1;
        }
    }

    /// Records whether a request stayed local; returns how long the proxy's own zone has received
    /// nothing, once that is too long to be chance.
    pub(crate) fn record_locality(&mut self, local: bool, now: u64) -> Option<u64> {
        if local {
            self.local = LocalStreak {
                since: now,
                requests: 0,
            };
            return None;
        }
        self.local.requests += 1;
        (self.local.requests >= LOCKED_OUT_REQUESTS).then(|| now - self.local.since)
    }

    /// Returns the load since the last report, with each sample scaled to real requests.
    pub(crate) fn drain_load_stats(
        &mut self,
        localities: &[Locality],
        weight: u64,
        now: u64,
    ) -> ClusterStats {
        let zones = std::mem::replace(
            &mut self.window.zones,
            vec![Counts::default(); localities.len()],
        );
        let used = zones
            .iter()
            .zip(localities)
            .filter(|(counts, _)| counts.issued + counts.succeeded + counts.failed > 0);
        let stats = used.map(|(counts, locality)| UpstreamLocalityStats {
            locality: locality.clone(),
            total_issued_requests: counts.issued * weight,
            total_successful_requests: counts.succeeded * weight,
            total_error_requests: counts.failed * weight,
            ..Default::default()
        });
        let interval = now - std::mem::replace(&mut self.window.since, now);
        ClusterStats {
            cluster_name: CLUSTER.into(),
            upstream_locality_stats: stats.collect(),
            total_dropped_requests: std::mem::take(&mut self.window.dropped) * weight,
            load_report_interval: std::time::Duration::from_nanos(interval),
        }
    }

    fn drain(&mut self, now: u64) {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.ignored.observe(&snapshot, now);
            self.publisher.publish(snapshot);
        }
        while self.balancer.poll_event().is_some() {}
    }
}

/// Returns the node of the `number`-th balancer of a zone.
pub(crate) fn node(zone: &crate::scenario::Zone, number: usize) -> Node {
    Node {
        id: format!("{}-{}", zone.name, num::index(number)).into(),
        cluster: topology::FLEET.into(),
        locality: zone.locality.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::{Purpose, stream};
    use crate::faults::Faults;
    use crate::policy::Policy;
    use crate::scenario::Scenario;
    use crate::testing::three_zones;
    use plimsoll_core::picker::PickArgs;

    const SECOND: u64 = num::SECOND;

    fn proxy() -> (Scenario, Proxy) {
        let scenario = Scenario::try_new(three_zones()).unwrap();
        let config = Policy::ZoneAwareHosts.cluster_config(&scenario).unwrap();
        let config = Arc::new(config);
        let rng = stream(1, Purpose::Picks, 0);
        let mut proxy = Proxy::new(config, node(&scenario.zones[0], 7), 3, rng, 0);
        let faults = Faults::at(&scenario, 0);
        let fleet = topology::fleet(&scenario, &faults, None).unwrap();
        proxy.handle_fleet_assignment(fleet, 0);
        let upstream = topology::upstream(&scenario, &faults, false).unwrap();
        proxy.handle_assignment(upstream, 0);
        (scenario, proxy)
    }

    #[test]
    fn a_proxy_routes_with_the_engine_and_finds_hosts_by_number() {
        let (_, mut proxy) = proxy();
        assert_eq!(&*proxy.node.id, "a-7");
        for number in 0..12 {
            let host = proxy.host(number).unwrap();
            assert_eq!(topology::host_number(host.address()), number);
        }
        // Equal shares of proxies and hosts in every zone: everything stays local.
        for _ in 0..20 {
            let pick = proxy.picker.pick(PickArgs::default());
            assert_eq!(pick.host().unwrap().locality().zone(), "a");
        }
        assert_eq!(proxy.explain().zones[0].kept_local, 1.0);
    }

    #[test]
    fn load_reports_cover_one_interval_and_reset() {
        let (scenario, mut proxy) = proxy();
        let localities: Vec<Locality> = scenario
            .zones
            .iter()
            .map(|zone| zone.locality.clone())
            .collect();
        (0..6).for_each(|_| proxy.count_issued(0));
        proxy.count_issued(2);
        proxy.count_response(2, false);
        proxy.count_dropped();
        let stats = proxy.drain_load_stats(&localities, 10, 4 * SECOND);
        assert_eq!(stats.demand_per_second(), Some(20.0));
        assert_eq!(stats.upstream_locality_stats.len(), 2);
        assert_eq!(stats.upstream_locality_stats[1].total_error_requests, 10);
        let next = proxy.drain_load_stats(&localities, 10, 5 * SECOND);
        assert_eq!(next.load_report_interval.as_secs(), 1);
        assert_eq!(next.demand_per_second(), Some(0.0));
    }

    #[test]
    fn a_lock_out_needs_many_consecutive_requests() {
        let (_, mut proxy) = proxy();
        assert_eq!(proxy.record_locality(true, SECOND), None);
        for request in 0..LOCKED_OUT_REQUESTS - 1 {
            assert_eq!(proxy.record_locality(false, (2 + request) * SECOND), None);
        }
        assert_eq!(proxy.record_locality(false, 61 * SECOND), Some(60 * SECOND));
        assert_eq!(proxy.record_locality(true, 62 * SECOND), None);
        assert_eq!(proxy.record_locality(false, 63 * SECOND), None);
    }
}
