//! [`Faults`] in effect at a moment, computed from the events of a scenario.
//!
//! Stateless: the same time gives the same faults, whether the simulation applies a change, the
//! workload moves demand, or metrics need the capacity.

use crate::scenario::{EventKind, HostFailure, Scenario, ScenarioEvent};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Faults {
    pub(crate) zones: Vec<ZoneFaults>,
    links: Vec<LinkFault>,
    pub(crate) control_plane_down: bool,
}

/// How requests from one zone to another fail.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LinkFault {
    from: usize,
    to: usize,
    failure: HostFailure,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ZoneFaults {
    pub(crate) hosts_lost: bool,
    pub(crate) proxies_lost: bool,
    /// Number of hosts, counted from the first, that fail their health checks.
    pub(crate) unhealthy: u32,
    pub(crate) capacity_factor: f64,
    /// How the first hosts fail, without being lost.
    pub(crate) failing: Option<HostFailure>,
    /// Hosts send no load reports.
    pub(crate) silent: bool,
}

impl ZoneFaults {
    /// Returns how the host at `position` in its zone fails.
    pub(crate) fn failure(&self, position: u32) -> Option<HostFailure> {
        self.failing.filter(|failing| position < failing.hosts)
    }

    /// Returns the share of its capacity that the host at `position` in its zone offers.
    fn offered(&self, position: u32) -> f64 {
        if self.hosts_lost || position < self.unhealthy {
            return 0.0;
        }
        let failure = self.failure(position);
        failure.map_or(1.0, |failure| failure.remaining_capacity())
    }
}

impl Faults {
    pub(crate) fn at(scenario: &Scenario, at: u64) -> Self {
        let intact = ZoneFaults {
            hosts_lost: false,
            proxies_lost: false,
            unhealthy: 0,
            capacity_factor: 1.0,
            failing: None,
            silent: false,
        };
        let mut faults = Self {
            zones: vec![intact; scenario.zones.len()],
            links: Vec::new(),
            control_plane_down: false,
        };
        for event in scenario.events.iter().filter(|event| event.is_on(at)) {
            faults.apply(event);
        }
        faults
    }

    fn apply(&mut self, event: &ScenarioEvent) {
        let mut each = |zones: &[usize], change: &dyn Fn(&mut ZoneFaults)| {
            zones.iter().for_each(|&zone| change(&mut self.zones[zone]));
        };
        match &event.kind {
            EventKind::Capacity { zones, factor } => {
                each(zones, &|zone| zone.capacity_factor *= factor);
            }
            EventKind::ControlPlaneOutage { .. } => self.control_plane_down = true,
            EventKind::Fail { zones, failure } => {
                each(zones, &|zone| zone.failing = Some(*failure));
            }
            EventKind::FailLinks {
                from,
                zones,
                failure,
            } => {
                let pairs = from
                    .iter()
                    .flat_map(|&from| zones.iter().map(move |&to| (from, to)));
                self.links.extend(pairs.map(|(from, to)| LinkFault {
                    from,
                    to,
                    failure: *failure,
                }));
            }
            EventKind::LoseHosts { zones } => each(zones, &|zone| zone.hosts_lost = true),
            EventKind::LoseZone { zones } => each(zones, &|zone| {
                zone.hosts_lost = true;
                zone.proxies_lost = true;
            }),
            EventKind::StopReports { zones } => each(zones, &|zone| zone.silent = true),
            EventKind::Unhealthy { zones, hosts } => {
                each(zones, &|zone| zone.unhealthy = zone.unhealthy.max(*hosts));
            }
            // The workload applies changes of demand, and the world restarts proxies.
            EventKind::Demand { .. }
            | EventKind::RestartProxies { .. }
            | EventKind::Shares { .. } => {}
        }
    }

    /// Returns how requests from one zone to another fail.
    pub(crate) fn link(&self, from: usize, to: usize) -> Option<HostFailure> {
        let mut links = self.links.iter();
        let link = links.find(|link| link.from == from && link.to == to);
        link.map(|link| link.failure)
    }

    /// Returns the requests per second that the usable hosts of each zone can serve.
    pub(crate) fn capacity(&self, scenario: &Scenario) -> Vec<f64> {
        let zones = scenario.zones.iter().zip(&self.zones);
        zones
            .map(|(zone, faults)| {
                let (mut capacity, mut first) = (0.0, 0);
                for group in &zone.hosts {
                    let positions = first..first + group.count;
                    first += group.count;
                    let offered: f64 = positions.map(|position| faults.offered(position)).sum();
                    capacity += offered * group.capacity;
                }
                capacity * faults.capacity_factor
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

    fn at(scenario: &Scenario, seconds: u64) -> Faults {
        Faults::at(scenario, seconds * 1_000_000_000)
    }

    #[test]
    fn faults_start_and_end_on_schedule() {
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
    fn capacity_counts_usable_hosts_at_their_current_capacity() {
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
    fn failing_hosts_offer_what_they_can_still_serve() {
        let scenario = scenario(
            "[[event]]\nat = \"1s\"\nfail = { zone = \"a\", how = \"refuse\", hosts = 2, \
             every = \"10s\" }\n\
             [[event]]\nat = \"1s\"\nfail = { zone = \"b\", how = \"error\", share = \"25%\" }\n\
             [[event]]\nat = \"1s\"\nfail = { zone = \"c\", how = \"slow\", factor = 4, \
             for = \"8s\" }\n",
        );
        assert_eq!(at(&scenario, 0).capacity(&scenario), [120.0; 3]);
        for (second, capacity) in [
            (1, [60.0, 90.0, 30.0]),
            (6, [120.0, 90.0, 30.0]),
            (10, [120.0, 90.0, 120.0]),
            (11, [60.0, 90.0, 120.0]),
        ] {
            assert_eq!(at(&scenario, second).capacity(&scenario), capacity);
        }
        let steps = scenario.steps().into_iter().map(|at| at / 1_000_000_000);
        let expected = [0, 1, 6, 9, 11, 16, 21, 26, 31, 36];
        assert_eq!(steps.collect::<Vec<_>>(), expected);
        let described = scenario
            .events
            .iter()
            .map(|event| scenario.describe(&event.kind));
        assert_eq!(
            described.collect::<Vec<_>>(),
            [
                "2 hosts of a refuse all requests",
                "hosts of b answer 25 % of the requests with errors",
                "hosts of c take 4 times as long",
            ]
        );
    }

    #[test]
    fn links_fail_for_the_proxies_of_some_zones() {
        let scenario = scenario(
            "[[event]]\nat = \"1s\"\nfail = { zone = \"b\", from = \"a\", how = \"hang\", \
             for = \"8s\" }\n",
        );
        let links = |second| {
            let faults = at(&scenario, second);
            let is_cut = |(from, to)| faults.link(from, to).is_some();
            [(0, 1), (1, 0), (2, 1), (1, 1)].map(is_cut)
        };
        assert_eq!(links(0), [false; 4]);
        assert_eq!(links(1), [true, false, false, false]);
        assert_eq!(links(9), [false; 4]);
        assert_eq!(at(&scenario, 1).capacity(&scenario), [120.0; 3]);
        assert_eq!(
            scenario.describe(&scenario.events[0].kind),
            "hosts of b do not answer all requests from a"
        );
    }

    #[test]
    fn more_unhealthy_hosts_than_exist_leave_no_capacity() {
        let scenario =
            scenario("[[event]]\nat = \"0s\"\nunhealthy = { zone = \"a\", hosts = 99 }\n");
        assert_eq!(at(&scenario, 0).capacity(&scenario)[0], 0.0);
    }
}
