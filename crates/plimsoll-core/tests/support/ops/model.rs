//! [`Model`]: the expected state of a balancer, computed in the simplest way.
//!
//! Everything is recomputed from scratch where the balancer reuses. Routing arithmetic is not
//! repeated here; vectors and unit tests cover it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::counts::{HostSetCounts, LocalityCounts};
use plimsoll_core::host::Host;
use plimsoll_core::locality_picking::fractions::FractionOrigin;
use plimsoll_core::model::assignment::{ClusterLoadAssignment, LbEndpoint};
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::health::{HealthClass, HealthFlags, HealthSignal};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{
    DEFAULT_STALENESS_THRESHOLD, FractionSource, LocalityBasis, ZoneAware,
};
use plimsoll_core::time::Instant;

/// A host and its expected state.
#[derive(Clone)]
pub(crate) struct HostState {
    pub(crate) endpoint: LbEndpoint,
    pub(crate) locality: Locality,
    pub(crate) priority: usize,
    /// Weight of its locality.
    pub(crate) locality_weight: u32,
    pub(crate) health: HealthFlags,
    /// The host object in the last snapshot.
    pub(crate) host: Option<Arc<Host>>,
}

/// Fractions of one origin: when they were received, and whether they were declared stale.
type Received = Option<(Instant, bool)>;

/// State that follows from all inputs so far.
pub(crate) struct Model {
    pub(crate) own: Option<Locality>,
    pub(crate) config: Arc<ClusterConfig>,
    pub(crate) assignment: Option<ClusterLoadAssignment>,
    pub(crate) hosts: BTreeMap<SocketAddr, HostState>,
    /// Number of priorities so far; they never disappear.
    pub(crate) priorities: usize,
    pub(crate) fleet: Option<ClusterLoadAssignment>,
    lrs_response: Received,
    fleet_assignment: Received,
    /// Host weights may come from load reports, since the last assignment or change of settings.
    pub(crate) reported_weights: bool,
    /// The source of fractions changed since the fleet's last update, so that their age is unknown.
    reread: bool,
}

impl Model {
    pub(crate) fn new(config: Arc<ClusterConfig>, own: Locality) -> Self {
        Self {
            own: (!own.is_unset()).then_some(own),
            config,
            assignment: None,
            hosts: BTreeMap::new(),
            priorities: 0,
            fleet: None,
            lrs_response: None,
            fleet_assignment: None,
            reported_weights: false,
            reread: false,
        }
    }

    /// Whether load reports have an effect.
    pub(crate) fn follows_reports(&self) -> bool {
        self.weighs_by_reports() || self.config.load_aware_locality().is_some()
    }

    fn weighs_by_reports(&self) -> bool {
        let policy = self.config.endpoint_policy();
        matches!(policy, EndpointPolicy::ClientSideWeightedRoundRobin(_))
    }

    /// Whether the balancer has timers besides the age of fractions.
    pub(crate) fn ticks(&self) -> bool {
        let basis = self.config.zone_aware().map(ZoneAware::locality_basis);
        self.follows_reports()
            || basis == Some(LocalityBasis::ObservedLoad)
            || self.config.endpoint_policy().slow_start().is_some()
    }

    pub(crate) fn assign(&mut self, assignment: ClusterLoadAssignment) {
        let mut old = std::mem::take(&mut self.hosts);
        self.priorities = self.priorities.max(1);
        for entry in assignment.endpoints() {
            let priority = entry.priority as usize;
            self.priorities = self.priorities.max(priority + 1);
            for endpoint in &entry.lb_endpoints {
                let before = old.remove(&endpoint.address).filter(|known| {
                    known.locality == entry.locality
                        && known.endpoint.hostname == endpoint.hostname
                        && known.endpoint.hash_key == endpoint.hash_key
                });
                let (health, host) = match before {
                    Some(known) => (known.health.with_eds(endpoint.health_status), known.host),
                    None => (self.fresh(endpoint), None),
                };
                let known = HostState {
                    endpoint: endpoint.clone(),
                    locality: entry.locality.clone(),
                    priority,
                    locality_weight: entry.load_balancing_weight,
                    health,
                    host,
                };
                self.hosts.insert(endpoint.address, known);
            }
        }
        self.assignment = Some(assignment);
        self.reported_weights = self.weighs_by_reports();
    }

    fn fresh(&self, endpoint: &LbEndpoint) -> HealthFlags {
        let checking = self.config.health_checking();
        if checking.active {
            let ignore = checking.ignore_new_hosts_until_first_hc;
            HealthFlags::awaiting_first_check(endpoint.health_status, ignore)
        } else {
            HealthFlags::from_eds(endpoint.health_status)
        }
    }

    pub(crate) fn signal(&mut self, address: SocketAddr, signal: HealthSignal) {
        if let Some(known) = self.hosts.get_mut(&address) {
            known.health = known.health.with_signal(signal);
        }
    }

    pub(crate) fn configure(&mut self, config: Arc<ClusterConfig>) {
        let source = |config: &ClusterConfig| config.zone_aware().map(ZoneAware::fraction_source);
        self.reread |= self.fleet.is_some() && source(&self.config) != source(&config);
        self.config = config;
        self.reported_weights |= self.weighs_by_reports();
    }

    pub(crate) fn originate(&mut self, assignment: ClusterLoadAssignment, now: Instant) {
        let source = self.config.zone_aware().map(ZoneAware::fraction_source);
        let known = !assignment.fractions(source.unwrap_or_default()).is_empty();
        self.fleet_assignment = known.then_some((now, false));
        self.fleet = Some(assignment);
        self.reread = false;
        self.expire(now);
    }

    pub(crate) fn observe(&mut self, known: bool, now: Instant) {
        self.lrs_response = known.then_some((now, false));
        // Fractions of another origin may be due without a timer having fired.
        self.expire(now);
    }

    /// Returns the age at which fractions expire, if they are used.
    pub(crate) fn threshold(&self) -> Option<Duration> {
        if let Some(settings) = self.config.load_aware_locality() {
            let leads = settings.demand_feed_forward();
            return leads.then_some(DEFAULT_STALENESS_THRESHOLD);
        }
        let zone_aware = self.config.zone_aware()?;
        let measured = zone_aware.locality_basis() == LocalityBasis::LrsReportedRate;
        measured.then(|| zone_aware.staleness_threshold())
    }

    /// Whether the deadline of fractions is known.
    pub(crate) const fn knows_ages(&self) -> bool {
        !self.reread
    }

    /// Returns when the next fractions expire.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let threshold = self.threshold()?;
        let fresh = [self.lrs_response, self.fleet_assignment]
            .into_iter()
            .flatten()
            .filter(|&(_, stale)| !stale);
        fresh.map(|(at, _)| at.saturating_add(threshold)).min()
    }

    /// Declares fractions as stale; returns each with its age.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(FractionOrigin, Duration)> {
        let Some(threshold) = self.threshold() else {
            return Vec::new();
        };
        let mut expired = Vec::new();
        let source = self.config.zone_aware().map(ZoneAware::fraction_source);
        let fleet = source.unwrap_or(FractionSource::EdsField).into();
        for (origin, received) in [
            (FractionOrigin::LrsResponse, &mut self.lrs_response),
            (fleet, &mut self.fleet_assignment),
        ] {
            if let Some((at, stale)) = received
                && !*stale
                && at.saturating_add(threshold) <= now
            {
                *stale = true;
                expired.push((origin, now.saturating_duration_since(*at)));
            }
        }
        expired
    }

    /// Counts the hosts of one priority from scratch.
    pub(crate) fn counts(&self, priority: usize) -> HostSetCounts {
        let mut counts = HostSetCounts::default();
        let entries = self
            .assignment
            .iter()
            .flat_map(ClusterLoadAssignment::endpoints);
        for entry in entries.filter(|entry| entry.priority as usize == priority) {
            let mut slot = LocalityCounts {
                locality: entry.locality.clone(),
                ..Default::default()
            };
            for endpoint in &entry.lb_endpoints {
                let known = &self.hosts[&endpoint.address];
                count(&mut counts, &mut slot, known);
            }
            counts.localities.push(slot);
        }
        counts
            .localities
            .sort_by(|a, b| a.locality.cmp(&b.locality));
        let own = counts
            .localities
            .iter()
            .position(|slot| Some(&slot.locality) == self.own.as_ref());
        if let Some(own) = own {
            let slot = counts.localities.remove(own);
            counts.localities.insert(0, slot);
            counts.has_local_locality = true;
        }
        counts
    }
}

fn count(counts: &mut HostSetCounts, slot: &mut LocalityCounts, known: &HostState) {
    let weight = u64::from(known.endpoint.weight());
    slot.all += 1;
    counts.flat.all += 1;
    counts.weights.all += weight;
    if known.health.excluded() {
        slot.excluded += 1;
        counts.flat.excluded += 1;
        counts.weights.excluded += weight;
    }
    match known.health.class() {
        HealthClass::Healthy => {
            slot.healthy += 1;
            slot.healthy_weight += weight;
            counts.flat.healthy += 1;
            counts.weights.healthy += weight;
        }
        HealthClass::Degraded => {
            slot.degraded += 1;
            counts.flat.degraded += 1;
            counts.weights.degraded += weight;
        }
        HealthClass::Unhealthy => {}
    }
}
