//! [`EventQueue`]: what happens next, in order of time and, at the same moment, in order of
//! posting.
//!
//! [`Slab`] keeps what is too large for an event; the event carries its number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::num;
use crate::scenario::NEVER;

/// Something that happens at a moment. Numbers lead to proxies, hosts, steps or slots of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The answer to a request arrives at its proxy.
    Answer(u32),
    /// A request arrives at a proxy.
    Arrival(u32),
    /// What changed at a step is known to everybody now.
    Detected(u32),
    /// Fractions arrive at the proxies.
    Fractions(u32),
    /// A proxy sends its load report.
    LoadReport(u32),
    /// A load report arrives at the control plane.
    LoadReportArrives(u32),
    /// The oracle looks at the demand.
    Oracle,
    /// A host sends its load to everybody.
    OutOfBand(u32),
    /// The planner wants to be woken.
    PlannerTimer,
    /// A delayed load report of a host arrives at a proxy.
    Report(u32),
    /// A proxy starts.
    Start(u32),
    /// Something of the scenario begins or ends.
    Step(u32),
    /// A balancer wants to be woken.
    Timer(u32),
}

/// Events to come.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    posted: u64,
}

impl EventQueue {
    /// Posts an event; one at the end of time never happens.
    pub(super) fn post(&mut self, at: u64, event: Event) {
        if at < NEVER {
            self.posted += 1;
            self.heap.push(Reverse((at, self.posted, event)));
        }
    }

    /// The next event before `end`.
    pub(super) fn next(&mut self, end: u64) -> Option<(u64, Event)> {
        let Reverse((at, _, _)) = self.heap.peek()?;
        if *at >= end {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

/// Values by number; numbers are used again.
#[derive(Debug)]
pub(super) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.values[number as usize] = Some(value);
            return number;
        }
        self.values.push(Some(value));
        num::index(self.values.len() - 1)
    }

    pub(super) fn take(&mut self, number: u32) -> Option<T> {
        let value = self.values.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }

    pub(super) fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_posted() {
        let mut queue = EventQueue::default();
        queue.post(5, Event::Timer(1));
        queue.post(3, Event::Start(2));
        queue.post(5, Event::Answer(3));
        queue.post(NEVER, Event::PlannerTimer);
        let order: Vec<_> = std::iter::from_fn(|| queue.next(100)).collect();
        assert_eq!(
            order,
            [
                (3, Event::Start(2)),
                (5, Event::Timer(1)),
                (5, Event::Answer(3))
            ]
        );
    }

    #[test]
    fn nothing_happens_at_the_end_or_later() {
        let mut queue = EventQueue::default();
        queue.post(10, Event::Oracle);
        assert_eq!(queue.next(10), None);
        assert_eq!(queue.next(11), Some((10, Event::Oracle)));
    }

    #[test]
    fn numbers_of_a_slab_are_used_again() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert("a"), slab.insert("b"));
        assert_eq!(slab.take(a), Some("a"));
        assert_eq!(slab.take(a), None);
        assert_eq!(slab.insert("c"), a);
        assert_eq!(
            (slab.len(), slab.take(b), slab.take(7)),
            (2, Some("b"), None)
        );
    }
}
