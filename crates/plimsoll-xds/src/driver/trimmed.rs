//! [`TrimmedReport`]: a load report that arrives in several chunks, without the extensions of its
//! node.
//!
//! Envoy repeats its node in every load report, and lists its extensions in it: 60 of 61 KB, which
//! nobody reads. They are dropped as they arrive, so that thousands of reports at once need
//! little memory. A malformed report stays malformed, and is refused when it is decoded.

/// Field `node` of `LoadStatsRequest`, and its key.
const NODE: u64 = 1;
const NODE_KEY: u8 = 1 << 3 | 2;
/// Field `extensions` of `Node`.
const EXTENSIONS: u64 = 9;

/// Bytes of the longest key and length of a field.
const MAX_KEY: usize = 20;
/// Bytes that are left for the length of the node, which is known at its end. A varint may be
/// longer than necessary.
const NODE_LENGTH: usize = 5;

#[derive(Debug)]
pub(super) struct TrimmedReport {
    kept: Vec<u8>,
    /// Bytes of the message that have not arrived.
    missing: usize,
    /// Key of the next field, and the length of its value, as far as they have arrived.
    key: Vec<u8>,
    node: Option<OpenNode>,
    state: State,
}

/// The node, while its fields are read.
#[derive(Clone, Copy, Debug)]
struct OpenNode {
    /// Where its fields begin in `kept`.
    start: usize,
    /// Bytes of it that have not arrived.
    missing: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// At or in the key of a field.
    Key,
    Varint,
    /// Number of bytes to keep.
    Keep(usize),
    /// Number of bytes to drop.
    Drop(usize),
    /// The message is malformed: the rest is kept as it is.
    Malformed,
}

/// A key, and the length of a value that has one.
struct Field {
    number: u64,
    wire_type: u64,
    length: usize,
}

impl TrimmedReport {
    /// Begins a message of this length.
    pub(super) const fn new(length: usize) -> Self {
        Self {
            kept: Vec::new(),
            missing: length,
            key: Vec::new(),
            node: None,
            state: State::Key,
        }
    }

    /// Bytes of the message that have not arrived.
    pub(super) const fn missing(&self) -> usize {
        self.missing
    }

    /// Bytes that are in memory.
    pub(super) const fn len(&self) -> usize {
        self.kept.len() + self.key.len()
    }

    /// Takes the next bytes, at most [`Self::missing`].
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = self.step(bytes);
            bytes = &bytes[count..];
            self.missing -= count;
            if let Some(node) = &mut self.node {
                node.missing -= count;
                if node.missing == 0 {
                    self.end_node();
                }
            }
        }
    }

    /// Returns the message without extensions, once nothing is missing.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.kept.append(&mut self.key);
        self.kept
    }

    /// Takes some of the next bytes and returns how many.
    fn step(&mut self, bytes: &[u8]) -> usize {
        let within = self.node.map_or(bytes.len(), |node| node.missing);
        let bytes = &bytes[..bytes.len().min(within)];
        match self.state {
            State::Malformed => {
                self.kept.extend_from_slice(bytes);
                bytes.len()
            }
            State::Keep(length) => {
                let count = bytes.len().min(length);
                self.kept.extend_from_slice(&bytes[..count]);
                self.state = State::Keep(length - count).or_key();
                count
            }
            State::Drop(length) => {
                let count = bytes.len().min(length);
                self.state = State::Drop(length - count).or_key();
                count
            }
            State::Varint => {
                self.kept.push(bytes[0]);
                if bytes[0] < 0x80 {
                    self.state = State::Key;
                }
                1
            }
            State::Key => {
                self.key.push(bytes[0]);
                if bytes[0] < 0x80 || self.key.len() == MAX_KEY {
                    self.begin_field();
                }
                1
            }
        }
    }

    /// Decides what to do with a field whose key may be complete.
    fn begin_field(&mut self) {
        let field = match Field::parse(&self.key) {
            Ok(Some(field)) => field,
            Ok(None) => return,
            Err(()) => return self.malformed(),
        };
        let in_node = self.node.is_some();
        let missing = self.node.map_or(self.missing, |node| node.missing);
        // The last byte of the key is not counted yet.
        if field.length > missing - 1 {
            return self.malformed();
        }
        match (field.wire_type, field.number) {
            (2, EXTENSIONS) if in_node => {
                self.key.clear();
                self.state = State::Drop(field.length).or_key();
            }
            (2, NODE) if !in_node && field.length > 0 => {
                self.kept.push(NODE_KEY);
                self.kept.extend([0; NODE_LENGTH]);
                self.key.clear();
                self.node = Some(OpenNode {
                    start: self.kept.len(),
                    // The last byte of the key is counted after this.
                    missing: field.length + 1,
                });
            }
            (0, _) => self.keep_key(State::Varint),
            (1 | 2 | 5, _) => self.keep_key(State::Keep(field.length).or_key()),
            _ => self.malformed(),
        }
    }

    fn keep_key(&mut self, state: State) {
        self.kept.append(&mut self.key);
        self.state = state;
    }

    fn malformed(&mut self) {
        self.keep_key(State::Malformed);
    }

    /// Writes the length of the node.
    fn end_node(&mut self) {
        let Some(node) = self.node.take() else {
            return;
        };
        if !self.key.is_empty() || !matches!(self.state, State::Key) {
            // The node ends inside a field.
            self.malformed();
        }
        let length = self.kept.len() - node.start;
        let start = node.start - NODE_LENGTH;
        for (index, byte) in self.kept[start..node.start].iter_mut().enumerate() {
            let more = if index + 1 < NODE_LENGTH { 0x80 } else { 0 };
            *byte = u8::try_from(length >> (7 * index) & 0x7f).unwrap_or(0) | more;
        }
    }
}

impl State {
    /// The next field if there are no more bytes of this one.
    const fn or_key(self) -> Self {
        match self {
            Self::Keep(0) | Self::Drop(0) => Self::Key,
            other => other,
        }
    }
}

impl Field {
    /// Returns `None` if bytes are missing.
    fn parse(key: &[u8]) -> Result<Option<Self>, ()> {
        let Some((tag, rest)) = varint(key)? else {
            return Ok(None);
        };
        let field = |length| Self {
            number: tag >> 3,
            wire_type: tag & 7,
            length,
        };
        let length = match tag & 7 {
            1 => 8,
            5 => 4,
            2 => match varint(rest)? {
                Some((length, _)) => usize::try_from(length).map_err(|_| ())?,
                None => return Ok(None),
            },
            _ => 0,
        };
        Ok(Some(field(length)))
    }
}

/// Returns a varint and the bytes behind it, or `None` if bytes are missing.
fn varint(bytes: &[u8]) -> Result<Option<(u64, &[u8])>, ()> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate() {
        // The tenth byte has room for one bit.
        if index == 9 && *byte > 1 {
            return Err(());
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Ok(Some((value, &bytes[index + 1..])));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;
    use proptest::prelude::*;

    use super::*;
    use crate::lrs::message::LoadStatsRequest;
    use crate::wire;

    fn trimmed(message: &[u8], chunks: &[usize]) -> Vec<u8> {
        let mut report = TrimmedReport::new(message.len());
        let mut rest = message;
        for size in chunks.iter().copied().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at(size.min(rest.len()));
            report.push(chunk);
            rest = after;
            assert_eq!(report.missing(), rest.len());
        }
        report.finish()
    }

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        assert!(content.len() < 1 << 14);
        let length = [content.len() & 0x7f | 0x80, content.len() >> 7]
            .map(|byte| u8::try_from(byte).unwrap());
        [&[number << 3 | 2], &length[..], content].concat()
    }

    /// A report as Envoy sends it, with this many extensions of its node.
    fn report(extensions: usize) -> Vec<u8> {
        let locality = [field(1, b"r1"), field(2, b"zone-a")].concat();
        let mut node = [field(1, b"proxy-1"), field(2, b"edge"), field(4, &locality)].concat();
        for number in 0..extensions {
            let name = format!("envoy.filters.http.number_{number}");
            node.extend(field(9, &field(1, name.as_bytes())));
        }
        node.extend(field(6, b"envoy"));
        // node.user_agent_build_version.version.major_number
        node.extend(field(8, &field(1, b"\x08\x01")));
        let stats = [
            field(1, b"orders"),
            field(
                2,
                &[&field(1, &locality)[..], b"\x10\x2a\x40\xac\x02"].concat(),
            ),
        ];
        [field(1, &node), field(2, &stats.concat())].concat()
    }

    fn decoded(message: &[u8]) -> Result<LoadStatsRequest, String> {
        let bytes = bytes::Bytes::copy_from_slice(message);
        wire::decode_load_stats_request(bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn extensions_are_dropped_and_everything_else_stays() {
        let (long, short) = (report(300), report(0));
        let expected = decoded(&short).unwrap();
        let node = expected.node.as_ref().unwrap();
        assert_eq!(node.node.locality, Locality::new("r1", "zone-a", ""));
        assert_eq!(decoded(&long).unwrap(), expected);
        for chunks in [&[1][..], &[7, 100], &[4096], &[1 << 20]] {
            let kept = trimmed(&long, chunks);
            assert_eq!(decoded(&kept).unwrap(), expected);
            // The length of the node takes five bytes instead of two.
            assert_eq!(kept.len(), short.len() + 3, "{chunks:?}");
        }
    }

    #[test]
    fn extensions_are_not_kept_while_they_arrive() {
        let message = report(300);
        let mut report = TrimmedReport::new(message.len());
        for chunk in message.chunks(100) {
            report.push(chunk);
            assert!(report.len() < 200, "{} bytes", report.len());
        }
    }

    #[test]
    fn fields_with_these_numbers_elsewhere_stay() {
        // Field 9 of the message, and field 9 inside the locality of the node.
        let node = field(1, &field(4, &field(9, b"kept")));
        let message = [field(9, b"kept"), node].concat();
        let kept = trimmed(&message, &[3]);
        let count = kept.windows(4).filter(|part| part == b"kept").count();
        assert_eq!(count, 2);
    }

    #[test]
    fn malformed_reports_stay_malformed() {
        let valid = report(3);
        let node_key = &valid[..3];
        for message in [
            // Cut off at any byte of the node and behind it.
            &valid[..1],
            &valid[..20],
            &valid[..valid.len() - 1],
            // An extension that is longer than its node, a group, an endless key.
            &[node_key, b"\x4a\xff\x7f"].concat(),
            b"\x0a\x03\x4a\x05abcdefg",
            b"\x0a\x01\x4a",
            b"\x0a\x02\x08\x80\x08\x01",
            b"\x0b\x0c",
            &[0xff; 30],
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(decoded(message).is_err(), "{message:x?}");
            for chunks in [&[1][..], &[5], &[1 << 20]] {
                let kept = trimmed(message, chunks);
                assert!(decoded(&kept).is_err(), "{message:x?} became {kept:x?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_as_without_trimming(
            bytes in prop::collection::vec(
                prop_oneof![Just(0x0a), Just(0x4a), Just(0x12), 0_u8..6, any::<u8>()],
                0..60,
            ),
            chunks in prop::collection::vec(1_usize..9, 1..4),
        ) {
            let kept = trimmed(&bytes, &chunks);
            match (decoded(&bytes), decoded(&kept)) {
                (Ok(whole), Ok(trimmed)) => prop_assert_eq!(whole, trimmed),
                (whole, trimmed) => prop_assert_eq!(whole.is_err(), trimmed.is_err()),
            }
        }
    }
}
