//! [`Records`]: how far each discovery stream is, for people to look at.
//!
//! Streams write their own record; the admin API reads all of them. The writer of the state is not
//! involved: an answer of a proxy changes nothing that it decides. Totals outlive the streams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::time::Instant;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::ads::server::TypeStatus;
use plimsoll_xds::node::NodeInfo;

/// One discovery stream.
#[derive(Clone, Debug)]
pub struct StreamRecord {
    /// Whose it is.
    pub node: Arc<NodeInfo>,
    /// Where it comes from.
    pub peer: Option<SocketAddr>,
    /// Which variant it speaks.
    pub variant: Variant,
    /// When it opened.
    pub since: Instant,
    /// Per type: what was sent, accepted, refused.
    pub types: Vec<TypeStatus>,
    /// Assignments it subscribes to by name, and since when.
    pub assignments: BTreeMap<Arc<str>, Instant>,
}

/// All open streams, by a number of their own.
#[derive(Debug, Default)]
pub struct Records {
    streams: Mutex<Numbered>,
}

/// Responses of one type on all streams so far, those that are closed included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Responses sent. One is seen here when its receiver speaks next.
    pub responses: u64,
    /// Responses accepted.
    pub acks: u64,
    /// Responses refused.
    pub nacks: u64,
}

#[derive(Debug, Default)]
struct Numbered {
    next: u64,
    totals: BTreeMap<Arc<str>, Totals>,
    open: BTreeMap<u64, StreamRecord>,
}

impl Records {
    /// A stream opened; its number.
    pub(crate) fn open(&self, record: StreamRecord) -> u64 {
        let mut streams = self.lock();
        let number = streams.next;
        streams.next += 1;
        streams.open.insert(number, record);
        number
    }

    /// A stream got further.
    pub(crate) fn update(&self, number: u64, types: Vec<TypeStatus>) {
        let mut streams = self.lock();
        let Numbered { open, totals, .. } = &mut *streams;
        let Some(record) = open.get_mut(&number) else {
            return;
        };
        for now in types.iter().filter(|now| now.responses > 0) {
            let before = record
                .types
                .iter()
                .find(|before| before.type_url == now.type_url);
            let before = before.map(Totals::of).unwrap_or_default();
            totals
                .entry(Arc::clone(&now.type_url))
                .or_default()
                .add(Totals::of(now), before);
        }
        record.types = types;
    }

    /// A stream subscribed to assignments by name.
    pub(crate) fn subscribe(&self, number: u64, names: &[Arc<str>], now: Instant) {
        if let Some(record) = self.lock().open.get_mut(&number) {
            let names = names.iter().map(|name| (Arc::clone(name), now));
            record.assignments.extend(names);
        }
    }

    /// A stream gave up subscriptions to assignments.
    pub(crate) fn unsubscribe(&self, number: u64, names: &[Arc<str>]) {
        if let Some(record) = self.lock().open.get_mut(&number) {
            record.assignments.retain(|name, _| !names.contains(name));
        }
    }

    /// A stream is over.
    pub(crate) fn close(&self, number: u64) {
        self.lock().open.remove(&number);
    }

    /// All of them, as they are now.
    pub fn all(&self) -> Vec<StreamRecord> {
        self.lock().open.values().cloned().collect()
    }

    /// Totals by type URL. Only types that were ever answered are listed, so a client that asks
    /// for nonsense adds nothing.
    pub fn totals(&self) -> BTreeMap<Arc<str>, Totals> {
        self.lock().totals.clone()
    }

    /// Calls `look` with every record, without a copy. It must be quick: streams wait for it.
    pub(crate) fn for_each(&self, look: impl FnMut(&StreamRecord)) {
        self.lock().open.values().for_each(look);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Numbered> {
        // Nothing in here can be half done.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    const fn of(status: &TypeStatus) -> Self {
        Self {
            responses: status.responses,
            acks: status.acks,
            nacks: status.nacks,
        }
    }

    /// Adds what came since `before`.
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
    fn totals_outlive_streams_and_never_count_twice() {
        let records = Records::default();
        let first = records.open(record());
        records.update(first, vec![status("t", 1, 1)]);
        records.update(first, vec![status("t", 3, 2), status("nonsense", 0, 0)]);
        records.close(first);
        let second = records.open(record());
        records.update(second, vec![status("t", 1, 1)]);
        records.update(first, vec![status("t", 9, 9)]);
        let totals = Totals {
            responses: 4,
            acks: 3,
            nacks: 1,
        };
        assert_eq!(records.totals(), BTreeMap::from([("t".into(), totals)]));
    }
}
