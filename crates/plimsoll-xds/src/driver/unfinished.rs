//! [`UnfinishedMessages`]: bytes of messages that have arrived in part, over all streams.
//!
//! The size of a message limits one stream, but a client may open many streams and finish no
//! message. If all of them together hold too much, the stream with the largest message ends.
//! `messages` reads the streams.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Unfinished messages of a server.
#[derive(Debug)]
pub(super) struct UnfinishedMessages {
    limit: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    next_id: u64,
    /// Streams with an unfinished message, by its size.
    streams: BTreeMap<(usize, u64), Arc<Eviction>>,
}

/// Tells a stream that it has to end.
#[derive(Debug, Default)]
struct Eviction {
    is_due: AtomicBool,
    notify: Notify,
}

/// What one stream holds of an unfinished message.
#[derive(Debug)]
pub(super) struct Unfinished {
    all: Arc<UnfinishedMessages>,
    bytes: usize,
    /// 0 until the first unfinished message.
    id: u64,
    eviction: Arc<Eviction>,
}

impl UnfinishedMessages {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            held: Mutex::default(),
        })
    }

    pub(super) fn stream(self: &Arc<Self>) -> Unfinished {
        Unfinished {
            all: Arc::clone(self),
            bytes: 0,
            id: 0,
            eviction: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unfinished {
    /// Sets the bytes that the stream holds. Messages that arrive in one piece take no lock.
    pub(super) fn set(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        let mut held = self.all.lock();
        if self.id == 0 {
            held.next_id += 1;
            self.id = held.next_id;
        }
        held.streams.remove(&(self.bytes, self.id));
        held.bytes = held.bytes - self.bytes + bytes;
        self.bytes = bytes;
        if bytes > 0 {
            let eviction = Arc::clone(&self.eviction);
            held.streams.insert((bytes, self.id), eviction);
        }
        let limit = self.all.limit;
        // What a stream holds no longer counts once it has to end: it is freed as soon as the
        // stream runs.
        while held.bytes > limit
            && let Some(((largest, id), eviction)) = held.streams.pop_last()
        {
            held.bytes -= largest;
            eviction.is_due.store(true, Ordering::Relaxed);
            eviction.notify.notify_one();
            if id == self.id {
                self.bytes = 0;
            }
        }
    }

    /// Bytes that all streams together may hold.
    pub(super) fn limit(&self) -> usize {
        self.all.limit
    }

    /// Whether the stream has to end.
    pub(super) fn is_evicted(&self) -> bool {
        self.eviction.is_due.load(Ordering::Relaxed)
    }

    /// Resolves when the stream has to end. Cancel safe.
    pub(super) async fn evicted(&self) {
        while !self.is_evicted() {
            self.eviction.notify.notified().await;
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.id == 0 {
            return;
        }
        let mut held = self.all.lock();
        // Otherwise it was evicted, and does not count any more.
        if held.streams.remove(&(self.bytes, self.id)).is_some() {
            held.bytes -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(all: &UnfinishedMessages) -> (usize, usize) {
        let held = all.lock();
        (held.bytes, held.streams.len())
    }

    #[test]
    fn the_largest_message_has_to_go() {
        let all = UnfinishedMessages::new(100);
        let [mut small, mut large, mut late] = [all.stream(), all.stream(), all.stream()];
        small.set(10);
        large.set(50);
        large.set(90);
        assert_eq!(held(&all), (100, 2));
        assert!(!small.is_evicted() && !large.is_evicted());
        late.set(20);
        assert!(large.is_evicted() && !small.is_evicted() && !late.is_evicted());
        assert_eq!(held(&all), (30, 2));
        // An evicted stream that has not noticed yet does not count twice.
        drop(large);
        assert_eq!(held(&all), (30, 2));
        small.set(101);
        assert!(small.is_evicted() && !late.is_evicted());
        assert_eq!(held(&all), (20, 1));
        drop((small, late));
        assert_eq!(held(&all), (0, 0));
    }

    #[test]
    fn finished_messages_are_not_counted() {
        let all = UnfinishedMessages::new(100);
        let mut stream = all.stream();
        for _ in 0..10 {
            stream.set(60);
            stream.set(0);
        }
        assert_eq!(held(&all), (0, 0));
        assert!(!stream.is_evicted());
        stream.set(60);
        stream.set(60);
        assert_eq!(held(&all), (60, 1));
    }

    #[test]
    fn several_go_if_one_is_not_enough() {
        let all = UnfinishedMessages::new(10);
        let mut streams: Vec<_> = (0..5).map(|_| all.stream()).collect();
        for stream in &mut streams {
            stream.set(2);
        }
        assert_eq!(held(&all), (10, 5));
        let mut more = all.stream();
        more.set(2);
        assert_eq!(held(&all), (10, 5), "one of equal size goes");
        let gone = streams.iter().filter(|stream| stream.is_evicted()).count();
        assert_eq!(gone + usize::from(more.is_evicted()), 1);
    }

    #[tokio::test]
    async fn a_waiting_stream_is_told() {
        let all = UnfinishedMessages::new(10);
        let mut stream = all.stream();
        stream.set(9);
        let mut other = all.stream();
        let waiting = stream.evicted();
        let evict = async { other.set(5) };
        tokio::join!(waiting, evict);
        assert!(stream.is_evicted() && !other.is_evicted());
    }
}
