//! Metrics of lost zones: how full services would be without each of their zones.

use super::Values;
use crate::load_line::LoadLines;

/// Most zones of services with series; the worst ones if there are more. Each has two.
const MAX_ZONES: usize = 400;

pub(super) fn add(values: &mut Values, lines: &LoadLines) {
    let losses = lines.losses();
    let mut found: Vec<_> = losses
        .iter()
        .flat_map(|service| {
            let worst = service.worst();
            worst.map(move |(zone, figure)| (&*service.service.cluster, zone, figure))
        })
        .filter_map(|(cluster, zone, figure)| Some((cluster, zone, figure?)))
        .collect();
    if found.len() > MAX_ZONES {
        found.sort_by(|a, b| b.2.load.total_cmp(&a.2.load));
    }
    for (cluster, zone, figure) in found.into_iter().take(MAX_ZONES) {
        let locality = zone.to_string();
        let labels = [cluster, &*locality];
        values.add("zone_loss_load_ratio", &labels, figure.load);
        if let Some(utilization) = figure.utilization {
            values.add("zone_loss_utilization_ratio", &labels, utilization);
        }
    }
}
