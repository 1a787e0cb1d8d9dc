//! Tests of targets: their names, and what becomes of them when the client is shut down.

use plimsoll_core::model::locality::Locality;
use tokio::runtime::Builder;

use super::*;
use crate::{Node, XdsOptions};

fn client() -> Client {
    let node = Node {
        id: "n1".into(),
        cluster: "fleet".into(),
        locality: Locality::default(),
    };
    let mut options = XdsOptions::new("http://127.0.0.1:1", node);
    options.listener_template = "listeners/%s".to_owned();
    let spare = crate::Cluster::new("spare").endpoints(["127.0.0.1:1"]);
    let builder = Client::builder().xds(options).cluster(spare);
    builder.fallback_cluster("spare").build().unwrap()
}

#[tokio::test]
async fn the_debug_text_of_a_client_with_a_fallback_cluster_has_an_end() {
    let client = client();
    client.explain("spare").await.unwrap();
    assert!(format!("{client:?}").contains("spare"));
}

#[test]
fn names_of_targets_follow_their_scheme() {
    for (target, name) in [
        ("xds:///orders", "orders"),
        ("xds:orders", "orders"),
        ("xds:///a/b", "a/b"),
    ] {
        assert_eq!(&*target_name(target).unwrap(), name);
    }
    for (target, reason) in [
        ("orders", "does not start with xds:"),
        ("dns:///orders", "does not start with xds:"),
        ("xds:///", "the name is empty"),
        ("xds:", "the name is empty"),
        (
            "xds://authority/orders",
            "authorities are not supported; write xds:///name",
        ),
        (
            "xds://orders",
            "authorities are not supported; write xds:///name",
        ),
    ] {
        let error = target_name(target).unwrap_err();
        assert_eq!(error.to_string(), format!("target {target:?}: {reason}"));
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}

#[tokio::test]
async fn a_target_has_its_name_and_that_of_its_listener() {
    let client = client();
    let orders = client.target_lazy("xds:///orders").unwrap();
    assert_eq!(orders.authority(), "orders");
    assert_eq!(orders.listener(), "listeners/orders");
    assert_eq!(orders.clone().authority(), "orders");
    let limit = Duration::from_millis(50);
    let error = client.routes_timed_out(orders.listener(), limit);
    assert!(error.is_timeout());
    let start = "listener \"listeners/orders\": no routes within 50ms; management server";
    assert!(error.to_string().starts_with(start), "{error}");
    assert!(client.routes_of(orders.listener()).is_none());
}

/// The tasks of a client end with the runtime that it was built on.
#[test]
fn a_client_that_is_shut_down_uses_no_fallback() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let client = first.block_on(async { client() });
    drop(first);
    let outcome = runtime().block_on(client.target("xds:///orders"));
    let error = outcome
        .map(|target| target.authority().to_owned())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}
