//! Tests of the filter on bytes of HTTP/2 connections.

use super::*;

const DATA: u8 = 0;
const END_STREAM: u8 = 0x1;

pub(crate) fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, 1]);
    frame.extend_from_slice(payload);
    frame
}

/// Header block of a gRPC request with `:authority` as a plain literal with indexing.
fn block(authority: &[u8]) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x84, 0x41];
    block.push(u8::try_from(authority.len()).unwrap());
    block.extend_from_slice(authority);
    // x-a: a|b
    block.extend(b"\x40\x03x-a\x03a|b");
    block
}

pub(crate) fn request(authority: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, &block(authority))
}

fn filter(input: &[u8]) -> Vec<u8> {
    let mut filter = AuthorityFilter::default();
    let mut output = Vec::new();
    filter.push(input, &mut output);
    filter.finish(&mut output);
    output
}

/// Bits as text, padded with ones.
fn bits(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |digits: &[u8]| {
        let missing = 8 - digits.len();
        let value = digits
            .iter()
            .fold(0_u32, |value, digit| value << 1 | u32::from(digit - b'0'));
        u8::try_from(value << missing | ((1 << missing) - 1)).unwrap()
    };
    digits.chunks(8).map(byte).collect()
}

#[test]
fn a_pipe_in_the_authority_becomes_a_plus_and_nothing_else_changes() {
    let sent = [PREFACE, &request(b"outbound|33000||svc.ns")].concat();
    let expected = [PREFACE, &request(b"outbound+33000++svc.ns")].concat();
    assert_eq!(filter(&sent), expected);
    let plain = [PREFACE, &request(b"xds_cluster")].concat();
    assert_eq!(filter(&plain), plain);
}

#[test]
fn every_form_of_the_field_is_found() {
    let with = |before: &[u8], value: &[u8]| {
        let length = u8::try_from(value.len()).unwrap();
        [
            PREFACE,
            &frame(HEADERS, END_HEADERS, &[before, &[length], value].concat()),
        ]
        .concat()
    };
    for before in [
        &b"\x41"[..],          // with indexing
        b"\x01",               // without indexing
        b"\x11",               // never indexed
        b"\x40\x0a:authority", // name as text
        b"\x00\x0a:authority",
        b"\x3f\xe1\x1f\x41",  // after a change of the table's size
        b"\xff\x00\x82\x41",  // after indexed fields
        b"\x0f\x0d\x01|\x41", // after a field with a long index
        b"\x7f\x01\x01|\x41",
    ] {
        assert_eq!(
            filter(&with(before, b"a|b")),
            with(before, b"a+b"),
            "{before:x?}"
        );
    }
    for other in [&b"\x42"[..], b"\x40\x0a:authoritz", b"\x44", b"\x7f\x01"] {
        let sent = with(other, b"a|b");
        assert_eq!(filter(&sent), sent, "{other:x?}");
    }
}

#[test]
fn huffman_coded_values_keep_their_length() {
    // `a|b`, `||`, and `|` behind one character of each length.
    for (sent, expected) in [
        ("00011 11111111100 100011", "00011 11111111011 100011"),
        ("11111111100 11111111100", "11111111011 11111111011"),
        ("010100 11111111100", "010100 11111111011"),
        ("1011100 11111111100", "1011100 11111111011"),
        ("11111000 11111111100", "11111000 11111111011"),
        ("1111111000 11111111100", "1111111000 11111111011"),
        ("11111111010 11111111100", "11111111010 11111111011"),
        ("111111111010 11111111100", "111111111010 11111111011"),
        ("1111111111000 11111111100", "1111111111000 11111111011"),
        ("11111111111100 11111111100", "11111111111100 11111111011"),
        ("111111111111110 11111111100", "111111111111110 11111111011"),
        ("00000 00001 00010", "00000 00001 00010"),
        // The bits of `|` across two other characters: `t` and 26 more of 6 bits.
        ("01111 111000 0001", "01111 111000 0001"),
    ] {
        let (mut text, expected) = (bits(sent), bits(expected));
        replace_huffman(&mut text);
        assert_eq!(text, expected, "{sent}");
        let block = |text: &[u8]| {
            let length = 0x80 | u8::try_from(text.len()).unwrap();
            frame(HEADERS, END_HEADERS, &[&[0x41, length], text].concat())
        };
        let sent = [PREFACE, &block(&bits(sent))].concat();
        assert_eq!(filter(&sent), [PREFACE, &block(&expected)].concat());
    }
    // A character with a longer code ends the search: `\\` has 19 bits.
    let mut text = bits("1111111111111110000 11111111100");
    replace_huffman(&mut text);
    assert_eq!(text, bits("1111111111111110000 11111111100"));
}

#[test]
fn padding_priority_and_continuations_are_understood() {
    let (sent, expected) = (block(b"a|b||c"), block(b"a+b++c"));
    let frames = |block: &[u8]| -> Vec<Vec<u8>> {
        let padded = [&[3], block, b"|||"].concat();
        let priority = [b"||||\x10", block].concat();
        let both = [b"\x02||||\x10", block, b"||"].concat();
        let mut all = vec![
            frame(HEADERS, END_HEADERS | PADDED, &padded),
            frame(HEADERS, END_HEADERS | PRIORITY | END_STREAM, &priority),
            frame(HEADERS, END_HEADERS | PADDED | PRIORITY, &both),
        ];
        for at in 0..=block.len() {
            let (first, rest) = block.split_at(at);
            let (second, third) = rest.split_at(rest.len() / 2);
            all.push(
                [
                    frame(HEADERS, PADDED, &[&[1], first, b"|"].concat()),
                    frame(CONTINUATION, 0, second),
                    frame(CONTINUATION, END_HEADERS, third),
                ]
                .concat(),
            );
        }
        all
    };
    for (sent, expected) in frames(&sent).iter().zip(frames(&expected)) {
        assert_eq!(
            filter(&[PREFACE, sent].concat()),
            [PREFACE, &expected].concat()
        );
    }
}

#[test]
fn other_frames_pass_and_requests_behind_them_are_found() {
    let settings = frame(4, 0, &[]);
    let data = frame(DATA, 0, b"\x41\x03a|b");
    let parts = |authority: &[u8]| {
        let requests = request(authority);
        [PREFACE, &settings, &requests, &data, &requests, &settings].concat()
    };
    assert_eq!(filter(&parts(b"a|b")), parts(b"a+b"));
}

fn request_of(authority: &[u8]) -> Vec<u8> {
    request(authority)
}

#[test]
fn whatever_the_filter_does_not_understand_passes_unchanged() {
    let request = request(b"a|b");
    let long = frame(HEADERS, END_HEADERS, &vec![0x82; MAX_BLOCK + 1]);
    let continued = frame(HEADERS, 0, &vec![0x82; MAX_BLOCK / 2]);
    let too_much = frame(CONTINUATION, END_HEADERS, &vec![0x82; MAX_BLOCK / 2]);
    for sent in [
        b"GET / HTTP/1.1\r\nhost: a|b\r\n\r\n".to_vec(),
        [&b"PRI * HTTP/1.1"[..], &request].concat(),
        // Cut off within the preface, a frame header and a frame.
        PREFACE[..10].to_vec(),
        [PREFACE, &request[..4]].concat(),
        [PREFACE, &request[..20]].concat(),
        // Malformed frames and blocks.
        [PREFACE, &frame(HEADERS, END_HEADERS | PADDED, b"\x09a|b")].concat(),
        [PREFACE, &frame(HEADERS, END_HEADERS | PADDED, b"")].concat(),
        [PREFACE, &frame(HEADERS, END_HEADERS | PRIORITY, b"a|b")].concat(),
        [PREFACE, &frame(HEADERS, END_HEADERS, b"\x41\x7fa|b")].concat(),
        [PREFACE, &frame(HEADERS, END_HEADERS, b"\x41\x09a|b")].concat(),
        [
            PREFACE,
            &frame(HEADERS, END_HEADERS, b"\x7f\xff\xff\xff\x01\x41\x03a|b"),
        ]
        .concat(),
        [
            PREFACE,
            &frame(HEADERS, 0, b"\x41"),
            &frame(DATA, 0, b"\x03a|b"),
        ]
        .concat(),
        [PREFACE, &frame(CONTINUATION, END_HEADERS, b"\x41\x03a|b")].concat(),
        [PREFACE, &continued, &too_much].concat(),
    ] {
        assert_eq!(filter(&sent), sent);
    }
    // A frame that is too long passes; the next request is found.
    let sent = [PREFACE, &long, &request].concat();
    let expected = [PREFACE, &long, &request_of(b"a+b")].concat();
    assert_eq!(filter(&sent), expected);
}

#[test]
fn a_request_is_seen_when_its_headers_are_complete() {
    let mut filter = AuthorityFilter::default();
    let mut output = Vec::new();
    let sent = [PREFACE, &frame(4, 0, &[]), &request(b"a")].concat();
    let (last, before) = sent.split_last().unwrap();
    filter.push(before, &mut output);
    assert!(!filter.has_request());
    filter.push(&[*last], &mut output);
    assert!(filter.has_request());
    assert_eq!(output, sent);
    assert_eq!(
        (filter.held.capacity(), filter.fragments.capacity()),
        (0, 0)
    );
}

#[test]
fn payloads_pass_without_a_copy() {
    let mut filter = AuthorityFilter::default();
    let mut output = Vec::new();
    let data = frame(DATA, 0, &[b'|'; 100]);
    filter.push(&[PREFACE, &data[..FRAME_HEADER + 10]].concat(), &mut output);
    assert_eq!(filter.pass(&data[..50]), 50);
    assert_eq!(filter.pass(&data[..50]), 40);
    assert_eq!(filter.state, State::Header(0));
    assert_eq!(filter.pass(&data), 0);
}
