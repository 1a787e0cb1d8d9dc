//! Damaged files: truncated, duplicated or swapped text yields a cluster or an error with a
//! location, never a panic.

use super::load_aware_locality::load_aware;
use super::{CSWRR, parse_cluster, typed, wrr_locality, zone_aware_yaml};

fn texts() -> Vec<String> {
    vec![
        zone_aware_yaml(
            "routing_enabled: {value: 50}, force_local_zone: {min_size: 1}, \
             lrs_rate_config: {staleness_threshold: 60s, fraction_source: EDS_FIELD}",
        ),
        wrr_locality(&[(CSWRR, ""), ("round_robin.v3.RoundRobin", "")]),
        load_aware(
            "remote_probe_fraction: 0.05, cold_start: LOCAL,",
            &[("does_not_exist.v3.DoesNotExist", ", x: 1"), (CSWRR, "")],
        ),
        typed(
            "ring_hash.v3.RingHash",
            "hash_function: XX_HASH, minimum_ring_size: 64, \
             consistent_hashing_lb_config: {hash_balance_factor: 150}",
        ),
        "name: a\nlb_policy: MAGLEV\nmaglev_lb_config:\n  table_size: 251\n\
         common_lb_config:\n  healthy_panic_threshold:\n    value: 30\n"
            .to_owned(),
    ]
}

/// Parses `text`; an error must have a reason and, unless it is at the top level, a location.
fn survive(text: &str) {
    if let Err(error) = parse_cluster(text) {
        assert!(!error.reason().is_empty(), "{text}");
        let shown = error.to_string();
        assert!(shown.contains(error.reason()), "{shown}");
        if let Some(location) = error.location() {
            let lines = u64::try_from(text.lines().count()).unwrap();
            assert!((1..=lines + 1).contains(&location.line), "{shown}\n{text}");
        }
    }
}

#[test]
fn truncated_files_never_panic() {
    for text in texts() {
        assert!(parse_cluster(&text).is_ok(), "{text}");
        for (index, _) in text.char_indices() {
            survive(&text[..index]);
            survive(&text[index..]);
        }
    }
}

#[test]
fn missing_and_duplicate_lines_never_panic() {
    for text in texts() {
        let lines: Vec<&str> = text.lines().collect();
        for index in 0..lines.len() {
            let mut without = lines.clone();
            without.remove(index);
            survive(&without.join("\n"));
            let mut twice = lines.clone();
            twice.insert(index, lines[index]);
            survive(&twice.join("\n"));
        }
    }
}

/// Replaces every word by each of these.
#[test]
fn replaced_words_never_panic() {
    let nonsense = [
        "~",
        "-1",
        ".nan",
        "1e999",
        "[]",
        "{}",
        "[[{}]]",
        "''",
        "true",
        "*x",
        "&x",
        "!t",
        "- -",
        "\u{1f600}",
        "\0",
        "18446744073709551616",
        "|",
        "%",
        "@",
        "<<",
        "? x",
    ];
    for text in texts() {
        let words: Vec<&str> = text.split(' ').collect();
        for index in 0..words.len() {
            for replacement in nonsense {
                let mut changed = words.clone();
                changed[index] = replacement;
                survive(&changed.join(" "));
            }
        }
    }
}
