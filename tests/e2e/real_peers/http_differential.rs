//! Odd HTTP requests (`vectors/http`) through `plimsoll proxy`, Envoy, nginx and HAProxy, each in
//! front of the same recording backend.
//!
//! Where Plimsoll differs from all three, the difference must be a choice that
//! `vectors/http/choices.json` lists with its reason; a choice that no longer differs must be
//! removed. Some rules hold for Plimsoll whatever the others do. The driver is
//! `peers/http_differential`, the choices are explained in `docs/decisions/0031-http-strictness.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use plimsoll_testing::repository;

use crate::support::http_differential::{
    ASPECTS, Aspects, Case, Choices, Run, aspects, broken_rules,
};

/// Differences from all three proxies: aspects by name of the case.
type Differences = BTreeMap<String, BTreeSet<String>>;

#[test]
fn differences_from_envoy_nginx_and_haproxy_are_choices() {
    let run = Run::start();
    assert!(run.cases.len() > 300, "{}", run.cases.len());
    let mut found = Differences::new();
    let mut broken = Vec::new();
    let mut report = String::new();
    for case in &run.cases {
        let own = run.outcome("plimsoll", case);
        broken.extend(broken_rules(case, own));
        let own = aspects(case, own);
        let others = ["envoy", "nginx", "haproxy"].map(|proxy| {
            let outcome = run.outcome(proxy, case);
            (proxy, aspects(case, outcome))
        });
        let unlike_all =
            |index: &usize| others.iter().all(|(_, other)| other[*index] != own[*index]);
        let different: Vec<usize> = (0..ASPECTS.len()).filter(unlike_all).collect();
        if !different.is_empty() {
            let names = different.iter().map(|index| ASPECTS[*index].to_owned());
            found.insert(case.name.clone(), names.collect());
            describe(case, &different, &own, &others, &mut report);
        }
    }
    std::fs::write(run.directory.join("differences.txt"), &report).unwrap();
    assert!(broken.is_empty(), "{broken:#?}");
    let listed = Choices::read().differences();
    let text = |differences: &Differences, other: &Differences| {
        let differences = differences.iter();
        let only = differences.filter(|(name, aspects)| other.get(*name) != Some(*aspects));
        only.map(|(name, aspects)| format!("\n  {name}: {aspects:?}"))
            .collect::<String>()
    };
    assert!(
        found == listed,
        "fix or list in vectors/http/choices.json:{}\nlisted there:{}\nall differences: {}",
        text(&found, &listed),
        text(&listed, &found),
        run.directory.join("differences.txt").display(),
    );
}

fn describe(
    case: &Case,
    different: &[usize],
    own: &Aspects,
    others: &[(&str, Aspects); 3],
    report: &mut String,
) {
    for index in different {
        writeln!(report, "{}: {}", case.name, ASPECTS[*index]).unwrap();
        writeln!(report, "  plimsoll {}", own[*index]).unwrap();
        for (proxy, other) in others {
            writeln!(report, "  {proxy} {}", other[*index]).unwrap();
        }
    }
}

#[test]
fn every_choice_is_explained() {
    let root = repository();
    let page = root.join("docs/decisions/0031-http-strictness.md");
    let page = std::fs::read_to_string(page).unwrap();
    for choice in &Choices::read().choices {
        assert!(!choice.cases.is_empty(), "{}", choice.title);
        let row = format!(
            "| {} | {} | {} |",
            choice.title,
            choice.reason,
            choice.cases.len()
        );
        assert!(page.contains(&row), "0031-http-strictness.md lacks:\n{row}");
    }
}
