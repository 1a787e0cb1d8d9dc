//! Load reports of `plimsoll proxy`, decoded by an independent implementation: drops by category,
//! metrics of backends, per-endpoint statistics, the EDS service name.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_testing::http::Connection;
use serde_json::{Value, json};

use crate::support::management_server::ManagementServer;
use crate::support::proxy::{
    Proxy, file, listener, localities, route_all_to, with_management_server,
};
use crate::support::{scratch, wait_for, wait_until};

const REQUESTS: usize = 400;
/// Time after which a request is in no report: that of 25 reports.
const UNREPORTED: Duration = Duration::from_secs(5);
const EDS_NAME: &str = "outbound|80||orders";

/// Sums over all reports of `orders`.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    issued: u64,
    dropped: u64,
    by_category: BTreeMap<String, u64>,
    by_endpoint: BTreeMap<u64, u64>,
    /// Count and total by name.
    metrics: BTreeMap<String, (u64, f64)>,
    service_names: Vec<String>,
}

#[test]
fn reports_have_drops_metrics_and_endpoints() {
    let directory = scratch("load-reports");
    let hosts = [backend(), backend()];
    let mut server = ManagementServer::start(&directory, &resources(&hosts));
    let front = listener("front", &route_all_to("orders"));
    let config = with_management_server(file("zone-a", &[front], &[]), server.address(), "GRPC");
    let proxy = Proxy::start(&directory, "proxy", &config);
    let to = proxy.listener("front");
    let mut connection = Connection::open(to).unwrap();
    let mut send = || {
        let head = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
        connection.request(head).map_or(0, |(status, _)| status)
    };
    // Requests before the cluster is known get a local reply and are not reported.
    wait_until("the proxy knows the cluster", || send() == 200);
    let mut sent = Instant::now();
    let known = wait_for("a first report", || {
        let sums = sums(&server.reports());
        // The proxy may know the cluster before it is asked for reports.
        if sums.issued == 0 && sent.elapsed() > UNREPORTED {
            send();
            sent = Instant::now();
        }
        (sums.issued > 0).then_some(sums)
    });
    let mut served = 0;
    let mut dropped = 0;
    for _ in 0..REQUESTS {
        match send() {
            200 => served += 1,
            503 => dropped += 1,
            other => panic!("unexpected status {other}"),
        }
    }
    assert!(served > 0 && dropped > 0, "{served} and {dropped}");
    let goal = known.issued + known.dropped + served + dropped;
    let sums = wait_for("everything is reported", || {
        let sums = sums(&server.reports());
        let finished = sums.metrics.get("cpu_utilization").map(|metric| metric.0);
        let all = sums.issued + sums.dropped >= goal && finished == Some(sums.issued);
        all.then_some(sums)
    });
    assert_eq!(sums.issued, known.issued + served);
    assert_eq!(sums.by_category, [("shed".into(), sums.dropped)].into());
    assert_eq!(sums.by_endpoint.values().sum::<u64>(), sums.issued);
    assert_eq!(sums.by_endpoint.len(), 2, "{sums:?}");
    let metric = |name: &str| sums.metrics.get(name).copied();
    let finished = sums.issued;
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let total = |each: f64| each * finished as f64;
    assert_eq!(metric("cpu_utilization"), Some((finished, total(0.5))));
    assert_eq!(metric("named_metrics.queue"), Some((finished, total(3.0))));
    assert_eq!(metric("named_metrics.other"), None, "not requested");
    assert!(sums.service_names.iter().all(|name| name == EDS_NAME));
    assert_stats_and_ignored_fields(&proxy);
}

/// Asserts that statistics have Envoy's names and that fields without effect are listed.
fn assert_stats_and_ignored_fields(proxy: &Proxy) {
    for name in [
        "load_aware_locality.recompute_total",
        "lb_orca_oob.active_sessions",
        "outlier_detection.ejections_active",
        "health_check.attempt",
        "assignment_stale",
    ] {
        let name = format!("cluster.orders.{name}");
        assert_eq!(proxy.known_stat(&name), Some(0), "{name}");
    }
    assert_eq!(proxy.stat("server.dynamic_unknown_fields"), 1);
    let ignored = proxy.config_dump("ignored_fields");
    let paths = &ignored["configs"][0]["paths"];
    assert_eq!(paths, &json!(["alt_stat_name"]), "{ignored}");
}

fn resources(hosts: &[SocketAddr]) -> Value {
    json!([{
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "orders",
        "type": "EDS",
        "connect_timeout": "5s",
        "alt_stat_name": "without effect here",
        "eds_cluster_config": {
            "service_name": EDS_NAME,
            "eds_config": { "ads": {}, "resource_api_version": "V3" },
        },
        "lrs_server": { "self": {} },
        "lrs_report_endpoint_metrics": ["cpu_utilization", "named_metrics.queue"],
    }, {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": EDS_NAME,
        "endpoints": localities(&[("zone-a", hosts)]),
        "policy": { "drop_overloads": [{
            "category": "shed",
            "drop_percentage": { "numerator": 20, "denominator": "HUNDRED" },
        }] },
    }])
}

/// Starts a server that reports its load in every response; it runs until the test process exits.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let report = "TEXT cpu_utilization=0.5,named_metrics.queue=3,named_metrics.other=1";
                let mut writer = &stream;
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    if line.is_empty() {
                        let head = "HTTP/1.1 200 OK\r\ncontent-length: 0";
                        let response = format!("{head}\r\nendpoint-load-metrics: {report}\r\n\r\n");
                        if writer.write_all(response.as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

/// Reads a number of protobuf's JSON, which has 64-bit numbers as strings and omits zeros.
fn number(value: &Value) -> u64 {
    let text = value.as_str().map(|text| text.parse().unwrap());
    text.or(value.as_u64()).unwrap_or(0)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn sums(reports: &[Value]) -> Sums {
    let mut sums = Sums::default();
    for stats in reports
        .iter()
        .filter(|stats| stats["cluster_name"] == "orders")
    {
        sums.dropped += number(&stats["total_dropped_requests"]);
        for drops in list(&stats["dropped_requests"]) {
            let category = drops["category"].as_str().unwrap().to_owned();
            *sums.by_category.entry(category).or_default() += number(&drops["dropped_count"]);
        }
        let name = stats["cluster_service_name"].as_str().unwrap_or_default();
        sums.service_names.push(name.to_owned());
        for locality in list(&stats["upstream_locality_stats"]) {
            sums.issued += number(&locality["total_issued_requests"]);
            for endpoint in list(&locality["upstream_endpoint_stats"]) {
                let port = number(&endpoint["address"]["socket_address"]["port_value"]);
                let issued = number(&endpoint["total_issued_requests"]);
                *sums.by_endpoint.entry(port).or_default() += issued;
            }
            for metric in list(&locality["load_metric_stats"]) {
                let name = metric["metric_name"].as_str().unwrap().to_owned();
                let entry = sums.metrics.entry(name).or_default();
                entry.0 += number(&metric["num_requests_finished_with_metric"]);
                entry.1 += metric["total_metric_value"].as_f64().unwrap_or(0.0);
            }
        }
    }
    sums
}
