//! [`Window`]: what a growing total was a moment ago, so that it can be made a rate.
//!
//! Time is an argument, since an origin that the caller chose. Called by `measure`.

use std::collections::VecDeque;
use std::time::Duration;

/// Totals of the last `span`, and one older, so that a full window is always covered.
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

    /// Adds the totals of `now`, and returns the oldest ones that count with their age. At first
    /// that is less than the span, later at least the span. Time does not go backwards.
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
    fn the_window_grows_to_its_span_and_slides() {
        let mut window = Window::new(at(1_000));
        let mut push = |total: u64, millis| {
            let (oldest, age) = window.push(total, at(millis));
            (*oldest, age.as_millis())
        };
        assert_eq!(push(10, 500), (10, 0), "alone, it is its own past");
        assert_eq!(push(20, 900), (10, 400));
        assert_eq!(push(30, 1_500), (10, 1_000));
        assert_eq!(push(40, 1_800), (10, 1_300), "900 is too young alone");
        assert_eq!(push(50, 1_900), (20, 1_000));
        assert_eq!(push(60, 2_000), (20, 1_100));
    }

    #[test]
    fn after_a_pause_the_last_total_is_the_past() {
        let mut window = Window::new(at(1_000));
        for tick in 0..20 {
            window.push(tick, at(tick * 100));
        }
        let (oldest, age) = window.push(99, at(60_000));
        assert_eq!((*oldest, age), (19, at(58_100)));
        assert_eq!(window.marks.len(), 2, "what is old is forgotten");
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
