//! In-flight request counters of all hosts, stored side by side.
//!
//! Least request compares a few random hosts of thousands. With each counter inside its host, every
//! comparison would be a cache miss, and a pick would cost more the more hosts there are; side by
//! side, the counters of ten thousand hosts fit into the L2 cache. [`InFlightCounters`] is owned by
//! the writer, which allocates and reclaims counters. An [`InFlightCounter`] belongs to one host as
//! long as that host is alive; tables read many of them through [`CounterBlocks`].

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use super::Host;

type Block = Arc<[AtomicU32]>;

/// Size of the first block; each further one is twice as large, up to [`MAX_BLOCK`].
const FIRST_BLOCK: u32 = 64;
const OFFSET_BITS: u32 = 20;
const MAX_BLOCK: u32 = 1 << OFFSET_BITS;

/// Block and offset of a counter, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterIndex(u32);

impl CounterIndex {
    const fn block(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    const fn offset(self) -> usize {
        (self.0 & (MAX_BLOCK - 1)) as usize
    }
}

pub(crate) struct InFlightCounter {
    block: Block,
    place: CounterIndex,
    /// Block and offset as one running number.
    pub(super) index: usize,
}

impl fmt::Debug for InFlightCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl InFlightCounter {
    pub(crate) const fn place(&self) -> CounterIndex {
        self.place
    }

    #[inline]
    pub(super) fn increment(&self) {
        self.cell().fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn decrement(&self) {
        self.cell().fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> u32 {
        self.cell().load(Ordering::Relaxed)
    }

    #[inline]
    fn cell(&self) -> &AtomicU32 {
        &self.block[self.place.offset()]
    }
}

/// All blocks at the time a table was built, to read counters through.
#[derive(Clone, Default)]
pub(crate) struct CounterBlocks(Arc<[Block]>);

/// The number of counters: thousands of zeros would hide everything else.
impl fmt::Debug for CounterBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters: usize = self.0.iter().map(|block| block.len()).sum();
        write!(f, "{counters} counters")
    }
}

impl CounterBlocks {
    #[inline]
    pub(crate) fn get(&self, place: CounterIndex) -> u32 {
        self.0[place.block()][place.offset()].load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct InFlightCounters {
    blocks: CounterBlocks,
    used: u32,
    free: Vec<CounterIndex>,
    retired: Vec<(CounterIndex, Weak<Host>)>,
}

impl InFlightCounters {
    pub(crate) fn take(&mut self) -> InFlightCounter {
        let place = self.free.pop().unwrap_or_else(|| self.fresh());
        let block = Arc::clone(&self.blocks.0[place.block()]);
        let before = self.blocks.0[..place.block()].iter();
        let index = before.map(|block| block.len()).sum::<usize>() + place.offset();
        InFlightCounter {
            block,
            place,
            index,
        }
    }

    /// Marks the counter of a removed host for reuse, once the host is dropped.
    pub(crate) fn retire(&mut self, host: &Arc<Host>) {
        self.retired
            .push((host.counter().place(), Arc::downgrade(host)));
    }

    pub(crate) fn reclaim(&mut self) {
        let free = &mut self.free;
        self.retired.retain(|(place, host)| {
            let held = host.strong_count() > 0;
            if !held {
                free.push(*place);
            }
            held
        });
    }

    pub(crate) const fn blocks(&self) -> &CounterBlocks {
        &self.blocks
    }

    fn fresh(&mut self) -> CounterIndex {
        let blocks = &self.blocks.0;
        let room = blocks.last().map_or(0, |block| block.len());
        if self.used as usize == room {
            let size = (2 * room).clamp(FIRST_BLOCK as usize, MAX_BLOCK as usize);
            let block: Block = (0..size).map(|_| AtomicU32::new(0)).collect();
            self.blocks.0 = blocks.iter().cloned().chain([block]).collect();
            self.used = 0;
        }
        let block = u32::try_from(self.blocks.0.len() - 1).expect("fewer than 2^12 blocks");
        let place = CounterIndex((block << OFFSET_BITS) | self.used);
        self.used += 1;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{RequestOutcome, tests::host_with};

    #[test]
    fn counters_are_apart_and_readable_through_the_blocks() {
        let mut counters = InFlightCounters::default();
        // 300 counters take three blocks: of 64, of 128 and part of 256.
        let taken: Vec<InFlightCounter> = (0..300).map(|_| counters.take()).collect();
        assert_eq!(counters.blocks().0.len(), 3);
        for (times, counter) in taken.iter().enumerate() {
            (0..times % 7).for_each(|_| counter.increment());
        }
        for (times, counter) in taken.iter().enumerate() {
            assert_eq!(counter.get() as usize, times % 7);
            assert_eq!(counters.blocks().get(counter.place()), counter.get());
        }
        taken[6].decrement();
        assert_eq!((taken[6].get(), taken[13].get()), (5, 6));
    }

    #[test]
    fn indices_number_the_counters_consecutively() {
        let mut counters = InFlightCounters::default();
        for expected in 0..1_000 {
            assert_eq!(counters.take().index, expected);
        }
    }

    #[test]
    fn earlier_blocks_still_show_their_counters() {
        let mut counters = InFlightCounters::default();
        let first = counters.take();
        let early = counters.blocks().clone();
        let later: Vec<InFlightCounter> = (0..FIRST_BLOCK).map(|_| counters.take()).collect();
        first.increment();
        assert_eq!(early.get(first.place()), 1);
        assert_eq!(counters.blocks().get(first.place()), 1);
        assert_eq!(later.last().map(InFlightCounter::get), Some(0));
    }

    #[test]
    fn a_counter_is_reused_only_after_the_last_request_of_its_host() {
        let mut counters = InFlightCounters::default();
        let host = host_with(None, counters.take());
        let place = host.counter().place();
        let request = host.begin_request();
        counters.retire(&host);
        drop(host);
        counters.reclaim();
        let other = counters.take();
        assert_ne!(other.place(), place, "a request still counts there");
        request.finish(RequestOutcome::Success);
        counters.reclaim();
        let again = counters.take();
        assert_eq!((again.place(), again.get()), (place, 0));
        counters.reclaim();
        assert_ne!(counters.take().place(), place, "allocated once");
    }
}
