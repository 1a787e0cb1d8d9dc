//! [`Etcd`]: one value per key with a lease and a revision, as the session of `store::etcd` uses
//! it: transactions that compare leases and revisions, and watches that see all changes in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_xds::replica::ReplicaRecord;
use plimsoll_xds::wire::{decode_node_record, decode_plan_record};

use super::action::Flaw;
use crate::replicas::{NodeKey, PlanKey, StoreInput, StoreSnapshot, StoredNode, StoredPlan};
use crate::store::{PendingProposal, PendingWrite};

pub(super) type Lease = u64;

#[derive(Clone, Debug)]
struct Value {
    bytes: Vec<u8>,
    lease: Lease,
    revision: i64,
}

/// What is in the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Etcd {
    nodes: BTreeMap<NodeKey, Value>,
    plans: BTreeMap<PlanKey, Value>,
    replicas: BTreeMap<Arc<str>, (ReplicaRecord, Lease)>,
    pub(super) leases: BTreeSet<Lease>,
    revision: i64,
}

impl Etcd {
    pub(super) fn snapshot(&self) -> StoreInput {
        let nodes = self.nodes.values().map(stored_node).collect();
        let replicas = self.replicas.values();
        StoreInput::Snapshot(StoreSnapshot {
            nodes,
            replicas: replicas.map(|(record, _)| record.clone()).collect(),
            plans: self.plans().collect(),
        })
    }

    pub(super) fn node_keys(&self) -> impl Iterator<Item = &NodeKey> {
        self.nodes.keys()
    }

    pub(super) fn plans(&self) -> impl Iterator<Item = StoredPlan> {
        self.plans
            .iter()
            .map(|(key, value)| stored_plan(key, value))
    }

    /// Writes the record of a replica under its lease.
    pub(super) fn announce(&mut self, record: ReplicaRecord, lease: Lease) -> StoreInput {
        self.revision += 1;
        let name = Arc::from(record.replica.as_str());
        self.replicas.insert(name, (record.clone(), lease));
        StoreInput::ReplicaPut(record)
    }

    /// One transaction of `EtcdStore::write`; returns what watches see.
    pub(super) fn write(
        &mut self,
        batch: &[(NodeKey, PendingWrite)],
        lease: Lease,
        flaw: Flaw,
    ) -> Vec<StoreInput> {
        self.revision += 1;
        let revision = self.revision;
        let mut seen = Vec::new();
        for (key, write) in batch {
            let owner = self.nodes.get(key).map(|value| value.lease);
            let is_own = owner == Some(lease);
            match write {
                PendingWrite::PutIfOwn(_) if owner.is_some() && !is_own => {}
                PendingWrite::Put(bytes) | PendingWrite::PutIfOwn(bytes) => {
                    let lease = match flaw {
                        Flaw::RecordsWithoutLease => 0,
                        _ => lease,
                    };
                    let bytes = bytes.clone();
                    let value = Value {
                        bytes,
                        lease,
                        revision,
                    };
                    seen.push(StoreInput::NodePut(stored_node(&value)));
                    self.nodes.insert(key.clone(), value);
                }
                PendingWrite::Delete => {
                    if is_own && self.nodes.remove(key).is_some() {
                        seen.push(StoreInput::NodeDeleted(key.clone()));
                    }
                }
            }
        }
        seen
    }

    /// One transaction of `EtcdStore::propose`; returns what watches see.
    pub(super) fn propose(
        &mut self,
        batch: Vec<(PlanKey, PendingProposal)>,
        lease: Lease,
    ) -> Vec<StoreInput> {
        self.revision += 1;
        let revision = self.revision;
        let mut seen = Vec::new();
        for (key, proposal) in batch {
            let current = self.plans.get(&key).map_or(0, |value| value.revision);
            if current != proposal.after {
                continue;
            }
            if let Some(bytes) = proposal.record {
                let value = Value {
                    bytes,
                    lease,
                    revision,
                };
                seen.push(StoreInput::PlanPut(stored_plan(&key, &value)));
                self.plans.insert(key, value);
            } else if self.plans.remove(&key).is_some() {
                seen.push(StoreInput::PlanDeleted(key));
            }
        }
        seen
    }

    /// A lease expires with all that was written under it.
    pub(super) fn expire(&mut self, lease: Lease, flaw: Flaw) -> Vec<StoreInput> {
        self.leases.remove(&lease);
        self.revision += 1;
        let mut seen = Vec::new();
        self.nodes.retain(|key, value| {
            let stays = value.lease != lease;
            if !stays && flaw != Flaw::ExpiryIsNotSeen {
                seen.push(StoreInput::NodeDeleted(key.clone()));
            }
            stays
        });
        self.plans.retain(|key, value| {
            let stays = value.lease != lease;
            if !stays {
                seen.push(StoreInput::PlanDeleted(key.clone()));
            }
            stays
        });
        self.replicas.retain(|name, (_, owner)| {
            let stays = *owner != lease;
            if !stays {
                seen.push(StoreInput::ReplicaDeleted(Arc::clone(name)));
            }
            stays
        });
        seen
    }
}

fn stored_node(value: &Value) -> StoredNode {
    StoredNode {
        record: decode_node_record(&value.bytes).expect("our own record"),
        revision: value.revision,
    }
}

fn stored_plan(key: &PlanKey, value: &Value) -> StoredPlan {
    StoredPlan {
        key: key.clone(),
        record: decode_plan_record(&value.bytes).expect("our own plan"),
        revision: value.revision,
    }
}
