//! [`PingScan`]: finds PING acknowledgements that an HTTP/2 client sends without having been asked.
//! The HTTP/2 library logs each of them and keeps the connection.

/// Acknowledgements without a PING after which the connection is closed.
const MAX_UNSOLICITED: u32 = 10;
/// Length of the client's connection preface (RFC 9113, 3.4).
const PREFACE: u32 = 24;
const PING: u8 = 6;
const ACK: u8 = 1;

#[derive(Debug)]
pub(crate) struct PingScan {
    read: Frames,
    written: Frames,
    /// PINGs of this end that have not been acknowledged.
    pending: u32,
    unsolicited: u32,
}

impl Default for PingScan {
    fn default() -> Self {
        let read = Frames {
            remaining: PREFACE,
            ..Frames::default()
        };
        Self {
            read,
            written: Frames::default(),
            pending: 0,
            unsolicited: 0,
        }
    }
}

impl PingScan {
    /// Scans bytes of the client; returns false if the connection has to be closed.
    pub(crate) fn scan_read(&mut self, bytes: &[u8]) -> bool {
        let (pending, unsolicited) = (&mut self.pending, &mut self.unsolicited);
        self.read.scan(bytes, |kind, flags| {
            if kind == PING && flags & ACK != 0 {
                match pending.checked_sub(1) {
                    Some(fewer) => *pending = fewer,
                    None => *unsolicited = unsolicited.saturating_add(1),
                }
            }
        });
        self.unsolicited <= MAX_UNSOLICITED
    }

    /// Scans bytes to the client.
    pub(crate) fn scan_written(&mut self, bytes: &[u8]) {
        let pending = &mut self.pending;
        self.written.scan(bytes, |kind, flags| {
            if kind == PING && flags & ACK == 0 {
                *pending = pending.saturating_add(1);
            }
        });
    }
}

/// Follows the frames of one direction.
#[derive(Debug, Default)]
struct Frames {
    /// Length, type and flags of the next frame, as far as they have been scanned.
    head: [u8; 5],
    filled: usize,
    /// Bytes until the next frame: the rest of its head, with the stream, and its payload.
    remaining: u32,
}

impl Frames {
    fn scan(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(u8, u8)) {
        while !bytes.is_empty() {
            if self.remaining > 0 {
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let skipped = self.remaining.min(length);
                self.remaining -= skipped;
                bytes = &bytes[usize::try_from(skipped).unwrap_or(bytes.len())..];
                continue;
            }
            self.head[self.filled] = bytes[0];
            self.filled += 1;
            bytes = &bytes[1..];
            if self.filled == self.head.len() {
                let [high, middle, low, kind, flags] = self.head;
                on_frame(kind, flags);
                self.filled = 0;
                self.remaining = 4 + u32::from_be_bytes([0, high, middle, low]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: u8 = 0;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 0];
        // Bytes that look like an acknowledged PING.
        let payload = [0, 0, 8, PING, ACK, 0, 0, 0, 0];
        frame.extend(payload.iter().cycle().take(usize::from(length)));
        frame
    }

    fn read(scan: &mut PingScan, bytes: &[u8], step: usize) -> bool {
        bytes.chunks(step).all(|piece| scan.scan_read(piece))
    }

    #[test]
    fn acknowledgements_that_nobody_asked_for_are_counted() {
        for step in [1, 2, 7, 1000] {
            let mut scan = PingScan::default();
            assert!(read(&mut scan, &[0xff; 24], step));
            let noise = [frame(DATA, ACK, 200), frame(PING, 0, 8)].concat();
            let ack = [noise, frame(PING, ACK, 8)].concat();
            for _ in 0..MAX_UNSOLICITED {
                assert!(read(&mut scan, &ack, step));
            }
            assert!(!read(&mut scan, &ack, step));
        }
    }

    #[test]
    fn acknowledgements_of_pings_are_not_counted() {
        let mut scan = PingScan::default();
        assert!(scan.scan_read(&[0; 24]));
        for step in [1, 5, 100] {
            for _ in 0..100 {
                let ping = [frame(DATA, 0, 20), frame(PING, 0, 8), frame(PING, ACK, 8)].concat();
                ping.chunks(step).for_each(|piece| scan.scan_written(piece));
                assert!(scan.scan_read(&frame(PING, ACK, 8)));
            }
        }
        assert_eq!((scan.pending, scan.unsolicited), (0, 0));
    }
}
