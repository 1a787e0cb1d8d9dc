//! Unmodified Envoys and gRPC clients that are refused: for each, a log line says which rule or
//! which check of the certificate refused it, and the control plane does not know the node.

use std::path::Path;

use plimsoll_testing::{Authority, Process};
use serde_json::Value;

use crate::support::certificate::Files;
use crate::support::control::{Control, bootstrap};
use crate::support::envoy::{CURRENT, Envoy, ingress};
use crate::support::grpc::Peer;
use crate::support::{scratch, wait_until};

/// Fleet and zone that every client says it is in.
const OWN: &str = "spiffe://td/fleet/gateway/zone/zone-a";

/// A client that is refused.
struct Case {
    name: &'static str,
    uri: &'static str,
    expired: bool,
    foreign: bool,
    /// Parts of the log line.
    logged: &'static [&'static str],
    /// Label of the metric; `None` if the handshake fails.
    field: Option<&'static str>,
}

const CASES: [Case; 5] = [
    Case {
        name: "identity",
        uri: "spiffe://td/unlisted",
        expired: false,
        foreign: false,
        logged: &["rule=\"none\"", "no rule for", "spiffe://td/unlisted"],
        field: Some("identities"),
    },
    Case {
        name: "expired",
        uri: OWN,
        expired: true,
        foreign: false,
        logged: &["TLS handshake failed", "certificate expired"],
        field: None,
    },
    Case {
        name: "authority",
        uri: OWN,
        expired: false,
        foreign: true,
        logged: &["TLS handshake failed", "UnknownIssuer"],
        field: None,
    },
    Case {
        name: "fleet",
        uri: "spiffe://td/fleet/checkout/zone/zone-a",
        expired: false,
        foreign: false,
        logged: &["rule=\"fleets\"", "fleet", "gateway", "is not allowed"],
        field: Some("fleets"),
    },
    Case {
        name: "zone",
        uri: "spiffe://td/fleet/gateway/zone/zone-b",
        expired: false,
        foreign: false,
        logged: &["rule=\"fleets\"", "zone", "r1/zone-a", "is not allowed"],
        field: Some("zones"),
    },
];

fn config(tls: &Files) -> String {
    let identified = tls.control_config();
    format!(
        "{identified}
services:
- cluster: {{name: orders}}
  endpoints:
  - {{locality: {{region: r1, zone: zone-a}}, lb_endpoints: ['127.0.0.1:9']}}"
    )
}

/// Arguments of `plimsoll bootstrap` for a client with these files.
fn arguments(kind: &str, id: &str, control: &Control, tls: &Files) -> Vec<String> {
    let address = control.xds.to_string();
    let own = [
        kind, "--id", id, "--fleet", "gateway", "--zone", "zone-a", "--region", "r1",
    ];
    let mut all: Vec<_> = own.map(str::to_owned).into();
    all.extend(["--control".to_owned(), address]);
    all.extend(tls.arguments());
    all
}

/// Number of log lines with all of these parts.
fn lines(control: &Control, parts: &[&str]) -> usize {
    let log = control.log();
    let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
    log.lines().filter(has_all).count()
}

fn refused(control: &Control, case: &Case, id: &str, start: impl FnOnce()) {
    let logged: Vec<&str> = match case.field {
        // The node is known when the rules are checked, but not during a handshake.
        Some(_) => case.logged.iter().copied().chain([id]).collect(),
        None => case.logged.to_vec(),
    };
    let before = lines(control, &logged);
    start();
    wait_until(&format!("{id} is refused with {logged:?}"), || {
        lines(control, &logged) > before
    });
    assert_eq!(control.node(id), Value::Null, "{id}");
    if let Some(field) = case.field {
        let counted = format!(r#"nodes_refused_total{{field="{field}"}}"#);
        wait_until(&counted, || control.metric(&counted) > 0);
    }
}

#[test]
fn envoys_and_grpc_clients_are_refused_with_the_rule_that_they_break() {
    let directory = scratch("refusals");
    let (ca, other) = (Authority::named("own CA"), Authority::named("other CA"));
    let server = Files::new(
        directory.join("server"),
        &ca.issue(&["127.0.0.1", "spiffe://td/control"]),
        &ca.pem,
    );
    let control = Control::start(&directory, &config(&server));
    for case in &CASES {
        let issuer = if case.foreign { &other } else { &ca };
        let names = ["127.0.0.1", case.uri];
        let pair = if case.expired {
            issuer.issue_until(&names, 2020)
        } else {
            issuer.issue(&names)
        };
        let tls = Files::new(directory.join(case.name), &pair, &ca.pem);
        // Dropped when it was refused: clients retry, and identical log lines are limited.
        let mut envoy = None;
        let id = format!("envoy-{}", case.name);
        refused(&control, case, &id, || {
            let all = arguments("envoy", &id, &control, &tls);
            envoy = Some(start_envoy(&directory, &id, &all));
        });
        drop(envoy);
        let mut client = None;
        let id = format!("grpc-{}", case.name);
        refused(&control, case, &id, || {
            let all = arguments("grpc", &id, &control, &tls);
            let all: Vec<_> = all.iter().map(String::as_str).collect();
            client = Some(Peer::call_with(&directory, &id, &all, 5));
        });
        drop(client);
    }
    // Both clients are served with the right certificate: nothing else was wrong with them.
    let tls = Files::new(
        directory.join("good"),
        &ca.issue(&["127.0.0.1", OWN]),
        &ca.pem,
    );
    let all = arguments("envoy", "envoy-good", &control, &tls);
    let _envoy = start_envoy(&directory, "envoy-good", &all);
    let all = arguments("grpc", "grpc-good", &control, &tls);
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let _client = Peer::call_with(&directory, "grpc-good", &all, 5);
    for id in ["envoy-good", "grpc-good"] {
        wait_until(&format!("{id} is served"), || {
            control.node(id)["discovery"][0].is_object()
        });
    }
}

/// Starts an Envoy, which has no listener as long as it is refused.
fn start_envoy(directory: &Path, id: &str, arguments: &[String]) -> Process {
    let mut all: Vec<_> = arguments.iter().map(String::as_str).collect();
    all.extend(["--admin-port", "0"]);
    let mut bootstrap = bootstrap(&all);
    bootstrap["static_resources"]["listeners"] = Value::from(vec![ingress()]);
    let file = |end: &str| directory.join(format!("{id}.{end}"));
    std::fs::write(file("json"), bootstrap.to_string()).unwrap();
    Envoy::spawn(&file("json"), &file("log"), CURRENT, &[])
}
