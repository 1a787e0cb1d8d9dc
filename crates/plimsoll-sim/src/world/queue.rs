//! [`EventQueue`]: pending events in order of time and, at the same time, of posting. [`Slab`]
//! stores data that is too large for an event; the event carries its index.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::num;
use crate::scenario::NEVER;

/// An event at a point in time. Numbers are indexes of proxies, hosts, steps or slab entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Response(u32),
    Arrival(u32),
    /// Learned weights of hosts arrive at the proxies.
    Capacity(u32),
    /// The changes of a step have been detected.
    Detected(u32),
    LoadReport(u32),
    /// A load report arrives at the control plane.
    LoadReportArrives(u32),
    /// The oracle policy is updated with the true demand.
    Oracle,
    /// A host sends an out-of-band load report to all proxies.
    OutOfBand(u32),
    /// A plan arrives at the proxies.
    Plan(u32),
    PlannerTimer,
    /// A delayed load report of a host arrives at a proxy.
    Report(u32),
    Start(u32),
    /// A scenario event begins or ends.
    Step(u32),
    Timer(u32),
}

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    posted: u64,
}

impl EventQueue {
    /// Posts an event; one at [`NEVER`] is dropped.
    pub(super) fn post(&mut self, at: u64, event: Event) {
        if at < NEVER {
            self.posted += 1;
            self.heap.push(Reverse((at, self.posted, event)));
        }
    }

    pub(super) fn next(&mut self, end: u64) -> Option<(u64, Event)> {
        let Reverse((at, _, _)) = self.heap.peek()?;
        if *at >= end {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

/// Values by index; indexes are reused.
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
    fn events_are_ordered_by_time_then_posting() {
        let mut queue = EventQueue::default();
        queue.post(5, Event::Timer(1));
        queue.post(3, Event::Start(2));
        queue.post(5, Event::Response(3));
        queue.post(NEVER, Event::PlannerTimer);
        let order: Vec<_> = std::iter::from_fn(|| queue.next(100)).collect();
        assert_eq!(
            order,
            [
                (3, Event::Start(2)),
                (5, Event::Timer(1)),
                (5, Event::Response(3))
            ]
        );
    }

    #[test]
    fn events_at_the_end_or_later_do_not_happen() {
        let mut queue = EventQueue::default();
        queue.post(10, Event::Oracle);
        assert_eq!(queue.next(10), None);
        assert_eq!(queue.next(11), Some((10, Event::Oracle)));
    }

    #[test]
    fn slab_indexes_are_reused() {
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
