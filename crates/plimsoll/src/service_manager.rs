//! Protocol of systemd and compatible service managers: inherited sockets and readiness.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;

use anyhow::Context as _;
use listenfd::ListenFd;

/// Takes the listening sockets that the service manager has opened (`LISTEN_FDS`).
pub(crate) fn inherited_sockets() -> anyhow::Result<Vec<TcpListener>> {
    let mut inherited = ListenFd::from_env();
    let mut sockets = Vec::new();
    for index in 0..inherited.len() {
        let socket = inherited
            .take_tcp_listener(index)
            .with_context(|| format!("LISTEN_FDS: socket {index} is not a TCP listener"))?;
        if let Some(socket) = socket {
            socket
                .set_nonblocking(true)
                .context("LISTEN_FDS: cannot use a socket")?;
            sockets.push(socket);
        }
    }
    Ok(sockets)
}

/// Tells the service manager a state such as `READY=1` (`Type=notify`); does nothing without one.
pub(crate) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    // The service manager finds out by itself if the message does not arrive.
    let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to(state.as_bytes(), path));
}
