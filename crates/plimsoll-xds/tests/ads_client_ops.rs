//! Discovery with a server that does as it likes, through the interpreter that the fuzz target
//! uses.

use proptest::collection::vec;
use proptest::prelude::*;

#[path = "support/ads_client_ops.rs"]
mod ads_client_ops;

use ads_client_ops::run;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_server_does_harm(bytes in vec(any::<u8>(), 0..300)) {
        run(&bytes);
    }
}

/// A response under way when its last name is given up, and another one behind it.
#[test]
fn a_response_after_the_last_name_is_given_up_need_not_be_answered() {
    run(&[0, 0, 2, 5, 0, 9, 0, 10, 0, 4, 2, 10, 0, 9, 0]);
}

/// The checks are worth nothing if nothing happens.
#[test]
fn everything_happens_in_both_variants() {
    for variant in 0..2 {
        // A stream, all clusters, requests; good ones, one that is bad, none.
        let seen = run(&[
            variant, 0, 3, 5, 0, 9, 0, 10, 0x15, 9, 0, 10, 0x0d, 9, 0, 10, 0, 9, 0,
        ]);
        assert!(seen.updates >= 4 && seen.removals >= 1, "{seen:?}");
        assert_eq!((seen.refusals, seen.answers), (1, 3), "{seen:?}");
    }
}
