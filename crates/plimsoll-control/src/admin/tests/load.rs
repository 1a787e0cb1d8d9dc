//! Tests of load lines in the admin API and in metrics: equal numbers in shadow mode, series from
//! the first scrape, and a bounded number of series.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plimsoll_core::stats::{Metric, MetricKind};

use super::*;

/// Capacity 1:1 and a service in shadow mode.
const SHADOW: &str = "
load_reporting: {interval: 0.1s}
demand: {smoothing_time_constant: 0.001s}
cost: {usd_per_gigabyte: 0.01, bytes_per_request: 20000}
services:
- cluster: {name: orders}
  mode: SHADOW
  endpoints:
  - locality: {region: r1, zone: a}
    lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80']
  - locality: {region: r1, zone: b}
    lb_endpoints: ['10.0.1.1:80', '10.0.1.2:80', '10.0.1.3:80']
";

/// A report in which every request stays in its zone.
fn local(cluster: &str, zone: &str, requests: u64) -> ClusterStats {
    let mut stats = stats(cluster, requests);
    stats.upstream_locality_stats[0].locality = Locality::new("r1", zone, "");
    stats
}

/// Reports until the load line of `orders` is complete and `done`.
async fn report_until(
    control: &Control,
    reports: &[(&'static str, u64)],
    done: impl Fn(&Value) -> bool,
) -> (Value, Vec<Box<dyn Open>>) {
    let mut open: Vec<Box<dyn Open>> = Vec::new();
    let mut reporters = Vec::new();
    for (zone, requests) in reports {
        let info = node(&format!("gateway-{zone}"), zone);
        open.push(Box::new(discover(control, info.clone()).await));
        reporters.push((report_to(control, &info).await, info, *zone, *requests));
    }
    let report = async || {
        for (session, info, zone, requests) in &mut reporters {
            let stats = vec![local("orders", zone, *requests)];
            session.reporter.report(&info.node, stats).await;
        }
        control.get("/api/v1/load?cluster=orders").await
    };
    let is_done = |page: &Value| done(&page["load_lines"][0]);
    let page = wait_to_see("the load line is complete", report, is_done).await;
    open.extend(reporters.into_iter().map(|each| Box::new(each) as _));
    (page, open)
}

/// Returns the value of a series on the metrics page.
fn sample(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series));
    let value = line.unwrap_or_else(|| panic!("{series} is missing"));
    value.trim().parse().unwrap()
}

#[tokio::test]
async fn shadow_has_the_same_numbers_everywhere() {
    let control = Control::with(SHADOW);
    let complete =
        |line: &Value| line["warming_up"] == false && line["enforce"]["highest_load"] == 1.0;
    let (page, _open) = report_until(&control, &[("a", 30), ("b", 10)], complete).await;
    let line = &page["load_lines"][0];
    assert_eq!(line["basis"], "host_counts");
    assert_eq!(
        (&line["mode"], &line["ramp_percent"]),
        (&json!("SHADOW"), &json!(100))
    );
    let [a, b] = [&line["zones"][0], &line["zones"][1]];
    for kind in ["seen", "now"] {
        assert_eq!(
            (&a[kind]["load"], &b[kind]["load"]),
            (&json!(1.5), &json!(0.5)),
            "{line}"
        );
    }
    assert_eq!(
        (&a["enforce"]["load"], &b["enforce"]["load"]),
        (&json!(1.0), &json!(1.0))
    );
    assert_eq!(a["enforce"]["kept_local"], 0.667);
    // About 100 requests/s of 20 kB at a cent per gigabyte; Envoy floors to basis points.
    let number = |value: &Value| value.as_f64().unwrap();
    let cross = number(&line["enforce"]["cross_zone_requests_per_second"]);
    assert!((cross - 100.0).abs() < 0.1, "{line}");
    let usd = number(&line["enforce"]["usd_per_month"]);
    assert!((usd - 0.5256 * cross).abs() < 0.001, "{line}");
    assert_eq!(line["now"]["usd_per_month"], 0.0);
    let cost = json!({
        "usd_per_gigabyte": 0.01,
        "usd_per_gigabyte_between_regions": 0.01,
        "between": [],
        "bytes_per_request": 20000.0,
        "assumed": false
    });
    assert_eq!((&page["cost"], &line["cost"]), (&cost, &cost));
    assert_eq!(line["planned"], Value::Null, "one price, and LEVEL");

    let fleets = control.get("/api/v1/fleets").await;
    let fleet = &fleets["fleets"][0];
    assert_eq!(
        (&fleet["basis"], &fleet["delivered"]),
        (&json!("host_counts"), &json!([]))
    );
    assert_eq!(fleet["delivered_age_ms"], Value::Null);
    let explained = control.get("/api/v1/explain?cluster=orders&zone=a").await;
    assert_eq!(
        explained["localities"][0]["load_factor"], 1.5,
        "{explained}"
    );
    assert_eq!(explained["load_line"]["zones"], line["zones"]);
    let what_if = control
        .what_if(&json!({ "cluster": "orders", "hosts": { "a": 9 } }))
        .await;
    let load = |shares: &Value| shares["localities"][0]["load_factor"].clone();
    assert_eq!(
        (load(&what_if["before"]), load(&what_if["after"])),
        (json!(1.5), json!(1.167))
    );
    assert_eq!(load(&what_if["enforce"]["before"]), 1.0);

    let (_, metrics) = control.request(Method::GET, "/metrics", "").await;
    for zone in [a, b] {
        let name = format!("r1/{}", zone["locality"]["zone"].as_str().unwrap());
        let own = format!("fleet=\"gateway\",cluster=\"orders\",locality=\"{name}\"");
        for kind in ["seen", "now", "enforce"] {
            let fields = [
                ("load_ratio", "load"),
                ("kept_local_ratio", "kept_local"),
                ("served_requests_per_second", "served_requests_per_second"),
            ];
            for (metric, field) in fields {
                let series = format!("plimsoll_control_zone_{metric}{{{own},routing=\"{kind}\"}}");
                let rounded = (sample(&metrics, &series) * 1000.0).round() / 1000.0;
                assert_eq!(json!(rounded), zone[kind][field], "{series}");
            }
        }
        let series = format!("plimsoll_control_demand_smoothed_requests_per_second{{{own}}}");
        assert_eq!(
            json!(sample(&metrics, &series)),
            zone["demand_requests_per_second"]
        );
    }
    let edge = "plimsoll_control_edge_requests_per_second{fleet=\"gateway\",from=\"r1/a\",\
                to=\"r1/b\",routing=\"enforce\"}";
    assert!((sample(&metrics, edge) - cross).abs() < 0.001);
    assert!(
        !metrics.contains("fleet_fraction_basis_points{"),
        "nothing is delivered"
    );
}

#[tokio::test]
async fn counters_exist_before_anything_happens() {
    let control = Control::with(SHADOW);
    let (_, page) = control.request(Method::GET, "/metrics", "").await;
    // This control plane has no store, no sources beside the files, and no state directory.
    let families = ["store_", "kubernetes_", "source_", "audit_lost_"];
    let absent = families.map(|of| format!("plimsoll_control_{of}"));
    let expected = |metric: &&Metric| {
        let is_absent = absent.iter().any(|start| metric.name.starts_with(&**start));
        metric.kind == MetricKind::Counter && !is_absent
    };
    for metric in METRICS.iter().filter(expected) {
        let mut lines = page.lines().filter(|line| !line.starts_with('#'));
        assert!(
            lines.any(|line| line.starts_with(metric.name)),
            "{}",
            metric.name
        );
    }
    let _stream = discover(&control, node("1", "a")).await;
    let (_, page) = control.request(Method::GET, "/metrics", "").await;
    assert_eq!(
        sample(&page, "plimsoll_control_nodes_nacked{fleet=\"gateway\"}"),
        0.0
    );
    for (zone, routing) in [("a", "seen"), ("b", "now"), ("b", "enforce")] {
        let series = format!(
            "plimsoll_control_zone_load_ratio{{fleet=\"gateway\",cluster=\"orders\",\
             locality=\"r1/{zone}\",routing=\"{routing}\"}}"
        );
        assert_eq!(sample(&page, &series), 0.0, "before the first report");
    }
}

/// A control plane with 100 zones of three hosts for each of 50 services.
fn large() -> Control {
    let mut text = "load_reporting: {interval: 0.1s}\nservices:\n".to_owned();
    for service in 0..50 {
        let mode = if service % 2 == 0 {
            "SHADOW"
        } else {
            "ENFORCE"
        };
        let _ = writeln!(
            text,
            "- cluster: {{name: s{service}}}\n  mode: {mode}\n  endpoints:"
        );
        for zone in 0..100 {
            let _ = writeln!(
                text,
                "  - locality: {{region: r1, zone: z{zone}}}\n    \
                 lb_endpoints: ['10.{service}.{zone}.1:80', '10.{service}.{zone}.2:80', \
                 '10.{service}.{zone}.3:80']"
            );
        }
    }
    Control::with(&text)
}

/// Connects a proxy per zone and lets it report all services twice; demand is skewed.
async fn with_reports(control: &Control) -> Vec<Box<dyn Open>> {
    let mut open: Vec<Box<dyn Open>> = Vec::new();
    for zone in 0..100_u64 {
        let info = node(&format!("n{zone}"), &format!("z{zone}"));
        open.push(Box::new(discover(control, info.clone()).await));
        let mut session = report_to(control, &info).await;
        let stats: Vec<_> = (0..50)
            .map(|service| {
                let own = format!("z{zone}");
                let mut stats = local(&format!("s{service}"), &own, 100 + zone * 10 + service);
                let spilled = (0..25).map(|to| UpstreamLocalityStats {
                    locality: Locality::new("r1", &format!("z{to}"), ""),
                    total_issued_requests: 2,
                    ..Default::default()
                });
                stats.upstream_locality_stats.extend(spilled);
                stats
            })
            .collect();
        session.reporter.report(&info.node, stats).await;
        open.push(Box::new(session));
    }
    open
}

#[tokio::test]
async fn a_hundred_zones_of_fifty_services_have_less_than_20000_series() {
    let control = large();
    let _open = with_reports(&control).await;
    // Shares are computed for a limited time per scrape: the number of series must not depend on
    // how many of them are there already.
    for _ in 0..3 {
        let (_, page) = control.request(Method::GET, "/metrics", "").await;
        let count = |start: &str| page.lines().filter(|line| line.starts_with(start)).count();
        let series = page.lines().filter(|line| !line.starts_with('#')).count();
        assert!(series < 20_000, "{series} series");
        assert!(series > 15_000, "the budget is used: {series}");
        assert_eq!(
            sample(&page, "plimsoll_control_load_lines_without_zones"),
            0.0
        );
        let reduced = "plimsoll_control_load_lines_with_essential_series";
        let complete = count("plimsoll_control_zone_capacity_ratio{") / 100;
        assert!((1..50).contains(&complete), "{complete} services");
        assert_eq!(sample(&page, reduced), (50 - complete) as f64);
        assert_eq!(count("plimsoll_control_demand_smoothed_requests_"), 5000);
        let of_all = ["load_ratio", "kept_local_ratio"].map(|name| {
            let seen = |line: &&str| line.contains("routing=\"seen\"");
            let start = format!("plimsoll_control_zone_{name}{{");
            let lines = page.lines().filter(|line| line.starts_with(&start));
            lines.filter(seen).count()
        });
        assert_eq!(of_all, [5000; 2], "every zone of every service");
    }
}

/// Prints how long a scrape takes; run by hand with `--release -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "measures time"]
async fn time_of_a_scrape() {
    let control = large();
    let open = with_reports(&control).await;
    println!("{} streams", open.len());
    // Answered once the writer has handled the reports.
    control.request(Method::GET, "/healthz", "").await;
    for scrape in 0..40 {
        let started = std::time::Instant::now();
        let (_, page) = control.request(Method::GET, "/metrics", "").await;
        let series = page.lines().filter(|line| !line.starts_with('#')).count();
        println!(
            "scrape {scrape}: {series} series, {} bytes, {:?}",
            page.len(),
            started.elapsed()
        );
    }
    let (_, page) = control.request(Method::GET, "/metrics", "").await;
    let mut families: BTreeMap<&str, usize> = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        *families.entry(name).or_default() += 1;
    }
    families.retain(|_, count| *count > 20);
    println!("{families:#?}");
}
