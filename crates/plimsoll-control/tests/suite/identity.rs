//! Patterns of `identities` with random names, with the interpreter of the fuzz target. Rules are
//! tested in `identity`.

use crate::support::identity::{MEMORY_BASE, MEMORY_PER_BYTE, run};

#[test]
fn patterns_match_what_a_matcher_finds_that_tries_everything() {
    let tokens = ["a", "b", "-", "/", "*", "{x}", "{y}", "é", "."];
    // A linear congruential generator: the same lines in every run.
    let mut random = 7_u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005);
        random = random.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % limit
    };
    let mut outcomes = [0; 3];
    for _ in 0..30_000 {
        let mut line = |tokens: &[&str]| -> String {
            let count = 1 + below(6);
            (0..count).map(|_| tokens[below(tokens.len())]).collect()
        };
        let names = ["a", "b", "-", "a-b"];
        let lines = [line(&tokens), line(&names), line(&tokens), line(&names)];
        let text = lines.join("\n");
        let limit = MEMORY_BASE + MEMORY_PER_BYTE * text.len() as u64;
        let mut outcome = None;
        let used = allocation_counter::measure(|| outcome = run(text.as_bytes()));
        assert!(
            used.bytes_max <= limit,
            "{} bytes: {text:?}",
            used.bytes_max
        );
        outcomes[outcome.map_or(0, |matched| 1 + usize::from(matched))] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 20), "{outcomes:?}");
}
