//! Clusters of the document of a proxy: hosts, shares and reasons as its engine explains them, and
//! the requests that it sent itself.

use std::collections::BTreeMap;

use plimsoll_admin::state::{ClusterState, Flow, ZoneState};
use plimsoll_admin::what_if::{rounded, state_name};
use plimsoll_core::explain::{Explanation, FractionStatus, LocalityExplanation};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_proxy::config::NodeConfig;

use super::rates::Sent;

/// What is known of one cluster.
pub(super) struct Looked<'a> {
    pub(super) explanation: &'a Explanation,
    pub(super) snapshot: &'a RoutingSnapshot,
    /// `None` when nobody has looked before.
    pub(super) sent: Option<Sent>,
    pub(super) taken_unix_ms: u64,
}

impl Looked<'_> {
    /// The cluster as the page shows it.
    pub(super) fn cluster(&self, node: &NodeConfig) -> ClusterState {
        let explanation = self.explanation;
        let mut zones = self.zones(&node.locality);
        let own = zones.keys().position(|locality| *locality == node.locality);
        let flows = own.map(|own| self.flows(own, &zones)).unwrap_or_default();
        let total: f64 = flows.iter().map(|Flow(.., rate)| rate).sum();
        if let Some(zone) = zones.get_mut(&node.locality)
            && self.sent.is_some()
        {
            // What arrives at this proxy; the zone may have others.
            zone.demand_requests_per_second = Some(rounded(total));
            let kept = flows.iter().find(|Flow(from, to, _)| from == to);
            let kept = kept.map_or(0.0, |Flow(.., rate)| *rate);
            zone.kept_local = (total > 0.0).then(|| rounded(kept / total));
        }
        let fractions = &explanation.fractions;
        let in_force = matches!(
            fractions.status,
            FractionStatus::Fresh | FractionStatus::Partial | FractionStatus::FeedForward
        );
        let confirmed = fractions.age_ms.filter(|_| in_force);
        ClusterState {
            cluster: explanation.cluster.clone(),
            fleet: node.cluster.clone(),
            policy: format!(
                "{}, {}",
                explanation.locality_policy, explanation.endpoint_policy
            ),
            basis: basis(explanation, in_force).to_owned(),
            confirmed_unix_ms: confirmed.map(|age| self.taken_unix_ms.saturating_sub(age)),
            staleness_threshold_ms: fractions.staleness_threshold_ms,
            zones: zones.into_values().collect(),
            flows,
            flows_measured: self.sent.is_some(),
            notes: explanation.notes.clone(),
            ..ClusterState::default()
        }
    }

    fn zones(&self, own: &Locality) -> BTreeMap<Locality, ZoneState> {
        let explanation = self.explanation;
        let mut zones: BTreeMap<Locality, ZoneState> = BTreeMap::new();
        for locality in &explanation.localities {
            let place = place(locality);
            let utilization = locality.utilization.or_else(|| self.utilization(&place));
            let zone = ZoneState {
                locality: (&place).into(),
                proxies: Some(locality.fleet_hosts),
                hosts: locality.hosts,
                healthy_hosts: locality.healthy,
                capacity_share: Some(rounded(locality.capacity_share)),
                utilization: utilization.map(rounded),
                load: locality.load_factor.map(rounded),
                delivered_bp: locality.observed_traffic_fraction_bp,
                ..ZoneState::default()
            };
            zones.insert(place, zone);
        }
        for routed in &explanation.zones {
            if let Some(zone) = zones.get_mut(&routed.locality) {
                zone.kept_local_planned = Some(rounded(routed.kept_local));
                zone.state = Some(state_name(routed.state).to_owned());
            }
        }
        // A proxy without hosts of its zone is still somewhere.
        let zone = zones.entry(own.clone()).or_insert_with(|| ZoneState {
            locality: own.into(),
            ..ZoneState::default()
        });
        zone.state = Some(state_name(explanation.state).to_owned());
        zone.reason = Some(explanation.reason.clone());
        zones
    }

    /// Mean of what the hosts of a locality report, where the policy keeps none.
    fn utilization(&self, place: &Locality) -> Option<f64> {
        let hosts = self.snapshot.hosts();
        let own = hosts.filter(|host| host.locality() == place);
        let reported: Vec<f64> = own
            .filter_map(|host| host.utilization())
            .map(|(value, _)| value)
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "a number of hosts")]
        let count = reported.len() as f64;
        (!reported.is_empty()).then(|| reported.iter().sum::<f64>() / count)
    }

    fn flows(&self, own: usize, zones: &BTreeMap<Locality, ZoneState>) -> Vec<Flow> {
        let sent = self.sent.iter().flatten();
        let flow = |(locality, rate): (&Locality, &f64)| {
            let to = zones.keys().position(|zone| zone == locality)?;
            (*rate > 0.0).then(|| Flow(own, to, rounded(*rate)))
        };
        sent.filter_map(flow).collect()
    }
}

/// What routing goes by.
fn basis(explanation: &Explanation, in_force: bool) -> &'static str {
    match explanation.locality_policy {
        "load_aware_locality" => "utilization",
        _ if in_force => "measured_demand",
        _ => "host_counts",
    }
}

fn place(locality: &LocalityExplanation) -> Locality {
    Locality::new(&locality.region, &locality.zone, &locality.sub_zone)
}
