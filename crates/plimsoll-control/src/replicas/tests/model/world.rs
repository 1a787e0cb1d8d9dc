//! [`World`]: replicas, nodes and a store, and what may happen next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};

use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::replica::ReplicaRecord;
use xxhash_rust::xxh64::xxh64;

use super::action::{Action, Flaw, Size};
use super::etcd::{Etcd, Lease};
use crate::config::ControlConfig;
use crate::delivery::NodeClass;
use crate::replicas::StoreInput;
use crate::state::State;
use crate::state::tests::driver::{Driver, ENDPOINTS, HEAD, node, parse, stats};
use crate::store::{Outbox, Proposals};

/// Shortest that the file allows, so that its end is near.
pub(super) const LEASE_SECONDS: u64 = 5;
pub(super) const LEAVE_SECONDS: u64 = 5;

/// A data plane that reports load, and what it really does: replicas may see it late.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    pub(super) info: NodeInfo,
    /// Replica that its streams use; `None` while it has none.
    pub(super) at: Option<usize>,
    /// Replicas that have not noticed that its streams are gone.
    unseen: BTreeSet<usize>,
    pub(super) is_alive: bool,
    pub(super) reports: u64,
}

impl Proxy {
    /// Rate of its latest report. The shares of zones differ by more than `material_change_bp`
    /// between any two.
    pub(super) fn rate(&self) -> u64 {
        100 * (1 + self.reports % 5)
    }
}

/// A replica and its session with the store.
pub(super) struct Replica {
    pub(super) driver: Driver,
    pub(super) lease: Option<Lease>,
    pub(super) has_session: bool,
    pub(super) outbox: Outbox,
    pub(super) proposals: Proposals,
    pub(super) proposed: BTreeSet<String>,
    pub(super) changes: VecDeque<StoreInput>,
    last: Option<StoreInput>,
}

pub(super) struct World {
    pub(super) replicas: Vec<Replica>,
    pub(super) proxies: Vec<Proxy>,
    pub(super) etcd: Etcd,
    backup: Etcd,
    instances: u64,
    leases: Lease,
    flaw: Flaw,
    config: Arc<ControlConfig>,
}

/// The configuration of all worlds, of which there are thousands.
static CONFIG: LazyLock<Arc<ControlConfig>> = LazyLock::new(|| {
    parse(&format!(
        "{HEAD}fleets: {{leave_after: {LEAVE_SECONDS}s}}\n\
         store: {{etcd: {{endpoints: ['127.0.0.1:1'], lease_ttl: {LEASE_SECONDS}s}}}}\n\
         services: [{{cluster: {{name: orders}}, {ENDPOINTS}}}]"
    ))
});

impl World {
    /// Replicas with sessions, and one node after the other at each, which have reported.
    pub(super) fn new(size: Size, flaw: Flaw) -> Self {
        let zones = ["a", "b", "c"];
        let proxies = (0..size.nodes).map(|index| Proxy {
            info: node(NodeClass::Envoy, &format!("n{index}"), zones[index % 3]),
            at: None,
            unseen: BTreeSet::new(),
            is_alive: true,
            reports: index as u64,
        });
        let mut new = Self {
            replicas: Vec::new(),
            proxies: proxies.collect(),
            etcd: Etcd::default(),
            backup: Etcd::default(),
            instances: 0,
            leases: 0,
            flaw,
            config: Arc::clone(&CONFIG),
        };
        for index in 0..size.replicas {
            let replica = new.process(index, Instant::ORIGIN);
            new.replicas.push(replica);
            new.find(index);
        }
        for index in 0..size.nodes {
            new.open(index, index % size.replicas);
        }
        for second in 0..3 {
            new.advance(1000);
            for index in 0..size.nodes {
                new.report(index);
            }
            new.exchange();
            if second == 1 {
                new.backup = new.etcd.clone();
            }
        }
        new
    }

    fn process(&mut self, index: usize, now: Instant) -> Replica {
        self.instances += 1;
        let mut driver = Driver::with_config(Arc::clone(&self.config));
        driver.now = now;
        let state = State::new(Arc::clone(&self.config), now);
        driver.state = state.with_replicas(format!("r{index}").into(), self.instances);
        Replica {
            driver,
            lease: None,
            has_session: false,
            outbox: Outbox::default(),
            proposals: Proposals::default(),
            proposed: BTreeSet::new(),
            changes: VecDeque::new(),
            last: None,
        }
    }

    /// Returns what may happen next.
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = vec![Action::Restore, Action::Wait];
        for (node, proxy) in self.proxies.iter().enumerate() {
            actions.extend(
                proxy
                    .unseen
                    .iter()
                    .map(|at| Action::Notice { node, at: *at }),
            );
            if !proxy.is_alive {
                continue;
            }
            actions.push(Action::End { node });
            if proxy.at.is_some() {
                actions.push(Action::Report { node });
            }
            for to in 0..self.replicas.len() {
                actions.push(Action::Move { node, to });
                if proxy.at.is_some_and(|at| at != to) {
                    actions.push(Action::MoveUnseen { node, to });
                }
            }
        }
        for (replica, one) in self.replicas.iter().enumerate() {
            actions.push(Action::Restart { replica });
            if !one.has_session {
                actions.push(Action::Find { replica });
                continue;
            }
            actions.push(Action::Lose { replica });
            if one.outbox.len() > 0 {
                actions.extend([
                    Action::Write { replica },
                    Action::WriteUnanswered { replica },
                    Action::WriteFails { replica },
                ]);
            }
            if !one.proposed.is_empty() {
                actions.push(Action::Propose { replica });
            }
            if !one.changes.is_empty() {
                actions.push(Action::Deliver { replica });
            }
            if one.last.is_some() {
                actions.push(Action::Repeat { replica });
            }
        }
        let kept: BTreeSet<_> = self.kept_leases().collect();
        let free = self.etcd.leases.difference(&kept);
        actions.extend(free.map(|lease| Action::Expire { lease: *lease }));
        actions
    }

    pub(super) fn kept_leases(&self) -> impl Iterator<Item = Lease> {
        let connected = self.replicas.iter().filter(|one| one.has_session);
        connected.filter_map(|one| one.lease)
    }

    pub(super) fn apply(&mut self, action: Action) {
        match action {
            Action::Move { node, to } => {
                self.close(node);
                self.open(node, to);
            }
            Action::MoveUnseen { node, to } => {
                let at = self.proxies[node].at.take();
                self.proxies[node].unseen.extend(at);
                self.open(node, to);
            }
            Action::Notice { node, at } => self.notice(node, at),
            Action::Report { node } => self.report(node),
            Action::End { node } => {
                self.close(node);
                self.proxies[node].is_alive = false;
            }
            Action::Write { replica } => self.write(replica, true),
            Action::WriteUnanswered { replica } => {
                self.write(replica, false);
                self.lose(replica);
            }
            Action::WriteFails { replica } => {
                let outbox = &self.replicas[replica].outbox;
                outbox.restore(outbox.take());
                self.lose(replica);
            }
            Action::Propose { replica } => self.propose(replica),
            Action::Deliver { replica } => {
                if let Some(change) = self.replicas[replica].changes.pop_front() {
                    self.replicas[replica].last = Some(change.clone());
                    self.input(replica, change);
                }
            }
            Action::Repeat { replica } => {
                if let Some(change) = self.replicas[replica].last.clone() {
                    self.input(replica, change);
                }
            }
            Action::Lose { replica } => self.lose(replica),
            Action::Find { replica } => self.find(replica),
            Action::Expire { lease } => self.expire(lease),
            Action::Restart { replica } => self.restart(replica),
            Action::Restore => self.restore(),
            Action::Wait => self.advance(500),
        }
    }

    fn open(&mut self, node: usize, to: usize) {
        let proxy = &mut self.proxies[node];
        proxy.at = Some(to);
        // The replica compares peers: the earlier stream of a node that returns ends.
        let returns = proxy.unseen.remove(&to);
        let info = proxy.info.clone();
        let driver = &mut self.replicas[to].driver;
        driver.open(&info);
        if returns {
            driver.close(&info);
        }
        self.drain(to);
    }

    fn close(&mut self, node: usize) {
        if let Some(at) = self.proxies[node].at.take() {
            let info = self.proxies[node].info.clone();
            self.replicas[at].driver.close(&info);
            self.drain(at);
        }
    }

    pub(super) fn notice(&mut self, node: usize, at: usize) {
        if self.proxies[node].unseen.remove(&at) {
            let info = self.proxies[node].info.clone();
            self.replicas[at].driver.close(&info);
            self.drain(at);
        }
    }

    pub(super) fn report(&mut self, node: usize) {
        let proxy = &mut self.proxies[node];
        let Some(at) = proxy.at else { return };
        proxy.reports += 1;
        let (info, rate) = (proxy.info.clone(), proxy.rate());
        self.replicas[at]
            .driver
            .report_stats(&info, stats("orders", rate));
        self.drain(at);
    }

    fn write(&mut self, replica: usize, is_answered: bool) {
        let one = &mut self.replicas[replica];
        let (Some(lease), batch) = (one.lease, one.outbox.take()) else {
            return;
        };
        let seen = self.etcd.write(&batch, lease, self.flaw);
        if !is_answered {
            self.replicas[replica].outbox.restore(batch);
        }
        self.announce(&seen);
    }

    fn propose(&mut self, replica: usize) {
        let one = &mut self.replicas[replica];
        one.proposed.clear();
        let (Some(lease), batch) = (one.lease, one.proposals.take()) else {
            return;
        };
        let seen = self.etcd.propose(batch, lease);
        self.announce(&seen);
    }

    pub(super) fn lose(&mut self, replica: usize) {
        let one = &mut self.replicas[replica];
        one.has_session = false;
        one.changes.clear();
        one.last = None;
        // As `Writer` does: proposals of a session that ended must not reach the next one.
        one.proposals.take();
        one.proposed.clear();
        self.input(replica, StoreInput::Disconnected("model".to_owned()));
    }

    /// As `EtcdStore::session`: the lease, all records, then the watch.
    pub(super) fn find(&mut self, replica: usize) {
        let one = &self.replicas[replica];
        let lease = one.lease.filter(|lease| self.etcd.leases.contains(lease));
        let is_new = lease.is_none();
        let lease = lease.unwrap_or_else(|| {
            self.leases += 1;
            self.leases
        });
        self.etcd.leases.insert(lease);
        let snapshot = self.etcd.snapshot();
        let one = &mut self.replicas[replica];
        one.lease = Some(lease);
        one.has_session = true;
        one.changes.clear();
        self.input(replica, snapshot);
        if is_new {
            self.input(replica, StoreInput::LeaseChanged);
        }
        let record = ReplicaRecord {
            replica: format!("r{replica}"),
            ..ReplicaRecord::default()
        };
        let seen = self.etcd.announce(record, lease);
        self.announce(&[seen]);
    }

    pub(super) fn expire(&mut self, lease: Lease) {
        let seen = self.etcd.expire(lease, self.flaw);
        self.announce(&seen);
    }

    fn restart(&mut self, replica: usize) {
        let now = self.replicas[replica].driver.now;
        self.replicas[replica] = self.process(replica, now);
        for proxy in &mut self.proxies {
            proxy.unseen.remove(&replica);
            if proxy.at == Some(replica) {
                proxy.at = None;
            }
        }
    }

    fn restore(&mut self) {
        for replica in 0..self.replicas.len() {
            if self.replicas[replica].has_session {
                self.lose(replica);
            }
        }
        self.etcd = self.backup.clone();
    }

    fn announce(&mut self, seen: &[StoreInput]) {
        for one in &mut self.replicas {
            if one.has_session {
                one.changes.extend(seen.iter().cloned());
            }
        }
    }

    fn input(&mut self, replica: usize, input: StoreInput) {
        let driver = &mut self.replicas[replica].driver;
        driver.state.handle_store(input, driver.now);
        self.drain(replica);
    }

    pub(super) fn advance(&mut self, milliseconds: u64) {
        for replica in 0..self.replicas.len() {
            self.replicas[replica].driver.advance(milliseconds);
            self.drain(replica);
        }
    }

    fn drain(&mut self, replica: usize) {
        let one = &mut self.replicas[replica];
        one.driver.drain();
        one.driver.events.clear();
        one.driver.published.clear();
        while let Some((key, write)) = one.driver.state.poll_store_write() {
            one.outbox.push(key, &write).expect("it is small");
        }
        while let Some((key, proposal)) = one.driver.state.poll_proposal() {
            one.proposed.insert(format!("{key:?}"));
            one.proposals.push(key, &proposal).expect("it is small");
        }
    }

    /// Lets all that waits be written and delivered.
    pub(super) fn exchange(&mut self) {
        for _ in 0..1000 {
            let mut is_idle = true;
            for replica in 0..self.replicas.len() {
                if !self.replicas[replica].has_session {
                    continue;
                }
                while self.replicas[replica].outbox.len() > 0 {
                    is_idle = false;
                    self.write(replica, true);
                }
                if !self.replicas[replica].proposed.is_empty() {
                    is_idle = false;
                    self.propose(replica);
                }
                while !self.replicas[replica].changes.is_empty() {
                    is_idle = false;
                    self.apply(Action::Deliver { replica });
                }
            }
            if is_idle {
                return;
            }
        }
        panic!("replicas write to each other without an end");
    }

    /// Demand by zone that a replica counts, in requests per second.
    pub(super) fn demand(&self, replica: usize) -> BTreeMap<String, u64> {
        super::super::set::demand(&self.replicas[replica].driver)
    }

    /// Hash of all that decides what can happen from here.
    pub(super) fn digest(&self) -> u64 {
        let mut text = format!("{:?}{:?}", self.proxies, self.etcd);
        for one in &self.replicas {
            let state = &one.driver.state;
            text += &format!(
                "{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}",
                one.driver.now,
                one.lease,
                one.has_session,
                one.outbox,
                one.proposals,
                one.changes,
                state.replicas(),
                state.fleets(),
                state.planner(),
                state.fleet_plan("gateway"),
            );
        }
        xxh64(text.as_bytes(), 0)
    }
}
