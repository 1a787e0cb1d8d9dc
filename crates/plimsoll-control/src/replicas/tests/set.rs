//! [`Set`]: replicas that share a store, with simulated time.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::replica::PlanRecord;
use plimsoll_xds::wire::{decode_node_record, encode_node_record};

use crate::config::ControlConfig;
use crate::delivery::NodeClass;
use crate::fleet::StreamKind;
use crate::replicas::{
    NodeKey, PlanKey, Proposal, StoreInput, StoreSnapshot, StoredNode, StoredPlan, Write,
};
use crate::state::State;
use crate::state::tests::driver::{Driver, config, fleet, stats};

/// A record in the store: bytes, instance of the writer, revision.
type Stored = (Vec<u8>, u64, i64);

/// The store, in memory: one value per key, and a revision.
#[derive(Default)]
pub(super) struct FakeStore {
    pub(super) records: BTreeMap<NodeKey, Stored>,
    pub(super) plans: BTreeMap<PlanKey, (PlanRecord, i64)>,
    revision: i64,
}

/// A replica and its connection to the store.
pub(super) struct Replica {
    pub(super) driver: Driver,
    instance: u64,
    /// `None` while the store cannot be reached.
    seen: Option<i64>,
    /// Changes of the store that were not delivered yet.
    changes: Vec<StoreInput>,
    writes: Vec<(NodeKey, Write)>,
    proposals: Vec<(PlanKey, Proposal)>,
}

pub(super) struct Set {
    pub(super) store: FakeStore,
    pub(super) replicas: Vec<Replica>,
    instances: u64,
}

impl Replica {
    fn new(name: usize, instance: u64, config: &Arc<ControlConfig>, now: Instant) -> Self {
        let mut driver = Driver::with_config(Arc::clone(config));
        driver.now = now;
        let state = State::new(Arc::clone(config), now);
        driver.state = state.with_replicas(format!("r{name}").into(), instance);
        Self {
            driver,
            instance,
            seen: None,
            changes: Vec::new(),
            writes: Vec::new(),
            proposals: Vec::new(),
        }
    }

    fn drain(&mut self) {
        self.driver.drain();
        while let Some(write) = self.driver.state.poll_store_write() {
            self.writes.retain(|(key, _)| *key != write.0);
            self.writes.push(write);
        }
        while let Some(proposal) = self.driver.state.poll_proposal() {
            self.proposals.retain(|(key, _)| *key != proposal.0);
            self.proposals.push(proposal);
        }
    }

    pub(super) fn input(&mut self, input: StoreInput) {
        self.driver.state.handle_store(input, self.driver.now);
        self.drain();
    }
}

impl Set {
    /// Replicas that are connected to an empty store.
    pub(super) fn new(replicas: usize) -> Self {
        Self::with_config(replicas, &config(""))
    }

    /// Gives each of three replicas the node of one zone, under 60/20/20.
    pub(super) fn measured(mut self) -> (Self, [NodeInfo; 3]) {
        let nodes = fleet(NodeClass::Envoy);
        for (replica, node) in nodes.iter().enumerate() {
            self.open(replica, node);
        }
        let [a, b, c] = &nodes;
        self.traffic(&[(0, a, 600), (1, b, 200), (2, c, 200)], 5);
        (self, nodes)
    }

    pub(super) fn with_config(replicas: usize, config: &Arc<ControlConfig>) -> Self {
        let mut set = Self {
            store: FakeStore::default(),
            replicas: Vec::new(),
            instances: 0,
        };
        for name in 0..replicas {
            set.instances += 1;
            let replica = Replica::new(name, set.instances, config, Instant::ORIGIN);
            set.replicas.push(replica);
            set.connect(name);
        }
        set
    }

    /// Lets a replica read the store and watch it.
    pub(super) fn connect(&mut self, replica: usize) {
        let node = |(bytes, _, revision): &Stored| StoredNode {
            record: decode_node_record(bytes).unwrap(),
            revision: *revision,
        };
        let plan = |(key, (record, revision)): (&PlanKey, &(PlanRecord, i64))| StoredPlan {
            key: key.clone(),
            record: record.clone(),
            revision: *revision,
        };
        let snapshot = StoreSnapshot {
            nodes: self.store.records.values().map(node).collect(),
            plans: self.store.plans.iter().map(plan).collect(),
            ..StoreSnapshot::default()
        };
        let one = &mut self.replicas[replica];
        one.seen = Some(self.store.revision);
        one.changes.clear();
        one.input(StoreInput::Snapshot(snapshot));
        self.exchange();
    }

    pub(super) fn disconnect(&mut self, replica: usize) {
        let one = &mut self.replicas[replica];
        one.seen = None;
        one.proposals.clear();
        one.input(StoreInput::Disconnected("test".to_owned()));
    }

    /// Replaces a replica by a new process of the same name, which has not read the store.
    pub(super) fn restart(&mut self, replica: usize) {
        self.instances += 1;
        let old = &self.replicas[replica].driver;
        let (config, now) = (Arc::clone(old.state.file_config()), old.now);
        self.replicas[replica] = Replica::new(replica, self.instances, &config, now);
    }

    /// Lets the records of a process expire with its lease.
    pub(super) fn expire_lease(&mut self, instance: u64) {
        for (key, (_, writer, _)) in self.store.records.clone() {
            if writer == instance {
                self.apply(&key, None, instance);
            }
        }
        for (key, (record, _)) in self.store.plans.clone() {
            if record.instance == instance {
                self.store.plans.remove(&key);
                self.announce(&StoreInput::PlanDeleted(key));
            }
        }
        self.exchange();
    }

    pub(super) fn instance(&self, replica: usize) -> u64 {
        self.replicas[replica].instance
    }

    pub(super) fn open(&mut self, replica: usize, node: &NodeInfo) {
        self.replicas[replica].driver.open(node);
        self.exchange();
    }

    pub(super) fn open_kind(&mut self, replica: usize, node: &NodeInfo, kind: StreamKind) {
        let driver = &mut self.replicas[replica].driver;
        let now = driver.now;
        let opened =
            driver
                .state
                .handle_open(node, kind, false, &crate::fleet::Peer::default(), now);
        opened.unwrap();
        self.exchange();
    }

    pub(super) fn close(&mut self, replica: usize, node: &NodeInfo) {
        self.replicas[replica].driver.close(node);
        self.exchange();
    }

    /// A node opens its streams to `to`, and those to `from` close.
    pub(super) fn move_node(&mut self, node: &NodeInfo, from: usize, to: usize) {
        self.close(from, node);
        self.open(to, node);
    }

    pub(super) fn report(&mut self, replica: usize, node: &NodeInfo, requests: u64) {
        let one = &mut self.replicas[replica];
        let report = [stats("orders", requests)];
        one.driver
            .state
            .handle_report(node, &report, one.driver.now);
        self.exchange();
    }

    pub(super) fn advance(&mut self, milliseconds: u64) {
        // In steps, so that records are exchanged in between.
        for _ in 0..milliseconds / 100 {
            for replica in &mut self.replicas {
                replica.driver.advance(100);
            }
            self.exchange();
        }
    }

    /// Lets nodes report once per second, each to its replica.
    pub(super) fn traffic(&mut self, nodes: &[(usize, &NodeInfo, u64)], seconds: u64) {
        for _ in 0..seconds {
            self.advance(1000);
            for (replica, node, requests) in nodes {
                self.report(*replica, node, *requests);
            }
        }
    }

    /// Writes what replicas have to write, and delivers changes, until nothing changes.
    pub(super) fn exchange(&mut self) {
        loop {
            let mut idle = true;
            for index in 0..self.replicas.len() {
                let replica = &mut self.replicas[index];
                replica.drain();
                if replica.seen.is_none() {
                    continue;
                }
                let instance = replica.instance;
                for (key, write) in std::mem::take(&mut replica.writes) {
                    idle = false;
                    self.write(&key, write, instance);
                }
                for (key, proposal) in std::mem::take(&mut self.replicas[index].proposals) {
                    idle = false;
                    self.propose(key, proposal);
                }
                for change in std::mem::take(&mut self.replicas[index].changes) {
                    idle = false;
                    self.replicas[index].input(change);
                }
            }
            if idle {
                return;
            }
        }
    }

    fn write(&mut self, key: &NodeKey, write: Write, instance: u64) {
        match write {
            Write::Put(record) => self.apply(key, Some(encode_node_record(&record)), instance),
            Write::PutIfOwn(record) => {
                if self.writer(key).is_none_or(|writer| writer == instance) {
                    self.apply(key, Some(encode_node_record(&record)), instance);
                }
            }
            Write::Forget => {}
            Write::Delete => {
                if self.writer(key) == Some(instance) {
                    self.apply(key, None, instance);
                }
            }
        }
    }

    fn writer(&self, key: &NodeKey) -> Option<u64> {
        let stored = self.store.records.get(key);
        stored.map(|(_, writer, _)| *writer)
    }

    fn apply(&mut self, key: &NodeKey, value: Option<Vec<u8>>, instance: u64) {
        self.store.revision += 1;
        let revision = self.store.revision;
        let change = match value {
            None => {
                self.store.records.remove(key);
                StoreInput::NodeDeleted(key.clone())
            }
            Some(bytes) => {
                let record = decode_node_record(&bytes).unwrap();
                let stored = (bytes, instance, revision);
                self.store.records.insert(key.clone(), stored);
                StoreInput::NodePut(StoredNode { record, revision })
            }
        };
        self.announce(&change);
    }

    /// Takes a plan if it follows the one that the store has.
    fn propose(&mut self, key: PlanKey, proposal: Proposal) {
        let stored = self.store.plans.get(&key);
        if stored.map_or(0, |(_, revision)| *revision) != proposal.after {
            return;
        }
        self.store.revision += 1;
        let Some(record) = proposal.record else {
            self.store.plans.remove(&key);
            return self.announce(&StoreInput::PlanDeleted(key));
        };
        let revision = self.store.revision;
        let stored = (record.clone(), revision);
        self.store.plans.insert(key.clone(), stored);
        self.announce(&StoreInput::PlanPut(StoredPlan {
            key,
            record,
            revision,
        }));
    }

    fn announce(&mut self, change: &StoreInput) {
        for replica in &mut self.replicas {
            if replica.seen.is_some() {
                replica.changes.push(change.clone());
            }
        }
    }

    /// Demand by zone that a replica has measured, in requests per second.
    pub(super) fn demand(&self, replica: usize) -> BTreeMap<String, u64> {
        demand(&self.replicas[replica].driver)
    }

    pub(super) fn nodes(&self, replica: usize) -> usize {
        let driver = &self.replicas[replica].driver;
        driver.state.fleets().node_count("gateway")
    }

    /// Fractions that a replica delivers, in basis points.
    pub(super) fn delivered(&self, replica: usize) -> Vec<u64> {
        let plan = self.replicas[replica].driver.state.fleet_plan("gateway");
        let zones = plan.map(|plan| plan.zones.clone()).unwrap_or_default();
        zones.iter().map(|zone| zone.fraction.get()).collect()
    }

    /// Revision at which the record of a node was written.
    pub(super) fn revision(&self, node: &NodeInfo) -> i64 {
        self.store.records[&NodeKey::of(&node.node)].2
    }

    pub(super) fn owner(&self, node: &NodeInfo) -> Option<Arc<str>> {
        let (bytes, ..) = self.store.records.get(&NodeKey::of(&node.node))?;
        Some(decode_node_record(bytes).unwrap().replica)
    }
}

/// Demand by zone that a control plane has measured, in requests per second.
pub(super) fn demand(driver: &Driver) -> BTreeMap<String, u64> {
    let planner = driver.state.planner();
    let Some(fleet) = planner.fleet("gateway", driver.now) else {
        return BTreeMap::new();
    };
    let scope = fleet.scopes().next().expect("the whole fleet");
    let counted = scope.demand().filter(|zone| zone.raw_per_second > 0.0);
    let zones = counted.map(|zone| {
        (
            zone.locality.zone().to_owned(),
            rounded(zone.raw_per_second),
        )
    });
    zones.collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates of tests are small"
)]
fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}
