//! What services would be without each of their zones, and which zones are out of use, for the
//! dashboard document.

use std::collections::BTreeMap;

use plimsoll_admin::state::{ClusterState, LinkErrors, ZoneOrder};
use plimsoll_admin::zone_loss::ServiceZoneLoss;
use plimsoll_control::evacuation::{LinkReport, ZoneList, ZoneReport};
use plimsoll_control::zone_loss::ServiceLosses;

/// Losses by service: all fleets show the same.
pub(super) struct Losses(BTreeMap<String, ServiceZoneLoss>);

impl Losses {
    pub(super) fn new(losses: &[ServiceLosses], max_utilization: f64) -> Self {
        let shown = losses.iter().map(|one| one.shown(max_utilization));
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
pub(super) fn orders(zones: &ZoneList) -> Vec<ZoneOrder> {
    let order = |zone: &ZoneReport| ZoneOrder {
        zone: zone.zone.clone(),
        state: zone.state.to_owned(),
        drained_percent: zone.drained_percent,
        hosts: zone.hosts,
        hosts_in_use: zone.hosts_in_use,
        reason: zone
            .order
            .as_ref()
            .map(|order| format!("{} ({})", order.reason, order.by)),
        ordered_as: zone.order.as_ref().map(|order| order.zone.clone()),
        until_unix_ms: zone.order.as_ref().and_then(|order| order.until_unix_ms),
    };
    zones.zones.iter().map(order).collect()
}

/// Returns what became of the requests between zones.
pub(super) fn links(zones: &ZoneList) -> Vec<LinkErrors> {
    let link = |link: &LinkReport| LinkErrors {
        from: link.from.clone(),
        to: link.to.clone(),
        requests: link.requests,
        failed: link.failed,
    };
    zones.links.iter().map(link).collect()
}
