//! Robustness of the service config parser, with the interpreter of the fuzz target.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::service_config::{KINDS, Outcome, run};

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        run(&bytes);
    }

    #[test]
    fn random_configs_never_panic(fields in vec((2..9_u8, 9..21_u8), 0..5)) {
        let mut bytes = vec![2, 0];
        for (index, (field, value)) in fields.into_iter().enumerate() {
            bytes.extend((index > 0).then_some(21));
            bytes.extend([field, value]);
        }
        bytes.push(1);
        run(&bytes);
    }
}

/// Guards against checks that never run.
#[test]
fn each_kind_of_input_can_be_accepted_and_rejected() {
    let whole = br#"{"loadBalancingConfig": [{"round_robin": {}}]}"#;
    let settings = br#""blackoutPeriod": "5s""#;
    let pieces = [0, 3, 14, 21, 8, 9, 22, 1];
    let good: [&[u8]; KINDS as usize] = [whole, settings, &pieces];
    for (kind, good) in (0..KINDS).zip(good) {
        let seen = |bytes: &[u8]| run(&[&[kind][..], bytes].concat());
        assert_eq!(seen(good), Outcome::Policy, "kind {kind}");
        assert_eq!(seen(b"\xff?"), Outcome::Rejected, "kind {kind}");
    }
    assert_eq!(run(b""), Outcome::Nothing);
}

/// Long repetitive inputs, which the generators do not produce.
#[test]
fn repetitive_input_never_panics() {
    for piece in [
        &b"{"[..],
        b"[",
        b"\"",
        b"{\"a\":",
        b"- ",
        b"&a ",
        b"*a,",
        b"\n ",
    ] {
        for kind in 0..KINDS {
            for times in [1, 100, 1_000] {
                run(&[&[kind][..], &piece.repeat(times)].concat());
            }
        }
    }
}
