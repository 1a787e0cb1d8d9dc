//! Metrics are registered once and show what happened.

#[path = "support/actor.rs"]
mod actor;
mod support;

use actor::{Actor, get};
use plimsoll_client::{Client, RequestOptions, RetryOn, UpstreamOptions};
use plimsoll_core::model::locality::Locality;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use support::{endpoints, nobody, round_robin};

#[tokio::test]
async fn what_happened_is_shown_by_cluster() {
    let actor = Actor::start().await;
    let assignment = endpoints("orders", &[("a", &[actor.address])]);
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(
            round_robin("orders"),
            assignment,
            UpstreamOptions::default(),
        )
        .build();
    let mut registry = Registry::default();
    client.register_metrics(&mut registry);
    let mut options = RequestOptions::default();
    options.retry.retry_on = RetryOn::SERVER_ERROR;
    options.retry.num_retries = 1;
    let mut service = client.service("orders").unwrap().with_defaults(options);
    for path in ["/", "/404", "/503"] {
        get(&mut service, path).await.unwrap();
    }
    let dead = nobody().await;
    let unreachable = endpoints("users", &[("a", &[dead])]);
    let config = round_robin("users");
    client
        .set_cluster(config, UpstreamOptions::default())
        .await
        .unwrap();
    client.update_endpoints(unreachable).await.unwrap();
    let mut users = client.service("users").unwrap();
    assert!(get(&mut users, "/").await.is_err());
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for name in plimsoll_client::METRIC_NAMES {
        let start = format!("\nplimsoll_cluster_{name}");
        assert!(text.contains(&start), "{name} is not in:\n{text}");
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
        "upstream_cx_connect_fail_total{cluster=\"users\"} 3",
        "membership_total{cluster=\"users\"} 1",
        "snapshots_built_total{cluster=\"orders\"} 1",
        "upstream_cx_none_healthy_total{cluster=\"orders\"} 0",
    ] {
        let line = format!("plimsoll_cluster_{line}\n");
        assert!(text.contains(&line), "{line} is not in:\n{text}");
    }
}
