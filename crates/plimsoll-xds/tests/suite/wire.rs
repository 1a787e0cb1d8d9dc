//! Robustness of the decoders, with the interpreter of the fuzz target. Fields are tested in
//! `convert`.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::wire::{KINDS, MEMORY_BASE, MEMORY_PER_BYTE, Outcome};

/// Runs the interpreter and checks its memory.
fn run(bytes: &[u8]) -> Outcome {
    let mut outcome = Outcome::Nothing;
    let used = allocation_counter::measure(|| outcome = crate::support::wire::run(bytes)).bytes_max;
    let limit = MEMORY_BASE + MEMORY_PER_BYTE * u64::try_from(bytes.len()).unwrap_or(0);
    assert!(used <= limit, "{used} bytes of memory, {limit} are allowed");
    outcome
}

/// Messages encoded by another implementation.
const MESSAGES: &str = include_str!("../data/messages.hex");

fn messages() -> Vec<Vec<u8>> {
    let lines = MESSAGES.lines().filter(|line| !line.starts_with('#'));
    let hex = |text: &str| -> Vec<u8> {
        let pairs = text.as_bytes().chunks(2);
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        pairs.filter_map(pair).collect()
    };
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(_, bytes)| hex(bytes))
        .collect()
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        run(&bytes);
    }

    #[test]
    fn damaged_messages_never_panic(
        index in any::<prop::sample::Index>(),
        kind in 0..KINDS,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut messages = messages();
        let message = index.get_mut(&mut messages);
        for (place, byte) in changes {
            *place.get_mut(message) = byte;
        }
        run(&[&[kind][..], message].concat());
    }
}

/// A short message cannot announce more than it has.
#[test]
fn memory_is_bounded_by_the_length_of_a_message() {
    for kind in 0..KINDS {
        for element in [
            &b"\x0a\x00"[..],
            b"\x12\x00",
            b"\x1a\x02\x0a\x00",
            b"\x22\x00",
        ] {
            run(&[&[kind][..], &element.repeat(2000)].concat());
        }
        // A field of 4 GB of which one byte is there.
        run(&[kind, 0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
    }
}

/// Guards against checks that never run.
#[test]
fn each_kind_of_message_can_be_accepted_and_rejected() {
    let messages = messages();
    assert!(messages.len() > 3);
    for kind in 0..KINDS {
        let seen = |bytes: &[u8]| run(&[&[kind][..], bytes].concat());
        let empty = [Vec::new(), vec![0x0a, 1, b'x']];
        let accepted = |bytes: &Vec<u8>| seen(bytes) == Outcome::Message;
        assert!(messages.iter().chain(&empty).any(accepted), "kind {kind}");
        assert_eq!(seen(b"\xff\xff"), Outcome::Rejected, "kind {kind}");
    }
    assert_eq!(run(b""), Outcome::Nothing);
}
