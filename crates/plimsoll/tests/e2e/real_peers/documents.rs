//! Pages that need an Envoy, run as a reader would; other pages are run by the tests of documents.

use serde_json::Value;

use crate::documented::listed::{PAGES, Page};
use crate::documented::{Check, run};
use crate::support::envoy::{CURRENT, binary};

/// What the tutorial says in words, in its order.
const TUTORIAL: [Check; 8] = [
    Check {
        command: "curl -s 'localhost:18001/api/v1/nodes'",
        fault: |said| unless(three_nodes(&json(said)), "three nodes by fleet_weights"),
    },
    Check {
        command: "curl -s 'localhost:18001/api/v1/clusters?cluster=orders'",
        fault: |said| unless(near_demand(&json(said)), "near 5000, 3500 and 1500"),
    },
    Check {
        command: "curl -s 'localhost:18001/api/v1/explain",
        fault: |said| unless(is_level(&json(said)), "LocalityResidual, load near 1"),
    },
    Check {
        command: "curl -s 'http://127.0.0.1:10001/?[1-100]'",
        fault: |said| unless((40..80).contains(&kept(said)), "about 60 from zone-a"),
    },
    Check {
        command: "curl -s localhost:18001/api/v1/what-if",
        fault: |said| unless(said.contains("kept_local"), "kept_local"),
    },
    Check {
        command: "curl -s 'http://127.0.0.1:10001/?[1-100]'",
        fault: |said| unless((80..=100).contains(&kept(said)), "90 of 100 stay in zone-a"),
    },
    Check {
        command: "curl -s 'http://127.0.0.1:10001/?[1-100]'",
        fault: |said| unless(kept(said) >= 40, "weights are kept"),
    },
    Check {
        command: "plimsoll bootstrap grpc",
        fault: |said| unless(said.is_empty(), "all of it goes to the file"),
    },
];

#[test]
fn the_tutorial_does_what_it_says() {
    check("docs/tutorial-envoy.md", &TUTORIAL, 20);
}

#[test]
fn the_readme_does_what_it_says() {
    let checks = [
        Check {
            command: "curl -s 'localhost:18001/api/v1/explain",
            fault: |said| unless(json(said)["state"].is_string(), "a state"),
        },
        Check {
            command: "plimsoll top",
            fault: |said| unless(said.contains("zone-a"), "zones"),
        },
    ];
    check("README.md", &checks, 6);
}

#[test]
fn no_other_page_needs_an_envoy() {
    let pages = PAGES.iter().filter(|page| page.envoy);
    let paths: Vec<_> = pages.map(|page| page.path).collect();
    assert_eq!(paths, ["README.md", "docs/tutorial-envoy.md"]);
}

fn check(path: &str, checks: &[Check], least: usize) {
    let is = |page: &&Page| page.path == path;
    let page = PAGES.iter().find(is).expect("the page is listed");
    match run(page, Some(&binary(CURRENT)), checks) {
        Ok(count) => assert!(count >= least, "{path}: only {count} commands were run"),
        Err(failure) => panic!("{failure}"),
    }
}

fn unless(fine: bool, wanted: &str) -> Option<String> {
    (!fine).then(|| format!("the page says: {wanted}"))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn three_nodes(page: &Value) -> bool {
    let nodes = page["nodes"].as_array().cloned().unwrap_or_default();
    let steered = |node: &Value| node["delivery"][0]["delivery"] == "fleet_weights";
    nodes.len() == 3 && nodes.iter().all(steered)
}

/// Shares of the three zones in basis points.
fn near_demand(page: &Value) -> bool {
    let shares = page["clusters"][0]["fleets"][0]["delivered"].as_array();
    let shares = shares.into_iter().flatten();
    let shares: Vec<_> = shares
        .filter_map(|one| one["fraction_bp"].as_i64())
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

/// How many of the hundred answers were from zone-a, by `uniq -c`; 0 if there are not a hundred.
fn kept(said: &str) -> u32 {
    let counts = said.lines().filter_map(|line| {
        let (count, zone) = line.trim().split_once(' ')?;
        Some((count.parse::<u32>().ok()?, zone))
    });
    let counts: Vec<_> = counts.collect();
    let all: u32 = counts.iter().map(|(count, _)| count).sum();
    let own = counts.iter().find(|(_, zone)| *zone == "zone-a");
    own.map_or(0, |(count, _)| if all == 100 { *count } else { 0 })
}
