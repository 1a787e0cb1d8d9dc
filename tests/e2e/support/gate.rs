//! TCP forwarder that can be paused or closed.
//!
//! While paused it keeps connections open but forwards nothing, so that load reports stop without a
//! connection error. While closed it has no connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// TCP forwarder on loopback.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    open: Arc<(Mutex<bool>, Condvar)>,
    connections: Arc<Mutex<Connections>>,
}

#[derive(Default)]
struct Connections {
    are_refused: bool,
    streams: Vec<TcpStream>,
}

impl Gate {
    /// Starts a forwarder to `target`, not paused.
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new((Mutex::new(true), Condvar::new()));
        let gate = Arc::clone(&open);
        let connections = Arc::<Mutex<Connections>>::default();
        let known = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut known = known.lock().unwrap();
                if known.are_refused {
                    continue;
                }
                if let Ok(server) = TcpStream::connect(target) {
                    join(&client, &server, &gate);
                    known.streams.push(client);
                }
            }
        });
        Self {
            address,
            open,
            connections,
        }
    }

    /// Closes all connections, now and as soon as they are accepted.
    pub(crate) fn close(&self) {
        let mut connections = self.connections.lock().unwrap();
        connections.are_refused = true;
        for stream in connections.streams.drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Resumes or pauses forwarding. Bytes received while paused are forwarded when it resumes.
    pub(crate) fn set_open(&self, open: bool) {
        *self.open.0.lock().unwrap() = open;
        self.open.1.notify_all();
    }
}

fn join(client: &TcpStream, server: &TcpStream, gate: &Arc<(Mutex<bool>, Condvar)>) {
    for (from, to) in [(client, server), (server, client)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let gate = Arc::clone(gate);
        thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                let open = gate.0.lock().unwrap();
                drop(gate.1.wait_while(open, |open| !*open).unwrap());
                if to.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            // Close both connections.
            let _ = from.shutdown(std::net::Shutdown::Both);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
    }
}
