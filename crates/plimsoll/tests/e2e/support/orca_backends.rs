//! Servers with a simulated capacity that report their utilization in every response and record all
//! requests.
//!
//! A server responds immediately and reports its number of requests in the last second (or another
//! window) as a share of its capacity. It does not use CPU.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Names of the zones, which have equal capacity.
pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// Capacity of a zone in requests per second.
pub(crate) const ZONE_CAPACITY: f64 = 120.0;
/// Capacities of four equal servers.
pub(crate) const UNIFORM: &[f64] = &[30.0; 4];
/// Capacities of three servers of relative size 1, 2 and 4.
pub(crate) const MIXED: &[f64] = &[
    ZONE_CAPACITY / 7.0,
    2.0 * ZONE_CAPACITY / 7.0,
    4.0 * ZONE_CAPACITY / 7.0,
];

/// Request at a server; zones and servers by index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRecord {
    pub(crate) at: Duration,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Index of the server in its zone.
    pub(crate) host: usize,
}

/// Servers on loopback, the same in every zone; they run until the test process exits.
pub(crate) struct OrcaBackends {
    zones: Vec<Vec<SocketAddr>>,
    log: Arc<Log>,
}

struct Log {
    /// Window of the utilization.
    meter: Duration,
    started: Instant,
    requests: Mutex<Vec<RequestRecord>>,
}

/// State of one server.
struct Host {
    zone: usize,
    number: usize,
    capacity: f64,
    log: Arc<Log>,
    recent: Mutex<VecDeque<Duration>>,
}

impl OrcaBackends {
    /// Starts servers with these capacities in every zone; `meter` is the window of the
    /// utilization.
    pub(crate) fn start(meter: Duration, capacities: &'static [f64]) -> Self {
        let log = Arc::new(Log {
            meter,
            started: Instant::now(),
            requests: Mutex::default(),
        });
        let start = |zone: usize, (number, &capacity): (usize, &f64)| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let host = Arc::new(Host {
                zone,
                number,
                capacity,
                log: Arc::clone(&log),
                recent: Mutex::default(),
            });
            thread::spawn(move || serve(&listener, &host));
            address
        };
        let hosts = capacities.iter().enumerate();
        let zone = |zone| hosts.clone().map(|host| start(zone, host)).collect();
        Self {
            zones: (0..ZONES.len()).map(zone).collect(),
            log,
        }
    }

    /// Returns the zones with the addresses of their servers.
    pub(crate) fn addresses(&self) -> Vec<(&'static str, &[SocketAddr])> {
        let zones = ZONES.into_iter().zip(&self.zones);
        zones.map(|(zone, hosts)| (zone, &hosts[..])).collect()
    }

    /// Returns the current time on the clock of [`RequestRecord::at`].
    pub(crate) fn now(&self) -> Duration {
        self.log.started.elapsed()
    }

    /// Returns the number of requests so far.
    pub(crate) fn count(&self) -> usize {
        self.log.requests.lock().unwrap().len()
    }

    /// Returns the requests from an index on.
    pub(crate) fn requests_from(&self, first: usize) -> Vec<RequestRecord> {
        self.log.requests.lock().unwrap()[first..].to_vec()
    }
}

fn serve(listener: &TcpListener, host: &Arc<Host>) {
    for stream in listener.incoming().map_while(Result::ok) {
        let host = Arc::clone(host);
        // The connection ends when the proxy closes it.
        thread::spawn(move || host.respond(&stream));
    }
}

impl Host {
    fn respond(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut writer = stream;
        let mut from = None;
        let mut line = String::new();
        stream.set_nodelay(true)?;
        while reader.read_line(&mut line)? > 0 {
            if let Some(value) = line.strip_prefix("x-from: ") {
                from = ZONES.iter().position(|zone| *zone == value.trim_end());
            }
            if line == "\r\n" {
                let rate = self.record(from);
                let utilization = rate / self.capacity;
                let report = format!(
                    "TEXT application_utilization={utilization:.4},rps_fractional={rate:.4}"
                );
                let response = format!(
                    "HTTP/1.1 200 OK\r\nendpoint-load-metrics: {report}\r\n\
                     content-length: 2\r\n\r\nok"
                );
                writer.write_all(response.as_bytes())?;
            }
            line.clear();
        }
        Ok(())
    }

    /// Records a request and returns the requests per second; one without a zone is not recorded.
    fn record(&self, from: Option<usize>) -> f64 {
        // Take the time under the lock, so that the log is ordered.
        let mut requests = self.log.requests.lock().unwrap();
        let at = self.log.started.elapsed();
        let mut recent = self.recent.lock().unwrap();
        if let Some(from) = from {
            recent.push_back(at);
            let (to, host) = (self.zone, self.number);
            requests.push(RequestRecord { at, from, to, host });
        }
        let meter = self.log.meter;
        while recent.front().is_some_and(|first| at - *first > meter) {
            recent.pop_front();
        }
        recent.len() as f64 / meter.as_secs_f64()
    }
}
