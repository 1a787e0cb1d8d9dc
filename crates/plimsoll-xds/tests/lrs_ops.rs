//! Load reporting in any order, through the interpreter that the fuzz target uses.

use proptest::collection::vec;
use proptest::prelude::*;

#[path = "support/lrs_ops.rs"]
mod lrs_ops;

use lrs_ops::run;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_conversation_does_harm(bytes in vec(any::<u8>(), 0..100)) {
        run(&bytes);
    }
}

/// The checks are worth nothing if nothing happens.
#[test]
fn everything_happens() {
    // Nobody; an Envoy; other settings; a plimsoll data plane; traffic.
    let seen = run(&[0, 0, 0, 1, 2, 0xff, 0, 5, 3, 1]);
    assert_eq!((seen.nameless, seen.reports), (1, 2), "{seen:?}");
    assert!(seen.settings >= 2 && seen.traffic >= 1, "{seen:?}");
}

/// Found by chance: the second data plane was not told until traffic changed.
#[test]
fn a_data_plane_that_takes_over_a_stream_is_told_of_traffic() {
    assert_eq!(run(&[0, 5, 3, 1, 0, 1, 0, 5]).traffic, 2);
}
