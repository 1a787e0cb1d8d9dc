//! What services would be without each of their zones, and which zones are out of use, for the
//! dashboard document.

use std::collections::BTreeMap;

use plimsoll_admin::state::{ClusterState, ZoneOrder};
use plimsoll_admin::zone_loss::ServiceZoneLoss;
use plimsoll_control::evacuation::zone_list;
use plimsoll_control::load_line::LoadLines;
use plimsoll_control::state::State;
use plimsoll_core::time::Instant;

/// Losses by service: all fleets show the same.
pub(super) struct Losses(BTreeMap<String, ServiceZoneLoss>);

impl Losses {
    pub(super) fn new(lines: &LoadLines, max_utilization: f64) -> Self {
        let shown = lines
            .losses()
            .into_iter()
            .map(|one| one.shown(max_utilization));
        Self(shown.map(|one| (one.cluster.clone(), one)).collect())
    }

    pub(super) fn add_to(&self, cluster: &mut ClusterState) {
        let Some(service) = self.0.get(&cluster.cluster) else {
            return;
        };
        for zone in &mut cluster.zones {
            let mut losses = service.zones.iter();
            zone.loss = losses.find(|loss| loss.locality == zone.locality).cloned();
        }
    }
}

/// Returns the zones with their state.
pub(super) fn orders(state: &State, lines: &LoadLines, now: Instant) -> Vec<ZoneOrder> {
    let zones = zone_list(state, lines, now).zones.into_iter();
    zones
        .map(|zone| ZoneOrder {
            zone: zone.zone,
            state: zone.state.to_owned(),
            drained_percent: zone.drained_percent,
            hosts: zone.hosts,
            hosts_in_use: zone.hosts_in_use,
            reason: zone
                .order
                .as_ref()
                .map(|order| format!("{} ({})", order.reason, order.by)),
            ordered_as: zone.order.as_ref().map(|order| order.zone.clone()),
            until_unix_ms: zone.order.and_then(|order| order.until_unix_ms),
        })
        .collect()
}
