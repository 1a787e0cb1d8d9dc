//! Runs each example as a program and checks its output.
#![cfg(all(feature = "tonic", feature = "xds"))]

#[cfg(feature = "opentelemetry")]
use crate::support::collector;
use std::path::PathBuf;
use std::process::Output;

use crate::support::Backend;
use crate::support::management::Management;
use crate::support::resources::whole;

/// Returns the output of an example. Cargo builds examples along with the tests.
async fn run(name: &str, args: &[String], bootstrap: Option<&str>) -> String {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let path: PathBuf = path.join("examples").join(name);
    let mut command = std::process::Command::new(&path);
    command.args(args);
    if let Some(text) = bootstrap {
        command.env("GRPC_XDS_BOOTSTRAP_CONFIG", text);
        command.env_remove("GRPC_XDS_BOOTSTRAP");
    }
    let done = tokio::task::spawn_blocking(move || command.output()).await;
    let Output {
        status,
        stdout,
        stderr,
    } = done
        .unwrap()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{name}: {errors}");
    String::from_utf8(stdout).unwrap()
}

#[tokio::test]
async fn tower_with_endpoints_from_the_program() {
    let backends = [Backend::start().await, Backend::start().await];
    let args = backends
        .each_ref()
        .map(|backend| backend.address.to_string());
    let printed = run("tower", &args, None).await;
    assert_eq!(printed.matches("200 OK 127.0.0.1:").count(), 4, "{printed}");
    assert_eq!(backends[0].seen() + backends[1].seen(), 4);
}

/// Two of three requests stay in the zone, which has half of the hosts and 75 % of the demand.
#[tokio::test]
async fn the_first_program_needs_one_crate() {
    let backends = [Backend::start().await, Backend::start().await];
    let args = backends
        .each_ref()
        .map(|backend| backend.address.to_string());
    let printed = run("first", &args, None).await;
    assert_eq!(printed.matches("200 OK 127.0.0.1:").count(), 6, "{printed}");
    let (near, far) = (backends[0].seen(), backends[1].seen());
    assert!(
        near + far == 6 && (3..=5).contains(&near),
        "{near} {far} {printed}"
    );
    assert!(printed.contains("stays local"), "{printed}");

    let source = include_str!("../../examples/first.rs");
    let code = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let roots = code.flat_map(|line| {
        let paths = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        paths
            .filter_map(|path| path.split_once("::"))
            .map(|(root, _)| root)
    });
    let is_crate = |root: &&str| root.starts_with(char::is_lowercase);
    let mut crates: Vec<&str> = roots.filter(is_crate).collect();
    crates.sort_unstable();
    crates.dedup();
    assert_eq!(crates, ["clippy", "plimsoll_client", "std"]);
}

#[tokio::test]
async fn tonic_unary_and_streaming() {
    let printed = run("greetings", &[], None).await;
    let lines: Vec<_> = printed.lines().collect();
    let hello = |line: &&&str| line.starts_with("hello world from 127.0.0.1:");
    assert_eq!(lines.iter().filter(hello).count(), 4, "{printed}");
    assert_eq!(lines[4..], ["w", "o", "r", "l", "d"], "{printed}");
}

#[tokio::test]
async fn a_target_of_a_management_server() {
    let backend = Backend::start().await;
    let server = Management::start(&whole("orders", &[("a", &[backend.address])]));
    let bootstrap = format!(
        r#"{{"xds_servers": [{{"server_uri": "{}", "channel_creds": [{{"type": "insecure"}}]}}],
            "node": {{"id": "n", "cluster": "fleet", "locality": {{"zone": "a"}}}}}}"#,
        server.address
    );
    let args = ["xds:///orders".to_owned()];
    let printed = run("xds", &args, Some(&bootstrap)).await;
    assert_eq!(backend.seen(), 4, "{printed}");
    assert!(printed.contains("orders: "), "{printed}");
}

#[cfg(feature = "opentelemetry")]
#[tokio::test]
async fn spans_go_to_a_collector() {
    use collector::{Collector, attribute};

    let backend = Backend::start().await;
    let collector = Collector::start();
    let uri = format!("http://{}", collector.address);
    let printed = run("tracing", &[uri, backend.address.to_string()], None).await;
    assert_eq!(printed.matches("200 OK 127.0.0.1:").count(), 4, "{printed}");
    let spans = collector.spans();
    assert_eq!(spans.len(), 4, "{spans:?}");
    let (_, _, resource) = collector.last();
    assert_eq!(attribute(&resource, "service.name"), "shop");
}
