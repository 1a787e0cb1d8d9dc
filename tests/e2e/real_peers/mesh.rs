//! Watching an Istio mesh: sidecars get everything from istiod and report load to the control
//! plane.
//!
//! The Envoys have bootstraps like those that Istio writes, with the setting that
//! docs/guides/mesh.md shows. Another management server stands for istiod.

use std::path::Path;
use std::time::Duration;

use plimsoll_testing::http::get;
use plimsoll_testing::repository;
use serde_json::{Value, json};

use crate::support::backends::Backends;
use crate::support::control::Control;
use crate::support::envoy::{CURRENT, Envoy, ingress};
use crate::support::fleet::{ZONES, start_backends};
use crate::support::load::{Load, Source};
use crate::support::management_server::ManagementServer;
use crate::support::{scratch, wait_to_see, wait_until};

/// Name of the cluster in Istio: direction, port, subset, host.
const CLUSTER: &str = "outbound|80||orders.shop.svc.cluster.local";
/// A cluster that the sidecars' bootstrap has in addition: `sidecar.istio.io/bootstrapOverride`.
const CONTROL: &str = "plimsoll-control";
const TICK: Duration = Duration::from_millis(25);

#[test]
fn sidecars_of_istio_report_load_through_a_cluster_of_their_bootstrap() {
    watch(
        "mesh-envoy-grpc",
        |_| json!({ "envoy_grpc": { "cluster_name": CONTROL } }),
    );
}

#[test]
fn sidecars_of_istio_report_load_without_a_cluster() {
    watch("mesh-google-grpc", |control| {
        let target = control.xds.to_string();
        json!({ "google_grpc": { "target_uri": target, "stat_prefix": "plimsoll" } })
    });
}

/// Sidecars report load with a setting of the guide, and keep the configuration of istiod.
fn watch(name: &str, grpc_service: impl Fn(&Control) -> Value) {
    let directory = scratch(name);
    let backends = start_backends();
    let control = Control::start(&directory, &config(&backends));
    let istiod = ManagementServer::start(&directory, &resources(&backends));
    let setting = load_stats_config(&grpc_service(&control));
    let envoys: Vec<Envoy> = ZONES
        .iter()
        .map(|(zone, ..)| {
            let own = grpc_cluster(CONTROL, control.xds.port());
            start_sidecar(&directory, zone, &istiod, &setting, &own)
        })
        .collect();
    wait_until("every sidecar serves", || {
        let mut all = envoys.iter();
        all.all(|envoy| get(envoy.listener, "/").is_some())
    });
    let before = envoys[0].weights(CLUSTER);
    let sources = ZONES
        .iter()
        .zip(&envoys)
        .map(|((zone, per_tick, ..), envoy)| Source {
            to: envoy.listener,
            from: (*zone).to_owned(),
            per_tick: *per_tick,
        });
    let load = Load::start(&sources.collect::<Vec<_>>(), TICK);
    let line = wait_to_see(
        "the load line is as it should be",
        || load_line(&control),
        measured,
    );
    assert_eq!(line["fleet"], "checkout.shop");
    assert_eq!(
        (&line["mode"], &line["basis"]),
        (&json!("SHADOW"), &json!("host_counts"))
    );
    // Traffic between zones is what the split would save.
    assert!(
        line["enforce"]["kept_local"].as_f64() > Some(0.75),
        "{line}"
    );
    assert!(line["seen"]["usd_per_month"].as_f64() > line["enforce"]["usd_per_month"].as_f64());
    // Nothing of ours reached them.
    assert_eq!(envoys[0].weights(CLUSTER), before);
    for (zone, ..) in ZONES {
        let node = control.node(&node_id(zone));
        assert_eq!(node["discovery"], json!([]), "{node}");
    }
    assert_eq!(load.failed(), 0);
}

/// Returns the load line of the service; null until the sidecars have reported.
fn load_line(control: &Control) -> Value {
    control.page("load")["load_lines"][0].clone()
}

/// Returns whether demand is right to within a percent, and what follows from it is there. The plan
/// that `enforce` shows follows measured demand with a delay.
fn measured(line: &Value) -> bool {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let total = number(&line["demand_requests_per_second"]);
    let close = ZONES.iter().all(|(zone, _, share_bp, _)| {
        let mut all = line["zones"].as_array().into_iter().flatten();
        let found = all.find(|entry| entry["locality"]["zone"] == *zone);
        let demand = found.map_or(f64::NAN, |entry| {
            number(&entry["demand_requests_per_second"])
        });
        (demand / total - *share_bp as f64 / 10_000.0).abs() < 0.01
    });
    let seen = number(&line["seen"]["requests_per_second"]) > 0.5 * total;
    // Without routing by zone, every zone serves its share of the hosts.
    let by_hosts = (number(&line["seen"]["kept_local"]) - 0.355).abs() < 0.05;
    let level = (number(&line["enforce"]["highest_load"]) - 1.0).abs() < 0.03;
    close && seen && by_hosts && level
}

fn config(backends: &Backends) -> String {
    format!(
        "load_reporting: {{interval: 1s}}\n\
         demand: {{smoothing_time_constant: 2s}}\n\
         services:\n- cluster: {{name: '{CLUSTER}'}}\n  mode: SHADOW\n  endpoints:\n{}",
        backends.endpoints()
    )
}

fn node_id(zone: &str) -> String {
    format!("sidecar~10.0.0.1~checkout-{zone}.shop~shop.svc.cluster.local")
}

/// Starts an Envoy with a bootstrap as `pilot-agent` writes it.
fn start_sidecar(
    directory: &Path,
    zone: &str,
    istiod: &ManagementServer,
    load_stats_config: &Value,
    additional: &Value,
) -> Envoy {
    let mut listener = ingress();
    let route =
        "/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes/0/route";
    listener.pointer_mut(route).unwrap()["cluster"] = json!(CLUSTER);
    let bootstrap = json!({
        "node": {
            "id": node_id(zone),
            "cluster": "checkout.shop",
            "locality": { "region": "r1", "zone": zone },
        },
        "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } } },
        "dynamic_resources": {
            "cds_config": { "ads": {}, "resource_api_version": "V3" },
            "ads_config": {
                "api_type": "GRPC",
                "set_node_on_first_message_only": true,
                "transport_api_version": "V3",
                "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds-grpc" } }],
            },
        },
        "cluster_manager": { "load_stats_config": load_stats_config },
        "static_resources": {
            "listeners": [listener],
            "clusters": [grpc_cluster("xds-grpc", istiod.port), additional],
        },
    });
    Envoy::start_with(directory, zone, CURRENT, &bootstrap)
}

/// Returns a cluster with one address, for gRPC.
fn grpc_cluster(name: &str, port: u16) -> Value {
    let options = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let address = json!({ "address": "127.0.0.1", "port_value": port });
    json!({
        "name": name,
        "type": "STATIC",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": options,
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        },
        "load_assignment": { "cluster_name": name, "endpoints": [{
            "lb_endpoints": [{ "endpoint": { "address": { "socket_address": address } } }],
        }]},
    })
}

/// Returns the setting as the guide shows it, with this gRPC service instead of its own.
fn load_stats_config(grpc_service: &Value) -> Value {
    let guide = std::fs::read_to_string(repository().join("docs/guides/mesh.md")).unwrap();
    let mut lines = guide.lines().map(str::trim);
    let setting = lines.find_map(|line| line.strip_prefix("ISTIO_META_LOAD_STATS_CONFIG_JSON: '"));
    let text = setting.unwrap().trim_end_matches('\'');
    let mut setting: Value = serde_json::from_str(text).unwrap();
    let service = &mut setting["grpc_services"][0];
    let shown = service["google_grpc"]["target_uri"].as_str();
    assert_eq!(shown, Some("plimsoll-control.plimsoll-system:18000"));
    for field in grpc_service.as_object().unwrap().values() {
        for name in field.as_object().unwrap().keys() {
            let written = format!("\"{name}\": ");
            assert!(guide.contains(&written), "the guide has no {name}");
        }
    }
    *service = grpc_service.clone();
    setting
}

/// Returns the resources of istiod: a cluster and its endpoints.
fn resources(backends: &Backends) -> Value {
    let localities = backends.addresses().iter().map(|(zone, addresses)| {
        let endpoint = |address: &std::net::SocketAddr| {
            let address = json!({ "address": "127.0.0.1", "port_value": address.port() });
            json!({ "endpoint": { "address": { "socket_address": address } } })
        };
        json!({
            "locality": { "region": "r1", "zone": zone },
            "lb_endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        })
    });
    json!([
        {
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": CLUSTER,
            "type": "EDS",
            "connect_timeout": "10s",
            "eds_cluster_config": {
                "service_name": CLUSTER,
                "eds_config": { "ads": {}, "resource_api_version": "V3" },
            },
        },
        {
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": CLUSTER,
            "endpoints": localities.collect::<Vec<_>>(),
        },
    ])
}
