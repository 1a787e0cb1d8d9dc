//! What services would be without each of their zones, for the zones of the dashboard document.

use std::collections::BTreeMap;

use plimsoll_admin::state::ClusterState;
use plimsoll_admin::zone_loss::ServiceZoneLoss;
use plimsoll_control::load_line::LoadLines;

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
