//! One proxy of a case: a cluster of the engine with its timer, the hosts of its snapshot, and
//! measured demand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::host::{Host, RequestOutcome};
use plimsoll_core::host_source::HostSource;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::time::Instant;
use plimsoll_core::units::BasisPoints;

use super::{SettingsInput, ZoneInput};
use crate::{CaseError, Cluster, Engine};

/// Requests per second that a host reports if it reports errors.
const REPORTED_RATE: f64 = 50.0;
/// Counter of localities whose reports have expired.
const STALE_LOCALITIES: &str = "stale_locality_total";

pub(super) struct Proxy {
    cluster: Box<dyn Cluster>,
    now: Instant,
    fractions: FractionMap,
}

impl Proxy {
    pub(super) fn new(
        engine: &dyn Engine,
        settings: &SettingsInput,
        own: &str,
        zones: &[ZoneInput],
    ) -> Result<Self, CaseError> {
        let policy = LocalityPolicy::LoadAwareLocality(settings.settings()?);
        Self::with_policy(engine, policy, own, zones)
    }

    pub(super) fn with_policy(
        engine: &dyn Engine,
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
        let mut proxy = Self {
            cluster: engine.start(&config, &Locality::zone_only(own), now)?,
            now,
            fractions: FractionMap::default(),
        };
        let fleet = assignment(20, zones, |_| 1)?;
        proxy.cluster.handle_fleet(fleet, now)?;
        proxy.set_hosts(zones)?;
        Ok(proxy)
    }

    pub(super) fn set_hosts(&mut self, zones: &[ZoneInput]) -> Result<(), CaseError> {
        let upstream = assignment(10, zones, |zone| zone.hosts)?;
        Ok(self.cluster.handle_hosts(upstream, self.now)?)
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
    pub(super) fn report(
        &mut self,
        zone: &str,
        utilization: f64,
        failed: Option<f64>,
        hosts: usize,
    ) {
        let report = OrcaLoadReport {
            application_utilization: utilization,
            rps_fractional: if failed.is_some() { REPORTED_RATE } else { 0.0 },
            eps: failed.unwrap_or(0.0) * REPORTED_RATE,
            ..OrcaLoadReport::default()
        };
        for host in self.hosts_of(zone).into_iter().take(hosts) {
            let (address, now) = (host.address(), self.now);
            self.cluster.handle_report(address, &report, now);
        }
    }

    /// Sends requests to the hosts of a zone; the first `succeeded` of them succeed.
    pub(super) fn send(&self, zone: &str, [succeeded, failed]: [usize; 2]) {
        let hosts = self.hosts_of(zone);
        let requests = hosts.iter().cycle().take(succeeded + failed);
        for (number, host) in requests.enumerate() {
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

    fn hosts_of(&self, zone: &str) -> Vec<Arc<Host>> {
        let snapshot = self.cluster.snapshot();
        let hosts = snapshot.hosts().cloned();
        hosts
            .filter(|host| host.locality().zone() == zone)
            .collect()
    }

    /// Lets a second pass: demand arrives, then the timer fires whenever it is due.
    pub(super) fn pass_second(&mut self) {
        if !self.fractions.is_empty() {
            let fractions = self.fractions.clone();
            self.cluster.handle_observed_traffic(fractions, self.now);
        }
        let end = self.now.saturating_add(Duration::from_secs(1));
        while let Some(at) = self.cluster.poll_timeout().filter(|&at| at <= end) {
            self.now = at.max(self.now);
            self.cluster.handle_timeout(self.now);
        }
        self.now = end;
    }

    /// Returns each zone's share of the requests of this proxy.
    pub(super) fn shares(&self) -> BTreeMap<String, f64> {
        let weights = self
            .cluster
            .snapshot()
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
        let explanation = self.cluster.snapshot().explain_at(self.now);
        let localities = explanation.localities.into_iter();
        localities
            .map(|locality| (locality.zone, locality.expected_share))
            .collect()
    }

    /// Returns how many localities were counted as stale so far.
    pub(super) fn stale_localities(&self) -> u64 {
        let counters = self.cluster.load_aware_counters().into_iter();
        let stale = counters.filter(|(name, _)| *name == STALE_LOCALITIES);
        stale.map(|(_, count)| count).sum()
    }

    pub(super) fn reason(&self) -> String {
        self.cluster.snapshot().explain_at(self.now).reason
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
