//! [`StreamRecords`]: status of each discovery stream, for the admin API.
//!
//! Streams update their own record. The state is not involved: ACKs and NACKs do not change what is
//! delivered. Totals by resource type include closed streams.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::time::Instant;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::ads::server::TypeStatus;
use plimsoll_xds::node::NodeInfo;

use crate::fleet::MemberKey;

/// Status of one discovery stream.
#[derive(Clone, Debug)]
pub struct StreamRecord {
    pub node: Arc<NodeInfo>,
    pub peer: Option<SocketAddr>,
    pub variant: Variant,
    pub since: Instant,
    /// Versions sent, acknowledged and rejected, by resource type.
    pub types: Vec<TypeStatus>,
    /// Assignments that the stream subscribes to by name, with the time of the subscription.
    pub assignments: BTreeMap<Arc<str>, Instant>,
}

/// Records of all open streams.
#[derive(Debug, Default)]
pub struct StreamRecords {
    streams: Mutex<Streams>,
}

/// Number of responses of one resource type over all streams, including closed ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseTotals {
    /// Responses sent; each is counted when its receiver sends the next request.
    pub responses: u64,
    pub acks: u64,
    pub nacks: u64,
}

#[derive(Debug, Default)]
struct Streams {
    next: u64,
    totals: BTreeMap<Arc<str>, ResponseTotals>,
    open: BTreeMap<u64, StreamRecord>,
}

impl StreamRecords {
    /// Adds a stream and returns its number.
    pub(crate) fn open(&self, record: StreamRecord) -> u64 {
        let mut streams = self.lock();
        let number = streams.next;
        streams.next += 1;
        streams.open.insert(number, record);
        number
    }

    pub(crate) fn update(&self, number: u64, types: Vec<TypeStatus>) {
        let mut streams = self.lock();
        let Streams { open, totals, .. } = &mut *streams;
        let Some(record) = open.get_mut(&number) else {
            return;
        };
        for now in types.iter().filter(|now| now.responses > 0) {
            let before = record
                .types
                .iter()
                .find(|before| before.type_url == now.type_url)
                .map(ResponseTotals::of)
                .unwrap_or_default();
            totals
                .entry(Arc::clone(&now.type_url))
                .or_default()
                .add(ResponseTotals::of(now), before);
        }
        record.types = types;
    }

    pub(crate) fn subscribe(&self, number: u64, names: &[Arc<str>], now: Instant) {
        if let Some(record) = self.lock().open.get_mut(&number) {
            let names = names.iter().map(|name| (Arc::clone(name), now));
            record.assignments.extend(names);
        }
    }

    pub(crate) fn unsubscribe(&self, number: u64, names: &[Arc<str>]) {
        if let Some(record) = self.lock().open.get_mut(&number) {
            // By key: every other stream waits for the lock, and a request may name thousands.
            for name in names {
                record.assignments.remove(name);
            }
        }
    }

    pub(crate) fn close(&self, number: u64) {
        self.lock().open.remove(&number);
    }

    /// Returns copies of the records of all open streams without `assignments`, of which a stream
    /// may have thousands.
    pub fn all(&self) -> Vec<StreamRecord> {
        let without_assignments = |record: &StreamRecord| StreamRecord {
            node: Arc::clone(&record.node),
            types: record.types.clone(),
            assignments: BTreeMap::new(),
            ..*record
        };
        let streams = self.lock();
        streams.open.values().map(without_assignments).collect()
    }

    /// Returns copies of the records of some nodes, by fleet and id.
    pub fn of_nodes(&self, nodes: &BTreeSet<MemberKey>) -> Vec<StreamRecord> {
        let is_listed = |record: &&StreamRecord| {
            let node = &record.node.node;
            nodes.contains(&(Arc::clone(&node.cluster), Arc::clone(&node.id)))
        };
        let streams = self.lock();
        streams.open.values().filter(is_listed).cloned().collect()
    }

    /// Returns totals by type URL. Only types with responses are listed, so that clients cannot add
    /// entries by requesting unknown types.
    pub fn totals(&self) -> BTreeMap<Arc<str>, ResponseTotals> {
        self.lock().totals.clone()
    }

    /// Calls `visit` with every record. It must return quickly: it blocks the streams.
    pub(crate) fn for_each(&self, visit: impl FnMut(&StreamRecord)) {
        self.lock().open.values().for_each(visit);
    }

    /// Like `for_each`, with the number of each stream.
    pub(crate) fn for_each_numbered(&self, mut visit: impl FnMut(u64, &StreamRecord)) {
        let streams = self.lock();
        for (number, record) in &streams.open {
            visit(*number, record);
        }
    }

    /// Returns the number of open streams.
    pub fn len(&self) -> usize {
        self.lock().open.len()
    }

    /// Whether no stream is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseTotals {
    const fn of(status: &TypeStatus) -> Self {
        Self {
            responses: status.responses,
            acks: status.acks,
            nacks: status.nacks,
        }
    }

    /// Adds the responses of a stream that were counted between `before` and `now`.
    const fn add(&mut self, now: Self, before: Self) {
        self.responses += now.responses.saturating_sub(before.responses);
        self.acks += now.acks.saturating_sub(before.acks);
        self.nacks += now.nacks.saturating_sub(before.nacks);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::load_report::Node;
    use plimsoll_core::model::locality::Locality;

    use super::*;

    fn record() -> StreamRecord {
        let node = NodeInfo {
            node: Node {
                id: "1".into(),
                cluster: "gateway".into(),
                locality: Locality::zone_only("a"),
            },
            user_agent_name: String::new(),
            user_agent_version: String::new(),
            client_features: Vec::new(),
        };
        StreamRecord {
            node: Arc::new(node),
            peer: None,
            variant: Variant::Sotw,
            since: Instant::ORIGIN,
            types: Vec::new(),
            assignments: BTreeMap::new(),
        }
    }

    fn status(type_url: &str, responses: u64, acks: u64) -> TypeStatus {
        TypeStatus {
            type_url: type_url.into(),
            wildcard: true,
            names: 0,
            sent: None,
            acked: None,
            nacked: None,
            in_flight: false,
            answered_at: None,
            responses,
            acks,
            nacks: responses - acks,
            stale: 0,
        }
    }

    #[test]
    fn names_are_removed_by_key() {
        // Comparing each with all others would take minutes.
        let names: Vec<Arc<str>> = (0..200_000).map(|it| format!("{it:06}").into()).collect();
        let records = StreamRecords::default();
        let stream = records.open(record());
        records.subscribe(stream, &names, Instant::ORIGIN);
        records.unsubscribe(stream, &names[1..]);
        records.unsubscribe(stream, &["unknown".into()]);
        let mut left = Vec::new();
        records.for_each(|record| left.extend(record.assignments.keys().cloned()));
        assert_eq!(left, names[..1]);
    }

    #[test]
    fn totals_outlive_streams_and_count_every_response_once() {
        let records = StreamRecords::default();
        let first = records.open(record());
        records.update(first, vec![status("t", 1, 1)]);
        records.update(first, vec![status("t", 3, 2), status("nonsense", 0, 0)]);
        records.close(first);
        let second = records.open(record());
        records.update(second, vec![status("t", 1, 1)]);
        records.update(first, vec![status("t", 9, 9)]);
        let totals = ResponseTotals {
            responses: 4,
            acks: 3,
            nacks: 1,
        };
        assert_eq!(records.totals(), BTreeMap::from([("t".into(), totals)]));
    }

    #[test]
    fn open_streams_are_listed_with_their_subscriptions() {
        let records = StreamRecords::default();
        assert!(records.is_empty());
        let numbers = [0; 3].map(|_| records.open(record()));
        let names = ["orders", "carts"].map(Arc::from);
        records.subscribe(numbers[1], &names, Instant::from_secs(1));
        records.unsubscribe(numbers[1], &names[..1]);
        records.close(numbers[0]);
        assert_eq!((records.len(), records.is_empty()), (2, false));
        let subscribed = BTreeMap::from([("carts".into(), Instant::from_secs(1))]);
        let mut seen = Vec::new();
        records.for_each_numbered(|number, record| seen.push((number, record.assignments.clone())));
        let expected = [(numbers[1], subscribed), (numbers[2], BTreeMap::new())];
        assert_eq!(seen, expected);
        let of = |id: &str| records.of_nodes(&[("gateway".into(), id.into())].into());
        let own = of("1").into_iter().map(|record| record.assignments);
        let expected = expected.map(|(_, assignments)| assignments);
        assert_eq!(own.collect::<Vec<_>>(), expected);
        assert!(of("2").is_empty());
        let all = records.all();
        let subscribed = all.iter().any(|record| !record.assignments.is_empty());
        assert_eq!((all.len(), subscribed), (2, false));
    }
}
