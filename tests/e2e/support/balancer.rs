//! TCP load balancer like a Kubernetes service: connections take turns between targets, and those
//! that refuse are skipped.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Starts a load balancer and returns its address. It lives as long as the test.
pub(crate) fn start(targets: Vec<SocketAddr>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (turn, client) in listener.incoming().map_while(Result::ok).enumerate() {
            let turns = (0..targets.len()).map(|index| targets[(turn + index) % targets.len()]);
            let mut servers = turns.filter_map(|target| TcpStream::connect(target).ok());
            if let Some(server) = servers.next() {
                forward(&client, &server);
                forward(&server, &client);
            }
        }
    });
    address
}

fn forward(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        // Close both connections.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
