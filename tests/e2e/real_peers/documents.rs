//! Runs the pages that need an Envoy; the tests of documents run the others.

use plimsoll_documents::listed::{PAGES, Page};
use plimsoll_documents::{Check, run};
use plimsoll_testing::envoy;
use serde_json::Value;

use crate::support::envoy::CURRENT;

/// Claims in the text of the tutorial, in its order. Of 100 requests with the right split, fewer
/// than 35 or more than 85 stay instead of 60, or fewer than 72 instead of 90, once in 10^7 runs.
const TUTORIAL: [Check; 8] = [
    Check {
        command: "curl -s 'localhost:18001/api/v1/nodes?pretty'",
        fault: |output| unless(three_nodes(&json(output)), "three nodes by fleet_weights"),
    },
    Check {
        command: "curl -s 'localhost:18001/api/v1/clusters?cluster=orders&pretty'",
        fault: |output| unless(near_demand(&json(output)), "near 5000, 3500 and 1500"),
    },
    Check {
        command: "curl -s 'localhost:18001/api/v1/explain",
        fault: |output| unless(is_level(&json(output)), "LocalityResidual, load near 1"),
    },
    Check {
        command: "curl -s 'http://127.0.0.1:10001/?[1-100]'",
        fault: |output| unless((35..=85).contains(&kept(output)), "about 60 from zone-a"),
    },
    Check {
        command: "curl -s 'localhost:18001/api/v1/what-if?pretty'",
        fault: |output| unless(output.contains("kept_local"), "kept_local"),
    },
    Check {
        command: "curl -s 'http://127.0.0.1:10001/?[1-100]'",
        fault: |output| {
            unless(
                (72..=100).contains(&kept(output)),
                "90 of 100 stay in zone-a",
            )
        },
    },
    Check {
        command: "curl -s 'http://127.0.0.1:10001/?[1-100]'",
        fault: |output| unless(kept(output) >= 35, "weights are kept"),
    },
    Check {
        command: "plimsoll bootstrap grpc",
        fault: |output| unless(output.is_empty(), "all of it goes to the file"),
    },
];

#[test]
fn commands_of_the_tutorial_print_the_output_shown() {
    check("docs/tutorial-envoy.md", &TUTORIAL, 20);
}

#[test]
fn commands_of_the_readme_print_the_output_shown() {
    let checks = [
        Check {
            command: "curl -s --retry 9 --retry-all-errors --fail-with-body 'localhost:18001/",
            fault: |output| unless(json(output)["state"].is_string(), "a state"),
        },
        Check {
            command: "plimsoll top",
            fault: |output| unless(output.contains("zone-a"), "zones"),
        },
    ];
    check("README.md", &checks, 6);
}

#[test]
fn three_commands_connect_an_envoy_by_certificates() {
    let checks = [Check {
        command: "curl -s localhost:18001/api/v1/nodes",
        fault: |output| {
            let node = json(output)["nodes"][0].clone();
            let is_known = node["fleet"] == "gateway" && node["locality"]["zone"] == "zone-a";
            unless(
                is_known && node["class"] == "envoy",
                "an Envoy of zone-a is listed",
            )
        },
    }];
    check("docs/mtls.md", &checks, 5);
}

#[test]
fn no_other_page_needs_an_envoy() {
    let pages = PAGES.iter().filter(|page| page.envoy);
    let paths: Vec<_> = pages.map(|page| page.path).collect();
    assert_eq!(
        paths,
        ["README.md", "docs/mtls.md", "docs/tutorial-envoy.md"]
    );
}

fn check(path: &str, checks: &[Check], least: usize) {
    let is = |page: &&Page| page.path == path;
    let page = PAGES.iter().find(is).expect("the page is listed");
    match run(page, Some(&envoy(CURRENT)), checks) {
        Ok(count) => assert!(count >= least, "{path}: only {count} commands were run"),
        Err(failure) => panic!("{failure}"),
    }
}

fn unless(holds: bool, claim: &str) -> Option<String> {
    (!holds).then(|| format!("the page says: {claim}"))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn three_nodes(page: &Value) -> bool {
    let nodes = page["nodes"].as_array().cloned().unwrap_or_default();
    let by_weights = |node: &Value| node["delivery"][0]["delivery"] == "fleet_weights";
    nodes.len() == 3 && nodes.iter().all(by_weights)
}

/// Whether the delivered fractions are close to the demand of the tutorial.
fn near_demand(page: &Value) -> bool {
    let delivered = page["clusters"][0]["fleets"][0]["delivered"].as_array();
    let shares: Vec<_> = delivered
        .into_iter()
        .flatten()
        .filter_map(|zone| zone["fraction_bp"].as_i64())
        .collect();
    let expected = [5000, 3500, 1500];
    let near = |(share, expected): (&i64, &i64)| (share - expected).abs() < 800;
    shares.len() == 3 && shares.iter().zip(&expected).all(near)
}

fn is_level(page: &Value) -> bool {
    let localities = page["localities"].as_array().cloned().unwrap_or_default();
    let mut loads = localities
        .iter()
        .filter_map(|one| one["load_factor"].as_f64());
    page["state"] == "LocalityResidual" && loads.all(|load| (0.8..1.2).contains(&load))
}

/// Returns how many of 100 responses were from zone-a, by `uniq -c`; 0 if there are not 100.
fn kept(output: &str) -> u32 {
    let count_and_zone = |line: &'_ str| {
        let (count, zone) = line.trim().split_once(' ')?;
        Some((count.parse::<u32>().ok()?, zone.to_owned()))
    };
    let counts: Vec<_> = output.lines().filter_map(count_and_zone).collect();
    let all: u32 = counts.iter().map(|(count, _)| count).sum();
    let own = counts.iter().find(|(_, zone)| zone == "zone-a");
    own.map_or(0, |(count, _)| if all == 100 { *count } else { 0 })
}
