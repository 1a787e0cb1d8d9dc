//! [`ServiceLosses`]: may a zone be lost? How full the other zones of a service would be without
//! each of its zones, all fleets together.
//!
//! Computed from load lines, so from measured demand and healthy hosts, by
//! `plimsoll_core::planner::zone_loss`. Metrics, the admin API, the dashboard and the check before
//! a zone is drained show and use the same figures. Hosts without known capacity count by number:
//! then only ratios to the load of today are known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_admin::api::rounded;
use plimsoll_admin::zone_loss::{LossFigure, ServiceZoneLoss, ZoneLoss};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::zone_loss::{FleetLoad, Fullest, ServiceLoad};

use crate::load_line::{LoadLine, LoadLines};
use crate::run::Context;
use crate::server::Stopped;

/// Load and capacity of a service in all zones, of all fleets.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceZones {
    pub cluster: Arc<str>,
    /// In the order of the load.
    pub zones: Vec<Locality>,
    pub load: ServiceLoad,
    /// Whether capacity is in requests per second, not in shares of all hosts.
    pub has_capacity: bool,
}

/// What a service would be without each of its zones.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceLosses {
    pub service: ServiceZones,
    /// Zones with hosts, by position in the service.
    pub losses: Vec<(usize, plimsoll_core::planner::zone_loss::ZoneLoss)>,
}

impl LoadLines {
    /// Returns the load of every service that has requests, sorted by name.
    pub fn services(&self) -> Vec<ServiceZones> {
        let mut by_cluster: BTreeMap<&Arc<str>, Vec<&LoadLine>> = BTreeMap::new();
        for line in self.iter() {
            by_cluster.entry(&line.cluster).or_default().push(line);
        }
        let services = by_cluster
            .into_values()
            .filter_map(|lines| ServiceZones::of(&lines));
        services.collect()
    }

    /// Computes what every service would be without each of its zones.
    pub fn losses(&self) -> Vec<ServiceLosses> {
        self.services().into_iter().map(ServiceLosses::of).collect()
    }
}

impl Context {
    /// Computes what every service would be without each of its zones, beside the writer and the
    /// streams: with a hundred zones that are two hundred plans for each service.
    pub async fn losses(&self, lines: Arc<LoadLines>) -> Result<Vec<ServiceLosses>, Stopped> {
        let computed = tokio::task::spawn_blocking(move || lines.losses());
        // The thread only fails if it panics, or if the runtime shuts down.
        computed.await.map_err(|_| Stopped)
    }
}

impl ServiceZones {
    /// `None` without requests or hosts.
    fn of(lines: &[&LoadLine]) -> Option<Self> {
        let names: BTreeSet<&Locality> = lines
            .iter()
            .flat_map(|line| line.zones.iter().map(|zone| &zone.locality))
            .collect();
        let names: Vec<&Locality> = names.into_iter().collect();
        let mut shares = vec![0.0_f64; names.len()];
        let mut declared: Vec<Option<f64>> = vec![None; names.len()];
        let fleets = lines.iter().map(|line| {
            let mut fleet = FleetLoad {
                demand: vec![0.0; names.len()],
                proxies: (line.basis == "host_counts").then(|| vec![0.0; names.len()]),
            };
            for zone in &line.zones {
                let Ok(index) = names.binary_search(&&zone.locality) else {
                    continue;
                };
                fleet.demand[index] = zone.demand;
                shares[index] = shares[index].max(zone.capacity_share);
                declared[index] = declared[index].or(zone.capacity);
                if let Some(proxies) = &mut fleet.proxies {
                    proxies[index] = count(zone.proxies);
                }
            }
            fleet
        });
        let fleets: Vec<FleetLoad> = fleets.collect();
        let is_known = |(share, declared): (&f64, &Option<f64>)| {
            *share <= 0.0 || declared.is_some_and(|capacity| capacity > 0.0)
        };
        let has_capacity = shares.iter().zip(&declared).all(is_known);
        let capacity = if has_capacity {
            let declared = shares.iter().zip(&declared);
            declared
                .map(|(share, declared)| declared.filter(|_| *share > 0.0).unwrap_or(0.0))
                .collect()
        } else {
            shares
        };
        let first = lines.first()?;
        let service = Self {
            cluster: Arc::clone(&first.cluster),
            zones: names.into_iter().cloned().collect(),
            load: ServiceLoad {
                capacity,
                objective: first.objective,
                fleets,
            },
            has_capacity,
        };
        let is_in_use = service.load.demand() > 0.0 && service.load.mean_utilization().is_some();
        is_in_use.then_some(service)
    }

    /// Returns utilization relative to that of all zones together today.
    fn relative(&self, utilization: f64) -> f64 {
        let mean = self.load.mean_utilization().unwrap_or_default();
        if mean > 0.0 { utilization / mean } else { 0.0 }
    }

    fn figure(&self, fullest: Fullest) -> LossFigure {
        LossFigure {
            utilization: self.has_capacity.then(|| rounded(fullest.utilization)),
            load: rounded(self.relative(fullest.utilization)),
            fullest: self.zones[fullest.zone].clone(),
        }
    }
}

impl ServiceLosses {
    fn of(service: ServiceZones) -> Self {
        let capacity = &service.load.capacity;
        let zones = (0..capacity.len()).filter(|zone| capacity[*zone] > 0.0);
        let losses = zones
            .map(|zone| (zone, service.load.without(zone)))
            .collect();
        Self { service, losses }
    }

    /// Returns the zones with the figure of the worse case: what their clients do may differ.
    pub fn worst(&self) -> impl Iterator<Item = (&Locality, Option<LossFigure>)> {
        self.losses.iter().map(|(zone, loss)| {
            let worst = loss.worst().map(|fullest| self.service.figure(fullest));
            (&self.service.zones[*zone], worst)
        })
    }

    /// Returns the figures for people and programs. `limit` is the utilization that they are
    /// compared with.
    pub fn shown(&self, limit: f64) -> ServiceZoneLoss {
        let service = &self.service;
        let zone = |(zone, loss): &(usize, plimsoll_core::planner::zone_loss::ZoneLoss)| {
            let figure = |fullest: Option<Fullest>| fullest.map(|fullest| service.figure(fullest));
            let worst = figure(loss.worst());
            let utilization = worst.as_ref().and_then(|worst| worst.utilization);
            let locality = service.zones[*zone].clone();
            ZoneLoss {
                exceeds: worst.is_none() || utilization.is_some_and(|own| own > limit),
                text: sentence(&locality, worst.as_ref(), limit),
                clients_stay: figure(loss.clients_stay),
                clients_move: figure(loss.clients_move),
                locality,
            }
        };
        let now = service.load.now().map(|fullest| service.figure(fullest));
        ServiceZoneLoss {
            cluster: service.cluster.to_string(),
            demand_requests_per_second: rounded(service.load.demand()),
            capacity_requests_per_second: service
                .has_capacity
                .then(|| rounded(service.load.capacity.iter().sum())),
            now,
            max_utilization: limit,
            zones: self.losses.iter().map(zone).collect(),
        }
    }
}

/// Says what the loss of a zone means.
fn sentence(zone: &Locality, worst: Option<&LossFigure>, limit: f64) -> String {
    let Some(worst) = worst else {
        return format!("without {zone}: no zone with hosts is left");
    };
    match worst.utilization {
        Some(utilization) if utilization > limit => {
            format!("without {zone}: {utilization:.2}, above {limit:.2}")
        }
        Some(utilization) => format!("without {zone}: {utilization:.2}"),
        None => {
            let load = worst.load;
            format!("without {zone}: {load:.2} times the load of today; capacity is not known")
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of proxies")]
fn count(proxies: u64) -> f64 {
    proxies as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_line::tests::{line_of_zones, zone_line};

    #[test]
    fn fleets_are_summed_and_capacity_is_known_only_if_all_zones_say() {
        let mut gateway = line_of_zones(
            "gateway",
            vec![zone_line("a", 40.0, 0.5), zone_line("b", 20.0, 0.5)],
        );
        gateway.basis = "measured_demand";
        let mut jobs = line_of_zones("jobs", vec![zone_line("b", 40.0, 0.5)]);
        jobs.basis = "measured_demand";
        let lines: LoadLines = [gateway.clone(), jobs.clone()].into_iter().collect();
        let shown = lines.losses()[0].shown(0.9);
        assert_eq!(shown.demand_requests_per_second, 100.0);
        assert_eq!(shown.capacity_requests_per_second, None);
        let expected = "without a: 2.00 times the load of today; capacity is not known";
        assert_eq!(shown.zones[0].text, expected);
        assert!(!shown.zones[0].exceeds);

        for line in [&mut gateway, &mut jobs] {
            for zone in &mut line.zones {
                zone.capacity = Some(104.0);
            }
        }
        let lines: LoadLines = [gateway.clone(), jobs.clone()].into_iter().collect();
        let shown = lines.losses()[0].shown(0.9);
        assert_eq!(shown.now.unwrap().utilization, Some(0.481));
        assert_eq!(shown.zones[1].text, "without b: 0.96, above 0.90");
        assert!(shown.zones[1].exceeds);
        assert!(!lines.losses()[0].shown(0.97).zones[1].exceeds);

        gateway.zones[0].capacity = None;
        let lines: LoadLines = [gateway, jobs].into_iter().collect();
        assert_eq!(
            lines.losses()[0].shown(0.9).capacity_requests_per_second,
            None
        );
    }

    #[test]
    fn by_host_counts_the_zone_with_most_demand_is_the_fullest() {
        let zones = vec![
            zone_line("a", 60.0, 1.0 / 3.0),
            zone_line("b", 20.0, 1.0 / 3.0),
            zone_line("c", 20.0, 1.0 / 3.0),
        ];
        let mut line = line_of_zones("gateway", zones);
        line.basis = "host_counts";
        for zone in &mut line.zones {
            zone.capacity = Some(66.0);
        }
        let lines: LoadLines = [line].into_iter().collect();
        let losses = lines.losses();
        let shown = losses[0].shown(0.9);
        let fullest = shown.now.unwrap();
        assert_eq!(fullest.utilization, Some(0.909));
        assert_eq!(fullest.fullest.zone(), "a");
        let stay = shown.zones[2].clients_stay.clone().unwrap();
        assert_eq!(stay.utilization, Some(1.061));
    }

    #[test]
    fn services_without_requests_have_no_losses() {
        let line = line_of_zones("gateway", vec![zone_line("a", 0.0, 1.0)]);
        let lines: LoadLines = [line].into_iter().collect();
        assert_eq!(lines.losses(), []);
    }
}
