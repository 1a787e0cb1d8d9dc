//! Metrics are the same in every metrics library.
#![cfg(feature = "prometheus")]

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
use std::collections::BTreeMap;

use crate::support::actor::{Actor, get};
use crate::support::{assigned, endpoints, refused_address, round_robin};
use plimsoll_client::{Client, RequestOptions, RetryOn, RetryPolicy, UpstreamOptions};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::stats::{Metric, MetricKind, TextFormat};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// A client after requests, errors, retries and failures, and its host.
async fn busy_client() -> (Client, Actor) {
    let actor = Actor::start().await;
    let assignment = endpoints("orders", &[("a", &[actor.address])]);
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(assigned(
            round_robin("orders"),
            assignment,
            UpstreamOptions::default(),
        ))
        .build()
        .unwrap();
    let once = RetryPolicy::new()
        .retry_on(RetryOn::SERVER_ERROR)
        .num_retries(1);
    let options = RequestOptions::new().retry(once);
    let mut service = client.service("orders").unwrap().with_defaults(options);
    for path in ["/", "/404", "/503"] {
        get(&mut service, path).await.unwrap();
    }
    let dead = refused_address();
    let unreachable = endpoints("users", &[("a", &[dead])]);
    let config = round_robin("users");
    client.set_cluster(config).await.unwrap();
    client.update_endpoints(unreachable).await.unwrap();
    let mut users = client.service("users").unwrap();
    assert!(get(&mut users, "/").await.is_err());
    (client, actor)
}

fn openmetrics_text(client: &Client) -> String {
    let mut registry = Registry::default();
    client.register_metrics(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

#[tokio::test]
async fn metrics_are_labeled_by_cluster() {
    let (client, _actor) = busy_client().await;
    let text = openmetrics_text(&client);
    // Outlier detection is off.
    let detected = |metric: &&Metric| metric.group == "outlier_detection.";
    for metric in plimsoll_client::metrics().filter(|metric| !detected(metric)) {
        let name = plimsoll_client::metric_name(metric);
        assert!(
            text.contains(&format!("\n{name}")),
            "{name} is not in:\n{text}"
        );
        let help = format!(" {}\n", metric.help);
        let shared = metric.name == "lb_local_cluster_not_ok";
        assert!(shared || text.contains(&help), "{help} is not in:\n{text}");
    }
    for line in [
        "upstream_rq_total{cluster=\"orders\"} 4",
        "upstream_rq_total{cluster=\"users\"} 0",
        "upstream_rq_retry_total{cluster=\"orders\"} 1",
        "upstream_rq_retry_limit_exceeded_total{cluster=\"orders\"} 1",
        "upstream_rq_completed_total{cluster=\"orders\",response_code_class=\"2xx\"} 1",
        "upstream_rq_completed_total{cluster=\"orders\",response_code_class=\"5xx\"} 2",
        "upstream_rq_time_milliseconds_count{cluster=\"orders\"} 4",
        "upstream_rq_active{cluster=\"orders\"} 0",
        "upstream_cx_active{cluster=\"orders\"} 1",
        "upstream_cx_connect_fail_total{cluster=\"users\"} 1",
        "membership_total{cluster=\"users\"} 1",
        "snapshots_built_total{cluster=\"orders\"} 1",
        "upstream_cx_none_healthy_total{cluster=\"orders\"} 0",
    ] {
        let line = format!("plimsoll_cluster_{line}\n");
        assert!(text.contains(&line), "{line} is not in:\n{text}");
    }
}

#[tokio::test]
async fn a_page_of_ones_own_has_the_metrics_of_the_registry() {
    let (client, _actor) = busy_client().await;
    let families = client.metric_families();
    let page = families.text(TextFormat::OpenMetrics);
    for line in [
        "plimsoll_cluster_upstream_rq_total{cluster=\"orders\"} 4\n",
        "plimsoll_cluster_membership_total{cluster=\"users\"} 1\n",
    ] {
        assert!(page.contains(line), "{line} is not in:\n{page}");
    }
}

#[tokio::test]
async fn statistics_have_envoys_names() {
    let (client, _actor) = busy_client().await;
    let stats = client.stats();
    assert_eq!(stats.get("orders", "upstream_rq_total"), Some(4));
    assert_eq!(stats.get("orders", "membership_total"), Some(1));
    assert_eq!(stats.get("orders", "no_such_name"), None);
    assert_eq!(stats.get("no_such_cluster", "upstream_rq_total"), None);
    let kind = |name: &str| stats.iter().find(|stat| stat.name == name).unwrap().kind;
    assert_eq!(kind("upstream_rq_total"), MetricKind::Counter);
    assert_eq!(kind("membership_total"), MetricKind::Gauge);
    let names: Vec<String> = stats.into_iter().map(|stat| stat.name).collect();
    for name in [
        "health_check.attempt",
        "lb_orca_oob.active_sessions",
        "lb_orca_oob.reports_received",
        "load_aware_locality.recompute_total",
        "load_aware_locality.spill_active_total",
        "membership_total",
        "upstream_rq_total",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
    }
}

#[tokio::test]
async fn the_epoch_changes_only_when_clusters_are_added_or_removed() {
    let (client, actor) = busy_client().await;
    let before = client.cluster_epoch();
    let same = endpoints("orders", &[("a", &[actor.address])]);
    client.update_endpoints(same).await.unwrap();
    client.set_cluster(round_robin("orders")).await.unwrap();
    assert_eq!(client.cluster_epoch(), before);
    client.remove_cluster("users").await.unwrap();
    client.explain("orders").await.unwrap();
    assert_eq!(client.cluster_epoch(), before + 1);
    client.set_cluster(round_robin("users")).await.unwrap();
    assert_eq!(client.cluster_epoch(), before + 2);
}

/// Values by name and labels.
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
type Values = BTreeMap<(String, BTreeMap<String, String>), u64>;

/// Parses the text format into integers, as the other libraries have them.
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
fn values_of(text: &str) -> Values {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let value_of = |line: &str| {
        let (name, rest) = line.split_once('{').unwrap();
        let (labels, value) = rest.split_once("} ").unwrap();
        let label = |label: &str| {
            let (name, value) = label.split_once('=').unwrap();
            (name.to_owned(), value.trim_matches('"').to_owned())
        };
        let whole = value.split('.').next().unwrap().parse().unwrap();
        (
            (name.to_owned(), labels.split(',').map(label).collect()),
            whole,
        )
    };
    lines.map(value_of).collect()
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn the_metrics_facade_has_the_values_of_prometheus() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let (client, _actor) = busy_client().await;
    let expected = values_of(&openmetrics_text(&client));
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        client.record_metrics();
        client.record_metrics();
    });
    let recorded: Values = recorder
        .snapshotter()
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels = key
                .key()
                .labels()
                .map(|label| (label.key().to_owned(), label.value().to_owned()));
            let value = match value {
                DebugValue::Counter(value) => value,
                DebugValue::Gauge(value) => format!("{value:.0}").parse().unwrap(),
                DebugValue::Histogram(_) => unreachable!("none is recorded"),
            };
            ((key.key().name().to_owned(), labels.collect()), value)
        })
        .collect();
    assert_eq!(recorded, expected);
}

#[cfg(feature = "opentelemetry")]
#[tokio::test]
async fn opentelemetry_has_the_values_of_prometheus() {
    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::metrics::data::{
        AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics,
    };
    use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};

    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(exporter.clone())
        .build();
    let (client, actor) = busy_client().await;
    client.register_meter(&provider.meter("plimsoll"));
    for round in 0..2 {
        if round == 1 {
            let mut service = client.service("orders").unwrap();
            get(&mut service, "/").await.unwrap();
        }
        let expected = values_of(&openmetrics_text(&client));
        exporter.reset();
        provider.force_flush().unwrap();
        let exported = exporter.get_finished_metrics().unwrap();
        let mut observed = Values::new();
        let scopes = exported.iter().flat_map(ResourceMetrics::scope_metrics);
        for metric in scopes.flat_map(ScopeMetrics::metrics) {
            let mut add = |attributes: Vec<(String, String)>, value| {
                let key = (metric.name().to_owned(), attributes.into_iter().collect());
                observed.insert(key, value);
            };
            let text =
                |label: &opentelemetry::KeyValue| (label.key.to_string(), label.value.to_string());
            match metric.data() {
                AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                    assert!(sum.is_monotonic());
                    for point in sum.data_points() {
                        add(point.attributes().map(text).collect(), point.value());
                    }
                }
                AggregatedMetrics::U64(MetricData::Gauge(gauge)) => {
                    for point in gauge.data_points() {
                        add(point.attributes().map(text).collect(), point.value());
                    }
                }
                other => unreachable!("{other:?}"),
            }
        }
        assert_eq!(observed, expected, "round {round}");
    }
    drop(actor);
}
