//! Snapshot publication: one writer swaps a pointer, any number of readers follow without locks.
//!
//! [`Publisher`] is not `Clone` and publishes through `&mut self`: a second writer does not
//! compile. [`Reader::latest`] compares one pointer; while nothing changed, it touches no reference
//! count.
//!
//! ```
//! use std::sync::Arc;
//! use plimsoll_core::publish;
//!
//! let (mut publisher, mut reader) = publish::channel(Arc::new("first"));
//! let mut other_worker = reader.clone();
//! publisher.publish(Arc::new("second"));
//! assert_eq!((**reader.latest(), **other_worker.latest()), ("second", "second"));
//! ```

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;

/// Creates a publisher and its first reader. Clone the reader for every worker.
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

/// The writing end of a [`channel`]; there is exactly one.
pub struct Publisher<T> {
    shared: Arc<ArcSwap<T>>,
}

impl<T> Publisher<T> {
    /// Replaces the published value. Readers that hold the old value keep it until their next call
    /// of [`Reader::latest`].
    pub fn publish(&mut self, next: Arc<T>) {
        self.shared.store(next);
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Publisher")
    }
}

/// A reading end of a [`channel`]. Each worker owns one.
pub struct Reader<T> {
    cache: Cache<Arc<ArcSwap<T>>, Arc<T>>,
}

impl<T> Reader<T> {
    /// Returns the newest published value.
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
    fn readers_see_the_newest_value_and_release_older_ones() {
        let first = Arc::new(1);
        let (mut publisher, mut reader) = channel(Arc::clone(&first));
        let mut other = reader.clone();
        assert!(Arc::ptr_eq(reader.latest(), &first));
        publisher.publish(Arc::new(2));
        publisher.publish(Arc::new(3));
        assert_eq!((**reader.latest(), **other.latest()), (3, 3));
        assert_eq!(Arc::strong_count(&first), 1, "the first value was released");
    }

    #[test]
    fn a_reader_may_outlive_its_publisher() {
        let (publisher, mut reader) = channel(Arc::new(7));
        drop(publisher);
        assert_eq!(**reader.latest(), 7);
    }
}
