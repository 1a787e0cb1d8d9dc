//! An etcd with one member on loopback (Debian's `etcd-server`).

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use super::scratch;

/// Running etcd; killed when dropped.
pub(crate) struct Etcd {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        let directory = scratch("etcd");
        let (address, peer) = (free_address(), free_address());
        let (client_url, peer_url) = (format!("http://{address}"), format!("http://{peer}"));
        let log = std::fs::File::create(directory.join("etcd.log")).unwrap();
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(directory.join("data"));
        for (flag, url) in [
            ("--listen-client-urls", &client_url),
            ("--advertise-client-urls", &client_url),
            ("--listen-peer-urls", &peer_url),
            ("--initial-advertise-peer-urls", &peer_url),
            ("--initial-cluster", &format!("default={peer_url}")),
        ] {
            command.args([flag, url]);
        }
        command.stdout(Stdio::null()).stderr(log);
        Self {
            address,
            child: command.spawn().unwrap(),
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have been killed by the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// etcd cannot listen on port 0.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}
