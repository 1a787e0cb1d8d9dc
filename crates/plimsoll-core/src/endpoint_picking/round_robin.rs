//! Round robin over hosts of equal weight (envoy-semantics §8.1).
//!
//! The cursor belongs to the worker, starts at the worker's seed and survives changes of membership.
//! When weights differ, or a host is in slow start, the schedule of `edf` takes over.

/// The host for a cursor, if there is any.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the remainder is below len"
)]
pub const fn index(counter: u64, len: usize) -> Option<usize> {
    if len == 0 {
        return None;
    }
    let len = len as u64;
    // Most cursors fit 32 bits, and so do all lists: the narrow division is several times faster.
    let index = if counter <= u32::MAX as u64 && len <= u32::MAX as u64 {
        (counter as u32 % len as u32) as u64
    } else {
        counter % len
    };
    Some(index as usize)
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
    fn wide_and_narrow_division_agree() {
        for counter in [u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            for len in [1, 3, 7, 65_537] {
                let expected = usize::try_from(counter % len as u64).unwrap();
                assert_eq!(index(counter, len), Some(expected));
            }
        }
    }
}
