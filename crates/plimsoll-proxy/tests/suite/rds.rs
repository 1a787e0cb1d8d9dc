//! Routes and endpoints of a management server: updates, NACKs, loss of the connection.

use std::net::SocketAddr;

use crate::support::ads::{VARIANTS, static_cluster, upstream};
use crate::support::backend::Backend;
use crate::support::client::get;
use crate::support::load::Load;
use crate::support::management::Management;
use crate::support::resources::{Made, assignment, routes};
use crate::support::{Proxy, TIMEOUT, wait_until};
use bytes::Bytes;
use plimsoll_xds::ads::ROUTE_CONFIGURATION;

const EDS: &str = "type: EDS, eds_cluster_config: {eds_config: {ads: {}, \
                   resource_api_version: V3}, service_name: endpoints}";

/// A proxy whose listener subscribes to the routes `r`; static clusters are in flow style.
fn config(server: SocketAddr, variant: &str, clusters: &[String]) -> String {
    crate::support::ads::bootstrap(server, variant, crate::support::ads::FRONT, clusters)
}

/// Routes with a field that the proxy does not support: `vhost_header`, number 18.
fn unsupported(name: &str, cluster: &str) -> Made {
    let (_, name, body) = routes(name, cluster);
    let body = [&body[..], &[0x92, 1, 0]].concat();
    (ROUTE_CONFIGURATION, name, Bytes::from(body))
}

async fn answered_by(proxy: &Proxy, backend: &str) {
    wait_until(&format!("{backend} answers"), || async {
        let response = get(proxy.address(), "/").await;
        response.status == 200 && response.body.contains(&format!("backend: {backend}\n"))
    })
    .await;
}

/// Returns `update_success`, `update_rejected` and `config_reload` of the routes.
async fn counters(proxy: &Proxy) -> [u64; 3] {
    let page = get(proxy.admin(), "/stats").await.body;
    ["update_success", "update_rejected", "config_reload"].map(|name| {
        let name = format!("http.front.rds.r.{name}: ");
        let value = page.lines().find_map(|line| line.strip_prefix(&name));
        value.expect(&name).parse().unwrap()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn route_updates_cause_no_failures_and_routes_survive_the_server() {
    let backends = [Backend::echo("one").await, Backend::echo("two").await];
    let [one, two] = [upstream("c1", &backends[0]), upstream("c2", &backends[1])];
    for variant in VARIANTS {
        let mut server = Management::start(&[]);
        server.set(&[one.as_slice(), &[routes("r", "c1")]].concat());
        let proxy = Proxy::start_with(&config(server.address, variant, &[]), 2, TIMEOUT).await;
        answered_by(&proxy, "one").await;
        let load = Load::start(proxy.address(), 4);
        for round in 0..6 {
            // A cluster is added with the routes that refer to it, and removed with them.
            let (resources, name) = match round % 2 {
                0 => ([two.as_slice(), &[routes("r", "c2")]].concat(), "two"),
                _ => ([one.as_slice(), &[routes("r", "c1")]].concat(), "one"),
            };
            server.set(&resources);
            answered_by(&proxy, name).await;
            load.wait_for(20).await;
        }
        server.kill();
        load.wait_for(50).await;
        server.restart();
        server.set(&[two.as_slice(), &[routes("r", "c2")]].concat());
        answered_by(&proxy, "two").await;
        assert_eq!(load.stop().await, [""; 0], "{variant}");
        assert_eq!(server.rejections(), [""; 0], "{variant}");
        proxy.shut_down().await;
    }
}

/// P-9: nothing is accepted before clusters, endpoints and routes are known.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_accepted_before_the_first_resources() {
    let backend = Backend::echo("one").await;
    let [cluster, endpoints] = upstream("c1", &backend);
    for variant in VARIANTS {
        let server = Management::start(&[]);
        let text = config(server.address, variant, &[]);
        let proxy = Proxy::launch(&text, |_| ()).await;
        let awaits = async |what: &str| {
            wait_until(&format!("{what} is awaited"), || async {
                let ready = get(proxy.admin(), "/ready").await;
                ready.status == 503 && ready.body.contains(&format!("awaiting {what}\n"))
            })
            .await;
            let connected = tokio::net::TcpStream::connect(proxy.address()).await;
            assert!(connected.is_err(), "accepted without {what}");
        };
        awaits("route configuration r").await;
        server.set(std::slice::from_ref(&cluster));
        // An incremental server says at once that these endpoints do not exist.
        if variant == "GRPC" {
            awaits("endpoints of c1").await;
            let info = get(proxy.admin(), "/server_info").await.body;
            assert!(info.contains("\"state\":\"PRE_INITIALIZING\""), "{info}");
        }
        server.set(&[cluster.clone(), endpoints.clone()]);
        awaits("route configuration r").await;
        let stats = get(proxy.admin(), "/stats").await.body;
        assert!(stats.contains("server.live: 0\n"), "{stats}");
        server.set(&[cluster.clone(), endpoints.clone(), routes("r", "c1")]);
        wait_until("the proxy is live", || async {
            get(proxy.admin(), "/ready").await.body == "LIVE\n"
        })
        .await;
        let response = get(proxy.address(), "/").await;
        assert_eq!(response.status, 200, "{variant}: {response:?}");
        proxy.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_management_server_the_proxy_starts_after_the_timeout() {
    let text = config(crate::support::free_address(), "GRPC", &[]);
    let proxy = Proxy::launch(&text, |options| {
        options.initial_fetch_timeout = std::time::Duration::from_millis(50);
    })
    .await;
    wait_until("the proxy is live", || async {
        get(proxy.admin(), "/ready").await.body == "LIVE\n"
    })
    .await;
    assert_eq!(get(proxy.address(), "/").await.status, 404);
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_waits_for_resources_can_be_stopped() {
    let server = Management::start(&[]);
    let proxy = Proxy::launch(&config(server.address, "GRPC", &[]), |_| ()).await;
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_routes_are_nacked_and_the_last_valid_ones_stay() {
    let backends = [Backend::echo("one").await, Backend::echo("two").await];
    let [one, two] = [upstream("c1", &backends[0]), upstream("c2", &backends[1])];
    let with = |routes: Made| [one.as_slice(), two.as_slice(), &[routes]].concat();
    for variant in VARIANTS {
        let server = Management::start(&with(routes("r", "c1")));
        let proxy = Proxy::start(&config(server.address, variant, &[])).await;
        answered_by(&proxy, "one").await;
        server.set(&with(unsupported("r", "c2")));
        wait_until("the routes are rejected", || async {
            !server.rejections().is_empty()
        })
        .await;
        let refusal = server.rejections()[0].clone();
        assert!(
            refusal.contains("vhost_header: is not supported"),
            "{refusal}"
        );
        assert!(
            refusal.contains("\"r\"") || refusal.contains("r:"),
            "{refusal}"
        );
        assert!(
            get(proxy.address(), "/")
                .await
                .body
                .contains("backend: one\n")
        );
        assert_eq!(counters(&proxy).await, [1, 1, 1], "{variant}");
        server.set(&with(routes("r", "c2")));
        answered_by(&proxy, "two").await;
        assert_eq!(counters(&proxy).await, [2, 1, 2], "{variant}");
        proxy.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_config_dump_has_static_and_dynamic_routes() {
    let backend = Backend::echo("one").await;
    let server = Management::start(&[routes("r", "fixed")]);
    let clusters = [static_cluster("fixed", backend.address)];
    let mut text = config(server.address, "DELTA_GRPC", &clusters);
    let inline = text.replace("name: front", "name: second").replacen(
        "rds: {route_config_name: r, config_source: {ads: {}, resource_api_version: V3}}",
        "route_config: {name: inline, virtual_hosts: []}",
        1,
    );
    let from = inline.find("  - name: second").unwrap();
    let listener = inline[from..inline.find("  clusters:").unwrap()].to_owned();
    text.insert_str(text.find("  clusters:").unwrap(), &listener);
    let proxy = Proxy::start(&text).await;
    let dump = async |query: &str| -> serde_json::Value {
        let page = get(proxy.admin(), &format!("/config_dump{query}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        serde_json::from_str(&page.body).unwrap()
    };
    answered_by(&proxy, "one").await;
    let whole = dump("").await;
    let kinds: Vec<&str> = whole["configs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["@type"].as_str().unwrap())
        .collect();
    let expected = ["Bootstrap", "Clusters", "Listeners", "Routes"]
        .map(|kind| format!("type.googleapis.com/envoy.admin.v3.{kind}ConfigDump"));
    assert_eq!(kinds, expected);
    let parts = &whole["configs"][3];
    assert_eq!(
        parts["static_route_configs"][0]["route_config"]["name"],
        "inline"
    );
    let dynamic = dump("?resource=dynamic_route_configs").await;
    let entry = &dynamic["configs"][0];
    assert_eq!(
        entry["route_config"],
        parts["dynamic_route_configs"][0]["route_config"]
    );
    assert_eq!(entry["route_config"]["name"], "r");
    let action = &entry["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
    assert_eq!(action["cluster"], "fixed");
    assert!(entry["last_updated"].as_str().unwrap().ends_with('Z'));
    let stats = get(proxy.admin(), "/stats").await.body;
    let version = entry["version_info"].as_str().unwrap();
    let line = format!("http.front.rds.r.version_text: \"{version}\"\n");
    assert!(!version.is_empty() && stats.contains(&line), "{stats}");
    let clusters = dump("?resource=static_clusters").await;
    assert_eq!(clusters["configs"][1]["cluster"]["name"], "fixed");
    let unknown = get(proxy.admin(), "/config_dump?resource=nonsense").await;
    assert_eq!(unknown.status, 404);
    let metrics = get(proxy.admin(), "/stats/prometheus").await.body;
    assert!(metrics.contains("plimsoll_http_rds_config_reload{plimsoll_rds_route_config=\"r\""));
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn static_clusters_can_have_endpoints_from_the_server() {
    let backends = [Backend::echo("one").await, Backend::echo("two").await];
    let at = |backend: &Backend| assignment("endpoints", &[("a", &[backend.address])]);
    for variant in VARIANTS {
        let server = Management::start(&[routes("r", "fixed")]);
        let clusters = [
            static_cluster("fixed", backends[1].address),
            format!("{{name: own, {EDS}}}"),
        ];
        // The endpoints of `own` come later: a server of the whole state does not say so.
        let proxy = Proxy::launch(&config(server.address, variant, &clusters), |options| {
            options.initial_fetch_timeout = std::time::Duration::from_millis(500);
        })
        .await;
        proxy.live().await;
        answered_by(&proxy, "two").await;
        server.set(&[routes("r", "own"), at(&backends[0])]);
        answered_by(&proxy, "one").await;
        server.set(&[routes("r", "own"), at(&backends[1])]);
        answered_by(&proxy, "two").await;
        assert_eq!(server.rejections(), [""; 0], "{variant}");
        proxy.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_keeps_the_routes_of_the_server() {
    let backend = Backend::echo("one").await;
    let server = Management::start(&[routes("r", "fixed")]);
    let clusters = [static_cluster("fixed", backend.address)];
    let text = config(server.address, "GRPC", &clusters);
    let proxy = Proxy::start_with(&text, 2, TIMEOUT).await;
    answered_by(&proxy, "one").await;
    let load = Load::start(proxy.address(), 2);
    for round in 1..4 {
        proxy
            .edit(&text.replace("stat_prefix: front", &format!("stat_prefix: front{round}")))
            .await;
        wait_until("the edit is applied", || async {
            let stats = get(proxy.admin(), "/stats").await.body;
            stats.contains(&format!("http.front{round}."))
        })
        .await;
        load.wait_for(20).await;
    }
    assert_eq!(load.stop().await, [""; 0]);
    proxy.shut_down().await;
}
