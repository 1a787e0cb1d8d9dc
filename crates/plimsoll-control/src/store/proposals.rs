//! [`Proposals`]: plans that wait to be proposed to the store, one per key.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_xds::wire::encode_plan_record;

use crate::replicas::{PlanKey, Proposal};

/// Most plans in a batch; the limit of etcd is 128 by default.
const BATCH: usize = 100;

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

impl Proposals {
    pub(crate) fn push(&self, key: PlanKey, proposal: &Proposal) {
        let pending = PendingProposal {
            record: proposal.record.as_ref().map(encode_plan_record),
            after: proposal.after,
        };
        self.lock().insert(key, pending);
    }

    /// Takes out the next batch; it is empty if nothing waits.
    pub(crate) fn take(&self) -> Vec<(PlanKey, PendingProposal)> {
        let mut pending = self.lock();
        std::iter::from_fn(|| pending.pop_first())
            .take(BATCH)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PlanKey, PendingProposal>> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::planner::{PlanScope, UpdateCause};
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
            }),
            after,
        }
    }

    #[test]
    fn a_newer_plan_replaces_one_that_waits() {
        let proposals = Proposals::default();
        proposals.push(key(1), &proposal(3));
        proposals.push(key(1), &proposal(4));
        let batch = proposals.take();
        assert_eq!(batch.len(), 1);
        assert_eq!((&batch[0].0, batch[0].1.after), (&key(1), 4));
        assert!(proposals.take().is_empty());
    }

    #[test]
    fn batches_have_a_limit() {
        let proposals = Proposals::default();
        for index in 0..250 {
            proposals.push(key(index), &proposal(0));
        }
        let sizes = [(); 4].map(|()| proposals.take().len());
        assert_eq!(sizes, [100, 100, 50, 0]);
    }
}
