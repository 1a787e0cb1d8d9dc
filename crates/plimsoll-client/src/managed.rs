//! [`Managed`]: one cluster as its writer sees it: the balancer, the ends through which it is
//! published, and the judges that work for it.
//!
//! Owned by `cluster_manager`, which says what happened. Endpoints are published before the
//! snapshot that names them and removed after it, so that a pick always finds its connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::assignment_age::AssignmentAge;
use plimsoll_core::balancer::Balancer;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::{ClusterConfig, HealthChecking};
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::outlier_detection::{HostSample, OutlierDetector};
use plimsoll_core::publish::{self, Publisher};
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_xds::upstream::{EndpointExtras, UpstreamOptions};
use tokio::sync::{mpsc, watch};

use crate::cluster::{Cluster, ClusterParts, Endpoints};
use crate::cluster_manager::{Settings, Update};
use crate::cluster_status::{ClusterStatus, HostStatus};
use crate::connect::Dialer;
use crate::connection::Limits;
use crate::endpoint::{Endpoint, EndpointContext};
use crate::event_log;
use crate::health_checks::{CheckContext, HealthChecks};
use crate::oob::{self, Oob, OobContext};

/// Names of hosts by address.
type Hosts = BTreeMap<SocketAddr, Arc<str>>;

/// What connections and checks need to know of endpoints, by address.
pub(crate) type Extras = BTreeMap<SocketAddr, EndpointExtras>;

/// One cluster.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) balancer: Balancer,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) newest: Arc<RoutingSnapshot>,
    /// It came from the management server.
    pub(crate) added_via_api: bool,
    snapshots: Publisher<RoutingSnapshot>,
    endpoints: Publisher<Endpoints>,
    known: Arc<Endpoints>,
    ready: watch::Sender<bool>,
    dialer: Arc<Dialer>,
    extras: Arc<Extras>,
    /// Of the assignment in force.
    age: AssignmentAge,
    /// Load reports expired before others arrived, and that was said.
    expired_reports: bool,
    pools: usize,
    preconnect: bool,
    seed: u64,
    rng: Xoshiro256,
    updates: mpsc::WeakSender<Update>,
    checks: Option<HealthChecks>,
    outliers: Option<OutlierDetector>,
    oob: Option<Oob>,
    sweep_at: Option<Instant>,
}

impl Managed {
    /// A cluster without endpoints.
    pub(crate) fn new(
        config: &Arc<ClusterConfig>,
        options: Arc<UpstreamOptions>,
        settings: &Settings,
        updates: mpsc::WeakSender<Update>,
        now: Instant,
    ) -> Self {
        let name = Arc::clone(config.name());
        let config = with_checks(config, &options);
        let balancer = Balancer::new(config, settings.locality.clone(), now);
        let newest = balancer.initial_snapshot(now);
        let (snapshots, snapshot_reader) = publish::channel(Arc::clone(&newest));
        let known = Arc::new(Endpoints::new());
        let (endpoints, endpoint_reader) = publish::channel(Arc::clone(&known));
        let (ready, is_ready) = watch::channel(false);
        let cluster = Arc::new(Cluster::new(ClusterParts {
            name,
            options: Arc::clone(&options),
            snapshots: snapshot_reader,
            endpoints: endpoint_reader,
            ready: is_ready,
            load: Arc::clone(balancer.cluster_load()),
            limits: Arc::new(Limits::new(Arc::clone(&settings.suspicion))),
            seed: settings.seed,
        }));
        let mut managed = Self {
            balancer,
            cluster,
            newest,
            added_via_api: false,
            snapshots,
            endpoints,
            known,
            ready,
            dialer: Arc::new(Dialer::new(&options)),
            extras: Arc::default(),
            age: AssignmentAge::default(),
            expired_reports: false,
            pools: settings.pools,
            preconnect: settings.preconnect,
            seed: settings.seed,
            rng: Xoshiro256::from_seed(settings.seed),
            updates,
            checks: None,
            outliers: None,
            oob: None,
            sweep_at: None,
        };
        managed.begin_judging(&options, now);
        managed
    }

    /// Other settings: limits apply at once, connections that would differ are dialled anew.
    pub(crate) fn handle_config(
        &mut self,
        config: &Arc<ClusterConfig>,
        options: Arc<UpstreamOptions>,
        now: Instant,
    ) {
        let config = with_checks(config, &options);
        self.balancer.handle_config(config, now);
        let old = self.cluster.options.load_full();
        if *old == *options {
            return;
        }
        self.cluster.options.store(Arc::clone(&options));
        if !same_connections(&old, &options) {
            self.dialer = Arc::new(Dialer::new(&options));
            let known = self.known.values();
            let renewed = known.filter_map(|endpoint| {
                let address = endpoint.address()?;
                Some((address, self.endpoint(address, endpoint.hostname())))
            });
            self.replace(renewed.collect());
            self.oob = None;
            self.checks = None;
        }
        if old.health_checks != options.health_checks {
            self.checks = None;
        }
        self.begin_judging(&options, now);
    }

    /// Endpoints.
    pub(crate) fn handle_assignment(&mut self, assignment: ClusterLoadAssignment, now: Instant) {
        if self.age.handle_assignment(&assignment, now) {
            let stats = &self.cluster.limits.stats;
            stats.assignment_timeout_received.increment();
        }
        self.balancer.handle_assignment(assignment, now);
        self.publish(now);
        self.ready.send_replace(true);
    }

    /// What connections and checks need to know of endpoints. Those for which it changed get new
    /// connections.
    pub(crate) fn handle_extras(&mut self, extras: Extras, now: Instant) {
        let old = std::mem::replace(&mut self.extras, Arc::new(extras));
        if old == self.extras {
            return;
        }
        let known = self.known.iter().map(|(address, endpoint)| {
            let endpoint = match old.get(address) == self.extras.get(address) {
                true => Arc::clone(endpoint),
                false => self.endpoint(*address, endpoint.hostname()),
            };
            (*address, endpoint)
        });
        self.replace(known.collect());
        let hosts = self.known_hosts();
        if let Some(checks) = &mut self.checks {
            let exempt = checks.handle_extras(Arc::clone(&self.extras), &hosts);
            self.pass(&exempt, now);
        }
    }

    /// One check of a host says something.
    pub(crate) fn handle_verdict(
        &mut self,
        address: SocketAddr,
        (check, signal): (usize, HealthSignal),
        now: Instant,
    ) {
        let checks = self.checks.as_mut();
        let signal = checks.and_then(|checks| checks.handle_verdict(address, check, signal));
        if let Some(signal) = signal {
            self.handle_health(address, signal, now);
        }
    }

    /// A judge says something about a host.
    pub(crate) fn handle_health(
        &mut self,
        address: SocketAddr,
        signal: HealthSignal,
        now: Instant,
    ) {
        tracing::debug!(cluster = %self.cluster.name, host = %address, ?signal, "health");
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
            && let Some(endpoint) = self.known.get(&address)
        {
            endpoint.close_connections();
        }
    }

    /// Hosts with too many errors in a row.
    pub(crate) fn handle_suspects(&mut self, now: Instant) {
        let limits = Arc::clone(&self.cluster.limits);
        while let Some(address) = limits.next_suspect() {
            let mut hosts = self.newest.hosts();
            let host = hosts.find(|host| host.address() == address);
            if let (Some(host), Some(outliers)) = (host, &mut self.outliers) {
                let sample = HostSample::of(host);
                outliers.handle_consecutive_errors(&sample, &mut self.rng, now);
            }
        }
        self.pass_on_outliers(now);
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let outliers = self.outliers.as_ref();
        let outliers = outliers.and_then(OutlierDetector::poll_timeout);
        let timers = [
            self.balancer.poll_timeout(),
            self.age.poll_timeout(),
            outliers,
            self.sweep_at,
        ];
        timers.into_iter().flatten().min()
    }

    /// The moment asked for has come.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let due = |timer: Option<Instant>| timer.is_some_and(|timer| timer <= now);
        if let Some((stale_after, empty)) = self.age.handle_timeout(now) {
            let endpoint_stale_after_s = stale_after.as_secs_f64();
            tracing::warn!(
                cluster = %self.cluster.name, endpoint_stale_after_s,
                "endpoints are stale; the cluster is empty until the next assignment"
            );
            self.cluster.limits.stats.assignment_stale.increment();
            self.balancer.handle_assignment(empty, now);
        }
        if due(self.balancer.poll_timeout()) {
            self.balancer.handle_timeout(now);
        }
        if let Some(outliers) = &mut self.outliers
            && due(outliers.poll_timeout())
        {
            outliers.handle_tick(&samples(&self.newest), &mut self.rng, now);
        }
        self.pass_on_outliers(now);
        if due(self.sweep_at) {
            for endpoint in self.known.values() {
                endpoint.sweep(now);
            }
            self.sweep_at = sweep_after(&self.cluster.options.load(), now);
        }
    }

    /// Publishes what changed.
    pub(crate) fn publish(&mut self, now: Instant) {
        if let Some(snapshot) = self.balancer.poll_snapshot() {
            let hosts: Hosts = snapshot
                .hosts()
                .map(|host| (host.address(), Arc::clone(host.hostname())))
                .collect();
            let before = Arc::clone(&self.known);
            self.add_endpoints(&hosts);
            self.newest = Arc::clone(&snapshot);
            self.snapshots.publish(snapshot);
            self.remove_endpoints(&hosts);
            if let Some(checks) = &mut self.checks {
                let exempt = checks.handle_hosts(&hosts);
                self.pass(&exempt, now);
            }
            if let Some(outliers) = &mut self.outliers
                && !before.keys().eq(hosts.keys())
            {
                outliers.handle_hosts(&samples(&self.newest));
            }
            self.ask_for_reports();
            self.cluster.limits.stats.published.store(Arc::new(vec![
                ("", self.balancer.stats().iter().collect()),
                (
                    "load_aware_locality.",
                    self.balancer.load_aware_stats().iter().collect(),
                ),
            ]));
        }
        self.notice_expired_reports();
        while let Some(event) = self.balancer.poll_event() {
            event_log::log(&self.cluster.name, &event);
            self.cluster.remember(event, now);
        }
    }

    /// Once per settings: reports that are asked for in band come with probes, perhaps too rarely.
    fn notice_expired_reports(&mut self) {
        let expired = self.balancer.load_aware_stats().stale_locality_total.get();
        let news = expired > 0 && !std::mem::replace(&mut self.expired_reports, expired > 0);
        let config = self.newest.config();
        let settings = config.load_aware_locality();
        let in_band = settings.filter(|settings| settings.oob_reporting().is_none());
        if let Some(settings) = in_band.filter(|_| news) {
            let hosts = self.newest.hosts();
            let localities: BTreeSet<_> = hosts.map(|host| host.locality()).collect();
            event_log::log_expired_reports(&self.cluster.name, settings, localities.len());
        }
    }

    /// The cluster and its hosts as they are now.
    pub(crate) fn status(&self) -> ClusterStatus {
        let hosts = self.balancer.hosts().zip(self.balancer.metadata());
        let hosts = hosts.map(|((host, priority, health), metadata)| {
            let endpoint = self.known.get(&host.address());
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

    /// Starts or stops judges as the options say.
    fn begin_judging(&mut self, options: &Arc<UpstreamOptions>, now: Instant) {
        self.begin_checks(options, now);
        let threshold = match &options.outlier_detection {
            None => {
                if let Some(outliers) = self.outliers.take() {
                    let back = HealthSignal::OutlierReturned;
                    let ejected: Vec<SocketAddr> = outliers.ejected().collect();
                    for address in ejected {
                        self.balancer.handle_health(address, back, now);
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
                        let samples = samples(&self.newest);
                        self.outliers = Some(OutlierDetector::new(settings, &samples, now));
                    }
                }
                threshold
            }
        };
        self.cluster.limits.suspect_after(threshold);
        self.pass_on_outliers(now);
        self.sweep_at = sweep_after(options, now);
    }

    fn begin_checks(&mut self, options: &Arc<UpstreamOptions>, now: Instant) {
        if options.health_checks.is_empty() {
            if self.checks.take().is_some() {
                // Nobody says otherwise any more.
                for address in self.known.keys() {
                    let passed = HealthSignal::ActiveCheckPassed;
                    self.balancer.handle_health(*address, passed, now);
                }
            }
            return;
        }
        if self.checks.is_none() {
            let mut checks = HealthChecks::new(CheckContext {
                cluster: Arc::clone(&self.cluster.name),
                options: Arc::clone(options),
                dialer: Arc::clone(&self.dialer),
                extras: Arc::clone(&self.extras),
                stats: Arc::clone(&self.cluster.limits.stats),
                updates: self.updates.clone(),
                seed: self.seed,
            });
            let exempt = checks.handle_hosts(&self.known_hosts());
            self.checks = Some(checks);
            self.pass(&exempt, now);
        }
    }

    fn known_hosts(&self) -> Hosts {
        let known = self.known.iter();
        known
            .map(|(address, endpoint)| (*address, Arc::clone(endpoint.hostname())))
            .collect()
    }

    /// Hosts that are not checked are taken for healthy.
    fn pass(&mut self, exempt: &[SocketAddr], now: Instant) {
        for address in exempt {
            let passed = HealthSignal::ActiveCheckPassed;
            self.balancer.handle_health(*address, passed, now);
        }
    }

    fn pass_on_outliers(&mut self, now: Instant) {
        while let Some((address, signal)) = self
            .outliers
            .as_mut()
            .and_then(OutlierDetector::poll_signal)
        {
            self.handle_health(address, signal, now);
        }
        if let Some(outliers) = &self.outliers {
            let stats = outliers.stats().iter().collect();
            let active = outliers.ejected().count();
            self.cluster.limits.stats.set_outliers(stats, active);
        }
    }

    /// Out-of-band reports, if a policy wants them.
    fn ask_for_reports(&mut self) {
        let Some(reporting) = oob::wanted(self.newest.config()) else {
            self.oob = None;
            return;
        };
        match &self.oob {
            Some(oob) => oob.update(reporting, &self.newest),
            None => {
                let context = OobContext {
                    dialer: Arc::clone(&self.dialer),
                    options: self.cluster.options.load_full(),
                    stats: Arc::clone(&self.cluster.limits.stats.oob),
                    seed: self.seed,
                };
                self.oob = Some(Oob::start(reporting, &self.newest, context));
            }
        }
    }

    fn add_endpoints(&mut self, hosts: &Hosts) {
        let new = |(address, _): &(&SocketAddr, &Arc<str>)| !self.known.contains_key(*address);
        let mut new = hosts.iter().filter(new).peekable();
        if new.peek().is_none() {
            return;
        }
        let mut next = Endpoints::clone(&self.known);
        for (address, hostname) in new {
            next.insert(*address, self.endpoint(*address, hostname));
        }
        self.replace(next);
    }

    fn remove_endpoints(&mut self, hosts: &Hosts) {
        if self.known.len() == hosts.len() {
            return;
        }
        let mut next = Endpoints::clone(&self.known);
        next.retain(|address, _| hosts.contains_key(address));
        self.replace(next);
    }

    fn endpoint(&self, address: SocketAddr, hostname: &Arc<str>) -> Arc<Endpoint> {
        let options = self.cluster.options.load_full();
        let breakers = options.circuit_breakers;
        let context = EndpointContext {
            options,
            dialer: Arc::clone(&self.dialer),
            limits: Arc::clone(&self.cluster.limits),
            pools: self.pools,
        };
        let extras = self.extras.get(&address);
        let more = extras.map_or(&[][..], |extras| &extras.additional_addresses);
        let addresses = [address].into_iter().chain(more.iter().copied());
        let mut endpoint = Endpoint::new(addresses.collect(), Arc::clone(hostname), context);
        if let Some(before) = self.known.get(&address) {
            endpoint = endpoint.succeeding(before);
        }
        let endpoint = Arc::new(endpoint);
        // With several pools, each belongs to a runtime that is not ours.
        if self.preconnect && self.pools == 1 {
            let endpoint = Arc::clone(&endpoint);
            tokio::spawn(async move { endpoint.preconnect(&breakers).await });
        }
        endpoint
    }

    fn replace(&mut self, next: Endpoints) {
        self.known = Arc::new(next);
        self.endpoints.publish(Arc::clone(&self.known));
    }
}

/// What outlier detection looks at.
fn samples(snapshot: &RoutingSnapshot) -> Vec<HostSample> {
    snapshot.hosts().map(|host| HostSample::of(host)).collect()
}

/// Whether hosts wait for a first check is decided by whether there are checks.
fn with_checks(config: &Arc<ClusterConfig>, options: &UpstreamOptions) -> Arc<ClusterConfig> {
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

/// Whether connections made with one are as good as those made with the other.
fn same_connections(one: &UpstreamOptions, other: &UpstreamOptions) -> bool {
    let connecting = |options: &UpstreamOptions| UpstreamOptions {
        discovery: Default::default(),
        circuit_breakers: Default::default(),
        health_checks: Vec::new(),
        outlier_detection: None,
        lrs: false,
        max_stream_duration: None,
        ..options.clone()
    };
    connecting(one) == connecting(other)
}

/// When to look for connections that are too old: a quarter of the shortest age is near enough.
fn sweep_after(options: &UpstreamOptions, now: Instant) -> Option<Instant> {
    let ages = [options.idle_timeout, options.max_connection_duration];
    let shortest = ages.into_iter().flatten().min()?;
    let period = (shortest / 4).clamp(Duration::from_millis(50), Duration::from_secs(60));
    Some(now.saturating_add(period))
}
