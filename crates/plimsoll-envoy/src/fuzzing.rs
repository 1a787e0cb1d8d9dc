//! Interpreter of byte strings as the module's configuration, which a control plane may send inside
//! a cluster: it is refused with a reason or usable, and never panics inside Envoy. Compiled for
//! the tests of this crate and with `--cfg fuzzing`, for the fuzz target `module_config`.

use crate::config::ModuleConfig;

/// Memory that an input may use at a time, in bytes, and more for each of its bytes.
pub const MEMORY_BASE: u64 = 512 << 10;
/// A key of JSON becomes an entry of a map with its place in the text.
pub const MEMORY_PER_BYTE: u64 = 4 << 10;

/// Whether the configuration was accepted, so that tests can check coverage.
pub fn run(bytes: &[u8]) -> Option<bool> {
    let text = std::str::from_utf8(bytes).ok()?;
    match ModuleConfig::parse(text) {
        Ok(config) => {
            let cluster = config.cluster("orders");
            assert!(cluster.is_ok(), "accepted, but no cluster: {text}");
            Some(true)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            Some(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: &str = include_str!("../../../fuzz/seeds/module_config.txt");

    #[test]
    fn seeds_are_accepted_and_damaged_ones_never_panic() {
        // A linear congruential generator: the same damage in every run.
        let mut random = 5_u64;
        let mut below = |limit: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005);
            random = random.wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap() % limit
        };
        let tokens = [
            "null", "[]", "{}", "\"\"", "-1", "1e999", "nan", "}", ",", "\n",
        ];
        for seed in SEEDS.lines() {
            assert_eq!(run(seed.as_bytes()), Some(true), "{seed}");
            for _ in 0..500 {
                let mut text = seed.to_owned();
                for _ in 0..1 + below(3) {
                    let at = below(text.len());
                    let end = (at + below(12)).min(text.len());
                    text.replace_range(at..end, tokens[below(tokens.len())]);
                }
                run(text.as_bytes());
            }
        }
    }
}
