//! Objects as tenants may write them, with the interpreter of the fuzz target and its seeds.

use crate::support::objects::{MEMORY_BASE, MEMORY_PER_BYTE, run};

/// One sequence of objects.
const SEED: &str = include_str!("../../../../fuzz/seeds/kubernetes_objects.txt");

fn run_bounded(bytes: &[u8]) -> (usize, usize) {
    let mut found = (0, 0);
    let used = allocation_counter::measure(|| found = run(bytes)).bytes_max;
    let limit = MEMORY_BASE + MEMORY_PER_BYTE * u64::try_from(bytes.len()).unwrap();
    assert!(used <= limit, "{used} bytes of memory, {limit} are allowed");
    found
}

#[test]
fn the_seed_has_ports_and_refused_settings() {
    let (ports, refused) = run_bounded(SEED.as_bytes());
    assert!(ports >= 3 && refused >= 3, "{ports} {refused}");
}

#[test]
fn damaged_objects_never_panic() {
    // A linear congruential generator: the same damage in every run.
    let mut random = 11_u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005);
        random = random.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % limit
    };
    let tokens = [
        "null", "true", "[]", "{}", "\"\"", "-1", "1e999", "0", "65536", "\\u0000", "}", "\n", "é",
    ];
    for _ in 0..3000 {
        let mut text = SEED.to_owned();
        for _ in 0..1 + below(4) {
            let mut at = below(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            let mut end = (at + below(12)).min(text.len());
            while !text.is_char_boundary(end) {
                end += 1;
            }
            text.replace_range(at..end, tokens[below(tokens.len())]);
        }
        run_bounded(text.as_bytes());
    }
}
