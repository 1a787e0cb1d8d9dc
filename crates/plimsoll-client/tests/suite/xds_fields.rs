//! Unsupported fields of resources are rejected or reported, and stale endpoints are removed.
#![cfg(feature = "xds")]

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::management::Management;
use crate::support::resources::{Made, whole};
use crate::support::{Backend, get, within};
use bytes::Bytes;
use plimsoll_client::{Client, Variant, XdsOptions};
use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_testing::tasks::{wait_for, wait_until};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};
use plimsoll_xds::wire::{self, AssignmentOut, LocalityOut};

fn client(server: &Management, variant: Variant) -> Client {
    let node = Node {
        id: "n1".into(),
        cluster: "fleet".into(),
        locality: Locality::zone_only("a"),
    };
    let mut options = XdsOptions::new(format!("http://{}", server.address), node);
    options = options.variant(variant);
    Client::builder().xds(options).build().unwrap()
}

/// Appends bytes to the resource of one type.
fn with(resources: &[Made], type_url: &str, more: &[u8]) -> Vec<Made> {
    let mut changed = resources.to_vec();
    for (_, _, body) in changed.iter_mut().filter(|(kind, ..)| *kind == type_url) {
        *body = Bytes::from([&body[..], more].concat());
    }
    changed
}

/// Encoded field `alt_stat_name: x`.
const ALT_STAT_NAME: &[u8] = &[0xe2, 0x01, 1, b'x'];
/// Encoded field `original_dst_lb_config: {}`.
const ORIGINAL_DST: &[u8] = &[0x92, 0x02, 0];

#[tokio::test]
async fn fields_without_effect_are_reported_once_per_version() {
    let backend = Backend::start().await;
    let plain = whole("orders", &[("a", &[backend.address])]);
    for variant in [Variant::Sotw, Variant::Delta] {
        let server = Management::start(&with(&plain, CLUSTER, ALT_STAT_NAME));
        let client = client(&server, variant);
        let mut service = within(client.target("xds:///orders")).await.unwrap();
        get(&mut service, "/").await.unwrap();
        let status = client.xds_status().unwrap();
        let key = (CLUSTER.into(), "orders".into());
        assert_eq!(status.ignored_fields[&key].paths, ["alt_stat_name"]);
        let others = status.dynamic_unknown_fields - 1;
        assert_eq!(status.ignored_fields.len() as u64, 1 + others);
        assert_eq!(server.rejections(), Vec::<String>::new());
        // The report disappears with the field.
        server.set(&plain);
        wait_until("nothing is ignored", async || {
            let status = client.xds_status().unwrap();
            !status.ignored_fields.contains_key(&key)
        })
        .await;
    }
}

#[tokio::test]
async fn unsupported_fields_are_rejected_with_their_path() {
    let backend = Backend::start().await;
    let plain = whole("orders", &[("a", &[backend.address])]);
    let server = Management::start(&plain);
    let client = client(&server, Variant::Sotw);
    let mut service = within(client.target("xds:///orders")).await.unwrap();
    get(&mut service, "/").await.unwrap();
    server.set(&with(&plain, CLUSTER, ORIGINAL_DST));
    let why = wait_for("the rejection", async || server.rejections().pop()).await;
    assert!(why.contains("original_dst_lb_config"), "{why}");
    assert!(why.contains("which host"), "{why}");
    // The previous version is still in use.
    get(&mut service, "/").await.unwrap();
}

/// An assignment with `endpoint_stale_after`.
fn stale_after(time: Option<Duration>, address: SocketAddr) -> Made {
    let body = wire::encode_assignment(&AssignmentOut {
        cluster_name: "orders".into(),
        localities: vec![LocalityOut {
            locality: Locality::zone_only("a"),
            load_balancing_weight: Some(1),
            endpoints: vec![LbEndpoint::new(address)],
            ..LocalityOut::default()
        }],
        endpoint_stale_after: time,
        ..AssignmentOut::default()
    });
    (CLUSTER_LOAD_ASSIGNMENT, "orders".to_owned(), body)
}

#[tokio::test]
async fn stale_endpoints_are_removed_until_the_next_assignment() {
    let backend = Backend::start().await;
    let mut resources = whole("orders", &[]);
    resources[3] = stale_after(Some(Duration::from_millis(300)), backend.address);
    let server = Management::start(&resources);
    let client = client(&server, Variant::Sotw);
    let mut service = within(client.target("xds:///orders")).await.unwrap();
    let stat = |name: &str| {
        let stats = client.stats();
        let found = stats.iter().find(|stat| stat.name == name);
        found.map(|stat| stat.value)
    };
    wait_until("it is stale", async || stat("assignment_stale") == Some(1)).await;
    wait_until("it is empty", async || stat("membership_total") == Some(0)).await;
    assert!(get(&mut service, "/").await.is_err());
    // An assignment without `endpoint_stale_after` never expires.
    resources[3] = stale_after(None, backend.address);
    server.set(&resources);
    wait_until("it serves again", async || {
        get(&mut service, "/").await.is_ok()
    })
    .await;
    assert_eq!(stat("assignment_timeout_received"), Some(1));
}
