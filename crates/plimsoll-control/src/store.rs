//! The store that replicas share: keys, records that wait to be written, statistics. `etcd` reads
//! and writes it; `replicas` decides what is written.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod key;
#[cfg_attr(
    not(feature = "etcd"),
    allow(dead_code, reason = "only the client of etcd takes records out")
)]
mod orders;
#[cfg_attr(
    not(feature = "etcd"),
    allow(dead_code, reason = "only the client of etcd takes records out")
)]
mod outbox;
#[cfg_attr(
    not(feature = "etcd"),
    allow(dead_code, reason = "only the client of etcd takes plans out")
)]
mod proposals;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

#[cfg(feature = "etcd")]
pub(crate) use etcd::EtcdStore;
#[cfg(feature = "etcd")]
pub(crate) use key::{decode_part, encode_part};
pub(crate) use orders::PendingOrders;
#[cfg(feature = "etcd")]
pub(crate) use outbox::PendingWrite;
pub(crate) use outbox::{Outbox, TooLarge};
pub(crate) use proposals::Proposals;
#[cfg(feature = "etcd")]
pub(crate) use proposals::{PendingProposal, Transactions};

/// Name of this replica, and of its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaIdentity {
    pub id: Arc<str>,
    /// Differs between processes with the same name.
    pub instance: u64,
    pub started_unix_ms: u64,
}

/// Queues between the writer and the task of the store, and statistics of the store.
#[derive(Debug, Default)]
pub struct StoreLink {
    pub(crate) outbox: Outbox,
    written: AtomicU64,
    write_failures: AtomicU64,
    last_write_us: AtomicU64,
    compactions: AtomicU64,
    /// Bytes of all changes that were watched.
    #[cfg(feature = "etcd")]
    watched: AtomicU64,
    failures: AtomicU64,
    /// Notified when the writer has added to `outbox`.
    pub(crate) changed: Notify,
    pub(crate) proposals: Proposals,
    /// Orders to take zones out of use that wait to be written.
    pub(crate) orders: PendingOrders,
    /// Notified when the writer has added to `proposals`.
    pub(crate) proposed: Notify,
}

impl StoreLink {
    /// Number of records that were written or deleted.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Number of batches that could not be written. Their records are written again.
    pub fn write_failures(&self) -> u64 {
        self.write_failures.load(Ordering::Relaxed)
    }

    /// Duration of the latest write.
    pub fn last_write(&self) -> Duration {
        Duration::from_micros(self.last_write_us.load(Ordering::Relaxed))
    }

    /// Number of compactions of the history.
    pub fn compactions(&self) -> u64 {
        self.compactions.load(Ordering::Relaxed)
    }

    /// Number of sessions with a member of etcd that failed or ended.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Number of records that wait to be written.
    pub fn pending(&self) -> usize {
        self.outbox.len()
    }

    #[cfg(feature = "etcd")]
    fn wrote(&self, records: usize, took: Duration) {
        self.written.fetch_add(records as u64, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.last_write_us.store(micros, Ordering::Relaxed);
    }

    #[cfg(feature = "etcd")]
    fn write_failed(&self) {
        self.write_failures.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(feature = "etcd")]
    fn watched(&self, bytes: usize) {
        self.watched.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    #[cfg(feature = "etcd")]
    fn compacted(&self) {
        self.compactions.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(feature = "etcd")]
    fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use super::*;
    use crate::replicas::{NodeKey, Write};

    #[test]
    fn writes_failures_and_compactions_are_counted() {
        let stats = StoreLink::default();
        stats.wrote(3, Duration::from_millis(5));
        stats.wrote(4, Duration::from_millis(2));
        for _ in 0..2 {
            stats.write_failed();
        }
        for _ in 0..3 {
            stats.compacted();
        }
        for _ in 0..4 {
            stats.failed();
        }
        for id in ["1", "2"] {
            let (fleet, id) = ("gateway".into(), id.into());
            let key = NodeKey { fleet, id };
            stats.outbox.push(key, &Write::Delete).unwrap();
        }
        assert_eq!((stats.written(), stats.write_failures()), (7, 2));
        assert_eq!((stats.compactions(), stats.failures()), (3, 4));
        assert_eq!(stats.last_write(), Duration::from_millis(2));
        assert_eq!(stats.pending(), 2);
    }
}
