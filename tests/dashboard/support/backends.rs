//! Backends that report a fixed utilization, and a client that sends requests continuously.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Starts a backend that reports `utilization`; it runs until the test process exits.
pub(crate) fn backend(utilization: f64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // The proxy may close first.
                let _ = respond(stream, utilization);
            });
        }
    });
    address
}

/// Responds to each request; requests have no bodies.
fn respond(mut stream: TcpStream, utilization: f64) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while let Some(line) = lines.next().transpose()? {
        if line.is_empty() {
            let report = format!("TEXT application_utilization={utilization}");
            let response = format!(
                "HTTP/1.1 200 OK\r\nendpoint-load-metrics: {report}\r\ncontent-length: 2\r\n\r\nok"
            );
            stream.write_all(response.as_bytes())?;
        }
    }
    Ok(())
}

/// Sends requests until dropped.
pub(crate) struct Requests(Arc<AtomicBool>);

impl Requests {
    pub(crate) fn start(proxy: SocketAddr, path: &'static str) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        std::thread::spawn(move || {
            // The proxy may exit first.
            let _ = send(proxy, path, &stop);
        });
        Self(stopped)
    }
}

fn send(proxy: SocketAddr, path: &str, stop: &AtomicBool) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(proxy)?;
    let mut responses = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    // One write per request: several would each wait for a TCP acknowledgement.
    let request = format!("GET {path} HTTP/1.1\r\nhost: orders\r\n\r\n");
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(request.as_bytes())?;
        // Skip the response headers.
        line.clear();
        while responses.read_line(&mut line)? > 2 {
            line.clear();
        }
        responses.read_exact(&mut [0; 2])?;
        // Leave CPU time to other tests.
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
