//! The exported hooks, called as Envoy calls them, with its functions replaced by fakes: what the
//! ABI layer passes on, returns and writes. The real Envoys are in `e2e`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod envoy;
mod hooks;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ptr;

use plimsoll_envoy::process::Process;

use envoy::{DEGRADED, HEALTHY, Request, UNHEALTHY, alone, host, seen};
use hooks::{Cluster, Filter, load, read_config};

#[test]
fn the_library_tells_the_version_that_the_running_envoy_has() {
    let _alone = alone();
    // This process does not export what Envoy has since 1.40.
    assert_eq!(load(), c"v0.1.0");
}

#[test]
fn a_rejected_configuration_is_null_and_names_its_field_in_the_log() {
    let _alone = alone();
    load();
    assert!(read_config("plimsoll", "cluster: {lb_policy: FASTEST}").is_null());
    assert!(read_config("other", "").is_null());
    let log = seen(|seen| std::mem::take(&mut seen.log));
    let errors: Vec<_> = log.iter().filter(|(level, _)| *level == 4).collect();
    assert_eq!(errors.len(), 2, "{log:?}");
    assert!(errors[0].1.contains("cluster.lb_policy"), "{log:?}");
    assert!(errors[1].1.contains("lb_policy_name"), "{log:?}");
}

#[test]
fn hosts_and_their_localities_reach_the_engine() {
    let _alone = alone();
    let mut cluster = Cluster::new("abi.hosts", "{}", Vec::new());
    assert_eq!(cluster.choose(ptr::null_mut()), None, "no hosts");
    let mut draining = host("10.0.0.4:80", "b", UNHEALTHY);
    draining.status = "DRAINING";
    cluster.lb.hosts = vec![
        host("10.0.0.1:80", "a", UNHEALTHY),
        host("10.0.0.2:80", "a", HEALTHY),
        host("10.0.0.3:80", "b", HEALTHY),
        draining,
        host("10.0.0.5:80", "c", DEGRADED),
    ];
    cluster.lb.weights = vec![("a", 30), ("b", 70)];
    cluster.update();
    let clusters = Process::global().clusters();
    let found = clusters.iter().find(|one| &**one.name() == "abi.hosts");
    let explained = found.unwrap().explain(Process::global().now());
    let counts: Vec<_> = explained
        .localities
        .iter()
        .map(|row| {
            let locality = row.locality();
            assert_eq!((locality.region(), locality.sub_zone()), ("r", "s"));
            let zone = locality.zone().to_owned();
            let hosts = [row.hosts, row.healthy, row.degraded, row.excluded];
            (zone, row.load_balancing_weight, hosts)
        })
        .collect();
    let row = |zone: &str, weight, hosts: [u64; 4]| (zone.to_owned(), weight, hosts);
    let expected = [
        row("a", 30, [2, 1, 0, 0]),
        row("b", 70, [2, 1, 0, 1]),
        row("c", 0, [1, 0, 1, 0]),
    ];
    assert_eq!(counts, expected);
    let snapshot = found.unwrap().snapshot();
    assert!(snapshot.hosts().all(|host| host.weight() == 7));
    for _ in 0..20 {
        let chosen = cluster.choose(ptr::null_mut()).unwrap();
        assert!(["10.0.0.2:80", "10.0.0.3:80"].contains(&chosen), "{chosen}");
    }
}

#[test]
fn requests_bring_their_hash_and_what_they_reject() {
    let _alone = alone();
    let hosts = || ["10.0.1.1:80", "10.0.1.2:80", "10.0.1.3:80"].map(|at| host(at, "a", HEALTHY));
    let hashed = Cluster::new("abi.hash", "cluster: {lb_policy: MAGLEV}", hosts().into());
    let with_hash = |hash| {
        let request = Request {
            hash: Some(hash),
            ..Default::default()
        };
        hashed.choose(request.ptr()).unwrap()
    };
    for hash in 0..20 {
        assert_eq!(with_hash(hash), with_hash(hash));
    }
    let reached: BTreeSet<_> = (0..100).map(with_hash).collect();
    assert_eq!(reached.len(), 3);
    let plain = Cluster::new("abi.retries", "{}", hosts().into());
    let retry = Request {
        reselections: 3,
        rejected: vec![0, 2],
        ..Default::default()
    };
    for _ in 0..20 {
        assert_eq!(plain.choose(retry.ptr()), Some("10.0.1.2:80"));
    }
    let mut busy = hosts();
    (busy[0].active, busy[2].active) = (100, 100);
    let least = Cluster::new(
        "abi.least",
        "cluster: {lb_policy: LEAST_REQUEST}",
        busy.into(),
    );
    // One of two draws is the idle host in 5 of 9 picks, 667 of 1200; at random it would be 400.
    // The limit is 8 standard deviations from both.
    let idle = (0..1200)
        .filter(|_| least.choose(ptr::null_mut()) == Some("10.0.1.2:80"))
        .count();
    assert!(idle > 530, "{idle} of 1200");
}

#[test]
fn degraded_hosts_are_asked_for_and_unhealthy_ones_only_in_panic() {
    let _alone = alone();
    let no_panic = "cluster: {common_lb_config: {healthy_panic_threshold: {value: 0}}}";
    let all = |health| vec![host("10.0.2.1:80", "a", health)];
    let mut cluster = Cluster::new("abi.override", no_panic, all(DEGRADED));
    let filter = Filter::new("plimsoll.override");
    let ask = |name| {
        let request = Request {
            cluster: name,
            ..Default::default()
        };
        filter.request(&request);
        request.override_host.into_inner().unwrap()
    };
    let asked = Some(("10.0.2.1:80".to_owned(), false));
    assert_eq!(ask("abi.override"), asked);
    assert_eq!(ask("abi.other"), None);
    assert_eq!(ask(""), None);
    cluster.lb.hosts = all(UNHEALTHY);
    cluster.update();
    assert_eq!(ask("abi.override"), None);
    cluster.lb.hosts = all(HEALTHY);
    cluster.update();
    assert_eq!(ask("abi.override"), None);
}

#[test]
fn load_reports_of_responses_reach_the_host_that_sent_them() {
    let _alone = alone();
    let package = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let policy = |name: &str, fields: &str| {
        format!(
            "{{policies: [{{typed_extension_config: {{name: x, typed_config: {{'@type': \
             {package}.{name}{fields}}}}}}}]}}"
        )
    };
    let child = policy("round_robin.v3.RoundRobin", "");
    let fields = format!(", endpoint_picking_policy: {child}");
    let policy = policy("load_aware_locality.v3.LoadAwareLocality", &fields);
    let hosts = ["10.0.3.1:80", "10.0.3.2:80"].map(|at| host(at, "a", HEALTHY));
    let text = format!("cluster: {{load_balancing_policy: {policy}}}");
    let _cluster = Cluster::new("abi.reports", &text, hosts.into());
    let utilizations = || {
        let clusters = Process::global().clusters();
        let found = clusters.iter().find(|one| &**one.name() == "abi.reports");
        let snapshot = found.unwrap().snapshot();
        let of = |address: &str| {
            let address: SocketAddr = address.parse().unwrap();
            let host = snapshot.hosts().find(|host| host.address() == address);
            host.unwrap().utilization().map(|(value, _)| value)
        };
        ["10.0.3.1:80", "10.0.3.2:80"].map(of)
    };
    let respond = |upstream, kind, report| {
        let filter = Filter::new("plimsoll.orca");
        let request = Request {
            upstream,
            headers: vec![(kind, "endpoint-load-metrics", report)],
            ..Default::default()
        };
        filter.request(&request);
        filter.response(&request);
    };
    let (headers, trailers) = (2, 3);
    respond("", headers, "TEXT application_utilization=0.9");
    assert_eq!(utilizations(), [None, None], "no host");
    respond("10.0.3.2:80", headers, "TEXT application_utilization=0.4");
    assert_eq!(utilizations(), [None, Some(0.4)]);
    respond("10.0.3.1:80", trailers, "TEXT application_utilization=0.6");
    assert_eq!(utilizations(), [Some(0.6), Some(0.4)]);
}

#[test]
fn metrics_are_defined_with_their_labels_and_written_with_the_cluster() {
    let _alone = alone();
    let cluster = Cluster::new("abi.metrics", "{}", vec![host("10.0.4.1:80", "a", HEALTHY)]);
    let metrics = seen(|seen| seen.metrics.clone());
    let labels_of = |name: &str| {
        let mut found = metrics.iter().filter(|(_, one, _)| one == name);
        let (kind, _, labels) = found.next().unwrap_or_else(|| panic!("no {name}"));
        let labels: Vec<_> = labels.iter().map(String::as_str).collect();
        (*kind, labels)
    };
    let one = ("counter", vec!["cluster"]);
    assert_eq!(labels_of("plimsoll.lb_healthy_panic"), one);
    assert_eq!(labels_of("plimsoll.lrs_fractions_stale"), one);
    let both = ("gauge", vec!["cluster", "zone"]);
    assert_eq!(labels_of("plimsoll.zone_share_bp"), both);
    let total = ("gauge", vec!["cluster"]);
    assert_eq!(labels_of("plimsoll.lb_orca_oob.active_sessions"), total);
    Process::global().advance_tick();
    cluster.choose(ptr::null_mut()).unwrap();
    let writes = seen(|seen| std::mem::take(&mut seen.writes));
    let value_of = |name: &str, labels: &[&str]| {
        let name = format!("plimsoll.{name}");
        let found = writes
            .iter()
            .find(|(one, with, _)| *one == name && with == labels);
        found.map(|(.., value)| *value)
    };
    let own = ["abi.metrics"];
    assert!(value_of("snapshots_built", &own) >= Some(1), "{writes:?}");
    assert_eq!(value_of("lb_orca_oob.active_sessions", &own), Some(0));
    let zone = ["abi.metrics", "r/a/s"];
    assert_eq!(value_of("zone_share_bp", &zone), Some(10_000), "{writes:?}");
}

#[test]
fn requests_ask_for_load_reports_where_a_format_is_configured() {
    let _alone = alone();
    let asking = "endpoint_load_metrics_format: JSON";
    let _asking = Cluster::new("abi.asking", asking, Vec::new());
    let _plain = Cluster::new("abi.plain", "{}", Vec::new());
    let set = |name, headers: &[(u32, &'static str, &'static str)]| {
        let filter = Filter::new("plimsoll.orca");
        let request = Request {
            cluster: name,
            headers: headers.to_vec(),
            ..Default::default()
        };
        filter.request(&request);
        request.set.into_inner().unwrap()
    };
    let header = ("endpoint-load-metrics-format", "JSON");
    let expected = (header.0.to_owned(), header.1.to_owned());
    assert_eq!(set("abi.asking", &[]), [expected]);
    assert_eq!(set("abi.plain", &[]), []);
    let (request_headers, own) = (0, "BIN");
    let asks = [(request_headers, header.0, own)];
    assert_eq!(set("abi.asking", &asks), [], "the request asks by itself");
}
