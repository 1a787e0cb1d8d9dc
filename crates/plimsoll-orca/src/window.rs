//! [`Window`]: sliding window over growing totals, from which `measure` computes rates.
//!
//! The caller passes in the time, relative to an origin of its choice.

use std::collections::VecDeque;
use std::time::Duration;

/// Totals of the last `span`, and one older, so that the whole span is covered.
#[derive(Debug)]
pub(crate) struct Window<T> {
    span: Duration,
    marks: VecDeque<(Duration, T)>,
}

impl<T> Window<T> {
    pub(crate) fn new(span: Duration) -> Self {
        Self {
            span,
            marks: VecDeque::new(),
        }
    }

    /// Adds the totals at `now`, and returns the oldest totals in the window with their age: less
    /// than the span at first, at least the span later. Time must not decrease.
    pub(crate) fn push(&mut self, totals: T, now: Duration) -> (&T, Duration) {
        let begin = now.saturating_sub(self.span);
        while self.marks.get(1).is_some_and(|(at, _)| *at <= begin) {
            self.marks.pop_front();
        }
        self.marks.push_back((now, totals));
        let (at, oldest) = &self.marks[0];
        (oldest, now.saturating_sub(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_window_grows_to_its_span_and_then_slides() {
        let mut window = Window::new(at(1_000));
        let mut push = |total: u64, millis| {
            let (oldest, age) = window.push(total, at(millis));
            (*oldest, age.as_millis())
        };
        assert_eq!(push(10, 500), (10, 0), "a single entry is also the oldest");
        assert_eq!(push(20, 900), (10, 400));
        assert_eq!(push(30, 1_500), (10, 1_000));
        assert_eq!(
            push(40, 1_800),
            (10, 1_300),
            "the entry of 900 does not cover the span"
        );
        assert_eq!(push(50, 1_900), (20, 1_000));
        assert_eq!(push(60, 2_000), (20, 1_100));
    }

    #[test]
    fn after_a_pause_the_last_total_is_the_oldest() {
        let mut window = Window::new(at(1_000));
        for tick in 0..20 {
            window.push(tick, at(tick * 100));
        }
        let (oldest, age) = window.push(99, at(60_000));
        assert_eq!((*oldest, age), (19, at(58_100)));
        assert_eq!(window.marks.len(), 2, "old entries are removed");
    }

    #[test]
    fn memory_is_bounded_by_span_and_tick() {
        let mut window = Window::new(at(1_000));
        for tick in 0..1_000 {
            window.push((), at(tick * 100));
            assert!(window.marks.len() <= 12);
        }
    }
}
