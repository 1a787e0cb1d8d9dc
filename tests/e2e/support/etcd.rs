//! Cluster of etcd members on loopback (Debian's `etcd-server`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use plimsoll_testing::http::get;
use plimsoll_testing::{Process, etcd, free_address};
use rustix::process::Signal;

use super::wait_until;

/// Running cluster; its members are killed when dropped.
pub(crate) struct EtcdCluster {
    members: Vec<Member>,
    directory: PathBuf,
}

struct Member {
    client: SocketAddr,
    peer: SocketAddr,
    process: Process,
}

impl EtcdCluster {
    /// Starts three members and waits for their leader.
    pub(crate) fn start(directory: &Path) -> Self {
        let addresses = [0, 1, 2].map(|_| (free_address(), free_address()));
        let all: Vec<_> = addresses
            .iter()
            .enumerate()
            .map(|(index, (_, peer))| format!("m{index}=http://{peer}"))
            .collect();
        let all = all.join(",");
        let members = addresses
            .into_iter()
            .enumerate()
            .map(|(index, (client, peer))| Member {
                client,
                peer,
                process: start(directory, index, client, peer, &all),
            });
        let cluster = Self {
            members: members.collect(),
            directory: directory.to_owned(),
        };
        wait_until("etcd has a leader", || cluster.leader().is_some());
        cluster
    }

    /// Returns the addresses of the members, for `store.etcd.endpoints`.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        let members = self.members.iter();
        members.map(|member| member.client.to_string()).collect()
    }

    /// Returns the index of the leader.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| {
            let page = get(member.client, "/metrics").unwrap_or_default();
            page.lines().any(|line| line == "etcd_server_is_leader 1")
        })
    }

    /// Kills a member with SIGKILL.
    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member].process.kill();
    }

    /// Stops a member as a lost network does: connections stay open, and nothing answers.
    pub(crate) fn freeze(&self, member: usize) {
        self.members[member].process.signal(Signal::STOP);
    }

    /// Lets a member continue after [`Self::freeze`].
    pub(crate) fn thaw(&self, member: usize) {
        self.members[member].process.signal(Signal::CONT);
    }

    /// Starts a member again with its data.
    pub(crate) fn restart(&mut self, member: usize) {
        let Member { client, peer, .. } = self.members[member];
        // With data, members find each other without the list.
        let process = start(&self.directory, member, client, peer, "");
        self.members[member].process = process;
    }
}

fn start(
    directory: &Path,
    index: usize,
    client: SocketAddr,
    peer: SocketAddr,
    all: &str,
) -> Process {
    let data = directory.join(format!("etcd-{index}"));
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let mut command = etcd("etcd".as_ref(), &data, &client, &peer);
    command.args(["--name", &format!("m{index}")]);
    if !all.is_empty() {
        command.args(["--initial-cluster", all]);
    }
    Process::start(command, &directory.join(format!("etcd-{index}.log")))
}
