//! Tests of the filter on bytes of HTTP/2 connections.

use super::*;

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
    let mut filter = FrameFilter::default();
    let mut output = Vec::new();
    filter.push(input, &mut output);
    filter.finish(&mut output);
    output
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
    let mut filter = FrameFilter::default();
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
    let mut filter = FrameFilter::default();
    let mut output = Vec::new();
    let data = frame(DATA, 0, &[b'|'; 100]);
    filter.push(&[PREFACE, &data[..FRAME_HEADER + 10]].concat(), &mut output);
    assert_eq!(filter.pass(&data[..50]), 50);
    assert_eq!(filter.pass(&data[..50]), 40);
    assert_eq!(filter.state, State::Header(0));
    assert_eq!(filter.pass(&data), 0);
    // The last byte of a frame ends it, also if nothing follows, and that of an empty frame.
    filter.push(&data[..FRAME_HEADER], &mut output);
    assert_eq!(filter.pass(&data[..100]), 100);
    assert_eq!(filter.state, State::Header(0));
    filter.push(&frame(4, 0, &[]), &mut output);
    assert_eq!(filter.state, State::Header(0));
}

#[test]
fn frames_that_stay_as_they_are_pass_with_their_header() {
    let exact = frame(DATA, END_STREAM, &[b'|'; MAX_DATA]);
    let long = frame(HEADERS, END_HEADERS, &vec![0x82; MAX_BLOCK + 1]);
    for sent in [&exact[..FRAME_HEADER], &long[..100]] {
        let mut filter = FrameFilter::default();
        let mut output = Vec::new();
        filter.push(&[PREFACE, sent].concat(), &mut output);
        assert_eq!(output, [PREFACE, sent].concat(), "nothing is held back");
        assert!(!filter.has_request());
    }
}

#[test]
fn requests_behind_a_frame_of_64_kib_are_found_and_none_within_it() {
    let mut payload = request(b"a|b");
    payload.resize(1 << 16, 0);
    let long = frame(4, 0, &payload);
    let sent = [PREFACE, &long, &request(b"a|b")].concat();
    let expected = [PREFACE, &long, &request(b"a+b")].concat();
    assert_eq!(filter(&sent), expected);
}

/// Frames of a text, as kind, flags, stream and payload.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, [u8; 4], Vec<u8>)> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_at(FRAME_HEADER);
        let (payload, after) = rest.split_at(length(header));
        let stream = header[5..].try_into().unwrap();
        frames.push((header[3], header[4], stream, payload.to_vec()));
        bytes = after;
    }
    frames
}

#[test]
fn long_data_frames_are_split_and_the_last_part_ends_the_stream() {
    const SIZES: [usize; 6] = [0, 1, MAX_DATA, MAX_DATA + 1, 2 * MAX_DATA, MAX_FRAME];
    let text: Vec<u8> = (0_u8..=255).cycle().take(MAX_FRAME).collect();
    for size in SIZES {
        for flags in [0, END_STREAM] {
            let data = frame(DATA, flags, &text[..size]);
            let sent = [PREFACE, &data, &request(b"a|b"), &data].concat();
            let output = filter(&sent);
            let passed = frames(&output[PREFACE.len()..]);
            let parts = size.div_ceil(MAX_DATA).max(1);
            assert_eq!(passed.len(), 2 * parts + 1);
            assert_eq!(passed[parts], frames(&request(b"a+b"))[0]);
            for parts in [&passed[..parts], &passed[parts + 1..]] {
                let (last, before) = parts.split_last().unwrap();
                assert!(
                    before
                        .iter()
                        .all(|part| part.1 == 0 && part.3.len() == MAX_DATA)
                );
                assert_eq!((last.0, last.1), (DATA, flags));
                assert!(parts.iter().all(|part| part.2 == [0, 0, 0, 1]));
                let joined: Vec<u8> = parts.iter().flat_map(|part| part.3.clone()).collect();
                assert_eq!(joined, text[..size]);
            }
        }
    }
}

#[test]
fn padded_data_other_long_frames_and_too_long_ones_are_not_split() {
    let long = vec![b'|'; MAX_DATA + 1];
    for frame in [
        frame(DATA, PADDED | END_STREAM, &long),
        frame(4, 0, &long),
        frame(DATA, END_STREAM, &[b'|'; MAX_FRAME + 1]),
    ] {
        let sent = [PREFACE, &frame].concat();
        assert_eq!(filter(&sent), sent);
    }
}

#[test]
fn parts_pass_without_a_copy_but_for_their_headers() {
    let mut filter = FrameFilter::default();
    let mut output = Vec::new();
    let data = frame(DATA, END_STREAM, &[b'|'; MAX_DATA + 100]);
    filter.push(&[PREFACE, &data[..FRAME_HEADER]].concat(), &mut output);
    assert_eq!(output, PREFACE);
    assert_eq!(
        filter.pass(&data[FRAME_HEADER..]),
        0,
        "a header comes first"
    );
    filter.push(&data[FRAME_HEADER..][..1], &mut output);
    assert_eq!(output.len(), PREFACE.len() + FRAME_HEADER + 1);
    assert_eq!(filter.pass(&data), MAX_DATA - 1);
    assert_eq!(filter.pass(&data), 0, "the next header comes first");
    filter.push(b"|", &mut output);
    assert_eq!(output.len(), PREFACE.len() + 2 * FRAME_HEADER + 2);
    assert_eq!(filter.pass(&data), 99);
    assert_eq!(filter.state, State::Header(0));
}
