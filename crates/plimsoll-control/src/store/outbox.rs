//! [`Outbox`]: records that wait to be written to the store, one per node: a newer record replaces
//! one that is not written yet, so a slow store costs no memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_xds::wire::encode_node_record;

use crate::replicas::{NodeKey, Write};

/// Longest record. The limit of a request to etcd is 1.5 MiB by default.
pub(crate) const MAX_RECORD: usize = 512 * 1024;
/// Most records in a batch; the limit of etcd is 128 by default.
const BATCH_RECORDS: usize = 100;
const BATCH_BYTES: usize = 1024 * 1024;

/// Records that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Pending>);

#[derive(Debug)]
struct Pending {
    max_record: usize,
    writes: BTreeMap<NodeKey, PendingWrite>,
    /// Last key of the previous batch. The next one continues after it, so that no node waits for
    /// others that report more often.
    last: Option<NodeKey>,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            max_record: MAX_RECORD,
            writes: BTreeMap::new(),
            last: None,
        }
    }
}

/// An encoded record, or a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PendingWrite {
    Put(Vec<u8>),
    /// A record that does not replace one of another replica.
    PutIfOwn(Vec<u8>),
    Delete,
}

/// A record is too large for the store: its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge(pub(crate) usize);

impl Outbox {
    /// Limits records from now on to so many bytes, if that is less than [`MAX_RECORD`].
    pub(crate) fn limit(&self, bytes: usize) {
        self.lock().max_record = bytes.min(MAX_RECORD);
    }

    /// Adds a write, which replaces an earlier one of the same node.
    pub(crate) fn push(&self, key: NodeKey, write: &Write) -> Result<(), TooLarge> {
        let write = match write {
            Write::Forget => {
                self.lock().writes.remove(&key);
                return Ok(());
            }
            Write::Delete => PendingWrite::Delete,
            Write::Put(record) => PendingWrite::Put(encode_node_record(record)),
            Write::PutIfOwn(record) => PendingWrite::PutIfOwn(encode_node_record(record)),
        };
        let size = write.len();
        let mut pending = self.lock();
        if size > pending.max_record {
            return Err(TooLarge(size));
        }
        pending.writes.insert(key, write);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().writes.len()
    }

    /// Takes out the next batch; it is empty if nothing waits.
    pub(crate) fn take(&self) -> Vec<(NodeKey, PendingWrite)> {
        let mut pending = self.lock();
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_RECORDS {
            let after = pending.last.take();
            let next = after.and_then(|last| {
                let later = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
                let next = pending.writes.range(later).next();
                next.map(|(key, _)| key.clone())
            });
            let next = next.or_else(|| pending.writes.keys().next().cloned());
            let Some((key, write)) = next.and_then(|key| pending.writes.remove_entry(&key)) else {
                break;
            };
            bytes += write.len();
            if bytes > BATCH_BYTES && !batch.is_empty() {
                pending.writes.insert(key, write);
                pending.last = batch.last().map(|(key, _): &(NodeKey, _)| key.clone());
                break;
            }
            pending.last = Some(key.clone());
            batch.push((key, write));
        }
        batch
    }

    /// Puts back a batch that was not written, except for nodes with a newer record.
    pub(crate) fn restore(&self, batch: Vec<(NodeKey, PendingWrite)>) {
        let mut pending = self.lock();
        for (key, write) in batch {
            pending.writes.entry(key).or_insert(write);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingWrite {
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Put(bytes) | Self::PutIfOwn(bytes) => bytes.len(),
            Self::Delete => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::replica::NodeRecord;

    use super::*;
    use crate::delivery::NodeClass;
    use crate::state::tests::driver::{node, stats};

    fn key(id: usize) -> NodeKey {
        NodeKey {
            fleet: "gateway".into(),
            id: format!("{id:04}").into(),
        }
    }

    fn put(id: usize, agent: usize) -> Write {
        let mut info = node(NodeClass::Envoy, &format!("{id:04}"), "a");
        info.user_agent_name = "x".repeat(agent);
        Write::Put(NodeRecord {
            replica: "r1".into(),
            instance: 1,
            node: info,
            cluster_stats: vec![stats("orders", 1)],
        })
    }

    fn ids(batch: &[(NodeKey, PendingWrite)]) -> Vec<usize> {
        let ids = batch.iter().map(|(key, _)| key.id.parse().unwrap());
        ids.collect()
    }

    #[test]
    fn a_newer_record_replaces_one_that_waits() {
        let outbox = Outbox::default();
        outbox.push(key(1), &put(1, 1)).unwrap();
        outbox.push(key(1), &Write::Delete).unwrap();
        assert_eq!(outbox.len(), 1);
        let batch = outbox.take();
        assert_eq!(batch, [(key(1), PendingWrite::Delete)]);
        assert!(outbox.take().is_empty());
        outbox.push(key(1), &put(1, 7)).unwrap();
        outbox.restore(batch);
        assert!(matches!(&outbox.take()[..], [(_, PendingWrite::Put(_))]));
        outbox.restore(vec![(key(2), PendingWrite::Delete)]);
        assert_eq!(ids(&outbox.take()), [2]);
    }

    #[test]
    fn batches_take_turns() {
        let outbox = Outbox::default();
        for id in 0..250 {
            outbox.push(key(id), &Write::Delete).unwrap();
        }
        assert_eq!(ids(&outbox.take()), (0..100).collect::<Vec<_>>());
        // Nodes that report again wait until all others were written.
        for id in 0..100 {
            outbox.push(key(id), &Write::Delete).unwrap();
        }
        assert_eq!(ids(&outbox.take()), (100..200).collect::<Vec<_>>());
        let expected: Vec<_> = (200..250).chain(0..50).collect();
        assert_eq!(ids(&outbox.take()), expected);
        assert_eq!(outbox.take().len(), 50);
        assert_eq!(outbox.len(), 0);
    }

    #[test]
    fn batches_and_records_have_a_limit_of_bytes() {
        let outbox = Outbox::default();
        let size = MAX_RECORD - 200;
        for id in 0..3 {
            outbox.push(key(id), &put(id, size)).unwrap();
        }
        assert_eq!(ids(&outbox.take()), [0, 1]);
        assert_eq!(ids(&outbox.take()), [2]);
        let TooLarge(size) = outbox.push(key(1), &put(1, MAX_RECORD)).unwrap_err();
        assert!(size > MAX_RECORD);
        assert_eq!(outbox.len(), 0);
        // Records of exactly the limit, two of which are exactly a batch.
        let largest = MAX_RECORD - (size - MAX_RECORD);
        for id in 0..3 {
            outbox.push(key(id), &put(id, largest)).unwrap();
        }
        let batch = outbox.take();
        assert_eq!(ids(&batch), [0, 1]);
        let sizes: Vec<_> = batch.iter().map(|(_, write)| write.len()).collect();
        assert_eq!(sizes, [MAX_RECORD; 2]);
        assert_eq!(ids(&outbox.take()), [2]);
        let error = outbox.push(key(1), &put(1, largest + 1));
        assert_eq!(error, Err(TooLarge(MAX_RECORD + 1)));
        outbox.limit(usize::MAX);
        assert_eq!(outbox.push(key(1), &put(1, largest + 1)), error);
        outbox.limit(MAX_RECORD - 1);
        let error = outbox.push(key(1), &put(1, largest));
        assert_eq!(error, Err(TooLarge(MAX_RECORD)));
    }
}
