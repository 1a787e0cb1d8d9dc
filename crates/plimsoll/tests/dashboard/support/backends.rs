//! Backends that answer every request and say how busy they are, and a client that keeps asking.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Starts a backend that says that it is `utilization` busy; it lives as long as the test program.
pub(crate) fn backend(utilization: f64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // The proxy may close first.
                let _ = answer(stream, utilization);
            });
        }
    });
    address
}

/// Reads header after header; requests have no bodies.
fn answer(mut stream: TcpStream, utilization: f64) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while let Some(line) = lines.next().transpose()? {
        if line.is_empty() {
            let report = format!("TEXT application_utilization={utilization}");
            let answer = format!(
                "HTTP/1.1 200 OK\r\nendpoint-load-metrics: {report}\r\ncontent-length: 2\r\n\r\nok"
            );
            stream.write_all(answer.as_bytes())?;
        }
    }
    Ok(())
}

/// Asks again and again until it is dropped.
pub(crate) struct Requests(Arc<AtomicBool>);

impl Requests {
    pub(crate) fn start(proxy: SocketAddr, path: &'static str) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        std::thread::spawn(move || {
            // The proxy may end first.
            let _ = ask(proxy, path, &stop);
        });
        Self(stopped)
    }
}

fn ask(proxy: SocketAddr, path: &str, stop: &AtomicBool) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(proxy)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    // Written in one piece: in several, each request would wait for an acknowledgement.
    let request = format!("GET {path} HTTP/1.1\r\nhost: orders\r\n\r\n");
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(request.as_bytes())?;
        // Until the two bytes of the body.
        line.clear();
        while answers.read_line(&mut line)? > 2 {
            line.clear();
        }
        answers.read_exact(&mut [0; 2])?;
        // A pace that leaves the machine to others.
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
