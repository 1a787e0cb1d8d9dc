//! Requests in flight per host, counted side by side.
//!
//! Least request compares a few random hosts of thousands. Were each counter inside its host, every
//! comparison would fetch a far line of memory, and a pick would cost more the more hosts there
//! are; side by side, the counters of ten thousand hosts fit a near cache. [`Counters`] is the
//! writer's end: it hands counters out and takes them back. A [`Counter`] belongs to one host as
//! long as anybody holds that host; tables read many of them through [`CounterBlocks`].

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use super::Host;

type Block = Arc<[AtomicU32]>;

/// Counters of the first block; every further one is twice as large, up to [`LARGEST_BLOCK`].
const FIRST_BLOCK: u32 = 64;
const OFFSET_BITS: u32 = 20;
const LARGEST_BLOCK: u32 = 1 << OFFSET_BITS;

/// Where a counter is: its block and its place in it, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterPlace(u32);

impl CounterPlace {
    const fn block(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    const fn offset(self) -> usize {
        (self.0 & (LARGEST_BLOCK - 1)) as usize
    }
}

/// The counter of one host.
#[derive(Debug)]
pub(crate) struct Counter {
    block: Block,
    place: CounterPlace,
}

impl Counter {
    /// Where tables find it.
    pub(crate) const fn place(&self) -> CounterPlace {
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

/// All blocks at some moment: what a table reads counters through.
#[derive(Clone, Debug, Default)]
pub(crate) struct CounterBlocks(Arc<[Block]>);

impl CounterBlocks {
    /// Requests in flight on the host whose counter is at `place`.
    #[inline]
    pub(crate) fn get(&self, place: CounterPlace) -> u32 {
        self.0[place.block()][place.offset()].load(Ordering::Relaxed)
    }
}

/// Hands counters out and takes them back.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    blocks: CounterBlocks,
    /// Handed out from the last block.
    used: u32,
    free: Vec<CounterPlace>,
    /// Counters of hosts that are no longer listed, but may still have requests.
    retired: Vec<(CounterPlace, Weak<Host>)>,
}

impl Counters {
    /// A counter that nobody else has; it stands at 0.
    pub(crate) fn take(&mut self) -> Counter {
        let place = self.free.pop().unwrap_or_else(|| self.fresh());
        let block = Arc::clone(&self.blocks.0[place.block()]);
        Counter { block, place }
    }

    /// The host is no longer listed. Its counter is reused once nobody holds the host any more.
    pub(crate) fn retire(&mut self, host: &Arc<Host>) {
        self.retired
            .push((host.counter().place(), Arc::downgrade(host)));
    }

    /// Takes back what retired hosts have let go.
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

    /// The blocks there are.
    pub(crate) const fn blocks(&self) -> &CounterBlocks {
        &self.blocks
    }

    fn fresh(&mut self) -> CounterPlace {
        let blocks = &self.blocks.0;
        let room = blocks.last().map_or(0, |block| block.len());
        if self.used as usize == room {
            let size = (2 * room).clamp(FIRST_BLOCK as usize, LARGEST_BLOCK as usize);
            let block: Block = (0..size).map(|_| AtomicU32::new(0)).collect();
            self.blocks.0 = blocks.iter().cloned().chain([block]).collect();
            self.used = 0;
        }
        let block = u32::try_from(self.blocks.0.len() - 1).expect("fewer than 2^12 blocks");
        let place = CounterPlace((block << OFFSET_BITS) | self.used);
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
        let mut counters = Counters::default();
        // Three blocks: 64, 128 and part of 256.
        let taken: Vec<Counter> = (0..300).map(|_| counters.take()).collect();
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
    fn blocks_taken_earlier_still_show_their_counters() {
        let mut counters = Counters::default();
        let first = counters.take();
        let early = counters.blocks().clone();
        let later: Vec<Counter> = (0..FIRST_BLOCK).map(|_| counters.take()).collect();
        first.increment();
        assert_eq!(early.get(first.place()), 1);
        assert_eq!(counters.blocks().get(first.place()), 1);
        assert_eq!(later.last().map(Counter::get), Some(0));
    }

    #[test]
    fn a_counter_is_reused_only_after_the_last_request_of_its_host() {
        let mut counters = Counters::default();
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
        assert_ne!(counters.take().place(), place, "handed out once");
    }
}
