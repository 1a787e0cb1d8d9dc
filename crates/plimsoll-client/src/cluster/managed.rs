//! [`ManagedCluster`]: the writer's side of one cluster: its balancer and snapshot publisher, its
//! health checks, outlier detection and out-of-band report streams.
//!
//! Owned by `manager`, which delivers the events. Hosts and their connections are published in one
//! snapshot, so a pick always finds the connections of its host.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::assignment_age::AssignmentAge;
use plimsoll_core::balancer::Balancer;
use plimsoll_core::event::Event;
use plimsoll_core::host::Host;
use plimsoll_core::locality_picking::zone_aware::Reason;
use plimsoll_core::log_line;
use plimsoll_core::model::cluster::{ClusterConfig, HealthChecking};
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::outlier_detection::{HostSample, OutlierDetector};
use plimsoll_core::publish::{self, Publisher};
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_xds::orca::oob::OobStreams;
use plimsoll_xds::upstream::{ClusterEndpoints, EndpointExtras, UpstreamOptions};
use tokio::sync::{mpsc, watch};

use crate::cluster::event_log;
use crate::cluster::manager::{Settings, Update};
use crate::cluster::status::{ClusterStatus, HostStatus};
use crate::cluster::{Cluster, ClusterSnapshot};
use crate::health::checks::{CheckContext, HealthChecks};
use crate::log_lines;
use crate::upstream::connect::{DialTarget, Dialer};
use crate::upstream::endpoint::{Endpoint, EndpointContext};
use crate::upstream::oob::OobConnector;

pub(crate) type Extras = BTreeMap<SocketAddr, EndpointExtras>;

#[derive(Debug)]
pub(crate) struct ManagedCluster {
    pub(crate) balancer: Balancer,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) newest: Arc<ClusterSnapshot>,
    pub(crate) added_via_api: bool,
    snapshots: Publisher<ClusterSnapshot>,
    /// Connection or health-check settings have changed since the snapshot `newest` was made.
    endpoints_changed: bool,
    ready: watch::Sender<bool>,
    endpoint_context: EndpointContext,
    extras: Arc<Extras>,
    age: AssignmentAge,
    /// Whether the warning about expired load reports was logged.
    expired_reports: bool,
    /// Zone-aware routing has had a fleet to compare with, or a server may send one.
    has_fleet: bool,
    preconnect: bool,
    seed: u64,
    rng: Xoshiro256,
    updates: mpsc::WeakSender<Update>,
    checks: Option<HealthChecks>,
    outliers: Option<OutlierDetector>,
    oob: Option<OobStreams>,
    next_sweep: Option<Instant>,
}

impl ManagedCluster {
    pub(crate) fn new(
        config: &Arc<ClusterConfig>,
        options: Arc<UpstreamOptions>,
        settings: &Settings,
        updates: mpsc::WeakSender<Update>,
        now: Instant,
    ) -> Self {
        let config = with_health_checking(config, &options);
        let balancer = Balancer::new(config, settings.locality.clone(), now);
        let newest = Arc::new(ClusterSnapshot::initial(balancer.initial_snapshot(now)));
        let (snapshots, reader) = publish::channel(Arc::clone(&newest));
        let (ready, is_ready) = watch::channel(false);
        let cluster = Cluster::new(&balancer, Arc::clone(&options), reader, is_ready, settings);
        let endpoint_context = EndpointContext {
            dialer: Arc::new(Dialer::new(&options)),
            options: Arc::clone(&options),
            limits: Arc::clone(&cluster.limits),
            pools: settings.pools,
        };
        let mut managed = Self {
            balancer,
            cluster: Arc::new(cluster),
            newest,
            added_via_api: false,
            snapshots,
            endpoints_changed: false,
            ready,
            endpoint_context,
            extras: Arc::default(),
            age: AssignmentAge::default(),
            expired_reports: false,
            has_fleet: false,
            preconnect: settings.preconnect,
            seed: settings.seed,
            rng: Xoshiro256::from_seed(settings.seed),
            updates,
            checks: None,
            outliers: None,
            oob: None,
            next_sweep: None,
        };
        managed.configure_health(&options, now);
        managed
    }

    /// Circuit breakers change at once; hosts are redialed only if connection settings changed.
    pub(crate) fn handle_config(
        &mut self,
        config: &Arc<ClusterConfig>,
        options: Arc<UpstreamOptions>,
        now: Instant,
    ) {
        let config = with_health_checking(config, &options);
        self.cluster.limits.set_config(Arc::clone(&config));
        self.balancer.handle_config(config, now);
        let old = self.cluster.options.load_full();
        if *old == *options {
            return;
        }
        self.cluster.options.store(Arc::clone(&options));
        let same_connections = same_connections(&old, &options);
        if !same_connections {
            self.endpoint_context.dialer = Arc::new(Dialer::new(&options));
            self.endpoint_context.options = Arc::clone(&options);
            self.endpoints_changed = true;
            self.oob = None;
        }
        let same_checks = same_connections && old.health_checks == options.health_checks;
        if !same_checks && !options.health_checks.is_empty() {
            self.checks = None;
        }
        self.configure_health(&options, now);
    }

    /// Hosts that stay keep their connections and health checks, unless their `extras` changed.
    pub(crate) fn handle_endpoints(&mut self, endpoints: ClusterEndpoints, now: Instant) {
        let ClusterEndpoints { assignment, extras } = endpoints;
        if self.age.handle_assignment(&assignment, now) {
            let stats = &self.cluster.limits.stats;
            stats.assignment_timeout_received.increment();
        }
        if self.extras != extras {
            self.extras = extras;
            self.endpoints_changed = true;
            if let Some(checks) = &mut self.checks {
                checks.handle_extras(Arc::clone(&self.extras));
            }
        }
        self.balancer.handle_assignment(assignment, now);
        self.publish(now);
        if !self.ready.send_replace(true) {
            let cluster = &self.cluster;
            cluster.initial_fetch.handle_arrival(&cluster.waiting());
        }
    }

    pub(crate) fn handle_check_result(
        &mut self,
        address: SocketAddr,
        check: usize,
        signal: HealthSignal,
        now: Instant,
    ) {
        let checks = self.checks.as_mut();
        let signal = checks.and_then(|checks| checks.handle_verdict(address, check, signal));
        if let Some(signal) = signal {
            self.handle_health(address, signal, now);
        }
    }

    pub(crate) fn handle_health(
        &mut self,
        address: SocketAddr,
        signal: HealthSignal,
        now: Instant,
    ) {
        let cluster = &self.cluster.name;
        log_line!(log_lines::HOST_HEALTH_CHANGED, %cluster, host = %address, ?signal);
        self.balancer.handle_health(address, signal, now);
        let failed = matches!(
            signal,
            HealthSignal::ActiveCheckFailed
                | HealthSignal::ImmediateFailure
                | HealthSignal::OutlierEjected
        );
        let options = self.cluster.options.load();
        if failed
            && options.close_connections_on_host_health_failure
            && let Some((_, endpoint)) = self
                .newest
                .iter()
                .find(|(host, _)| host.address() == address)
        {
            endpoint.close_connections();
        }
    }

    pub(crate) fn close_connections(&self) {
        for (_, endpoint) in self.newest.iter() {
            endpoint.close_connections();
        }
    }

    pub(crate) fn handle_outlier_candidates(&mut self, now: Instant) {
        let limits = Arc::clone(&self.cluster.limits);
        while let Some(address) = limits.next_outlier_candidate() {
            let mut hosts = self.newest.routing().hosts();
            let host = hosts.find(|host| host.address() == address);
            if let (Some(host), Some(outliers)) = (host, &mut self.outliers) {
                let sample = HostSample::of(host);
                outliers.handle_consecutive_errors(&sample, &mut self.rng, now);
            }
        }
        self.apply_outlier_signals(now);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let timers = [
            self.balancer.poll_timeout(),
            self.age.poll_timeout(),
            self.outliers
                .as_ref()
                .and_then(OutlierDetector::poll_timeout),
            self.next_sweep,
        ];
        timers.into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let due = |timer: Option<Instant>| timer.is_some_and(|timer| timer <= now);
        if let Some((stale_after, empty)) = self.age.handle_timeout(now) {
            let endpoint_stale_after_s = stale_after.as_secs_f64();
            let cluster = &self.cluster.name;
            log_line!(log_lines::ENDPOINTS_STALE, %cluster, endpoint_stale_after_s);
            self.cluster.limits.stats.assignment_stale.increment();
            self.balancer.handle_assignment(empty, now);
        }
        if due(self.balancer.poll_timeout()) {
            self.balancer.handle_timeout(now);
        }
        if let Some(outliers) = &mut self.outliers
            && due(outliers.poll_timeout())
        {
            outliers.handle_tick(&samples(self.newest.routing()), &mut self.rng, now);
        }
        self.apply_outlier_signals(now);
        if due(self.next_sweep) {
            for (_, endpoint) in self.newest.iter() {
                endpoint.remove_expired(now);
            }
            self.next_sweep = next_sweep_after(&self.cluster.options.load(), now);
        }
    }

    pub(crate) fn publish(&mut self, now: Instant) {
        let pending = self.balancer.poll_snapshot();
        if pending.is_some() || self.endpoints_changed {
            let routing = pending.unwrap_or_else(|| Arc::clone(self.newest.routing()));
            let same_hosts = routing.same_hosts(self.newest.routing());
            let routing = if same_hosts && !self.endpoints_changed {
                routing
            } else {
                self.check_hosts(routing, now)
            };
            self.newest = Arc::new(self.with_endpoints(routing));
            self.endpoints_changed = false;
            self.snapshots.publish(Arc::clone(&self.newest));
            if let Some(outliers) = &mut self.outliers
                && !same_hosts
            {
                outliers.handle_hosts(&samples(self.newest.routing()));
            }
            self.update_oob();
            let stats = self.balancer.stats().samples();
            let samples = stats.chain(self.balancer.load_aware_stats().samples());
            let published = &self.cluster.limits.stats.balancer;
            published.store(Arc::new(samples.collect()));
        }
        self.warn_expired_reports();
        while let Some(event) = self.balancer.poll_event() {
            if !self.is_expected(&event) {
                event_log::log(&self.cluster.name, &event);
            }
            self.cluster.record_event(event, now);
        }
    }

    /// Whether zone-aware routing, the default of every policy, is off because nobody asked for it:
    /// the program has said nothing about zones, and no server can.
    fn is_expected(&mut self, event: &Event) -> bool {
        let Event::ZoneRoutingChanged { reason, .. } = event else {
            return false;
        };
        let has_no_fleet = *reason == Some(Reason::NoLocalCluster);
        self.has_fleet |= !has_no_fleet || self.cluster.initial_fetch.server().is_some();
        !self.has_fleet
    }

    /// Warns once: hosts stopped reporting, or, with reports in responses, too few requests reach a
    /// remote locality.
    fn warn_expired_reports(&mut self) {
        let expired = self.balancer.load_aware_stats().stale_locality_total.get();
        let first = expired > 0 && !std::mem::replace(&mut self.expired_reports, expired > 0);
        let config = self.newest.routing().config();
        let settings = config.load_aware_locality();
        if let Some(settings) = settings.filter(|_| first) {
            let hosts = self.newest.routing().hosts();
            let localities: BTreeSet<_> = hosts.map(|host| host.locality()).collect();
            event_log::log_expired_reports(&self.cluster.name, settings, localities.len());
        }
    }

    pub(crate) fn status(&self) -> ClusterStatus {
        let entries = self.balancer.hosts().zip(self.balancer.metadata());
        let hosts = entries.map(|((host, priority, health), metadata)| {
            let endpoint = self.newest.attached(host);
            HostStatus {
                host: Arc::clone(host),
                priority,
                health,
                metadata: metadata.clone(),
                connections: endpoint
                    .map_or_else(Default::default, |endpoint| endpoint.connection_counts()),
            }
        });
        ClusterStatus {
            name: Arc::clone(&self.cluster.name),
            added_via_api: self.added_via_api,
            circuit_breakers: self.cluster.options.load().circuit_breakers,
            hosts: hosts.collect(),
        }
    }

    fn configure_health(&mut self, options: &Arc<UpstreamOptions>, now: Instant) {
        self.configure_checks(options, now);
        let threshold = match &options.outlier_detection {
            None => {
                if let Some(outliers) = self.outliers.take() {
                    let uneject = HealthSignal::OutlierReturned;
                    let ejected: Vec<SocketAddr> = outliers.ejected().collect();
                    for address in ejected {
                        self.balancer.handle_health(address, uneject, now);
                    }
                }
                None
            }
            Some(settings) => {
                let settings = Arc::new(settings.clone());
                let threshold = settings.consecutive_5xx();
                match &mut self.outliers {
                    Some(outliers) => outliers.handle_config(settings, now),
                    None => {
                        let samples = samples(self.newest.routing());
                        self.outliers = Some(OutlierDetector::new(settings, &samples, now));
                    }
                }
                threshold
            }
        };
        self.cluster.limits.consecutive_error_threshold(threshold);
        self.apply_outlier_signals(now);
        self.next_sweep = next_sweep_after(options, now);
    }

    fn configure_checks(&mut self, options: &Arc<UpstreamOptions>, now: Instant) {
        if options.health_checks.is_empty() {
            if self.checks.take().is_some() {
                // Without health checks, all hosts count as healthy.
                for host in self.newest.routing().hosts() {
                    let passed = HealthSignal::ActiveCheckPassed;
                    self.balancer.handle_health(host.address(), passed, now);
                }
            }
            return;
        }
        if self.checks.is_none() {
            let mut checks = HealthChecks::new(CheckContext {
                cluster: Arc::clone(&self.cluster.name),
                options: Arc::clone(options),
                dialer: Arc::clone(&self.endpoint_context.dialer),
                extras: Arc::clone(&self.extras),
                stats: Arc::clone(&self.cluster.limits.stats),
                updates: self.updates.clone(),
                seed: self.seed,
            });
            let exempt = checks.handle_hosts(self.newest.routing());
            self.checks = Some(checks);
            self.mark_healthy(&exempt, now);
        }
    }

    fn mark_healthy(&mut self, exempt: &[SocketAddr], now: Instant) {
        for address in exempt {
            let passed = HealthSignal::ActiveCheckPassed;
            self.balancer.handle_health(*address, passed, now);
        }
    }

    fn apply_outlier_signals(&mut self, now: Instant) {
        while let Some((address, signal)) = self
            .outliers
            .as_mut()
            .and_then(OutlierDetector::poll_signal)
        {
            self.handle_health(address, signal, now);
        }
        if let Some(outliers) = &self.outliers {
            let samples = outliers.stats().samples().collect();
            let active = outliers.ejected().count();
            let stats = &self.cluster.limits.stats;
            stats.outliers.store(Arc::new((samples, active)));
        }
    }

    fn update_oob(&mut self) {
        let routing = Arc::clone(self.newest.routing());
        match &self.oob {
            Some(oob) if routing.config().oob_reporting().is_some() => oob.update(routing),
            _ => {
                let connector = OobConnector {
                    dialer: Arc::clone(&self.endpoint_context.dialer),
                    options: self.cluster.options.load_full(),
                };
                let stats = Arc::clone(&self.cluster.limits.stats.oob);
                let streams = OobStreams::new(routing, connector, stats, self.seed);
                self.oob = streams.map(|(streams, task)| {
                    tokio::spawn(task);
                    streams
                });
            }
        }
    }

    /// Starts health checks. Hosts exempt from them are healthy in the first published snapshot.
    fn check_hosts(&mut self, routing: Arc<RoutingSnapshot>, now: Instant) -> Arc<RoutingSnapshot> {
        let Some(checks) = &mut self.checks else {
            return routing;
        };
        let exempt = checks.handle_hosts(&routing);
        self.mark_healthy(&exempt, now);
        self.balancer.poll_snapshot().unwrap_or(routing)
    }

    /// Attaches connections to hosts: existing ones, unless the host's connection settings changed.
    fn with_endpoints(&self, routing: Arc<RoutingSnapshot>) -> ClusterSnapshot {
        let newest = &*self.newest;
        // A host that moved to another locality is a new `Host` with the same address.
        let by_address = LazyCell::new(|| {
            newest
                .iter()
                .map(|(host, endpoint)| (host.address(), endpoint))
                .collect::<BTreeMap<_, _>>()
        });
        let attach = |host: &Arc<Host>, before: Option<&Arc<Endpoint>>| match before {
            Some(endpoint) if !self.endpoints_changed => Arc::clone(endpoint),
            _ => {
                let before = before.or_else(|| by_address.get(&host.address()).copied());
                self.endpoint(host, before)
            }
        };
        if self.endpoints_changed {
            ClusterSnapshot::new(routing, |host| attach(host, newest.attached(host)))
        } else {
            newest.next(routing, attach)
        }
    }

    fn endpoint(&self, host: &Host, before: Option<&Arc<Endpoint>>) -> Arc<Endpoint> {
        let address = host.address();
        let extras = self.extras.get(&address);
        let more = extras.map_or(&[][..], |extras| &extras.additional_addresses);
        let target = DialTarget {
            addresses: [address].into_iter().chain(more.iter().copied()).collect(),
            hostname: Arc::clone(host.hostname()),
            server_name: None,
        };
        if let Some(same) =
            before.filter(|before| before.dials_same(&target, &self.endpoint_context.dialer))
        {
            return Arc::clone(same);
        }
        let mut endpoint = Endpoint::new(target, self.endpoint_context.clone());
        if let Some(before) = before {
            endpoint = endpoint.with_counters_of(before);
        }
        let endpoint = Arc::new(endpoint);
        // With several pools, each belongs to another runtime, so this task cannot dial for it.
        if self.preconnect && self.endpoint_context.pools == 1 {
            let endpoint = Arc::clone(&endpoint);
            let breakers = self.cluster.options.load().circuit_breakers;
            tokio::spawn(async move { endpoint.preconnect(&breakers).await });
        }
        endpoint
    }
}

fn samples(snapshot: &RoutingSnapshot) -> Vec<HostSample> {
    snapshot.hosts().map(|host| HostSample::of(host)).collect()
}

/// Sets `health_checking.active` if checks are configured: new hosts then wait for a first result.
fn with_health_checking(
    config: &Arc<ClusterConfig>,
    options: &UpstreamOptions,
) -> Arc<ClusterConfig> {
    let configured = config.health_checking();
    let health_checking = HealthChecking {
        active: !options.health_checks.is_empty(),
        ..configured
    };
    if configured == health_checking {
        return Arc::clone(config);
    }
    Arc::new(config.with_health_checking(health_checking))
}

fn same_connections(one: &UpstreamOptions, other: &UpstreamOptions) -> bool {
    let connection_settings = |options: &UpstreamOptions| UpstreamOptions {
        discovery: Default::default(),
        circuit_breakers: Default::default(),
        health_checks: Vec::new(),
        outlier_detection: None,
        lrs: false,
        max_stream_duration: None,
        ..options.clone()
    };
    connection_settings(one) == connection_settings(other)
}

/// When to close expired connections next: after a quarter of the shorter of idle and age limit.
fn next_sweep_after(options: &UpstreamOptions, now: Instant) -> Option<Instant> {
    let ages = [options.idle_timeout, options.max_connection_duration];
    let shortest = ages.into_iter().flatten().min()?;
    let period = (shortest / 4).clamp(Duration::from_millis(50), Duration::from_secs(60));
    Some(now.saturating_add(period))
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::upstream::{CircuitBreakers, Discovery, HttpVersion, RetryBudget};

    use super::*;
    use crate::{ActiveHealthCheck, Cluster, Outliers};

    #[test]
    fn connections_stay_unless_their_settings_change() {
        let old = UpstreamOptions::default();
        let checked = Cluster::new("orders")
            .endpoints(["127.0.0.1:1"])
            .health_check(ActiveHealthCheck::tcp())
            .outlier_detection(Outliers::default())
            .build();
        let checked = checked.unwrap().options;
        let budget = RetryBudget::try_new(Some(50.0), None).unwrap();
        let kept = [
            UpstreamOptions {
                circuit_breakers: CircuitBreakers {
                    retry_budget: Some(budget),
                    max_requests: 1,
                    ..Default::default()
                },
                ..old.clone()
            },
            UpstreamOptions {
                discovery: Discovery::StrictDns(Default::default()),
                ..old.clone()
            },
            UpstreamOptions {
                health_checks: checked.health_checks,
                ..old.clone()
            },
            UpstreamOptions {
                outlier_detection: checked.outlier_detection,
                ..old.clone()
            },
            UpstreamOptions {
                lrs: true,
                max_stream_duration: Some(Duration::from_secs(1)),
                ..old.clone()
            },
        ];
        for options in kept {
            assert_ne!(options, old);
            assert!(same_connections(&old, &options), "{options:?}");
        }
        let dialed_again = [
            UpstreamOptions {
                http_version: HttpVersion::Http2,
                ..old.clone()
            },
            UpstreamOptions {
                connect_timeout: Duration::from_millis(1),
                ..old.clone()
            },
            UpstreamOptions {
                idle_timeout: None,
                ..old.clone()
            },
        ];
        for options in dialed_again {
            assert!(!same_connections(&old, &options), "{options:?}");
        }
    }

    #[test]
    fn expired_connections_are_looked_for_four_times_per_limit() {
        let now = Instant::from_nanos(7);
        let after = |idle: Option<Duration>, age: Option<Duration>| {
            let options = UpstreamOptions {
                idle_timeout: idle,
                max_connection_duration: age,
                ..Default::default()
            };
            let next = next_sweep_after(&options, now);
            next.map(|next| next.saturating_duration_since(now))
        };
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        assert_eq!(after(None, None), None);
        assert_eq!(after(Some(seconds(8)), None), Some(seconds(2)));
        assert_eq!(after(Some(seconds(8)), Some(seconds(4))), Some(seconds(1)));
        assert_eq!(after(Some(seconds(3600)), None), Some(seconds(60)));
        assert_eq!(after(None, Some(millis(1))), Some(millis(50)));
    }

    #[test]
    fn new_hosts_wait_for_a_check_only_if_there_is_one() {
        let cluster = Cluster::new("orders").endpoints(["127.0.0.1:1"]);
        let plain = cluster.clone().build().unwrap();
        let checked = cluster.health_check(ActiveHealthCheck::tcp());
        let options = checked.build().unwrap().options;
        let config = Arc::new(plain.config);
        let same = with_health_checking(&config, &plain.options);
        assert!(Arc::ptr_eq(&config, &same));
        let active = with_health_checking(&config, &options);
        assert!(active.health_checking().active);
        let again = with_health_checking(&active, &options);
        assert!(Arc::ptr_eq(&active, &again));
        assert!(
            !with_health_checking(&active, &plain.options)
                .health_checking()
                .active
        );
    }
}
