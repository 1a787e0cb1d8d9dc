//! What operators must hear of is a warning in the log: reports that expire, endpoints that do.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/actor.rs"]
mod actor;
mod support;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use actor::{Actor, eventually, request};
use http::Method;
use http_body_util::BodyExt as _;
use plimsoll_client::{Client, UpstreamOptions};
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::yaml::parse_cluster;
use support::{endpoints, round_robin};
use tower_service::Service as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

/// Warnings of this thread, with their fields.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Warnings {
    /// The warnings that have all these words.
    fn with(&self, words: &[&str]) -> usize {
        let lines = self.0.lock().unwrap();
        let has = |line: &&String| words.iter().all(|word| line.contains(word));
        lines.iter().filter(has).count()
    }
}

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
async fn reports_that_expire_before_the_next_are_said_once() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let actor = Actor::start().await;
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(
            parse_cluster(LOAD_AWARE).unwrap(),
            endpoints("orders", &[("a", &[actor.address])]),
            UpstreamOptions::default(),
        )
        .build();
    let mut service = client.service("orders").unwrap();
    let mut report = request(Method::GET, "/say");
    let value = "TEXT cpu_utilization=0.5".parse().unwrap();
    (report.headers_mut()).insert("say-endpoint-load-metrics", value);
    let response = service.call(report).await.unwrap();
    response.into_body().collect().await.unwrap();
    // No further report: it expires.
    let stale = || {
        let stats = client.stats();
        let name = "load_aware_locality.stale_locality_total";
        stats.iter().find(|stat| stat.1 == name).unwrap().2
    };
    eventually("it is noticed", async || stale() > 3).await;
    let words = ["orders", "weight_expiration_period_s=0.2", "localities=1"];
    assert_eq!(warnings.with(&words), 1);
}

#[tokio::test]
async fn panic_is_a_warning() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let actors = [Actor::start().await, Actor::start().await];
    let addresses = [actors[0].address, actors[1].address];
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(
            round_robin("orders"),
            endpoints("orders", &[("a", &addresses)]),
            UpstreamOptions::default(),
        )
        .build();
    for address in addresses {
        let failed = HealthSignal::ActiveCheckFailed;
        (client.update_health("orders", address, failed).await).unwrap();
    }
    eventually("it is said", async || {
        warnings.with(&["orders", "priority=0", "is in panic"]) == 1
    })
    .await;
}
