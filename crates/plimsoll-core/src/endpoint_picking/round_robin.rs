//! Round robin over hosts of equal weight (envoy-semantics §8.1).
//!
//! The cursor belongs to the worker, starts at its seed and survives changes of membership. If
//! weights differ, or a host is in slow start, the schedule of `edf` is used instead.

/// Host index for a counter: the same remainder as for a random draw.
pub use super::random::index;

/// A cursor over one list. It caches its index, so that a pick divides only after the length of the
/// list has changed.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    counter: u64,
    /// Cached `counter % len`.
    index: u32,
    len: u32,
}

impl Cursor {
    /// Creates a cursor that starts at `counter`.
    pub const fn new(counter: u64) -> Self {
        Self {
            counter,
            index: 0,
            len: 0,
        }
    }

    /// Returns the host index in a list of `len` and advances by one; `None` if the list is empty.
    #[inline]
    pub const fn next(&mut self, len: u32) -> Option<u32> {
        if len != self.len {
            self.measure(len);
        }
        let index = self.index;
        self.counter = self.counter.wrapping_add(1);
        self.index += 1;
        // 2^64 is not a multiple of most lengths: the index restarts with the counter as well.
        if self.index >= len || self.counter == 0 {
            self.index = 0;
        }
        if len == 0 { None } else { Some(index) }
    }

    #[cold]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the remainder is below len"
    )]
    const fn measure(&mut self, len: u32) {
        self.len = len;
        self.index = match len {
            0 => 0,
            len => (self.counter % len as u64) as u32,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_wrap_around_the_list() {
        let sequence: Vec<_> = (1..5).filter_map(|counter| index(counter, 3)).collect();
        assert_eq!(sequence, [1, 2, 0, 1]);
        assert_eq!(index(7, 0), None);
    }

    #[test]
    fn a_cursor_is_its_counter_modulo_the_length() {
        // The length of the list changes on the way, to 0 and back; counters wrap.
        let lengths = [3, 3, 3, 3, 7, 7, 0, 7, 1, 1, 65_537, 65_537, 3, 3, 3];
        for start in [0, 6, u64::from(u32::MAX) - 4, u64::MAX - 5, u64::MAX] {
            let mut cursor = Cursor::new(start);
            for (step, len) in (0..).zip(lengths) {
                let expected = index(start.wrapping_add(step), len as usize);
                let actual = cursor.next(len).map(|index| index as usize);
                assert_eq!(actual, expected, "start {start}, step {step}, length {len}");
            }
        }
    }

    #[test]
    fn a_cursor_survives_the_end_of_its_counter_at_an_unchanged_length() {
        let mut cursor = Cursor::new(u64::MAX - 1);
        let picks: Vec<_> = (0..4).filter_map(|_| cursor.next(10)).collect();
        assert_eq!(picks, [4, 5, 0, 1]);
    }
}
