//! Ports for servers that cannot bind port 0, or that must be known before they start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ephemeral ports of Linux (from 32768): between the search and the bind, a connection
/// of another test could get such a port.
const FIRST: u32 = 10_240;
const COUNT: u32 = 10_240;
/// Ports that a process takes before it reaches those of the process with the next id.
const PER_PROCESS: u32 = 64;

/// Returns an address on loopback that nobody listens on, another one at every call.
pub fn free_address() -> SocketAddr {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let start = process::id().wrapping_mul(PER_PROCESS) % COUNT;
    let free = (0..COUNT).find_map(|_| {
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + (start + taken) % COUNT).ok()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        TcpListener::bind(address).is_ok().then_some(address)
    });
    free.expect("some ports are free")
}
