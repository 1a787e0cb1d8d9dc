//! Clusters of a proxy's dashboard document: hosts, shares and reasons from the explanation, and
//! rates of the proxy's own requests.

use std::collections::BTreeMap;

use plimsoll_admin::api::rounded;
use plimsoll_admin::state::{ClusterState, Flow, ZoneState};
use plimsoll_core::explain::{Explanation, FractionStatus};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::LocalityBasis;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_proxy::config::NodeConfig;

use super::rates::Sent;

pub(super) struct ClusterInputs<'a> {
    pub(super) explanation: &'a Explanation,
    pub(super) snapshot: &'a RoutingSnapshot,
    /// `None` in the first document, which has no earlier sample to compare with.
    pub(super) sent: Option<Sent>,
    pub(super) taken_unix_ms: u64,
}

impl ClusterInputs<'_> {
    pub(super) fn cluster(&self, node: &NodeConfig) -> ClusterState {
        let explanation = self.explanation;
        let mut zones = self.zones(&node.locality);
        let own = zones.keys().position(|locality| *locality == node.locality);
        let flows = own.map(|own| self.flows(own, &zones)).unwrap_or_default();
        let total: f64 = flows.iter().map(|Flow(.., rate)| rate).sum();
        if let Some(zone) = zones.get_mut(&node.locality)
            && self.sent.is_some()
        {
            // This is the demand of this proxy only; the zone may have other proxies.
            zone.demand_requests_per_second = Some(rounded(total));
            let local = flows.iter().find(|Flow(from, to, _)| from == to);
            let kept = local.map_or(0.0, |Flow(.., rate)| *rate);
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
        for entry in &explanation.localities {
            let locality = entry.locality();
            let utilization = entry.utilization.or_else(|| self.utilization(&locality));
            let zone = ZoneState {
                locality: locality.clone(),
                proxies: Some(entry.fleet_hosts),
                hosts: entry.hosts,
                healthy_hosts: entry.healthy,
                capacity_share: Some(rounded(entry.capacity_share)),
                utilization: utilization.map(rounded),
                load: entry.load_factor.map(rounded),
                above_line: entry.above_line.as_ref().map(|above| above.text.clone()),
                delivered_bp: entry.observed_traffic_fraction_bp,
                ..ZoneState::default()
            };
            zones.insert(locality, zone);
        }
        for routed in &explanation.zones {
            if let Some(zone) = zones.get_mut(&routed.locality) {
                zone.kept_local_planned = Some(rounded(routed.kept_local));
                zone.state = Some(routed.state.as_str().to_owned());
            }
        }
        // The proxy's own zone is shown even if it has no hosts.
        let zone = zones.entry(own.clone()).or_insert_with(|| ZoneState {
            locality: own.clone(),
            ..ZoneState::default()
        });
        zone.state = Some(explanation.state.as_str().to_owned());
        zone.reason = Some(explanation.reason.clone());
        zones
    }

    /// Returns the mean utilization that hosts reported, for policies that do not track it.
    fn utilization(&self, locality: &Locality) -> Option<f64> {
        let reported: Vec<f64> = self
            .snapshot
            .hosts()
            .filter(|host| host.locality() == locality)
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

fn basis(explanation: &Explanation, in_force: bool) -> &'static str {
    match explanation.locality_policy {
        "load_aware_locality" => "utilization",
        _ if explanation.locality_basis == Some(LocalityBasis::ObservedLoad) => "observed_load",
        _ if in_force => "measured_demand",
        _ => "host_counts",
    }
}
