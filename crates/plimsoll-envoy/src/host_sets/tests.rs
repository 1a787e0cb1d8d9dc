//! Tests of the conversion, with host sets as Envoy presents them.

use super::*;

/// Returns `cluster` of a configuration: round robin with these rules of zone-aware routing.
pub(crate) fn zone_aware(rules: &str) -> String {
    let package = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    format!(
        "cluster: {{load_balancing_policy: {{policies: [{{typed_extension_config: {{name: x, \
         typed_config: {{'@type': {package}.round_robin.v3.RoundRobin, locality_lb_config: \
         {{zone_aware_lb_config: {{{rules}}}}}}}}}}}]}}}}"
    )
}

/// One host of [`Fake`].
#[derive(Clone, Debug)]
pub(crate) struct FakeHost {
    pub(crate) address: String,
    pub(crate) locality: Locality,
    pub(crate) weight: u32,
    pub(crate) health: HealthStatus,
    pub(crate) active: u64,
}

impl FakeHost {
    pub(crate) fn new(zone: &str, address: &str) -> Self {
        Self::in_locality(Locality::zone_only(zone), address)
    }

    pub(crate) fn in_locality(locality: Locality, address: &str) -> Self {
        Self {
            address: address.to_owned(),
            locality,
            weight: 1,
            health: HealthStatus::Healthy,
            active: 0,
        }
    }
}

/// Host sets by priority, and locality weights of the first one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    pub(crate) priorities: Vec<Vec<FakeHost>>,
    pub(crate) weights: Vec<(&'static str, u32)>,
}

impl Fake {
    /// Creates one priority with this number of hosts in each zone.
    pub(crate) fn zones(zones: &[(&'static str, u8)]) -> Self {
        let hosts = (1..).zip(zones).flat_map(|(number, &(zone, hosts))| {
            (1..=hosts).map(move |host| FakeHost::new(zone, &format!("10.0.{number}.{host}:80")))
        });
        Self {
            priorities: vec![hosts.collect()],
            weights: Vec::new(),
        }
    }

    fn host(&self, priority: u32, index: usize) -> Option<&FakeHost> {
        self.priorities.get(priority as usize)?.get(index)
    }

    fn healthy(&self, priority: u32) -> impl Iterator<Item = &FakeHost> {
        let hosts = self.priorities.get(priority as usize);
        let healthy = |host: &&FakeHost| host.health == HealthStatus::Healthy;
        hosts.into_iter().flatten().filter(healthy)
    }
}

impl HostSets for Fake {
    fn priorities(&self) -> u32 {
        u32::try_from(self.priorities.len()).unwrap()
    }

    fn hosts(&self, priority: u32) -> usize {
        self.priorities.get(priority as usize).map_or(0, Vec::len)
    }

    fn healthy_hosts(&self, priority: u32) -> usize {
        self.healthy(priority).count()
    }

    fn address(&self, priority: u32, index: usize) -> &str {
        self.host(priority, index).map_or("", |host| &host.address)
    }

    fn healthy_address(&self, priority: u32, index: usize) -> &str {
        let host = self.healthy(priority).nth(index);
        host.map_or("", |host| &host.address)
    }

    fn weight(&self, priority: u32, index: usize) -> u32 {
        self.host(priority, index).map_or(0, |host| host.weight)
    }

    fn is_degraded(&self, priority: u32, index: usize) -> bool {
        let host = self.host(priority, index);
        host.is_some_and(|host| host.health == HealthStatus::Degraded)
    }

    fn metadata(&self, priority: u32, index: usize, key: &str) -> &str {
        let host = self.host(priority, index);
        let is_draining = host.is_some_and(|host| host.health == HealthStatus::Draining);
        if is_draining && key == "health_status" {
            "DRAINING"
        } else {
            ""
        }
    }

    fn locality(&self, priority: u32, index: usize) -> [&str; 3] {
        let host = self.host(priority, index);
        host.map_or([""; 3], |FakeHost { locality, .. }| {
            [locality.region(), locality.zone(), locality.sub_zone()]
        })
    }

    fn localities(&self, priority: u32) -> usize {
        if priority == 0 { self.weights.len() } else { 0 }
    }

    fn locality_weight(&self, _: u32, locality: usize) -> u32 {
        self.weights[locality].1
    }

    fn locality_member(&self, priority: u32, locality: usize) -> &str {
        let zone = self.weights[locality].0;
        let host = self
            .healthy(priority)
            .find(|host| host.locality.zone() == zone);
        host.map_or("", |host| &host.address)
    }

    fn active_requests(&self, priority: u32, index: usize) -> u64 {
        self.host(priority, index).map_or(0, |host| host.active)
    }
}

#[test]
fn hosts_are_grouped_by_priority_and_locality() {
    let mut fake = Fake::zones(&[("b", 2), ("a", 1)]);
    let mut second = FakeHost::new("a", "[::1]:81");
    second.weight = 7;
    fake.priorities.push(vec![second]);
    fake.weights = vec![("a", 30), ("b", 70), ("gone", 9)];
    let assignment = assignment(&fake, "orders").unwrap();
    let found: Vec<_> = assignment
        .endpoints()
        .iter()
        .map(|entry| {
            let hosts = entry.lb_endpoints.len();
            let zone = entry.locality.zone().to_owned();
            (entry.priority, zone, hosts, entry.load_balancing_weight)
        })
        .collect();
    let expected = [(0, "a", 1, 30), (0, "b", 2, 70), (1, "a", 1, 0)];
    assert_eq!(
        found,
        expected.map(|(p, zone, n, w)| (p, zone.to_owned(), n, w))
    );
    assert_eq!(assignment.endpoints()[2].lb_endpoints[0].weight(), 7);
    assert_eq!(&**assignment.cluster_name(), "orders");
}

/// Envoy has no weight for a locality without one: 0, which is no weight of 0.
#[test]
fn localities_without_a_weight_stay_without_one() {
    let mut fake = Fake::zones(&[("a", 1), ("b", 1)]);
    fake.weights = vec![("a", 0), ("b", 1)];
    let weights = locality_weights(&fake, 0);
    let weight = |address: &str| weights.get(&address.parse().unwrap()).copied();
    assert_eq!(
        (weight("10.0.1.1:80"), weight("10.0.2.1:80")),
        (None, Some(1))
    );
}

#[test]
fn only_hosts_of_the_healthy_list_are_healthy() {
    let mut fake = Fake::zones(&[("a", 5)]);
    fake.priorities[0][1].health = HealthStatus::Degraded;
    fake.priorities[0][2].health = HealthStatus::Timeout;
    fake.priorities[0][4].health = HealthStatus::Draining;
    let assignment = assignment(&fake, "orders").unwrap();
    let health: Vec<_> = assignment.endpoints()[0]
        .lb_endpoints
        .iter()
        .map(|endpoint| endpoint.health_status)
        .collect();
    let expected = [
        HealthStatus::Healthy,
        HealthStatus::Degraded,
        HealthStatus::Unhealthy,
        HealthStatus::Healthy,
        HealthStatus::Draining,
    ];
    assert_eq!(health, expected);
    let mut indices = Vec::new();
    for_each_host(&fake, 0, |entry| {
        indices.push((entry.index, entry.healthy_index));
    });
    let expected = [(0, Some(0)), (1, None), (2, None), (3, Some(1)), (4, None)];
    assert_eq!(indices, expected);
}

#[test]
fn duplicates_and_other_addresses_are_left_out() {
    let mut fake = Fake::zones(&[("a", 1)]);
    for address in [
        "10.0.1.1:80",
        "/var/run/pipe",
        "envoy://internal/",
        "10.0.1.2:0080",
    ] {
        fake.priorities[0].push(FakeHost::new("b", address));
    }
    let assignment = assignment(&fake, "orders").unwrap();
    let hosts: usize = assignment
        .endpoints()
        .iter()
        .map(|entry| entry.lb_endpoints.len())
        .sum();
    assert!(hosts <= 2, "{assignment:?}");
    assert_eq!(assignment.endpoints()[0].lb_endpoints.len(), 1);
}

#[test]
fn addresses_are_read_as_by_the_standard_library() {
    let texts = [
        "1.2.3.4:5",
        "255.255.255.255:65535",
        "0.0.0.0:1",
        "256.1.1.1:1",
        "1.2.3:4",
        "1.2.3.4",
        "1.2.3.4:",
        "1.2.3.4:65536",
        "1.2.3.4:99999999",
        "01.2.3.4:5",
        "1..2.3:4",
        "a.b.c.d:1",
        "[2001:db8::1]:443",
        "",
        ":",
    ];
    for text in texts {
        assert_eq!(parse_address(text), text.parse().ok(), "{text}");
    }
}
