//! Discovery with a client that does as it likes, through the interpreter that the fuzz target
//! uses.

use proptest::collection::vec;
use proptest::prelude::*;

#[path = "support/ads_ops.rs"]
mod ads_ops;

use ads_ops::run;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_conversation_does_harm(bytes in vec(any::<u8>(), 0..300)) {
        run(&bytes);
    }
}

/// The view changes, or the client asks again, while a response is under way that it then refuses.
#[test]
fn what_changes_under_way_makes_no_loop() {
    run(&[
        152, 17, 0, 1, 0, 240, 8, 0, 28, 0, 4, 1, 0, 65, 0, 0, 36, 5, 0, 45, 0, 5, 0, 141, 0, 5, 0,
        0, 4, 162, 178, 5, 0, 77, 0, 97, 0, 13, 0, 13, 0, 13, 0, 93, 0, 48, 52, 9, 0, 97, 0, 13, 0,
    ]);
    run(&[
        31, 45, 0, 162, 0, 1, 0, 1, 0, 1, 0, 1, 0, 125, 0, 13, 0, 13, 0, 11, 0, 21, 0, 194, 118,
        109, 0, 1, 0, 114, 70, 121, 0, 45, 0,
    ]);
}

/// The checks are worth nothing if nothing happens.
#[test]
fn everything_happens_in_both_variants() {
    for variant in 0..2 {
        // A view, a wish for all clusters, the response, a refusal, another view, an old nonce.
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
