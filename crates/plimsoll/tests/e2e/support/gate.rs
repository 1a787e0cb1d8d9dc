//! TCP forwarder that can be paused.
//!
//! While paused it keeps connections open but forwards nothing, so that load reports stop without a
//! connection error.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// TCP forwarder on loopback.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    /// Starts a forwarder to `target`, not paused.
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new((Mutex::new(true), Condvar::new()));
        let gate = Arc::clone(&open);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if let Ok(server) = TcpStream::connect(target) {
                    join(&client, &server, &gate);
                }
            }
        });
        Self { address, open }
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
