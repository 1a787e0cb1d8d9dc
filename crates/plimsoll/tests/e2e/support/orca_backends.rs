//! [`OrcaBackends`]: servers with a modelled capacity that report their utilization with every
//! response, and remember when they were asked.
//!
//! A server answers at once, and says how many requests it had in the last second (or what else its
//! meter looks at), as a share of its capacity. Nothing is burned.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Zones, equal.
pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// Requests per second that all servers of a zone together are made for.
pub(crate) const ZONE_CAPACITY: f64 = 120.0;
/// The same for each of them, where all are alike.
pub(crate) const ALIKE: &[f64] = &[30.0; 4];
/// The same where they are half, once and twice a common size.
pub(crate) const UNLIKE: &[f64] = &[
    ZONE_CAPACITY / 7.0,
    2.0 * ZONE_CAPACITY / 7.0,
    4.0 * ZONE_CAPACITY / 7.0,
];

/// A request as a server saw it; zones and servers by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) at: Duration,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Which server of the zone.
    pub(crate) host: usize,
}

/// Servers on loopback, the same in every zone. They live as long as the test program.
pub(crate) struct OrcaBackends {
    zones: Vec<Vec<SocketAddr>>,
    log: Arc<Log>,
}

struct Log {
    /// What the meter of a server looks at.
    meter: Duration,
    started: Instant,
    taken: Mutex<Vec<Taken>>,
}

/// One server.
struct Host {
    zone: usize,
    number: usize,
    capacity: f64,
    log: Arc<Log>,
    recent: Mutex<VecDeque<Duration>>,
}

impl OrcaBackends {
    /// Servers whose meters look at the last `meter`, with these capacities in every zone.
    pub(crate) fn start(meter: Duration, capacities: &'static [f64]) -> Self {
        let log = Arc::new(Log {
            meter,
            started: Instant::now(),
            taken: Mutex::default(),
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

    /// Zones and the addresses of their servers.
    pub(crate) fn addresses(&self) -> Vec<(&'static str, &[SocketAddr])> {
        let zones = ZONES.into_iter().zip(&self.zones);
        zones.map(|(zone, hosts)| (zone, &hosts[..])).collect()
    }

    /// Time, as requests are stamped with it.
    pub(crate) fn now(&self) -> Duration {
        self.log.started.elapsed()
    }

    /// Requests so far.
    pub(crate) fn count(&self) -> usize {
        self.log.taken.lock().unwrap().len()
    }

    /// Requests from the given number on.
    pub(crate) fn taken_from(&self, first: usize) -> Vec<Taken> {
        self.log.taken.lock().unwrap()[first..].to_vec()
    }
}

fn serve(listener: &TcpListener, host: &Arc<Host>) {
    for stream in listener.incoming().map_while(Result::ok) {
        let host = Arc::clone(host);
        // A connection ends when the proxy closes it.
        thread::spawn(move || host.answer(&stream));
    }
}

impl Host {
    fn answer(&self, stream: &TcpStream) -> std::io::Result<()> {
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
                let rate = self.take(from);
                let utilization = rate / self.capacity;
                let report = format!(
                    "TEXT application_utilization={utilization:.4},rps_fractional={rate:.4}"
                );
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nendpoint-load-metrics: {report}\r\n\
                     content-length: 2\r\n\r\nok"
                );
                writer.write_all(answer.as_bytes())?;
            }
            line.clear();
        }
        Ok(())
    }

    /// Takes a request; the requests per second that follow. One without a zone is no traffic.
    fn take(&self, from: Option<usize>) -> f64 {
        // One moment after the other, as they stand in the log.
        let mut taken = self.log.taken.lock().unwrap();
        let at = self.log.started.elapsed();
        let mut recent = self.recent.lock().unwrap();
        if let Some(from) = from {
            recent.push_back(at);
            let (to, host) = (self.zone, self.number);
            taken.push(Taken { at, from, to, host });
        }
        let meter = self.log.meter;
        while recent.front().is_some_and(|first| at - *first > meter) {
            recent.pop_front();
        }
        recent.len() as f64 / meter.as_secs_f64()
    }
}
