//! HTTP servers that count requests by the zone they came from.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Number of requests by zone of the proxy and zone of the server.
pub(crate) type Counts = BTreeMap<(String, String), u64>;

/// HTTP servers on loopback by zone; they run until the test process exits.
pub(crate) struct Backends {
    zones: Vec<(String, Vec<SocketAddr>)>,
    counts: Arc<Mutex<Counts>>,
}

impl Backends {
    /// Starts the given number of servers in each zone.
    pub(crate) fn start(zones: &[(&str, usize)]) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), zones)
    }

    /// Starts servers on another address of this machine.
    pub(crate) fn start_on(address: IpAddr, zones: &[(&str, usize)]) -> Self {
        let counts = Arc::new(Mutex::new(Counts::new()));
        let start = |zone: &str| {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let (zone, counts) = (zone.to_owned(), Arc::clone(&counts));
            thread::spawn(move || serve(&listener, &zone, &counts));
            address
        };
        let zones = zones.iter().map(|&(zone, hosts)| {
            let addresses = (0..hosts).map(|_| start(zone)).collect();
            (zone.to_owned(), addresses)
        });
        Self {
            zones: zones.collect(),
            counts: Arc::clone(&counts),
        }
    }

    /// Returns `endpoints` of a service in the configuration.
    pub(crate) fn endpoints(&self) -> String {
        let zones = self.zones.iter().map(|(zone, addresses)| {
            let hosts: Vec<_> = addresses.iter().map(|host| format!("'{host}'")).collect();
            let hosts = hosts.join(", ");
            format!("  - locality: {{region: r1, zone: {zone}}}\n    lb_endpoints: [{hosts}]\n")
        });
        zones.collect()
    }

    /// Returns the zones with the addresses of their servers.
    pub(crate) fn addresses(&self) -> &[(String, Vec<SocketAddr>)] {
        &self.zones
    }

    /// Returns the requests so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().unwrap().clone()
    }

    /// Returns the number of servers in each zone.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&str, usize)> {
        let zones = self.zones.iter();
        zones.map(|(zone, addresses)| (zone.as_str(), addresses.len()))
    }
}

fn serve(listener: &TcpListener, zone: &str, counts: &Arc<Mutex<Counts>>) {
    for stream in listener.incoming().map_while(Result::ok) {
        let (zone, counts) = (zone.to_owned(), Arc::clone(counts));
        // A connection ends when the proxy closes it.
        thread::spawn(move || respond(&stream, &zone, &counts));
    }
}

fn respond(stream: &TcpStream, zone: &str, counts: &Mutex<Counts>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    let mut from = String::new();
    let mut line = String::new();
    stream.set_nodelay(true)?;
    while reader.read_line(&mut line)? > 0 {
        if let Some(value) = line.strip_prefix("x-from: ") {
            value.trim_end().clone_into(&mut from);
        }
        if line == "\r\n" {
            let key = (from.clone(), zone.to_owned());
            *counts.lock().unwrap().entry(key).or_default() += 1;
            writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
        }
        line.clear();
    }
    Ok(())
}
