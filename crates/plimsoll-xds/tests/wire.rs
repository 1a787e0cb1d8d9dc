//! Messages from the network: that no bytes do harm, through the interpreter that the fuzz target
//! uses. What single fields mean is tested beside `convert`.

use proptest::collection::vec;
use proptest::prelude::*;

#[path = "support/wire.rs"]
mod wire;

use wire::{KINDS, Seen, run};

/// Real messages, written by another program.
const MESSAGES: &str = include_str!("data/messages.hex");

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
    fn no_bytes_do_harm(bytes in vec(any::<u8>(), 0..200)) {
        run(&bytes);
    }

    #[test]
    fn no_change_of_a_real_message_does_harm(
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

/// The checks above are worth nothing if everything is refused.
#[test]
fn each_kind_of_message_can_be_accepted_and_refused() {
    let messages = messages();
    assert!(messages.len() > 3);
    for kind in 0..KINDS {
        let seen = |bytes: &[u8]| run(&[&[kind][..], bytes].concat());
        let empty = [Vec::new(), vec![0x0a, 1, b'x']];
        let accepted = |bytes: &Vec<u8>| seen(bytes) == Seen::Message;
        assert!(messages.iter().chain(&empty).any(accepted), "kind {kind}");
        assert_eq!(seen(b"\xff\xff"), Seen::Refused, "kind {kind}");
    }
    assert_eq!(run(b""), Seen::Nothing);
}
