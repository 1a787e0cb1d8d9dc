//! [`Proposals`]: plans that wait to be proposed to the store, one per key.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_xds::wire::encode_plan_record;

use super::TooLarge;
use crate::replicas::{PlanKey, Proposal};

/// Most plans in a batch; the limit of etcd is 128 by default.
const BATCH: usize = 100;
/// Most bytes of a batch, and of a plan. The limit of a request to etcd is 1.5 MiB by default.
const BATCH_BYTES: usize = 1024 * 1024;

/// Plans that wait to be proposed. A newer one replaces one that still waits.
#[derive(Debug, Default)]
pub(crate) struct Proposals(Mutex<BTreeMap<PlanKey, PendingProposal>>);

/// An encoded plan, and the revision of the plan that it follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingProposal {
    /// `None` deletes the plan.
    pub(crate) record: Option<Vec<u8>>,
    pub(crate) after: i64,
}

/// Transactions to send for a batch: one, or parts of it if the store refuses it as too large.
#[derive(Debug)]
pub(crate) struct Transactions<T>(Vec<Vec<T>>);

impl<T> Transactions<T> {
    pub(crate) fn new(batch: Vec<T>) -> Self {
        Self(vec![batch])
    }

    /// Returns the next one to send.
    pub(crate) fn pop(&mut self) -> Option<Vec<T>> {
        self.0.pop()
    }

    /// Divides one that is too large. Returns what cannot be divided.
    pub(crate) fn divide(&mut self, mut refused: Vec<T>) -> Option<T> {
        if refused.len() < 2 {
            return refused.pop();
        }
        let rest = refused.split_off(refused.len() / 2);
        self.0.extend([rest, refused]);
        None
    }
}

impl PendingProposal {
    pub(crate) fn len(&self) -> usize {
        self.record.as_ref().map_or(0, Vec::len)
    }
}

impl Proposals {
    /// Adds a plan, which replaces an earlier one of the same key.
    pub(crate) fn push(&self, key: PlanKey, proposal: &Proposal) -> Result<(), TooLarge> {
        let pending = PendingProposal {
            record: proposal.record.as_ref().map(encode_plan_record),
            after: proposal.after,
        };
        let size = pending.len();
        if size > BATCH_BYTES {
            self.lock().remove(&key);
            return Err(TooLarge(size));
        }
        self.lock().insert(key, pending);
        Ok(())
    }

    /// Takes out the next batch; it is empty if nothing waits.
    pub(crate) fn take(&self) -> Vec<(PlanKey, PendingProposal)> {
        let mut pending = self.lock();
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH
            && let Some(next) = pending.first_entry()
        {
            bytes += next.get().len();
            if bytes > BATCH_BYTES {
                break;
            }
            batch.push(next.remove_entry());
        }
        batch
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PlanKey, PendingProposal>> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;
    use plimsoll_core::planner::{PlanScope, SharedZone, UpdateCause};
    use plimsoll_xds::replica::PlanRecord;

    use super::*;

    fn key(index: usize) -> PlanKey {
        PlanKey {
            configuration: 1,
            scope: PlanScope {
                fleet: format!("{index:04}").into(),
                upstream_cluster: None,
            },
        }
    }

    fn proposal(after: i64) -> Proposal {
        Proposal {
            record: Some(PlanRecord {
                instance: 1,
                cause: UpdateCause::Heartbeat,
                warming_up: false,
                zones: Vec::new(),
                spilling: None,
            }),
            after,
        }
    }

    #[test]
    fn a_newer_plan_replaces_one_that_waits() {
        let proposals = Proposals::default();
        proposals.push(key(1), &proposal(3)).unwrap();
        proposals.push(key(1), &proposal(4)).unwrap();
        let batch = proposals.take();
        assert_eq!(batch.len(), 1);
        assert_eq!((&batch[0].0, batch[0].1.after), (&key(1), 4));
        assert!(proposals.take().is_empty());
    }

    /// A plan with one zone whose name has this many bytes.
    fn sized(bytes: usize) -> Proposal {
        let mut proposal = proposal(0);
        let zone = SharedZone {
            locality: Locality::zone_only(&"z".repeat(bytes)),
            rate_per_second: 1.0,
            reporters: 1,
            estimated: false,
        };
        proposal.record.as_mut().unwrap().zones.push(zone);
        proposal
    }

    #[test]
    fn batches_and_plans_have_a_limit_of_bytes() {
        let proposals = Proposals::default();
        for index in 0..3 {
            proposals
                .push(key(index), &sized(BATCH_BYTES / 2 - 100))
                .unwrap();
        }
        let sizes = [(); 3].map(|()| proposals.take().len());
        assert_eq!(sizes, [2, 1, 0]);
        proposals.push(key(1), &sized(1)).unwrap();
        let TooLarge(size) = proposals.push(key(1), &sized(BATCH_BYTES)).unwrap_err();
        assert!(proposals.take().is_empty(), "an older plan must not win");
        // A plan of exactly the limit is a batch.
        let largest = sized(2 * BATCH_BYTES - size);
        proposals.push(key(0), &largest).unwrap();
        proposals.push(key(1), &proposal(0)).unwrap();
        let sizes = [(); 3].map(|()| proposals.take().len());
        assert_eq!(sizes, [1, 1, 0]);
        let error = proposals.push(key(1), &sized(2 * BATCH_BYTES - size + 1));
        assert_eq!(error, Err(TooLarge(BATCH_BYTES + 1)));
    }

    #[test]
    fn a_refused_transaction_is_divided_until_the_store_takes_its_parts() {
        let sizes = [1, 2, 9, 3, 1, 1, 8, 5];
        let mut transactions = Transactions::new(sizes.to_vec());
        let (mut taken, mut alone) = (Vec::new(), Vec::new());
        while let Some(batch) = transactions.pop() {
            if batch.iter().sum::<i32>() > 7 {
                alone.extend(transactions.divide(batch));
            } else {
                taken.push(batch);
            }
        }
        assert_eq!(taken, [vec![1, 2], vec![3], vec![1, 1], vec![5]]);
        assert_eq!(alone, [9, 8]);
        assert_eq!(
            Transactions::new(Vec::<i32>::new()).divide(Vec::new()),
            None
        );
    }

    #[test]
    fn batches_have_a_limit() {
        let proposals = Proposals::default();
        for index in 0..250 {
            proposals.push(key(index), &proposal(0)).unwrap();
        }
        let sizes = [(); 4].map(|()| proposals.take().len());
        assert_eq!(sizes, [100, 100, 50, 0]);
    }
}
