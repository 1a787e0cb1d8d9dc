//! One writer, one swap, lock-free readers.
//!
//! [`Publisher`] is not `Clone` and publishes through `&mut self`: a second writer does not
//! compile. [`Reader::latest`] compares one pointer; while nothing changed it touches no reference
//! count.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;

/// A publisher and its first reader; clone the reader for every worker.
pub fn channel<T>(first: Arc<T>) -> (Publisher<T>, Reader<T>) {
    let shared = Arc::new(ArcSwap::new(first));
    (
        Publisher {
            shared: Arc::clone(&shared),
        },
        Reader {
            cache: Cache::new(shared),
        },
    )
}

/// The writing end.
pub struct Publisher<T> {
    shared: Arc<ArcSwap<T>>,
}

impl<T> Publisher<T> {
    /// Replaces what readers see. Readers that hold the old value keep it until they ask again.
    pub fn publish(&mut self, next: Arc<T>) {
        self.shared.store(next);
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Publisher")
    }
}

/// A reading end; one per worker.
pub struct Reader<T> {
    cache: Cache<Arc<ArcSwap<T>>, Arc<T>>,
}

impl<T> Reader<T> {
    /// The newest value.
    #[inline]
    pub fn latest(&mut self) -> &Arc<T> {
        self.cache.load()
    }
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
        }
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_the_newest_and_keep_nothing_else_alive() {
        let first = Arc::new(1);
        let (mut publisher, mut reader) = channel(Arc::clone(&first));
        let mut other = reader.clone();
        assert!(Arc::ptr_eq(reader.latest(), &first));
        publisher.publish(Arc::new(2));
        publisher.publish(Arc::new(3));
        assert_eq!((**reader.latest(), **other.latest()), (3, 3));
        assert_eq!(
            Arc::strong_count(&first),
            1,
            "nobody holds the first value any more"
        );
    }

    #[test]
    fn a_reader_may_outlive_its_publisher() {
        let (publisher, mut reader) = channel(Arc::new(7));
        drop(publisher);
        assert_eq!(**reader.latest(), 7);
    }
}
