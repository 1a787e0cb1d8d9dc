//! TLS and identity: an unmodified Envoy and a gRPC client with client certificates; clients that
//! are refused beside them; certificates of all sides that change under load.

use std::path::Path;
use std::time::Duration;

use plimsoll_testing::Authority;
use serde_json::{Value, json};

use crate::support::backends::Backends;
use crate::support::certificate::Files;
use crate::support::control::{Control, bootstrap};
use crate::support::envoy::{CURRENT, Envoy, ingress};
use crate::support::grpc::Peer;
use crate::support::load::{Load, Source};
use crate::support::{scratch, wait_until};

const GATEWAY: &str = "spiffe://td/fleet/gateway/zone/zone-a";
const CHECKOUT: &str = "spiffe://td/fleet/checkout/zone/zone-b";
/// Cluster for HTTP servers, beside `orders` for gRPC servers.
const WEB: &str = "web";

fn config(tls: &Files, ports: &[u16], backends: &Backends) -> String {
    let identified = tls.control_config();
    let port = ports[0];
    let endpoints = backends.endpoints();
    format!(
        "{identified}
services:
- cluster: {{name: orders}}
  endpoints:
  - {{locality: {{region: r1, zone: zone-b}}, lb_endpoints: ['127.0.0.1:{port}']}}
- cluster: {{name: {WEB}}}
  endpoints:
{endpoints}"
    )
}

/// Bootstrap of an Envoy in `zone-a` that routes everything to the HTTP servers.
fn envoy_bootstrap(control: &Control, arguments: &[String]) -> Value {
    let address = control.xds.to_string();
    let mut all = vec!["envoy", "--zone", "zone-a", "--region", "r1"];
    all.extend(["--control", &address, "--admin-port", "0"]);
    all.extend(arguments.iter().map(String::as_str));
    let mut bootstrap = bootstrap(&all);
    let web = format!(r#""cluster":"{WEB}""#);
    let listener = ingress().to_string().replace(r#""cluster":"orders""#, &web);
    bootstrap["static_resources"]["listeners"] =
        serde_json::from_str(&format!("[{listener}]")).unwrap();
    bootstrap
}

/// Starts a gRPC client that says it is in this fleet and zone.
fn grpc(directory: &Path, control: &Control, name: &str, node: (&str, &str), tls: &Files) -> Peer {
    let address = control.xds.to_string();
    let tls = tls.arguments();
    let mut all = vec![
        "grpc",
        "--region",
        "r1",
        "--control",
        &address,
        "--id",
        name,
    ];
    all.extend(["--fleet", node.0, "--zone", node.1]);
    all.extend(tls.iter().map(String::as_str));
    Peer::call_with(directory, name, &all, 20)
}

fn reports(control: &Control, node: &str) -> bool {
    let node = control.node(node);
    node["requests_per_second"].as_f64().unwrap_or_default() > 0.0
}

/// Address from which a node has opened its discovery stream: another one after a reconnect.
fn peer(control: &Control, node: &str) -> String {
    let node = control.node(node);
    assert_eq!(node["load_reporting_streams"], 1, "{node}");
    node["discovery"][0]["peer"].as_str().unwrap().to_owned()
}

#[test]
fn envoys_and_grpc_clients_are_known_by_their_certificates() {
    let directory = scratch("identity");
    let ca = Authority::named("first CA");
    let certificates =
        |name: &str, pair: &(String, String)| Files::new(directory.join(name), pair, &ca.pem);
    let mut server = certificates("server", &ca.issue(&["127.0.0.1", "spiffe://td/control"]));
    let mut gateway = certificates("gateway", &ca.issue(&["127.0.0.1", GATEWAY]));
    let mut checkout = certificates("checkout", &ca.issue(&["127.0.0.1", CHECKOUT]));
    let backends = Backends::start(&[("zone-a", 1)]);
    let (_servers, ports) = Peer::serve(&directory, &["zone-b"]);
    let mut control = Control::start(&directory, &config(&server, &ports, &backends));

    let secrets = directory.join("secrets");
    std::fs::create_dir(&secrets).unwrap();
    for secret in ["ca", "certificate"] {
        let tls = gateway.arguments();
        let mut arguments = vec!["envoy-secret", secret];
        arguments.extend(tls.iter().map(String::as_str));
        let file = secrets.join(format!("{secret}.json"));
        std::fs::write(file, bootstrap(&arguments).to_string()).unwrap();
    }
    let mut arguments = gateway.arguments();
    arguments.extend(["--tls-secrets".to_owned(), secrets.display().to_string()]);
    let envoy_config = envoy_bootstrap(&control, &arguments);
    let mut envoy = Envoy::start_with(&directory, "zone-a", CURRENT, &envoy_config);
    let mut client = grpc(
        &directory,
        &control,
        "checkout-1",
        ("checkout", "zone-b"),
        &checkout,
    );
    wait_until("Envoy knows the cluster", || {
        envoy.weights(WEB).contains_key("zone-a")
    });
    let source = Source {
        to: envoy.listener,
        from: "zone-a".to_owned(),
        per_tick: 2,
    };
    wait_until("Envoy serves", || {
        plimsoll_testing::http::get(envoy.listener, "/").is_some()
    });
    let load = Load::start(&[source], Duration::from_millis(25));
    let nodes = ["gateway-zone-a", "checkout-1"];
    wait_until("both nodes report load", || {
        nodes.iter().all(|node| reports(&control, node))
    });
    let peers = nodes.map(|node| peer(&control, node));

    refused_clients(&directory, &control, &ca, &checkout);

    // A certificate without its key is refused, and the previous one stays.
    let (certificate, _) = ca.issue(&["127.0.0.1", "spiffe://td/control"]);
    let (_, key) = ca.issue(&["127.0.0.1", "spiffe://td/control"]);
    server.replace(&(certificate, key), &ca.pem);
    let reloads = |result: &str| {
        let labels = format!(r#"{{of="xds",result="{result}"}}"#);
        control.metric(&format!("certificate_reloads_total{labels}"))
    };
    wait_until("the bad pair is refused", || reloads("failed") == 1);
    // Another authority for both sides: old and new clients are served.
    let next = Authority::named("second CA");
    let both = format!("{}{}", ca.pem, next.pem);
    server.replace(&next.issue(&["127.0.0.1", "spiffe://td/control"]), &both);
    wait_until("the new certificates are in use", || reloads("ok") == 1);
    let late = Files::new(
        directory.join("late"),
        &next.issue(&["127.0.0.1", CHECKOUT]),
        &next.pem,
    );
    let mut late = grpc(
        &directory,
        &control,
        "checkout-2",
        ("checkout", "zone-b"),
        &late,
    );
    wait_until("a client of the new authority reports load", || {
        reports(&control, "checkout-2")
    });
    let reported = control.metric("load_reports_total");
    wait_until("load reports keep arriving", || {
        control.metric("load_reports_total") >= reported + 6
    });
    // Nobody had to reconnect, and nobody was forgotten.
    assert_eq!(nodes.map(|node| peer(&control, node)), peers);
    let left = [r#"{reason="silent"}"#, r#"{reason="disconnected"}"#];
    for labels in left {
        assert_eq!(control.metric(&format!("reporters_left_total{labels}")), 0);
    }
    // Envoy counts a load reporting stream that ends as an error.
    assert_eq!(envoy.stat("load_reporter.errors"), Some(0));
    assert_eq!(envoy.stat("load_reporter.retries"), Some(0));

    // Clients follow, and the server stops to trust the old authority. A new process accepts only
    // clients that use their new certificates.
    gateway.replace(&next.issue(&["127.0.0.1", GATEWAY]), &next.pem);
    checkout.replace(&next.issue(&["127.0.0.1", CHECKOUT]), &next.pem);
    server.replace(
        &next.issue(&["127.0.0.1", "spiffe://td/control"]),
        &next.pem,
    );
    wait_until("the old authority is gone", || reloads("ok") == 2);
    assert_eq!(nodes.map(|node| peer(&control, node)), peers);
    control.restart();
    wait_until("both nodes report load with new certificates", || {
        nodes.iter().all(|node| reports(&control, node))
    });
    assert_eq!(load.failed(), 0);
    for client in [&mut client, &mut late] {
        let counts = client.counts();
        assert_eq!(counts.get(""), None, "failed calls: {counts:?}");
    }
    assert!(envoy.is_alive());
}

/// Clients that are refused, each with a log line that says why.
fn refused_clients(directory: &Path, control: &Control, ca: &Authority, checkout: &Files) {
    let other = Authority::named("other CA");
    let files =
        |name: &str, pair: &(String, String)| Files::new(directory.join(name), pair, &ca.pem);
    let unknown = files("unknown", &ca.issue(&["127.0.0.1", "spiffe://td/unlisted"]));
    let expired = files("expired", &ca.issue_until(&["127.0.0.1", CHECKOUT], 2020));
    let foreign = files("foreign", &other.issue(&["127.0.0.1", CHECKOUT]));
    let start = |name: &str, node, tls| grpc(directory, control, name, node, tls);
    let _clients = [
        start("unlisted-1", ("checkout", "zone-b"), &unknown),
        start("expired-1", ("checkout", "zone-b"), &expired),
        start("foreign-1", ("checkout", "zone-b"), &foreign),
        start("fleet-1", ("gateway", "zone-b"), checkout),
        start("zone-1", ("checkout", "zone-a"), checkout),
    ];
    for (field, reason) in [
        ("identities", r#"no rule for \"spiffe://td/unlisted\""#),
        ("fleets", r#"fleet \"gateway\" is not allowed"#),
        ("zones", r#"zone \"r1/zone-a\" is not allowed"#),
    ] {
        wait_until(&format!("{field} refuses a client"), || {
            let log = control.log();
            let mut refusals = log.lines().filter(|line| line.contains("node refused"));
            let plain = reason.replace('\\', "");
            refusals.any(|line| line.contains(reason) || line.contains(&plain))
        });
        let counted = format!(r#"nodes_refused_total{{field="{field}"}}"#);
        wait_until(&counted, || control.metric(&counted) > 0);
    }
    for reason in ["certificate expired", "UnknownIssuer"] {
        wait_until(&format!("{reason} refuses a client"), || {
            let log = control.log();
            let mut failures = log
                .lines()
                .filter(|line| line.contains("TLS handshake failed"));
            failures.any(|line| line.contains(reason))
        });
    }
    for node in ["unlisted-1", "expired-1", "foreign-1", "fleet-1", "zone-1"] {
        assert_eq!(control.node(node), Value::Null, "{node}");
    }
}

/// Envoy sends the name of the management cluster as `:authority` unless the bootstrap sets one.
#[test]
fn the_management_cluster_may_have_a_pipe_in_its_name() {
    const NAME: &str = "outbound|33000||svc.ns";
    let directory = scratch("pipe");
    let backends = Backends::start(&[("zone-a", 1)]);
    let endpoints = backends.endpoints();
    let services = format!("services:\n- cluster: {{name: {WEB}}}\n  endpoints:\n{endpoints}");
    let config = format!("load_reporting: {{interval: 1s}}\n{services}");
    let control = Control::start(&directory, &config);
    let mut bootstrap = envoy_bootstrap(&control, &[]);
    let services = [
        "/dynamic_resources/ads_config/grpc_services/0/envoy_grpc",
        "/cluster_manager/load_stats_config/grpc_services/0/envoy_grpc",
    ];
    for pointer in services {
        let service = bootstrap.pointer_mut(pointer).unwrap();
        service["cluster_name"] = json!(NAME);
        service
            .as_object_mut()
            .unwrap()
            .remove("authority")
            .unwrap();
    }
    let cluster = &mut bootstrap["static_resources"]["clusters"][0];
    cluster["name"] = json!(NAME);
    cluster["load_assignment"]["cluster_name"] = json!(NAME);
    let envoy = Envoy::start_with(&directory, "zone-a", CURRENT, &bootstrap);
    wait_until("Envoy knows the cluster", || {
        envoy.weights(WEB).contains_key("zone-a")
    });
    wait_until("Envoy reports load", || {
        plimsoll_testing::http::get(envoy.listener, "/");
        reports(&control, "gateway-zone-a")
    });
}
