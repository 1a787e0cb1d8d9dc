//! [`EventQueue`]: events that wait to be polled.

use std::collections::VecDeque;

use super::ControlEvent;

/// Limit of queued events; if nobody polls, the oldest are dropped.
const MAX_EVENTS: usize = 4096;

/// Events that wait to be polled, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventQueue(VecDeque<ControlEvent>);

impl EventQueue {
    pub(crate) fn push(&mut self, event: ControlEvent) {
        if self.0.len() >= MAX_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<ControlEvent> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_events_are_dropped() {
        let mut events = EventQueue::default();
        for services in 0..=MAX_EVENTS {
            events.push(ControlEvent::ConfigApplied { services });
        }
        let left: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(left.len(), MAX_EVENTS);
        assert_eq!(left[0], ControlEvent::ConfigApplied { services: 1 });
    }
}
