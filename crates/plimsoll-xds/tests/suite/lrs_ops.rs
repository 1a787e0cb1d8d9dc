//! Load reporting messages in any order, with the interpreter of the fuzz target.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::lrs_ops::run;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_client_breaks_the_invariants(bytes in vec(any::<u8>(), 0..100)) {
        run(&bytes);
    }
}

/// Guards against checks that never run.
#[test]
fn every_case_is_reached() {
    // No node; an Envoy; other settings; a plimsoll data plane; traffic.
    let seen = run(&[0, 0, 0, 1, 2, 0xff, 0, 5, 3, 1]);
    assert_eq!((seen.nameless, seen.reports), (1, 2), "{seen:?}");
    assert!(seen.settings >= 2 && seen.traffic >= 1, "{seen:?}");
}

/// Regression: the second data plane got no traffic until it changed.
#[test]
fn a_data_plane_that_takes_over_a_stream_gets_traffic() {
    assert_eq!(run(&[0, 5, 3, 1, 0, 1, 0, 5]).traffic, 2);
}
