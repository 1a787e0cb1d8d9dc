//! What a scenario would be without one of its zones: the utilization of the others over time, by
//! the plan for its objective. Computed from demand and capacity, not simulated.

use plimsoll_core::planner::zone_loss::{FleetLoad, Fullest, ServiceLoad, ZoneLoss};
use plimsoll_core::units::FieldError;

use crate::num;
use crate::optimum::ticks;
use crate::scenario::Scenario;
use crate::workload::Workload;

/// The worst moment of a scenario without one zone.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScenarioLoss {
    /// When it is, in seconds from the start.
    pub at_s: f64,
    /// Utilization of the fullest zone if the clients of the lost one stay, and its name; `None` if
    /// no other zone has hosts.
    pub clients_stay: Option<(String, f64)>,
    /// The same if they move to the other zones.
    pub clients_move: Option<(String, f64)>,
}

impl ScenarioLoss {
    /// Returns the higher utilization of both cases; infinite if no zone is left.
    pub fn utilization(&self) -> f64 {
        match (&self.clients_stay, &self.clients_move) {
            (Some((_, stay)), Some((_, moved))) => stay.max(*moved),
            _ => f64::INFINITY,
        }
    }
}

impl Scenario {
    /// Finds the moment, from `measure_from` on, at which the loss of a zone would be worst. Events
    /// of the scenario count. An error if there is no zone of that name.
    pub fn without_zone(&self, name: &str) -> Result<ScenarioLoss, FieldError> {
        let lost = self.zones.iter().position(|zone| zone.name == name);
        let lost = lost.ok_or_else(|| {
            let names: Vec<&str> = self.zones.iter().map(|zone| zone.name.as_str()).collect();
            let names = names.join(", ");
            FieldError::new("zone", format!("{name:?} is not one of {names}"))
        })?;
        let workload = Workload::new(self);
        let mut worst: Option<ScenarioLoss> = None;
        let mut before: Option<(Vec<f64>, Vec<f64>)> = None;
        for at in ticks(self) {
            let now = (workload.rates(at).to_vec(), workload.capacity(at).to_vec());
            if before.as_ref() == Some(&now) {
                continue;
            }
            let loss = self.loss_at(lost, now.0.clone(), now.1.clone());
            before = Some(now);
            let named = |fullest: Option<Fullest>| {
                fullest.map(|most| (self.zones[most.zone].name.clone(), most.utilization))
            };
            let found = ScenarioLoss {
                at_s: num::seconds(at),
                clients_stay: named(loss.clients_stay),
                clients_move: named(loss.clients_move),
            };
            let is_worse = |worst: &ScenarioLoss| found.utilization() > worst.utilization();
            if worst.as_ref().is_none_or(is_worse) {
                worst = Some(found);
            }
        }
        worst.ok_or_else(|| FieldError::new("duration", "nothing is measured"))
    }

    fn loss_at(&self, lost: usize, demand: Vec<f64>, capacity: Vec<f64>) -> ZoneLoss {
        let service = ServiceLoad {
            capacity,
            objective: self.control_plane.objective,
            fleets: vec![FleetLoad {
                demand,
                proxies: None,
            }],
        };
        service.without(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        title = "three zones"
        duration = "10s"
        policies = ["none"]
        [traffic]
        requests_per_second = 200
        [[zone]]
        name = "a"
        demand = 60
        hosts = [{ count = 4, capacity = 50 }]
        [[zone]]
        name = "b"
        demand = 20
        hosts = [{ count = 4, capacity = 50 }]
        [[zone]]
        name = "c"
        demand = 20
        hosts = [{ count = 2, capacity = 50 }]
        [[event]]
        at = "8s"
        demand = { factor = 1.5 }
    "#;

    #[test]
    fn the_worst_moment_counts() {
        let scenario = Scenario::parse(TEXT).unwrap();
        let loss = scenario.without_zone("c").unwrap();
        assert!(
            (loss.utilization() - 300.0 / 400.0).abs() < 1e-3,
            "{loss:?}"
        );
        assert!(loss.at_s >= 8.0, "{loss:?}");
        let loss = scenario.without_zone("a").unwrap();
        assert!((loss.utilization() - 1.0).abs() < 1e-3, "{loss:?}");
        let error = scenario.without_zone("d").unwrap_err();
        assert_eq!(error.reason(), "\"d\" is not one of a, b, c");
    }
}
