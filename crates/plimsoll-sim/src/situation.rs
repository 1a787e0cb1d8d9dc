//! [`Situation`]: what is broken at a moment, computed from the events of a scenario.
//!
//! Stateless: the same moment gives the same situation, whoever asks (the world when it applies a
//! change, the workload when it moves demand, the metrics when they ask for capacity).

use crate::scenario::{Event, Happening, Scenario};

/// What is broken at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Situation {
    pub(crate) zones: Vec<ZoneSituation>,
    pub(crate) control_plane_down: bool,
}

/// What is broken in one zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ZoneSituation {
    /// Its hosts are dead.
    pub(crate) hosts_lost: bool,
    /// Its proxies are dead.
    pub(crate) proxies_lost: bool,
    /// So many hosts, from the first on, fail their health checks.
    pub(crate) unhealthy: u32,
    /// What is left of the capacity of each host.
    pub(crate) capacity_factor: f64,
    /// Its hosts do not report.
    pub(crate) silent: bool,
}

impl Situation {
    pub(crate) fn at(scenario: &Scenario, at: u64) -> Self {
        let intact = ZoneSituation {
            hosts_lost: false,
            proxies_lost: false,
            unhealthy: 0,
            capacity_factor: 1.0,
            silent: false,
        };
        let mut situation = Self {
            zones: vec![intact; scenario.zones.len()],
            control_plane_down: false,
        };
        for event in scenario.events.iter().filter(|event| event.is_on(at)) {
            situation.apply(event);
        }
        situation
    }

    fn apply(&mut self, event: &Event) {
        let mut each = |zones: &[usize], change: &dyn Fn(&mut ZoneSituation)| {
            zones.iter().for_each(|&zone| change(&mut self.zones[zone]));
        };
        match &event.what {
            Happening::Capacity { zones, factor } => {
                each(zones, &|zone| zone.capacity_factor *= factor);
            }
            Happening::ControlPlaneOutage => self.control_plane_down = true,
            Happening::LoseHosts { zones } => each(zones, &|zone| zone.hosts_lost = true),
            Happening::LoseZone { zones } => each(zones, &|zone| {
                zone.hosts_lost = true;
                zone.proxies_lost = true;
            }),
            Happening::StopReports { zones } => each(zones, &|zone| zone.silent = true),
            Happening::Unhealthy { zones, hosts } => {
                each(zones, &|zone| zone.unhealthy = zone.unhealthy.max(*hosts));
            }
            // Demand is the workload's business.
            Happening::Demand { .. } | Happening::Shares { .. } => {}
        }
    }

    /// Requests per second that the usable hosts of each zone can serve.
    pub(crate) fn capacity(&self, scenario: &Scenario) -> Vec<f64> {
        let zones = scenario.zones.iter().zip(&self.zones);
        zones
            .map(|(zone, situation)| {
                if situation.hosts_lost {
                    return 0.0;
                }
                let mut unusable = situation.unhealthy;
                let mut capacity = 0.0;
                for group in &zone.hosts {
                    let out = unusable.min(group.count);
                    unusable -= out;
                    capacity += f64::from(group.count - out) * group.capacity;
                }
                capacity * situation.capacity_factor
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::ScenarioParts;
    use crate::testing::three_zones;

    fn scenario(events: &str) -> Scenario {
        let mut parts: ScenarioParts = three_zones();
        let events: ScenarioParts = toml::from_str(events).unwrap();
        parts.event = events.event;
        Scenario::try_new(parts).unwrap()
    }

    fn at(scenario: &Scenario, seconds: u64) -> Situation {
        Situation::at(scenario, seconds * 1_000_000_000)
    }

    #[test]
    fn things_begin_and_end_when_the_scenario_says_so() {
        let scenario = scenario(
            "[[event]]\nat = \"10s\"\nlose_hosts = { zone = \"a\", for = \"5s\" }\n\
             [[event]]\nat = \"12s\"\ncontrol_plane_outage = {}\n",
        );
        assert!(!at(&scenario, 9).zones[0].hosts_lost);
        assert!(at(&scenario, 10).zones[0].hosts_lost);
        assert!(!at(&scenario, 10).zones[0].proxies_lost);
        assert!(!at(&scenario, 15).zones[0].hosts_lost);
        assert!(!at(&scenario, 11).control_plane_down && at(&scenario, 100).control_plane_down);
        assert_eq!(at(&scenario, 10).capacity(&scenario), [0.0, 120.0, 120.0]);
    }

    #[test]
    fn capacity_counts_usable_hosts_and_what_is_left_of_them() {
        let scenario = scenario(
            "[[event]]\nat = \"1s\"\nunhealthy = { zone = \"a\", hosts = 1 }\n\
             [[event]]\nat = \"1s\"\ncapacity = { zone = \"b\", factor = 0.5 }\n\
             [[event]]\nat = \"2s\"\ncapacity = { zone = \"b\", factor = 0.5 }\n\
             [[event]]\nat = \"3s\"\nlose_zone = { zone = \"c\" }\n",
        );
        assert_eq!(at(&scenario, 1).capacity(&scenario), [90.0, 60.0, 120.0]);
        assert_eq!(at(&scenario, 2).capacity(&scenario), [90.0, 30.0, 120.0]);
        assert_eq!(at(&scenario, 3).capacity(&scenario), [90.0, 30.0, 0.0]);
        assert!(at(&scenario, 3).zones[2].proxies_lost);
    }

    #[test]
    fn more_unhealthy_hosts_than_there_are_leave_nothing() {
        let scenario =
            scenario("[[event]]\nat = \"0s\"\nunhealthy = { zone = \"a\", hosts = 99 }\n");
        assert_eq!(at(&scenario, 0).capacity(&scenario)[0], 0.0);
    }
}
