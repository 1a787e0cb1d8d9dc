//! Subset load balancing: routes, weighted clusters and fallbacks select hosts by metadata, with
//! static routes and with routes of a management server.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::support::backend::Backend;
use crate::support::client::get;
use crate::support::management::Management;
use crate::support::resources::{Made, routed};
use crate::support::{Proxy, TIMEOUT, config, wait_until};
use serde_json::Value;

const SUBSETS: &str = "lb_subset_config:
  fallback_policy: DEFAULT_SUBSET
  default_subset: {version: stable}
  subset_selectors:
  - {keys: [version]}
  - {keys: [stage], fallback_policy: NO_FALLBACK}
  - {keys: [stage, version], fallback_policy: ANY_ENDPOINT}
";

/// Names of the hosts and their `envoy.lb` metadata.
const HOSTS: [(&str, &str); 4] = [
    ("stable-1", "{version: stable, stage: prod}"),
    ("stable-2", "{version: stable}"),
    ("canary", "{version: canary, stage: prod}"),
    ("other", "{}"),
];

async fn backends() -> [Backend; 4] {
    let [a, b, c, d] = HOSTS.map(|(name, _)| Backend::echo(name));
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    [a, b, c, d]
}

/// Adds the metadata of the hosts to the configuration.
fn with_metadata(mut text: String, backends: &[Backend; 4]) -> String {
    for ((_, envoy_lb), backend) in HOSTS.iter().zip(backends) {
        let port = backend.address.port();
        let metadata = format!("metadata: {{filter_metadata: {{envoy.lb: {envoy_lb}}}}}");
        let before = format!("port_value: {port}}}}}}}}}");
        assert!(text.contains(&before), "{text}");
        text = text.replace(&before, &format!("port_value: {port}}}}}}}, {metadata}}}"));
    }
    text
}

fn envoy_lb(fields: &str) -> String {
    format!("metadata_match: {{filter_metadata: {{envoy.lb: {{{fields}}}}}}}")
}

/// Sends requests for a path and returns the names of the backends that responded; `None` for a
/// 503.
async fn responders(proxy: &Proxy, path: &str, requests: usize) -> BTreeSet<Option<String>> {
    let mut seen = BTreeSet::new();
    for _ in 0..requests {
        let response = get(proxy.address(), path).await;
        let name = response
            .body
            .lines()
            .next()
            .unwrap_or_default()
            .strip_prefix("backend: ")
            .map(str::to_owned);
        assert_eq!(
            response.status,
            if name.is_some() { 200 } else { 503 },
            "{path}"
        );
        seen.insert(name);
    }
    seen
}

fn hosts(names: &[&str]) -> BTreeSet<Option<String>> {
    names.iter().map(|name| Some((*name).to_owned())).collect()
}

async fn stat(proxy: &Proxy, name: &str) -> u64 {
    let page = get(proxy.admin(), "/stats").await.body;
    let name = format!("cluster.orders.{name}: ");
    let value = page.lines().find_map(|line| line.strip_prefix(&name));
    value
        .unwrap_or_else(|| panic!("{name} in {page}"))
        .parse()
        .unwrap()
}

#[tokio::test]
async fn static_routes_select_subsets() {
    let backends = backends().await;
    let addresses: Vec<SocketAddr> = backends.iter().map(|backend| backend.address).collect();
    let route = |prefix: &str, fields: &str| {
        format!("- {{match: {{prefix: {prefix}}}, route: {{cluster: orders, {fields}}}}}\n")
    };
    let routes = [
        route("/canary", &envoy_lb("version: canary")),
        route("/stable", &envoy_lb("version: stable")),
        route("/both", &envoy_lb("version: canary, stage: prod")),
        route("/none", &envoy_lb("stage: dev")),
        route("/anywhere", &envoy_lb("stage: dev, version: canary")),
        route("/unknown", &envoy_lb("color: red")),
        format!(
            "- {{match: {{prefix: /weighted}}, route: {{{}, weighted_clusters: {{clusters: \
             [{{name: orders, weight: 1, {}}}, {{name: orders, weight: 1}}]}}}}}}\n",
            envoy_lb("version: stable, stage: prod"),
            envoy_lb("version: canary"),
        ),
        "- {match: {prefix: /}, route: {cluster: orders}}\n".to_owned(),
    ];
    let text = config(&routes.concat(), &[("orders", &addresses, SUBSETS)]);
    let proxy = Proxy::start(&with_metadata(text, &backends)).await;
    let stable = hosts(&["stable-1", "stable-2"]);
    let all = hosts(&HOSTS.map(|(name, _)| name));
    for (path, expected) in [
        ("/canary", hosts(&["canary"])),
        ("/stable", stable.clone()),
        ("/both", hosts(&["canary"])),
        ("/none", BTreeSet::from([None])),
        ("/anywhere", all),
        ("/unknown", stable.clone()),
        ("/", stable),
    ] {
        assert_eq!(responders(&proxy, path, 8).await, expected, "{path}");
    }
    assert_eq!(stat(&proxy, "lb_subsets_selected").await, 24);
    assert_eq!(stat(&proxy, "lb_subsets_fallback").await, 16);
    assert_eq!(stat(&proxy, "lb_subsets_fallback_panic").await, 0);
    // {stable}, {canary}; {prod}; {stable, prod}, {canary, prod}.
    assert_eq!(stat(&proxy, "lb_subsets_active").await, 5);
    assert_eq!(stat(&proxy, "lb_subsets_created").await, 5);
    // Criteria of an entry are merged over those of the route; other entries use those of the
    // route.
    let weighted = responders(&proxy, "/weighted", 40).await;
    assert_eq!(weighted, hosts(&["canary", "stable-1"]));
    proxy.shut_down().await;
}

#[tokio::test]
async fn an_edit_moves_hosts_between_subsets() {
    let backends = backends().await;
    let addresses: Vec<SocketAddr> = backends.iter().map(|backend| backend.address).collect();
    let route = format!(
        "- {{match: {{prefix: /}}, route: {{cluster: orders, {}}}}}\n",
        envoy_lb("version: canary")
    );
    let text = config(&route, &[("orders", &addresses, SUBSETS)]);
    let text = with_metadata(text, &backends);
    let proxy = Proxy::start(&text).await;
    assert_eq!(responders(&proxy, "/", 4).await, hosts(&["canary"]));
    let moved = text.replace("{envoy.lb: {}}", "{envoy.lb: {version: canary}}");
    assert_ne!(moved, text);
    proxy.edit(&moved).await;
    let both = hosts(&["canary", "other"]);
    wait_until("the other host is in the subset", || async {
        responders(&proxy, "/", 4).await == both
    })
    .await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn the_admin_interface_shows_metadata_and_subsets() {
    let backends = backends().await;
    let addresses: Vec<SocketAddr> = backends.iter().map(|backend| backend.address).collect();
    let route = "- {match: {prefix: /}, route: {cluster: orders}}\n";
    let text = config(route, &[("orders", &addresses, SUBSETS)]);
    let text = with_metadata(text, &backends).replace(
        "{version: canary, stage: prod}",
        "{version: canary, stage: prod, canary: true, camelCase: [1, null]}",
    );
    let proxy = Proxy::start(&text).await;
    let page = get(proxy.admin(), "/clusters").await.body;
    for backend in &backends {
        let canary = backend.address == backends[2].address;
        let line = format!("orders::{}::canary::{canary}", backend.address);
        assert!(page.lines().any(|own| own == line), "{line} in {page}");
    }
    let dump = get(proxy.admin(), "/config_dump?include_eds").await.body;
    let dump: Value = serde_json::from_str(&dump).unwrap();
    let configs = dump["configs"].as_array().unwrap();
    let static_configs = configs
        .iter()
        .find_map(|part| part.get("static_endpoint_configs"))
        .unwrap();
    let locality = &static_configs[0]["endpoint_config"]["endpoints"][0];
    let endpoints = locality["lb_endpoints"].as_array().unwrap();
    let port = |endpoint: &&Value| {
        let address = &endpoint["endpoint"]["address"]["socket_address"];
        address["port_value"] == backends[2].address.port()
    };
    let canary = endpoints.iter().find(port).unwrap();
    let envoy_lb = &canary["metadata"]["filter_metadata"]["envoy.lb"];
    assert_eq!(envoy_lb["camelCase"], serde_json::json!([1, null]));
    let clusters = configs.iter().find_map(|part| part.get("static_clusters"));
    let cluster = &clusters.unwrap()[0]["cluster"];
    assert_eq!(
        cluster["lb_subset_config"]["default_subset"]["version"],
        "stable"
    );
    proxy.shut_down().await;
}

/// Routes `r`: weighted clusters with criteria under `/weighted`, otherwise criteria of the route.
fn routes() -> Made {
    let prod = envoy_lb("version: stable, stage: prod");
    let canary = envoy_lb("version: canary");
    let weighted = format!(
        "{{match: {{prefix: /weighted}}, route: {{{prod}, weighted_clusters: {{clusters: \
         [{{name: orders, weight: 1, {canary}}}, {{name: orders, weight: 1}}]}}}}}}"
    );
    let plain = format!("{{match: {{prefix: /}}, route: {{cluster: orders, {canary}}}}}");
    routed("r", &[&weighted, &plain])
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamic_routes_select_subsets() {
    let backends = backends().await;
    let addresses: Vec<SocketAddr> = backends.iter().map(|backend| backend.address).collect();
    let server = Management::start(&[routes()]);
    let text = config(
        "",
        &[
            ("orders", &addresses, SUBSETS),
            ("server", &[server.address], "http2_protocol_options: {}"),
        ],
    );
    let rds = "rds: {route_config_name: r, config_source: {ads: {}, resource_api_version: V3}}";
    let from = text.find("route_config:").unwrap();
    let to = text.find("  clusters:").unwrap();
    let text = format!("{}{rds}\n{}", &text[..from], &text[to..]);
    let head = "node: {id: p1, cluster: edge, locality: {zone: a}}
dynamic_resources:
  ads_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services: [{envoy_grpc: {cluster_name: server}}]
";
    let text = format!("{head}{}", with_metadata(text, &backends));
    let proxy = Proxy::start_with(&text, 2, TIMEOUT).await;
    let canary = hosts(&["canary"]);
    wait_until("the routes of the server are active", || async {
        let response = get(proxy.address(), "/").await;
        response.status == 200
    })
    .await;
    assert_eq!(responders(&proxy, "/", 6).await, canary);
    let weighted = responders(&proxy, "/weighted", 40).await;
    assert_eq!(weighted, hosts(&["canary", "stable-1"]));
    let dump = get(proxy.admin(), "/config_dump?resource=dynamic_route_configs").await;
    assert!(dump.body.contains("\"metadata_match\""), "{}", dump.body);
    assert_eq!(server.rejections(), [""; 0]);
    proxy.shut_down().await;
}
