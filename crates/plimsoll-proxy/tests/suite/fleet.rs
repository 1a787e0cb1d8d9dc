//! Zone-aware routing of static clusters, with a local cluster from EDS or DNS.

use std::net::SocketAddr;

use crate::support::client::get;
use crate::support::management::Management;
use crate::support::resources::assignment;
use crate::support::{Proxy, TIMEOUT, wait_until};
use serde_json::Value;

/// A cluster with one host in each of two zones.
fn upstream(name: &str, discovery: &str, host: &str) -> String {
    let endpoint = |zone: &str, port: u16| {
        let socket = format!("{{address: {host}, port_value: {port}}}");
        let endpoint = format!("{{endpoint: {{address: {{socket_address: {socket}}}}}}}");
        format!("{{locality: {{zone: {zone}}}, lb_endpoints: [{endpoint}]}}")
    };
    let endpoints = format!("[{}, {}]", endpoint("a", 9), endpoint("b", 10));
    format!(
        "{{name: {name}, type: {discovery}, common_lb_config: {{zone_aware_lb_config: \
         {{min_cluster_size: 1}}}}, load_assignment: {{cluster_name: {name}, endpoints: \
         {endpoints}}}}}"
    )
}

/// A proxy in zone a with the given clusters; its local cluster is `proxies`.
fn config(server: SocketAddr, local_cluster_name: &str, clusters: &[String]) -> String {
    let socket = format!("{{address: 127.0.0.1, port_value: {}}}", server.port());
    let endpoint = format!("{{endpoint: {{address: {{socket_address: {socket}}}}}}}");
    let server = format!(
        "{{name: server, type: STATIC, load_assignment: {{cluster_name: server, endpoints: \
         [{{lb_endpoints: [{endpoint}]}}]}}}}"
    );
    let clusters = [&[server], clusters].concat().join(", ");
    format!(
        "admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}
node: {{id: p1, cluster: edge, locality: {{zone: a}}}}
{local_cluster_name}
dynamic_resources:
  ads_config:
    api_type: GRPC
    grpc_services: [{{envoy_grpc: {{cluster_name: server}}}}]
static_resources:
  clusters: [{clusters}]
"
    )
}

const NAMED: &str = "cluster_manager: {local_cluster_name: proxies}";

/// Returns why requests to `orders` are not routed by zone; null if they are.
async fn reason(proxy: &Proxy) -> Value {
    let response = get(proxy.admin(), "/explain?cluster=orders").await;
    let explained: Value = serde_json::from_str(&response.body).unwrap();
    explained["reason_code"].clone()
}

async fn wait_for_zone_aware_routing(proxy: &Proxy, what: &str) {
    wait_until(what, || async { reason(proxy).await.is_null() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eds_local_cluster_is_subscribed_to_by_its_service_name() {
    let one: [SocketAddr; 2] = [([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()];
    let zones: [(&str, &[SocketAddr]); 2] = [("a", &one[..1]), ("b", &one[1..])];
    let server = Management::start(&[assignment("gateways", &zones)]);
    let fleet = "{name: proxies, type: EDS, eds_cluster_config: {eds_config: {ads: {}}, \
                 service_name: gateways}}";
    for (discovery, host) in [("STATIC", "127.0.0.1"), ("STRICT_DNS", "localhost")] {
        let clusters = [upstream("orders", discovery, host), fleet.to_owned()];
        let text = config(server.address, NAMED, &clusters);
        let proxy = Proxy::start_with(&text, 1, TIMEOUT).await;
        wait_for_zone_aware_routing(&proxy, discovery).await;
        proxy.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_or_dns_local_cluster_takes_precedence_over_the_servers() {
    // The server has an assignment of that name as well, without hosts in the proxy's zone.
    let elsewhere: SocketAddr = ([127, 0, 0, 1], 1).into();
    let server = Management::start(&[assignment("proxies", &[("z", &[elsewhere])])]);
    for (discovery, host) in [("STATIC", "127.0.0.2"), ("STRICT_DNS", "localhost")] {
        let orders = upstream("orders", "STATIC", "127.0.0.1");
        let clusters = [orders, upstream("proxies", discovery, host)];
        let text = config(server.address, NAMED, &clusters);
        let proxy = Proxy::start_with(&text, 1, TIMEOUT).await;
        wait_for_zone_aware_routing(&proxy, discovery).await;
        proxy.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_cluster_can_be_added_by_an_edit() {
    let one: [SocketAddr; 2] = [([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()];
    let zones: [(&str, &[SocketAddr]); 2] = [("a", &one[..1]), ("b", &one[1..])];
    let server = Management::start(&[assignment("proxies", &zones)]);
    let fleet = "{name: proxies, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}";
    let clusters = [upstream("orders", "STATIC", "127.0.0.1"), fleet.to_owned()];
    let proxy = Proxy::start(&config(server.address, "", &clusters)).await;
    assert_eq!(reason(&proxy).await, "no_local_cluster", "as in Envoy");
    proxy.edit(&config(server.address, NAMED, &clusters)).await;
    wait_for_zone_aware_routing(&proxy, "the file names a fleet").await;
    proxy.shut_down().await;
}
