//! etcd (Debian's `etcd-server`) with its client and peer addresses on loopback.

use std::path::Path;
use std::process::Command;

/// Returns the command of a member with its data and the URLs of its listeners.
pub fn etcd(program: &Path, data: &Path, client: &str, peer: &str) -> Command {
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(data);
    for (flag, url) in [
        ("--listen-client-urls", client),
        ("--advertise-client-urls", client),
        ("--listen-peer-urls", peer),
        ("--initial-advertise-peer-urls", peer),
    ] {
        command.args([flag, url]);
    }
    command
}
