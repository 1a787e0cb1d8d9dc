//! Conditions that operators must know of are logged as warnings: expired reports, panic mode.

use crate::support::actor::{Actor, request};
use crate::support::{assigned, client, endpoints};
use http::Method;
use http_body_util::BodyExt as _;
use plimsoll_client::{Client, UpstreamOptions};
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::locality::Locality;
use plimsoll_testing::CapturedLogs;
use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::yaml::parse_cluster;
use tower_service::Service as _;
use tracing::Level;

const LOAD_AWARE: &str = "
name: orders
load_balancing_policy:
  policies:
  - typed_extension_config:
      name: load_aware
      typed_config:
        '@type': \
type.googleapis.com/envoy.extensions.load_balancing_policies.\
load_aware_locality.v3.LoadAwareLocality
        weight_update_period: 0.1s
        weight_expiration_period: 0.2s
        endpoint_picking_policy:
          policies:
          - typed_extension_config:
              name: round_robin
              typed_config:
                '@type': \
type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
";

#[tokio::test]
async fn expired_load_reports_are_logged_once() {
    let lines = CapturedLogs::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let actor = Actor::start().await;
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(assigned(
            parse_cluster(LOAD_AWARE).unwrap(),
            endpoints("orders", &[("a", &[actor.address])]),
            UpstreamOptions::default(),
        ))
        .build()
        .unwrap();
    let mut service = client.service("orders").unwrap();
    let mut report = request(Method::GET, "/say");
    let value = "TEXT cpu_utilization=0.5".parse().unwrap();
    (report.headers_mut()).insert("say-endpoint-load-metrics", value);
    let response = service.call(report).await.unwrap();
    response.into_body().collect().await.unwrap();
    // Without a further report, the last one expires.
    let stale = || {
        let stats = client.stats();
        let name = "load_aware_locality.stale_locality_total";
        stats.iter().find(|stat| stat.name == name).unwrap().value
    };
    wait_until("it is noticed", async || stale() > 3).await;
    let words = ["orders", "weight_expiration_period_s=0.2", "localities=1"];
    assert_eq!(lines.count(Level::WARN, &words), 1);
}

#[tokio::test]
async fn panic_is_a_warning() {
    let lines = CapturedLogs::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let actors = [Actor::start().await, Actor::start().await];
    let addresses = [actors[0].address, actors[1].address];
    let client = client(&addresses, UpstreamOptions::default());
    for address in addresses {
        let failed = HealthSignal::ActiveCheckFailed;
        (client.update_health("orders", address, failed).await).unwrap();
    }
    wait_until("it is said", async || {
        lines.count(Level::WARN, &["orders", "priority=0", "entered panic mode"]) == 1
    })
    .await;
}
