//! Servers with a simulated capacity that report their utilization and record all requests.
//!
//! A server responds immediately and reports its number of requests in the last second (or another
//! window) as a share of its capacity, in every response or out of band (in `orca_streams`). It
//! does not use CPU. Reports can be stopped, as by a release of the servers without ORCA.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::orca_streams;

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

/// Capacities of servers of relative size 0.5, 1 and 2.
pub(crate) const UNEQUAL: &[f64] = &[15.0, 30.0, 15.0, 60.0];
/// Equal and unequal servers that stand for five each.
pub(crate) const LARGE: &[f64] = &[150.0; 4];
pub(crate) const LARGE_UNEQUAL: &[f64] = &[75.0, 150.0, 75.0, 300.0];

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
    out_of_band_port: Option<u16>,
}

struct Log {
    /// Whether the servers of each zone report their load.
    is_reporting: [AtomicBool; ZONES.len()],
    is_out_of_band: bool,
    /// Window of the utilization.
    meter: Duration,
    started: Instant,
    requests: Mutex<Vec<RequestRecord>>,
}

/// State of one server.
pub(crate) struct Host {
    zone: usize,
    number: usize,
    capacity: f64,
    log: Arc<Log>,
    recent: Mutex<VecDeque<Duration>>,
}

impl OrcaBackends {
    /// Starts servers with these capacities in every zone; `meter` is the window of the
    /// utilization. If they report out of band, each has an address of its own, because all use
    /// one port for that.
    pub(crate) fn start(meter: Duration, capacities: &'static [f64], is_out_of_band: bool) -> Self {
        let log = Arc::new(Log {
            is_reporting: ZONES.map(|_| AtomicBool::new(true)),
            is_out_of_band,
            meter,
            started: Instant::now(),
            requests: Mutex::default(),
        });
        let mut hosts = Vec::new();
        let mut start = |zone: usize, (number, &capacity): (usize, &f64)| {
            let ip = if is_out_of_band {
                let [zone, host] = [zone, 1 + number].map(|part| u8::try_from(part).unwrap());
                Ipv4Addr::new(127, 1, zone, host)
            } else {
                Ipv4Addr::LOCALHOST
            };
            let listener = TcpListener::bind((ip, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let host = Arc::new(Host {
                zone,
                number,
                capacity,
                log: Arc::clone(&log),
                recent: Mutex::default(),
            });
            hosts.push((IpAddr::V4(ip), Arc::clone(&host)));
            thread::spawn(move || serve(&listener, &host));
            address
        };
        let zones = (0..ZONES.len())
            .map(|zone| {
                let servers = capacities.iter().enumerate();
                servers.map(|server| start(zone, server)).collect()
            })
            .collect();
        Self {
            zones,
            log,
            out_of_band_port: is_out_of_band.then(|| orca_streams::serve(hosts)),
        }
    }

    /// Returns the port at which servers report out of band.
    pub(crate) const fn out_of_band_port(&self) -> Option<u16> {
        self.out_of_band_port
    }

    /// Stops the reports of these zones, and starts those of the others. Streams end.
    pub(crate) fn silence(&self, zones: &[usize]) {
        for (zone, is_reporting) in self.log.is_reporting.iter().enumerate() {
            is_reporting.store(!zones.contains(&zone), Ordering::Relaxed);
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
                let report = if self.is_reporting() && !self.log.is_out_of_band {
                    format!(
                        "endpoint-load-metrics: TEXT application_utilization={utilization:.4},\
                         rps_fractional={rate:.4}\r\n"
                    )
                } else {
                    String::new()
                };
                let response = format!("HTTP/1.1 200 OK\r\n{report}content-length: 2\r\n\r\nok");
                writer.write_all(response.as_bytes())?;
            }
            line.clear();
        }
        Ok(())
    }

    /// Whether the server reports its utilization.
    pub(crate) fn is_reporting(&self) -> bool {
        self.log.is_reporting[self.zone].load(Ordering::Relaxed)
    }

    /// Returns the current utilization.
    pub(crate) fn utilization(&self) -> f64 {
        self.record(None) / self.capacity
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
