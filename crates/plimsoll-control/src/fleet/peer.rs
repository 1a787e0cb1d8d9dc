//! [`Peer`]: who opened a stream, and [`PeerCounts`]: how many nodes and fleets each address has.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use plimsoll_serve::peer_of;
use plimsoll_xds::driver::{ClientIdentity, ClientInfo};

use super::{FleetLimits, OpenRefusal};

/// The other end of a connection: its address, and the names in its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// `None` if it is not known, as of a node that another replica serves.
    pub address: Option<IpAddr>,
    /// `None` without a verified certificate.
    pub identity: Option<Arc<ClientIdentity>>,
}

impl From<&ClientInfo> for Peer {
    fn from(client: &ClientInfo) -> Self {
        Self {
            address: client.peer.map(|peer| peer.ip().to_canonical()),
            identity: client.identity.clone(),
        }
    }
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self {
            address: Some(address),
            identity: None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.names().first() {
            write!(f, "{name:?} at ")?;
        }
        match self.address {
            Some(address) => address.fmt(f),
            None => f.write_str("an unknown address"),
        }
    }
}

impl Peer {
    /// Whether two streams may belong to one process. The names of certificates decide if both
    /// have some: a process that is moved to another machine keeps them, and two processes behind
    /// one address differ in them. Otherwise the addresses do.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let (names, others) = (self.names(), other.names());
        if !names.is_empty() && !others.is_empty() {
            return names == others;
        }
        let addresses = self.address.zip(other.address);
        addresses.is_none_or(|(one, other)| one == other)
    }

    /// Returns the URI of the certificate, or its DNS names if it has none.
    fn names(&self) -> &[String] {
        match self.identity.as_deref() {
            None => &[],
            Some(identity) if identity.uris.is_empty() => &identity.dns_names,
            Some(identity) => &identity.uris,
        }
    }

    /// Returns the address that nodes and fleets are counted by; `None` for loopback, where all
    /// clients of a local proxy come from, and if the address is not known.
    pub(super) fn counted_by(&self) -> Option<IpAddr> {
        let address = self.address.map(peer_of);
        address.filter(|address| !address.is_loopback())
    }
}

/// Nodes and fleets by the address that they were first seen from.
#[derive(Debug, Default)]
pub(super) struct PeerCounts(BTreeMap<IpAddr, Counts>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    nodes: usize,
    fleets: usize,
}

impl PeerCounts {
    /// Checks that there is room for another node, and for another fleet if it is the first one.
    pub(super) fn check(
        &self,
        peer: Option<IpAddr>,
        is_new_fleet: bool,
        limits: &FleetLimits,
    ) -> Result<(), OpenRefusal> {
        let Some(peer) = peer else {
            return Ok(());
        };
        let counts = self.0.get(&peer).copied().unwrap_or_default();
        if counts.nodes >= limits.nodes_per_peer {
            let most = limits.nodes_per_peer;
            return Err(OpenRefusal::NodesOfPeer { most, peer });
        }
        if is_new_fleet && counts.fleets >= limits.fleets_per_peer {
            let most = limits.fleets_per_peer;
            return Err(OpenRefusal::FleetsOfPeer { most, peer });
        }
        Ok(())
    }

    pub(super) fn add_node(&mut self, peer: Option<IpAddr>) {
        self.change(peer, |counts| counts.nodes += 1);
    }

    pub(super) fn remove_node(&mut self, peer: Option<IpAddr>) {
        self.change(peer, |counts| counts.nodes -= 1);
    }

    pub(super) fn add_fleet(&mut self, peer: Option<IpAddr>) {
        self.change(peer, |counts| counts.fleets += 1);
    }

    pub(super) fn remove_fleet(&mut self, peer: Option<IpAddr>) {
        self.change(peer, |counts| counts.fleets -= 1);
    }

    fn change(&mut self, peer: Option<IpAddr>, change: impl FnOnce(&mut Counts)) {
        let Some(peer) = peer else {
            return;
        };
        let counts = self.0.entry(peer).or_default();
        change(counts);
        if *counts == Counts::default() {
            self.0.remove(&peer);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8, uris: &[&str], dns_names: &[&str]) -> Peer {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Peer {
            address: Some([10, 0, 0, last].into()),
            identity: Some(Arc::new(ClientIdentity {
                uris: owned(uris),
                dns_names: owned(dns_names),
            })),
        }
    }

    #[test]
    fn names_of_certificates_decide_before_addresses() {
        let plain = |last: u8| Peer::from(IpAddr::from([10, 0, 0, last]));
        let [a, b] = [1, 2].map(|last| peer(last, &["spiffe://td/a"], &[]));
        assert!(a.is_same(&b), "moved");
        assert!(!a.is_same(&peer(1, &["spiffe://td/b"], &[])), "one address");
        assert!(
            a.is_same(&peer(1, &["spiffe://td/a"], &["pod-1"])),
            "renewed"
        );
        let dns = peer(1, &[], &["a.test"]);
        assert!(dns.is_same(&peer(2, &[], &["a.test"])));
        assert!(!dns.is_same(&peer(1, &[], &["b.test"])));
        // Without names on both sides, addresses decide.
        for other in [plain(1), peer(1, &[], &[])] {
            assert!(a.is_same(&other) && other.is_same(&a));
            assert!(!b.is_same(&other) && !other.is_same(&b));
        }
        assert!(plain(1).is_same(&plain(1)) && !plain(1).is_same(&plain(2)));
        assert!(plain(1).is_same(&Peer::default()) && Peer::default().is_same(&a));
    }

    #[test]
    fn a_peer_is_shown_with_its_name_and_address() {
        let named = peer(1, &["spiffe://td/a"], &["a.test"]);
        assert_eq!(named.to_string(), "\"spiffe://td/a\" at 10.0.0.1");
        assert_eq!(
            Peer::from(IpAddr::from([10, 0, 0, 2])).to_string(),
            "10.0.0.2"
        );
        assert_eq!(Peer::default().to_string(), "an unknown address");
    }

    #[test]
    fn nodes_are_counted_by_networks_and_not_on_loopback() {
        let counted = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            let counted = Peer::from(address).counted_by();
            counted.map(|address| address.to_string())
        };
        assert_eq!(counted("10.0.0.1").as_deref(), Some("10.0.0.1"));
        assert_eq!(
            counted("2001:db8:1:2:3::4").as_deref(),
            Some("2001:db8:1:2::")
        );
        assert_eq!(counted("127.0.0.2"), None);
        assert_eq!(counted("::1"), None);
        assert_eq!(Peer::default().counted_by(), None);
    }
}
