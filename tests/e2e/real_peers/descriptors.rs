//! Field numbers that we add to Envoy's messages are unused in every supported Envoy release.
//!
//! All declarations of plimsoll-schema are compared with the descriptors inside each binary: a
//! number must have our name there, or be unused. Unused numbers are ours, so new fields are
//! covered without a list.

use std::collections::BTreeSet;

use plimsoll_testing::envoy;

use crate::support::declared::{Declared, declared};
use crate::support::descriptors::{Descriptors, Numbers};
use crate::support::envoy::CURRENT;

const RELEASES: [&str; 3] = [CURRENT, "1.39.3", "1.38.3"];

#[test]
fn our_field_numbers_are_unused_in_envoy() {
    let declared = declared();
    assert!(
        declared.len() > 100,
        "only {} declarations found",
        declared.len()
    );
    let mut conflicts = Vec::new();
    for release in RELEASES {
        let descriptors = Descriptors::of(&envoy(release));
        assert!(descriptors.files > 500, "{release}: {}", descriptors.files);
        let mut ours = BTreeSet::new();
        for message in &declared {
            let all = if message.is_enum {
                &descriptors.enums
            } else {
                &descriptors.messages
            };
            for (name, numbers) in counterparts(message, all.iter()) {
                let found = compare(message, numbers, &mut |member, number| {
                    ours.insert(format!("{name}.{member} = {number}"));
                });
                let place = |why: String| format!("{release}: {}: {name}: {why}", message.place);
                conflicts.extend(found.into_iter().map(place));
            }
        }
        eprintln!("{release}: {} numbers are only ours: {ours:#?}", ours.len());
        // Known additions must be found, or the comparison does not work.
        for known in [
            "envoy.config.endpoint.v3.LocalityLbEndpoints.observed_traffic_fraction = 10",
            "envoy.service.load_stats.v3.LoadStatsResponse.observed_traffic = 5",
        ] {
            assert!(
                ours.contains(known),
                "{release}: {known} is not in {ours:#?}"
            );
        }
        let basis = "ZoneAwareLbConfig.LocalityBasis.OBSERVED_LOAD = 50001";
        assert!(ours.iter().any(|each| each.ends_with(basis)), "{ours:#?}");
    }
    assert!(conflicts.is_empty(), "{conflicts:#?}");
}

/// Returns Envoy's messages that a declaration corresponds to: those with its name that have most
/// members in common. One declaration may serve a typed and a legacy message; a release that does
/// not have the message yet has none.
fn counterparts<'d>(
    declared: &Declared,
    all: impl Iterator<Item = (&'d String, &'d Numbers)>,
) -> Vec<(&'d String, &'d Numbers)> {
    let ending = format!(".{}", declared.name);
    let is = |name: &str| name == declared.name || name.ends_with(&ending);
    let agreeing = |numbers: &Numbers| {
        let members = declared.members.iter();
        let agrees = |(name, number): &&(String, u64)| numbers.names.get(number) == Some(name);
        members.filter(agrees).count()
    };
    let named: Vec<_> = all.filter(|(name, _)| is(name)).collect();
    let best = named.iter().map(|(_, numbers)| agreeing(numbers)).max();
    let is_best = |numbers: &Numbers| agreeing(numbers) > 0 && Some(agreeing(numbers)) == best;
    let named = named.into_iter();
    named.filter(|(_, numbers)| is_best(numbers)).collect()
}

/// Returns conflicts, and calls `ours` for members that Envoy does not have.
fn compare(
    declared: &Declared,
    numbers: &Numbers,
    ours: &mut impl FnMut(&str, u64),
) -> Vec<String> {
    let mut conflicts = Vec::new();
    for (name, number) in &declared.members {
        let reserved = numbers.reserved.iter().any(|range| range.contains(number));
        match numbers.names.get(number) {
            Some(theirs) if theirs == name => {}
            Some(theirs) => {
                conflicts.push(format!("{number} is {theirs} in Envoy and {name} here"));
            }
            None if reserved => {
                conflicts.push(format!("{number}, {name} here, is reserved in Envoy"));
            }
            None => ours(name, *number),
        }
    }
    conflicts
}

#[test]
fn used_and_reserved_numbers_are_conflicts() {
    let declared = Declared {
        place: "here".to_owned(),
        name: "v3.Orders".to_owned(),
        is_enum: false,
        members: [("id", 1), ("ours", 10), ("also_ours", 50001)]
            .map(|(name, number)| (name.to_owned(), number))
            .to_vec(),
    };
    let numbers = |names: &[(u64, &str)]| Numbers {
        names: names
            .iter()
            .map(|&(n, name)| (n, name.to_owned()))
            .collect(),
        reserved: Vec::new(),
    };
    let check = |theirs: &Numbers| compare(&declared, theirs, &mut |_, _| {});
    assert_eq!(check(&numbers(&[(1, "id")])), [""; 0]);
    let conflicts = check(&numbers(&[(1, "id"), (10, "proximity")]));
    assert_eq!(conflicts, ["10 is proximity in Envoy and ours here"]);
    let mut reserved = numbers(&[(1, "id")]);
    reserved.reserved.push(50000..50002);
    assert_eq!(check(&reserved).len(), 1);
    // Of two messages with the name, the one with more members in common is chosen.
    let all = [
        (
            "a.v3.Orders".to_owned(),
            numbers(&[(1, "id"), (10, "other")]),
        ),
        ("b.v3.Orders".to_owned(), numbers(&[(10, "id")])),
    ];
    let pairs = all.iter().map(|(name, numbers)| (name, numbers));
    let found = counterparts(&declared, pairs);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "a.v3.Orders");
}
