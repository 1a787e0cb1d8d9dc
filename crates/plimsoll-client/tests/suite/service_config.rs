//! Clusters with a gRPC service config, and backends that report their load.
#![cfg(feature = "yaml")]

use crate::support::actor::{Actor, request};
use crate::support::{assigned, endpoints, round_robin};
use http::Method;
use http_body_util::BodyExt as _;
use plimsoll_client::{Client, ClientBuilder, ErrorKind, GrpcFeatures, UpstreamOptions};
use tower_service::Service as _;

const CONFIG: &str = r#"{"loadBalancingConfig": [{"unknown_policy": {}}, {"weighted_round_robin": {
    "blackoutPeriod": "0s", "metricNamesForComputingUtilization": ["named_metrics.queue"]}}]}"#;

fn builder(actor: &Actor) -> ClientBuilder {
    let assignment = endpoints("orders", &[("a", &[actor.address])]);
    let options = UpstreamOptions::default();
    Client::builder().cluster(assigned(round_robin("orders"), assignment, options))
}

/// Weight of the only host after it reported a queue of one half at 100 requests per second.
async fn weight(client: &Client) -> Option<u32> {
    let mut call = request(Method::GET, "/say");
    let report = "TEXT rps_fractional=100,named_metrics.queue=0.5";
    (call.headers_mut()).insert("say-endpoint-load-metrics", report.parse().unwrap());
    let mut service = client.service("orders").unwrap();
    let response = service.call(call).await.unwrap();
    response.into_body().collect().await.unwrap();
    let statuses = client.cluster_statuses().await.unwrap();
    statuses[0].hosts[0].host.orca_weight()
}

#[tokio::test]
async fn custom_metrics_need_the_feature() {
    let actor = Actor::start().await;
    for (wrr_custom_metrics, expected) in [(true, Some(200)), (false, None)] {
        let features = GrpcFeatures {
            wrr_custom_metrics,
            ..Default::default()
        };
        let built = builder(&actor).service_config_with("orders", CONFIG, features);
        let client = built.unwrap().build().unwrap();
        assert_eq!(weight(&client).await, expected, "{features:?}");
    }
}

/// Tests run without the environment variable.
#[tokio::test]
async fn custom_metrics_are_off_without_the_environment_variable() {
    assert_eq!(std::env::var_os(plimsoll_client::WRR_CUSTOM_METRICS), None);
    let actor = Actor::start().await;
    let client = builder(&actor).service_config("orders", CONFIG).unwrap();
    assert_eq!(weight(&client.build().unwrap()).await, None);
}

#[tokio::test]
async fn invalid_service_configs_are_rejected() {
    let actor = Actor::start().await;
    let refused = |cluster: &str, json: &str| {
        let error = builder(&actor).service_config(cluster, json).unwrap_err();
        (error.kind(), format!("{error:#}"))
    };
    let (kind, text) = refused("carts", CONFIG);
    assert_eq!(kind, ErrorKind::UnknownCluster);
    assert!(text.contains("carts"), "{text}");
    let misspelt = CONFIG.replace("blackoutPeriod", "blackout");
    let (kind, text) = refused("orders", &misspelt);
    assert_eq!(kind, ErrorKind::Config);
    assert!(
        text.contains("orders") && text.contains("blackout"),
        "{text}"
    );
    let (_, text) = refused("orders", r#"{"loadBalancingConfig": [{"pick_first": {}}]}"#);
    assert!(text.contains("pick_first"), "{text}");
}
