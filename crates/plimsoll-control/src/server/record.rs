//! [`Records`]: how far each discovery stream is, for people to look at.
//!
//! Streams write their own record; the admin API reads all of them. The writer of the state is not
//! involved: an answer of a proxy changes nothing that it decides.

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
}

/// All open streams, by a number of their own.
#[derive(Debug, Default)]
pub struct Records {
    streams: Mutex<Numbered>,
}

#[derive(Debug, Default)]
struct Numbered {
    next: u64,
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
        if let Some(record) = self.lock().open.get_mut(&number) {
            record.types = types;
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
