//! One proxy of a case: a balancer with its timer, the hosts of its snapshot, and measured demand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::host::{Host, RequestOutcome};
use plimsoll_core::host_source::HostSource;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_core::units::BasisPoints;

use super::{SettingsInput, ZoneInput};
use crate::CaseError;

/// Requests per second that a host reports if it reports errors.
const REPORTED_RATE: f64 = 50.0;

pub(super) struct Proxy {
    balancer: Balancer,
    config: Arc<ClusterConfig>,
    snapshot: Arc<RoutingSnapshot>,
    now: Instant,
    fractions: FractionMap,
}

impl Proxy {
    pub(super) fn new(
        settings: &SettingsInput,
        own: &str,
        zones: &[ZoneInput],
    ) -> Result<Self, CaseError> {
        let policy = LocalityPolicy::LoadAwareLocality(settings.settings()?);
        Self::with_policy(policy, own, zones)
    }

    pub(super) fn with_policy(
        locality_policy: LocalityPolicy,
        own: &str,
        zones: &[ZoneInput],
    ) -> Result<Self, CaseError> {
        let config = Arc::new(ClusterConfig::try_new(ClusterConfigParts {
            name: "case".into(),
            locality_policy,
            ..ClusterConfigParts::default()
        })?);
        let now = Instant::from_secs(1_000_000);
        let balancer = Balancer::new(Arc::clone(&config), Locality::zone_only(own), now);
        let mut proxy = Self {
            snapshot: balancer.initial_snapshot(now),
            balancer,
            config,
            now,
            fractions: FractionMap::default(),
        };
        let fleet = assignment(20, zones, |_| 1)?;
        proxy.balancer.handle_fleet_assignment(fleet, now);
        proxy.set_hosts(zones)?;
        Ok(proxy)
    }

    pub(super) fn set_hosts(&mut self, zones: &[ZoneInput]) -> Result<(), CaseError> {
        let upstream = assignment(10, zones, |zone| zone.hosts)?;
        self.balancer.handle_assignment(upstream, self.now);
        self.update_snapshot();
        Ok(())
    }

    /// Sets the measured fractions that arrive every second from now on; none if it is empty.
    pub(super) fn set_demand(
        &mut self,
        fractions: &BTreeMap<String, u64>,
    ) -> Result<(), CaseError> {
        let fraction = |(zone, &bp): (&String, &u64)| {
            Ok((
                Locality::zone_only(zone),
                BasisPoints::new(bp, "fractions")?,
            ))
        };
        let fractions: Result<FractionMap, CaseError> = fractions.iter().map(fraction).collect();
        self.fractions = fractions?;
        Ok(())
    }

    /// Reports a utilization for the first `hosts` hosts of a zone, and the part of their requests
    /// that fail, if it is known.
    pub(super) fn report(&self, zone: &str, utilization: f64, failed: Option<f64>, hosts: usize) {
        let report = OrcaLoadReport {
            application_utilization: utilization,
            rps_fractional: if failed.is_some() { REPORTED_RATE } else { 0.0 },
            eps: failed.unwrap_or(0.0) * REPORTED_RATE,
            ..OrcaLoadReport::default()
        };
        for host in self.hosts_of(zone).take(hosts) {
            host.observe_orca(&report, &self.config, self.now);
        }
    }

    /// Sends requests to the hosts of a zone; the first `succeeded` of them succeed.
    pub(super) fn send(&self, zone: &str, [succeeded, failed]: [usize; 2]) {
        let hosts: Vec<_> = self.hosts_of(zone).collect();
        let hosts = hosts.iter().cycle().take(succeeded + failed);
        for (number, host) in hosts.enumerate() {
            host.begin_request().finish(if number < succeeded {
                RequestOutcome::Success
            } else {
                RequestOutcome::Error
            });
        }
    }

    /// Every host of a zone answers `requests` requests after `milliseconds`.
    pub(super) fn answer(&self, zone: &str, requests: u32, milliseconds: u64) {
        for host in self.hosts_of(zone) {
            for _ in 0..requests {
                let latency = Duration::from_millis(milliseconds);
                host.begin_request()
                    .finish_with_latency(RequestOutcome::Success, latency);
            }
        }
    }

    fn hosts_of(&self, zone: &str) -> impl Iterator<Item = &Arc<Host>> {
        let hosts = self.snapshot.hosts();
        hosts.filter(move |host| host.locality().zone() == zone)
    }

    /// Lets a second pass: demand arrives, then the timer fires whenever it is due.
    pub(super) fn pass_second(&mut self) {
        if !self.fractions.is_empty() {
            let fractions = self.fractions.clone();
            self.balancer.handle_observed_traffic(fractions, self.now);
        }
        let end = self.now.saturating_add(Duration::from_secs(1));
        while let Some(at) = self.balancer.poll_timeout().filter(|&at| at <= end) {
            self.now = at.max(self.now);
            self.balancer.handle_timeout(self.now);
        }
        self.now = end;
        self.update_snapshot();
    }

    fn update_snapshot(&mut self) {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.snapshot = snapshot;
        }
    }

    /// Returns each zone's share of the requests of this proxy.
    pub(super) fn shares(&self) -> BTreeMap<String, f64> {
        let weights = self
            .snapshot
            .load_aware_weights(0, HostSource::HealthyHosts);
        let weights = weights.unwrap_or_default().weights;
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let share = |(locality, weight): (Locality, f64)| {
            (
                locality.zone().to_owned(),
                weight / total.max(f64::MIN_POSITIVE),
            )
        };
        weights.into_iter().map(share).collect()
    }

    /// Returns each zone's share of the requests of this proxy, under zone-aware routing.
    pub(super) fn zone_aware_shares(&self) -> BTreeMap<String, f64> {
        let localities = self.snapshot.explain_at(self.now).localities.into_iter();
        localities
            .map(|locality| (locality.zone, locality.expected_share))
            .collect()
    }

    /// Returns how many localities were counted as stale so far.
    pub(super) fn stale_localities(&self) -> u64 {
        self.balancer.load_aware_stats().stale_locality_total.get()
    }

    pub(super) fn reason(&self) -> String {
        self.snapshot.explain_at(self.now).reason
    }
}

fn assignment(
    network: u8,
    zones: &[ZoneInput],
    hosts: impl Fn(&ZoneInput) -> u8,
) -> Result<ClusterLoadAssignment, CaseError> {
    let entry = |(number, zone): (u8, &ZoneInput)| LocalityParts {
        locality: Locality::zone_only(&zone.name),
        lb_endpoints: (0..hosts(zone))
            .map(|host| LbEndpoint::new(SocketAddr::from(([network, number, 0, host], 80))))
            .collect(),
        ..LocalityParts::default()
    };
    let endpoints = (0..).zip(zones).map(entry);
    let parts = AssignmentParts {
        endpoints: endpoints
            .filter(|zone| !zone.lb_endpoints.is_empty())
            .collect(),
        ..AssignmentParts::default()
    };
    Ok(ClusterLoadAssignment::try_new(parts)?)
}
