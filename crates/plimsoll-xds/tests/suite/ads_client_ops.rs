//! ADS client against a server that may violate the protocol, with the interpreter of the fuzz
//! target.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::ads_client_ops::run;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_server_breaks_the_invariants(bytes in vec(any::<u8>(), 0..300)) {
        run(&bytes);
    }
}

/// A response in flight when its last name is unsubscribed, followed by another.
#[test]
fn a_response_after_the_last_unsubscription_need_not_be_answered() {
    run(&[0, 0, 2, 5, 0, 9, 0, 10, 0, 4, 2, 10, 0, 9, 0]);
}

/// Guards against checks that never run.
#[test]
fn every_case_is_reached_in_both_variants() {
    for variant in 0..2 {
        // A stream, a wildcard subscription, responses that are valid, invalid and empty.
        let seen = run(&[
            variant, 0, 3, 5, 0, 9, 0, 10, 0x15, 9, 0, 10, 0x0d, 9, 0, 10, 0, 9, 0,
        ]);
        assert!(seen.updates >= 4 && seen.removals >= 1, "{seen:?}");
        assert_eq!((seen.nacks, seen.answers), (1, 3), "{seen:?}");
    }
}
