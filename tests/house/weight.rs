//! What a program compiles when it depends on one of the libraries: how many packages, which not,
//! and which Rust version they need.
//!
//! Asks cargo, which answers from the lock file and downloaded packages, without the network.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use plimsoll_testing::repository;
use serde_json::Value;

/// What a library with some features may cost a program that depends on it.
struct Weight {
    library: &'static str,
    /// `None`: the default features.
    features: Option<&'static str>,
    /// Most packages, the library included, as `cargo tree -e normal` counts them.
    packages: usize,
    without: &'static [&'static str],
}

const YAML: &[&str] = &["serde-saphyr", "granit-parser"];
const MESSAGES: &[&str] = &[
    "plimsoll-schema",
    "prost",
    "prost-derive",
    "regex",
    "regex-automata",
    "serde",
    "serde-saphyr",
    "serde_json",
    "tonic",
];
const METRICS: &[&str] = &["metrics", "opentelemetry", "prometheus-client"];
const TLS: &[&str] = &["aws-lc-rs", "ring", "rustls", "rustls-webpki"];

/// Targets of the project (docs/decisions/0029).
const WEIGHTS: &[Weight] = &[
    Weight {
        library: "plimsoll-core",
        features: None,
        packages: 7,
        without: &["bytes", "http", "serde", "tokio", "tracing"],
    },
    Weight {
        library: "plimsoll-orca",
        features: None,
        packages: 40,
        without: &[
            "h2",
            "hyper",
            "prost",
            "regex",
            "rustls",
            "serde",
            "serde-saphyr",
        ],
    },
    Weight {
        library: "plimsoll-orca",
        features: Some(""),
        packages: 25,
        without: &[
            "h2",
            "hyper",
            "prost",
            "regex",
            "rustls",
            "serde",
            "serde-saphyr",
            "tonic",
        ],
    },
    Weight {
        library: "plimsoll-client",
        features: Some(""),
        packages: 60,
        without: MESSAGES,
    },
    Weight {
        library: "plimsoll-client",
        features: Some("tls-ring"),
        packages: 70,
        without: MESSAGES,
    },
    Weight {
        library: "plimsoll-client",
        features: Some("tonic"),
        packages: 70,
        without: YAML,
    },
    Weight {
        library: "plimsoll-client",
        features: Some("yaml"),
        packages: 90,
        without: &["tonic"],
    },
    Weight {
        library: "plimsoll-client",
        features: None,
        packages: 115,
        without: &["aws-lc-rs"],
    },
];

#[test]
fn libraries_compile_few_packages() {
    for weight in WEIGHTS {
        let Weight {
            library, features, ..
        } = weight;
        let packages = packages(library, *features);
        let found = packages.len();
        let most = weight.packages;
        assert!(
            (2..=most).contains(&found),
            "{library} with {features:?}: {found} packages, at most {most}: {packages:?}"
        );
        let names: BTreeSet<&str> = packages
            .iter()
            .filter_map(|one| one.split(' ').next())
            .collect();
        let others = match features {
            Some("") => [TLS, METRICS].concat(),
            _ => METRICS.to_vec(),
        };
        for forbidden in weight.without.iter().chain(&others) {
            assert!(
                !names.contains(forbidden),
                "{library} with {features:?}: {forbidden}"
            );
        }
    }
}

/// Packages of the normal dependencies, with their versions.
fn packages(library: &str, features: Option<&str>) -> BTreeSet<String> {
    let mut arguments = vec![
        "tree", "--edges", "normal", "--prefix", "none", "-p", library,
    ];
    if let Some(features) = features {
        arguments.extend(["--no-default-features", "--features", features]);
    }
    let tree = cargo(&arguments);
    let package = |line: &str| {
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?))
    };
    tree.lines().filter_map(package).collect()
}

#[test]
fn no_dependency_of_a_library_needs_a_newer_rust() {
    let host = host();
    let metadata = cargo(&[
        "metadata",
        "--format-version=1",
        "--all-features",
        "--filter-platform",
        &host,
    ]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let of = |name: &str| {
        let mut all = packages.iter();
        *all.find(|(_, package)| text(&package["name"]) == name)
            .unwrap()
            .0
    };
    let libraries = ["plimsoll-client", "plimsoll-core", "plimsoll-orca"].map(of);
    let ours = version(packages[libraries[0]]);
    assert!(
        ours.is_some_and(|ours| ours <= (1, 93)),
        "two releases behind 1.95: {ours:?}"
    );
    let compiled = compiled(&metadata, libraries.to_vec());
    assert!(compiled.len() > 100, "{}", compiled.len());
    for id in compiled {
        let needed = version(packages[id]);
        assert!(
            needed <= ours,
            "{id} needs Rust {needed:?}, we promise {ours:?}"
        );
    }
}

/// Ids of the packages that `roots` compile, build scripts included.
fn compiled<'m>(metadata: &'m Value, mut roots: Vec<&'m str>) -> BTreeSet<&'m str> {
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = roots.pop() {
        if !seen.insert(id) {
            continue;
        }
        let ships = |dependency: &&Value| {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            kinds.iter().any(|kind| kind["kind"] != "dev")
        };
        let dependencies = nodes[id]["deps"].as_array().unwrap().iter().filter(ships);
        roots.extend(dependencies.map(|dependency| text(&dependency["pkg"])));
    }
    seen
}

/// Major and minor number of `rust-version`.
fn version(package: &Value) -> Option<(u32, u32)> {
    let mut numbers = package["rust_version"].as_str()?.split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn host() -> String {
    let version = output(Command::new("rustc").arg("-vV"));
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.unwrap().to_owned()
}

fn cargo(arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["--locked", "--offline"]);
    output(cargo.current_dir(repository()))
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {errors}");
    String::from_utf8(done.stdout).unwrap()
}
