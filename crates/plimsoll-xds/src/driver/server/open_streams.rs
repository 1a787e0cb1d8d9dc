//! [`OpenStreams`]: how many streams are open, of all clients and of each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::driver::budget::network_of;
use crate::driver::request_limits::RequestLimit;

/// Open streams, and how many there may be.
#[derive(Debug)]
pub(in crate::driver) struct OpenStreams {
    most: usize,
    most_per_peer: usize,
    open: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    peers: HashMap<IpAddr, usize>,
}

/// An open stream, until it is dropped.
#[derive(Debug)]
pub(in crate::driver) struct StreamPermit {
    peer: Option<IpAddr>,
    streams: Arc<OpenStreams>,
}

impl OpenStreams {
    pub(in crate::driver) fn new(most: usize, most_per_peer: usize) -> Self {
        Self {
            most,
            most_per_peer,
            open: Mutex::default(),
        }
    }

    /// Counts a stream of the client at `address`, or returns the limit that it would exceed and
    /// what to tell the client.
    pub(super) fn open(
        self: &Arc<Self>,
        address: Option<IpAddr>,
    ) -> Result<StreamPermit, (RequestLimit, String)> {
        let peer = address.map(network_of);
        let mut open = self.lock();
        if open.all >= self.most {
            let text = format!("{} streams are open", self.most);
            return Err((RequestLimit::Streams, text));
        }
        if let Some(peer) = peer {
            let most = self.most_of(peer);
            let of_peer = open.peers.entry(peer).or_default();
            if *of_peer >= most {
                let text = format!("{most} streams are open from {peer}");
                return Err((RequestLimit::StreamsPerPeer, text));
            }
            *of_peer += 1;
        }
        open.all += 1;
        Ok(StreamPermit {
            peer,
            streams: Arc::clone(self),
        })
    }

    /// All clients of a local proxy come from loopback. It leaves a quarter of all streams to
    /// others, even so.
    fn most_of(&self, peer: IpAddr) -> usize {
        if peer.is_loopback() {
            self.most - self.most / 4
        } else {
            self.most_per_peer
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        open.all -= 1;
        if let Some(peer) = self.peer
            && let Some(of_peer) = open.peers.get_mut(&peer)
        {
            *of_peer -= 1;
            if *of_peer == 0 {
                open.peers.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(streams: &Arc<OpenStreams>, peer: &str) -> Result<StreamPermit, &'static str> {
        let opened = streams.open(Some(peer.parse().unwrap()));
        opened.map_err(|(limit, _)| limit.name())
    }

    #[test]
    fn one_peer_cannot_take_all_streams() {
        let streams = Arc::new(OpenStreams::new(5, 2));
        let first = open(&streams, "10.0.0.1").unwrap();
        let _second = open(&streams, "::ffff:10.0.0.1").unwrap();
        assert_eq!(
            open(&streams, "10.0.0.1").unwrap_err(),
            "streams_per_peer",
            "also of a client with one node"
        );
        let _other = open(&streams, "10.0.0.2").unwrap();
        drop(first);
        let _again = open(&streams, "10.0.0.1").unwrap();
        let _unknown = streams.open(None).unwrap();
        let _network = open(&streams, "2001:db8::1").unwrap();
        assert_eq!(open(&streams, "10.0.0.3").unwrap_err(), "streams");
        assert_eq!(streams.lock().all, 5);
    }

    #[test]
    fn loopback_leaves_a_quarter_to_others() {
        let streams = Arc::new(OpenStreams::new(8, 1));
        let opened: Vec<_> = (0..8)
            .filter_map(|_| open(&streams, "127.0.0.1").ok())
            .collect();
        assert_eq!(opened.len(), 6);
        let _other = open(&streams, "2001:db8::1").unwrap();
        assert!(open(&streams, "2001:db8::2").is_err(), "the same network");
        drop(opened);
        assert_eq!(streams.lock().peers.len(), 1, "nothing of others is kept");
    }

    #[test]
    fn few_streams_are_all_for_loopback() {
        for most in 1..4 {
            let streams = Arc::new(OpenStreams::new(most, 1));
            let opened: Vec<_> = (0..most).map(|_| open(&streams, "::1").unwrap()).collect();
            assert_eq!(opened.len(), most);
            assert_eq!(open(&streams, "::1").unwrap_err(), "streams");
        }
    }
}
