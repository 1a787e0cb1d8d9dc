//! Clients that violate the protocol: the stream stays bounded and stops sending.

use std::sync::Arc;

use plimsoll_xds::ads::{
    CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION, Request, Variant,
};
use proptest::prelude::*;

use super::peer::{Peer, delta_request, nack_detail, sotw_request, view};

const TYPES: [&str; 5] = [
    CLUSTER,
    CLUSTER_LOAD_ASSIGNMENT,
    LISTENER,
    ROUTE_CONFIGURATION,
    "other",
];
const NAMES: [&str; 4] = ["a", "b", "missing", "*"];

/// Type, names, other names, which nonce, whether it NACKs, and content of the view after it.
type Step = (usize, Vec<usize>, Vec<usize>, usize, bool, usize);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let names = || proptest::collection::vec(0..NAMES.len(), 0..4);
    let step = (
        0..TYPES.len(),
        names(),
        names(),
        0..4_usize,
        any::<bool>(),
        0..4_usize,
    );
    proptest::collection::vec(step, 1..60)
}

fn request(variant: Variant, step: &Step, last: &[String]) -> Request {
    let (kind, names, others, nonce, refuses, _) = step;
    let pick = |list: &[usize]| list.iter().map(|&index| NAMES[index]).collect::<Vec<_>>();
    let newest = last.len().checked_sub(*nonce);
    let nonce = newest.and_then(|index| last.get(index)).cloned();
    let error_detail = refuses.then(nack_detail);
    match variant {
        Variant::Sotw => {
            let mut request = sotw_request(TYPES[*kind], "", "", &pick(names));
            request.response_nonce = nonce.unwrap_or_default();
            request.error_detail = error_detail;
            Request::Sotw(request)
        }
        Variant::Delta => {
            let mut request = delta_request(TYPES[*kind], &pick(names), &pick(others));
            request.response_nonce = nonce.unwrap_or_default();
            request.error_detail = error_detail;
            Request::Delta(request)
        }
    }
}

fn run(variant: Variant, steps: &[Step]) {
    let mut peer = Peer::new(variant);
    let mut nonces = Vec::new();
    for step in steps {
        let text = step.5.to_string();
        let both: &[_] = &[("a", "1"), ("b", &text)];
        let resources = if step.5 == 0 { &both[..1] } else { both };
        peer.stream
            .set_view(view(&TYPES.map(|type_url| (type_url, resources))));
        peer.handle(request(variant, step, &nonces))
            .expect("within limits");
        for _ in 0..TYPES.len() {
            let response = peer.stream.poll_transmit();
            nonces.extend(response.map(|response| response.nonce().to_owned()));
        }
        // At most one per type, because nothing was answered in between.
        peer.expect_nothing();
        let under_way = peer
            .stream
            .status()
            .filter(|status| status.in_flight)
            .count();
        let (sent, answered) = peer
            .stream
            .status()
            .fold((0, 0), |(sent, answered), status| {
                (
                    sent + status.responses,
                    answered + status.acks + status.nacks,
                )
            });
        assert_eq!(usize::try_from(sent - answered), Ok(under_way));
        let names: Vec<Arc<str>> = peer.stream.subscribed_types().cloned().collect();
        assert!(names.len() <= TYPES.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn sotw_stays_bounded(steps in steps()) {
        run(Variant::Sotw, &steps);
    }

    #[test]
    fn incremental_stays_bounded(steps in steps()) {
        run(Variant::Delta, &steps);
    }
}
