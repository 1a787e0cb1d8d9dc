//! Tests of `deploy/kubernetes`: what kubectl builds from every overlay is complete and consistent.
//!
//! The step `deploy` of `make test` validates the same output against the schemas of Kubernetes,
//! and `make test-kubernetes` lets a real API server read it. Here is what neither can know:
//! whether names resolve, files pass `plimsoll check`, and rights are those that the program uses.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod admission;
mod built;
mod crd;
mod names;
mod pods;
mod rights;
mod settings;

use std::collections::BTreeSet;
use std::fs;

use plimsoll_testing::repository;

#[test]
fn every_overlay_is_tested_and_documented() {
    let directory = repository().join("deploy/kubernetes/overlays");
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> = names.collect();
    let listed: BTreeSet<String> = built::OVERLAYS.map(str::to_owned).into();
    assert_eq!(found, listed);
    let page = fs::read_to_string(repository().join("docs/kubernetes.md")).unwrap();
    for overlay in listed {
        let row = format!("| `overlays/{overlay}` |");
        assert!(page.contains(&row), "docs/kubernetes.md has no row {row}");
    }
}
