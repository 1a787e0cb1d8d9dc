//! ADS server stream against a client that may violate the protocol, with the interpreter of the
//! fuzz target.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::ads_ops::run;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_client_breaks_the_invariants(bytes in vec(any::<u8>(), 0..300)) {
        run(&bytes);
    }
}

/// The view changes, or the client subscribes again, while a response is in flight that it then
/// NACKs.
#[test]
fn changes_during_a_nacked_response_cause_no_loop() {
    run(&[
        152, 17, 0, 1, 0, 240, 8, 0, 28, 0, 4, 1, 0, 65, 0, 0, 36, 5, 0, 45, 0, 5, 0, 141, 0, 5, 0,
        0, 4, 162, 178, 5, 0, 77, 0, 97, 0, 13, 0, 13, 0, 13, 0, 93, 0, 48, 52, 9, 0, 97, 0, 13, 0,
    ]);
    run(&[
        31, 45, 0, 162, 0, 1, 0, 1, 0, 1, 0, 1, 0, 125, 0, 13, 0, 13, 0, 11, 0, 21, 0, 194, 118,
        109, 0, 1, 0, 114, 70, 121, 0, 45, 0,
    ]);
}

/// Guards against checks that never run.
#[test]
fn every_case_is_reached_in_both_variants() {
    for variant in 0..2 {
        // A view, a wildcard subscription, the response, a NACK, another view, an old nonce.
        let seen = run(&[
            variant, 0, 0xaa, 2, 8, 15, 0, 9, 0, 0, 0xaa, 15, 0, 11, 0, 5, 0,
        ]);
        assert!(seen.responses >= 2 && seen.acks >= 1, "{seen:?}");
        assert_eq!(
            (seen.nacks, seen.stale, seen.ended),
            (1, 1, false),
            "{seen:?}"
        );
    }
    assert!(run(&[0, 2, u8::MAX]).ended, "a first request without node");
}
