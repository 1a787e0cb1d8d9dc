//! Tests of subsets: membership, counters, and state that is kept across changes.

use std::net::SocketAddr;

use super::*;
use crate::balancer::Balancer;
use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts};
use crate::model::cluster::{ClusterConfigParts, LocalityPolicy};
use crate::model::health::HealthSignal;
use crate::model::locality::Locality;
use crate::model::metadata::{Metadata, MetadataValue};
use crate::model::subset::{LbSubsetConfigParts, SubsetFallbackPolicy, SubsetSelectorParts};
use crate::snapshot::RoutingSnapshot;
use crate::time::Instant;

/// Metadata of a host as pairs of key and value; a value with commas is a list.
type Labels<'a> = &'a [(&'a str, &'a str)];

fn metadata(labels: Labels<'_>) -> Metadata {
    let value = |text: &str| match text.split_once(',') {
        None => text.into(),
        Some(_) => MetadataValue::list(text.split(',').filter(|it| !it.is_empty()).map(Into::into)),
    };
    labels
        .iter()
        .map(|&(key, text)| (key, value(text)))
        .collect()
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 80))
}

/// Hosts 1, 2, … of zone a at priority 0.
fn assignment(hosts: &[Labels<'_>]) -> ClusterLoadAssignment {
    let endpoint = |(number, labels): (u8, &Labels<'_>)| LbEndpoint {
        metadata: metadata(labels),
        ..LbEndpoint::new(address(number))
    };
    entries(vec![LocalityParts {
        locality: Locality::zone_only("a"),
        lb_endpoints: (1..).zip(hosts).map(endpoint).collect(),
        ..Default::default()
    }])
}

fn entries(endpoints: Vec<LocalityParts>) -> ClusterLoadAssignment {
    let parts = AssignmentParts {
        cluster_name: "orders".into(),
        endpoints,
        ..Default::default()
    };
    ClusterLoadAssignment::try_new(parts).unwrap()
}

fn selector(keys: &[&str]) -> SubsetSelectorParts {
    SubsetSelectorParts {
        keys: keys.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

fn subset_config(keys: &[&[&str]]) -> LbSubsetConfigParts {
    LbSubsetConfigParts {
        subset_selectors: keys.iter().map(|keys| selector(keys)).collect(),
        ..Default::default()
    }
}

fn config(parts: LbSubsetConfigParts) -> Arc<ClusterConfig> {
    let subsets = LbSubsetConfig::try_new(parts).unwrap();
    let parts = ClusterConfigParts {
        name: "orders".into(),
        lb_subset_config: Some(subsets),
        ..Default::default()
    };
    Arc::new(ClusterConfig::try_new(parts).unwrap())
}

struct Rig {
    balancer: Balancer,
    snapshot: Arc<RoutingSnapshot>,
}

impl Rig {
    fn new(parts: LbSubsetConfigParts) -> Self {
        let own = Locality::zone_only("a");
        let balancer = Balancer::new(config(parts), own, Instant::ORIGIN);
        let snapshot = balancer.initial_snapshot(Instant::ORIGIN);
        Self { balancer, snapshot }
    }

    fn assign(&mut self, assignment: ClusterLoadAssignment) -> Vec<Event> {
        self.balancer.handle_assignment(assignment, Instant::ORIGIN);
        self.drain()
    }

    fn drain(&mut self) -> Vec<Event> {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.snapshot = snapshot;
        }
        std::iter::from_fn(|| self.balancer.poll_event()).collect()
    }

    /// Metadata of every subset, and the last bytes of the addresses of its hosts.
    fn subsets(&self) -> Vec<(String, Vec<u8>)> {
        let last = |host: &&Arc<Host>| match host.address() {
            SocketAddr::V4(address) => address.ip().octets()[3],
            SocketAddr::V6(_) => 0,
        };
        let subsets = self.snapshot.subsets();
        let one = |subset: &crate::snapshot::SubsetView<'_>| {
            let hosts = subset.hosts.iter().map(last).collect();
            (subset.metadata.to_string(), hosts)
        };
        subsets.iter().map(one).collect()
    }

    fn routing(&self, metadata: &str) -> Arc<RoutingSnapshot> {
        let subsets = self.snapshot.subsets();
        let mut named = subsets
            .iter()
            .filter(|it| it.metadata.to_string() == metadata);
        Arc::clone(named.next().unwrap().routing.unwrap())
    }

    fn counts(&self) -> (u64, u64, u64) {
        let stats = self.balancer.stats();
        let (active, _) = self.snapshot.subset_gauges().unwrap();
        (
            active,
            stats.lb_subsets_created.get(),
            stats.lb_subsets_removed.get(),
        )
    }
}

fn named(subsets: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    let owned = subsets
        .iter()
        .map(|(name, hosts)| (name.to_string(), hosts.to_vec()));
    owned.collect()
}

#[test]
fn hosts_join_one_subset_per_selector_whose_keys_they_have() {
    let mut rig = Rig::new(subset_config(&[&["version"], &["stage", "version"]]));
    let events = rig.assign(assignment(&[
        &[("version", "1")],
        &[("version", "1"), ("stage", "prod")],
        &[("stage", "prod")],
        &[],
    ]));
    let prod = r#"stage="prod", version="1""#;
    assert_eq!(
        rig.subsets(),
        named(&[(prod, &[2]), (r#"version="1""#, &[1, 2])])
    );
    assert!(events.contains(&Event::SubsetsChanged {
        created: 2,
        removed: 0,
        active: 2
    }));
    assert_eq!(rig.counts(), (2, 2, 0));
    assert!(rig.snapshot.default_subset().is_none());
}

#[test]
fn a_metadata_change_moves_a_host_between_subsets() {
    let mut rig = Rig::new(subset_config(&[&["version"]]));
    rig.assign(assignment(&[&[("version", "1")], &[("version", "2")]]));
    let before: Vec<Arc<Host>> = rig.snapshot.hosts().cloned().collect();
    let request = before[0].begin_request();
    let untouched = rig.routing(r#"version="2""#);
    rig.assign(assignment(&[&[("version", "3")], &[("version", "2")]]));
    let after: Vec<Arc<Host>> = rig.snapshot.hosts().cloned().collect();
    assert!(Arc::ptr_eq(&before[0], &after[0]), "the host is the same");
    assert_eq!(after[0].active_requests(), 1);
    drop(request);
    assert_eq!(
        rig.subsets(),
        named(&[(r#"version="2""#, &[2]), (r#"version="3""#, &[1])])
    );
    assert_eq!(rig.counts(), (2, 3, 1));
    assert!(
        Arc::ptr_eq(&untouched, &rig.routing(r#"version="2""#)),
        "a subset whose hosts are the same is not computed again"
    );
}

#[test]
fn a_change_of_health_touches_only_the_subsets_of_that_host() {
    let mut rig = Rig::new(subset_config(&[&["version"], &["stage"]]));
    rig.assign(assignment(&[
        &[("version", "1"), ("stage", "prod")],
        &[("version", "1")],
        &[("version", "2")],
    ]));
    let names = [r#"stage="prod""#, r#"version="1""#, r#"version="2""#];
    let before = names.map(|name| rig.routing(name));
    let failed = HealthSignal::ActiveCheckFailed;
    rig.balancer
        .handle_health(address(1), failed, Instant::ORIGIN);
    rig.drain();
    let after = names.map(|name| rig.routing(name));
    let same: Vec<bool> = before
        .iter()
        .zip(&after)
        .map(|(a, b)| Arc::ptr_eq(a, b))
        .collect();
    assert_eq!(same, [false, false, true]);
    assert_eq!(after[1].counts(0).unwrap().flat.healthy, 1);
    assert!(after[0].loads().panic()[0], "its only host is unhealthy");
}

#[test]
fn list_as_any_matches_each_element() {
    let parts = LbSubsetConfigParts {
        list_as_any: true,
        ..subset_config(&[&["a", "b"]])
    };
    let mut rig = Rig::new(parts);
    rig.assign(assignment(&[
        &[("a", "1,2"), ("b", "x,y")],
        &[("a", "1"), ("b", "x,x")],
        // An empty list discards the keys before it.
        &[("a", ","), ("b", "z")],
        &[("a", "1"), ("b", ",")],
    ]));
    let expected = [
        (r#"a="1", b="x""#, [1, 2].as_slice()),
        (r#"a="1", b="y""#, &[1]),
        (r#"a="2", b="x""#, &[1]),
        (r#"a="2", b="y""#, &[1]),
        (r#"b="z""#, &[3]),
    ];
    assert_eq!(rig.subsets(), named(&expected));
}

#[test]
fn an_empty_subset_without_selector_stays_while_longer_ones_extend_it() {
    let parts = LbSubsetConfigParts {
        list_as_any: true,
        ..subset_config(&[&["A", "a"], &["a", "b"]])
    };
    let mut rig = Rig::new(parts);
    // The first host creates {a=1} by an empty list, the second {a=1, b=2}, which extends {a=1}.
    let second: Labels<'_> = &[("a", "1"), ("b", "2")];
    rig.assign(assignment(&[&[("A", ","), ("a", "1")], second]));
    assert_eq!(rig.balancer.stats().lb_subsets_created.get(), 2);
    rig.assign(assignment(&[&[], second]));
    assert_eq!(rig.balancer.stats().lb_subsets_removed.get(), 0);
    assert_eq!(rig.subsets(), named(&[(r#"a="1", b="2""#, &[2])]));
    rig.assign(assignment(&[&[], &[]]));
    assert_eq!(rig.balancer.stats().lb_subsets_removed.get(), 2);
}

#[test]
fn a_single_host_subset_keeps_the_first_and_counts_the_others() {
    let mut parts = subset_config(&[&["key"]]);
    parts.subset_selectors[0].single_host_per_subset = true;
    let mut rig = Rig::new(parts);
    let a: Labels<'_> = &[("key", "a")];
    rig.assign(assignment(&[a, a, &[("key", "b")], a]));
    let (a_set, b_set) = (r#"key="a""#, r#"key="b""#);
    assert_eq!(rig.subsets(), named(&[(a_set, &[1]), (b_set, &[3])]));
    assert_eq!(rig.snapshot.subset_gauges(), Some((2, 2)));
    let failed = HealthSignal::ActiveCheckFailed;
    rig.balancer
        .handle_health(address(1), failed, Instant::ORIGIN);
    rig.drain();
    assert_eq!(rig.subsets()[0].1, [1], "its health does not matter");
    rig.assign(assignment(&[&[], a, &[], &[]]));
    assert_eq!(rig.subsets(), named(&[(a_set, &[2])]));
    assert_eq!(rig.snapshot.subset_gauges(), Some((1, 0)));
}

#[test]
fn max_subsets_is_enforced_and_reported_once() {
    let parts = LbSubsetConfigParts {
        max_subsets: Some(2),
        ..subset_config(&[&["v"]])
    };
    let mut rig = Rig::new(parts);
    let host = |v| [("v", v)];
    let (one, two, three) = (host("1"), host("2"), host("3"));
    let events = rig.assign(assignment(&[&one, &two, &three]));
    let reached = Event::SubsetLimitReached {
        limit: 2,
        left_out: 1,
    };
    assert!(events.contains(&reached), "{events:?}");
    assert_eq!(rig.counts(), (2, 2, 0));
    assert!(rig.snapshot.explain().subsets.unwrap().limited);
    let events = rig.assign(assignment(&[&one, &two, &three, &three]));
    assert!(!events.contains(&reached), "{events:?}");
    // Room that is freed by an update is used in the same update.
    rig.assign(assignment(&[&three, &two, &three]));
    assert_eq!(
        rig.subsets(),
        named(&[(r#"v="2""#, &[2]), (r#"v="3""#, &[1, 3])])
    );
    assert!(!rig.snapshot.explain().subsets.unwrap().limited);
}

#[test]
fn combinations_of_one_host_are_bounded() {
    let parts = LbSubsetConfigParts {
        max_subsets: Some(10),
        list_as_any: true,
        ..subset_config(&[&["a", "b", "c"]])
    };
    let mut rig = Rig::new(parts);
    let many: String = (0..1_000).map(|number| format!("{number},")).collect();
    let hostile = [("a", &*many), ("b", &*many), ("c", &*many)];
    let events = rig.assign(assignment(&[&hostile]));
    assert_eq!(rig.counts().0, 10);
    let limited = |event: &Event| matches!(event, Event::SubsetLimitReached { .. });
    assert!(events.iter().any(limited));
}

#[test]
fn subsets_are_rebuilt_only_if_their_settings_change() {
    let mut rig = Rig::new(subset_config(&[&["version"]]));
    rig.assign(assignment(&[&[("version", "1"), ("stage", "x")]]));
    let now = Instant::ORIGIN;
    rig.balancer
        .handle_config(config(subset_config(&[&["version"]])), now);
    rig.drain();
    assert_eq!(rig.counts(), (1, 1, 0));
    rig.balancer
        .handle_config(config(subset_config(&[&["stage"]])), now);
    rig.drain();
    assert_eq!(rig.subsets(), named(&[(r#"stage="x""#, &[1])]));
    assert_eq!(rig.counts(), (1, 2, 1));
    let none = ClusterConfigParts {
        name: "orders".into(),
        ..Default::default()
    };
    let none = Arc::new(ClusterConfig::try_new(none).unwrap());
    rig.balancer.handle_config(none, now);
    rig.drain();
    assert_eq!(rig.snapshot.subset_gauges(), None);
    assert_eq!(rig.balancer.stats().lb_subsets_removed.get(), 2);
}

#[test]
fn the_default_subset_has_the_hosts_with_its_metadata() {
    let parts = LbSubsetConfigParts {
        fallback_policy: SubsetFallbackPolicy::DefaultSubset,
        default_subset: metadata(&[("stage", "prod")]),
        ..subset_config(&[&["version"]])
    };
    let mut rig = Rig::new(parts);
    let prod: Labels<'_> = &[("stage", "prod"), ("version", "1")];
    rig.assign(assignment(&[prod, &[("stage", "dev")], prod]));
    let default = rig.snapshot.default_subset().unwrap();
    assert_eq!(default.hosts().count(), 2);
    assert_eq!(rig.counts().0, 1, "it is not counted as a subset");
    let explained = rig.snapshot.explain().subsets.unwrap();
    assert_eq!(explained.fallback_policy, "DEFAULT_SUBSET");
    assert_eq!(explained.default_subset.unwrap().hosts, 2);
    assert_eq!(explained.subsets[0].metadata, r#"version="1""#);
}

/// Zones a (hosts 1, 2) and b (hosts 3 to 6) with weights; host 1 and 3 to 5 have `v=1`.
fn weighted() -> ClusterLoadAssignment {
    let entry = |zone, weight, hosts: std::ops::RangeInclusive<u8>| LocalityParts {
        locality: Locality::zone_only(zone),
        load_balancing_weight: Some(weight),
        lb_endpoints: hosts
            .map(|host| LbEndpoint {
                metadata: metadata(if [2, 6].contains(&host) {
                    &[]
                } else {
                    &[("v", "1")]
                }),
                ..LbEndpoint::new(address(host))
            })
            .collect(),
        ..Default::default()
    };
    entries(vec![entry("a", 2, 1..=2), entry("b", 2, 3..=6)])
}

fn weights_seen(locality_weight_aware: bool, scale_locality_weight: bool) -> Vec<u32> {
    let parts = LbSubsetConfigParts {
        locality_weight_aware,
        scale_locality_weight,
        ..subset_config(&[&["v"]])
    };
    let mut rig = Rig::new(parts);
    rig.assign(weighted());
    let routing = rig.routing(r#"v="1""#);
    routing.priorities[0].table.assigned_weights().collect()
}

#[test]
fn locality_weights_are_used_or_scaled_if_configured() {
    assert_eq!(weights_seen(false, true), [0, 0]);
    assert_eq!(weights_seen(true, false), [2, 2]);
    // Scaled by hosts in the subset ÷ hosts: 2 × 1 ÷ 2, and 2 × 3 ÷ 4 rounded up.
    assert_eq!(weights_seen(true, true), [1, 2]);
}

#[test]
fn subsets_ignore_locality_weights_unless_configured() {
    let of = |locality_weight_aware| {
        let subsets = LbSubsetConfigParts {
            locality_weight_aware,
            ..subset_config(&[&["v"]])
        };
        let parts = ClusterConfigParts {
            name: "orders".into(),
            locality_policy: LocalityPolicy::LocalityWeighted,
            lb_subset_config: Some(LbSubsetConfig::try_new(subsets).unwrap()),
            ..Default::default()
        };
        let config = Arc::new(ClusterConfig::try_new(parts).unwrap());
        config.for_subsets().locality_weighted()
    };
    assert!(!of(false));
    assert!(of(true));
}
