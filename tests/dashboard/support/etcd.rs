//! An etcd with one member.

use std::net::SocketAddr;

use plimsoll_testing::{Process, etcd, free_address};

use super::scratch;

/// Starts an etcd, and returns its address.
pub(crate) fn start() -> (SocketAddr, Process) {
    let directory = scratch("etcd");
    let (address, peer) = (free_address(), format!("http://{}", free_address()));
    let data = directory.join("data");
    let mut command = etcd("etcd".as_ref(), &data, &format!("http://{address}"), &peer);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    (
        address,
        Process::start(command, &directory.join("etcd.log")),
    )
}
