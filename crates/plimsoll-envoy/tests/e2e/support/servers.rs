//! HTTP servers that count their requests and respond with a status that a test chooses.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// HTTP server on loopback; it runs until the test process exits.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) zone: &'static str,
    pub(crate) address: SocketAddr,
    status: AtomicU16,
    requests: AtomicU64,
    /// Requests that ask for a load report in JSON.
    asking: AtomicU64,
    /// Reported utilization in thousandths; 0 = no report.
    utilization: AtomicU16,
    /// Time that a response takes, in milliseconds.
    latency: AtomicU16,
}

impl Server {
    /// Starts a server that responds with 200.
    pub(crate) fn start(zone: &'static str) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Arc::new(Self {
            zone,
            address: listener.local_addr().unwrap(),
            status: AtomicU16::new(200),
            requests: AtomicU64::new(0),
            asking: AtomicU64::new(0),
            utilization: AtomicU16::new(0),
            latency: AtomicU16::new(0),
        });
        let serving = Arc::clone(&server);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = Arc::clone(&serving);
                // A connection ends when Envoy closes it.
                thread::spawn(move || server.respond(&stream));
            }
        });
        server
    }

    /// Starts the given number of servers in each zone.
    pub(crate) fn zones(zones: &[(&'static str, usize)]) -> Vec<Arc<Self>> {
        let zones = zones.iter();
        zones
            .flat_map(|&(zone, servers)| (0..servers).map(move |_| Self::start(zone)))
            .collect()
    }

    pub(crate) fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Reports this utilization with every response, in thousandths.
    pub(crate) fn set_utilization(&self, thousandths: u16) {
        self.utilization.store(thousandths, Ordering::Relaxed);
    }

    /// Lets every response take this time, in milliseconds.
    pub(crate) fn set_latency(&self, milliseconds: u16) {
        self.latency.store(milliseconds, Ordering::Relaxed);
    }

    /// Number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Number of requests so far that ask for a load report in JSON.
    pub(crate) fn asking(&self) -> u64 {
        self.asking.load(Ordering::Relaxed)
    }

    fn respond(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut writer = stream;
        let mut line = String::new();
        stream.set_nodelay(true)?;
        while reader.read_line(&mut line)? > 0 {
            if line.eq_ignore_ascii_case("endpoint-load-metrics-format: JSON\r\n") {
                self.asking.fetch_add(1, Ordering::Relaxed);
            }
            if line == "\r\n" {
                self.requests.fetch_add(1, Ordering::Relaxed);
                let latency = self.latency.load(Ordering::Relaxed);
                if latency > 0 {
                    thread::sleep(Duration::from_millis(latency.into()));
                }
                let status = self.status.load(Ordering::Relaxed);
                let report = match self.utilization.load(Ordering::Relaxed) {
                    0 => String::new(),
                    thousandths => format!(
                        "endpoint-load-metrics: TEXT application_utilization={}\r\n",
                        f64::from(thousandths) / 1000.0
                    ),
                };
                let response =
                    format!("HTTP/1.1 {status} Status\r\n{report}content-length: 2\r\n\r\nok");
                writer.write_all(response.as_bytes())?;
            }
            line.clear();
        }
        Ok(())
    }
}
