//! Random policy: the draw that chose the priority also chooses the host (envoy-semantics §8.1).

/// Returns the host index for a draw; `None` if the list is empty.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the remainder is below len"
)]
pub const fn index(hash: u64, len: usize) -> Option<usize> {
    if len == 0 {
        None
    } else {
        Some((hash % len as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_draw_picks_priority_and_host() {
        assert_eq!(index(2, 2), Some(0));
        assert_eq!(index(3, 2), Some(1));
        assert_eq!(index(u64::MAX, 10), Some(5));
        assert_eq!(index(3, 0), None);
    }
}
