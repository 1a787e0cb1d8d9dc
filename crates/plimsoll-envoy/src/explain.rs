//! Explanations over HTTP on loopback: `GET /explain?cluster=NAME`, or of all clusters without a
//! name. Off unless `admin.address` is set.
//!
//! Envoy's admin interface has no pages for policies of a module. This server answers one short
//! request per connection on a thread of its own, so that it needs no HTTP library; it refuses
//! browsers by refusing any `Host` that is not an IP address or `localhost`. One client at a time
//! is served, for at most `TIMEOUT`.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::guard::guarded;
use crate::log::{self, Level};
use crate::process::Process;

/// Longest head of a request; the rest is not read.
const MAX_REQUEST: usize = 8 * 1024;
/// Limit of the time from a connection to its response: a client that stalls holds up the others.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after an error of `accept`. Out of descriptors, the next attempt would fail as well.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Starts the server; returns its address.
pub fn start(process: &'static Process, address: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    let thread = thread::Builder::new().name("plimsoll-explain".to_owned());
    thread.spawn(move || {
        loop {
            guarded("explain", (), || {
                let stream = accept(|| listener.accept(), thread::sleep);
                if let Err(error) = serve(process, &stream, TIMEOUT) {
                    log::write(Level::Debug, &format!("plimsoll: explain: {error}"));
                }
            });
        }
    })?;
    log::write(
        Level::Info,
        &format!("plimsoll: explanations on http://{bound}/explain"),
    );
    Ok(bound)
}

/// Accepts the next connection; waits after errors.
fn accept(
    mut next: impl FnMut() -> io::Result<(TcpStream, SocketAddr)>,
    wait: impl Fn(Duration),
) -> TcpStream {
    loop {
        match next() {
            Ok((stream, _)) => return stream,
            Err(error) => {
                log::write(Level::Debug, &format!("plimsoll: explain: {error}"));
                wait(ACCEPT_RETRY);
            }
        }
    }
}

/// Reads the head of a request, as far as it comes until `deadline`.
fn read_head(mut stream: &TcpStream, deadline: Instant) -> io::Result<String> {
    let mut head = vec![0; MAX_REQUEST];
    let mut length = 0;
    while length < MAX_REQUEST {
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        let count = stream.read(&mut head[length..])?;
        length += count;
        let read = &head[..length];
        if count == 0 || read.windows(4).any(|end| end == b"\r\n\r\n") {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&head[..length]).into_owned())
}

/// Writes `bytes` until `deadline`.
fn write_until(mut stream: &TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(remaining(deadline)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

/// Returns the time until `deadline`, or an error if that has passed.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

fn serve(process: &Process, stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    let head = read_head(stream, deadline)?;
    let mut lines = head.lines();
    let request = lines.next().unwrap_or_default();
    let mut host = None;
    for line in lines {
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("host") => {
                host = Some(value.trim().to_owned());
            }
            Some(_) => {}
            None => break,
        }
    }
    let (status, body) = if host.is_some_and(|host| !is_local(&host)) {
        ("403 Forbidden", "{\"error\":\"unknown host\"}".to_owned())
    } else {
        respond(process, request)
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    write_until(stream, head.as_bytes(), deadline)?;
    write_until(stream, body.as_bytes(), deadline)
}

/// Whether a `Host` is an IP address or `localhost`: a web page that resolves its name to loopback
/// (DNS rebinding) has another one.
fn is_local(host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = without_port.trim_matches(['[', ']']);
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

fn respond(process: &Process, request: &str) -> (&'static str, String) {
    let mut words = request.split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if method != Some("GET") || path != "/explain" {
        let error = "{\"error\":\"only GET /explain\"}";
        return ("404 Not Found", error.to_owned());
    }
    let name = query.strip_prefix("cluster=");
    let now = process.now();
    let clusters = process.clusters().into_iter();
    let wanted = clusters.filter(|cluster| name.is_none_or(|name| name == &**cluster.name()));
    let found: std::collections::BTreeMap<_, _> = wanted
        .map(|cluster| (cluster.name().to_string(), cluster.explain(now)))
        .collect();
    let json = match name {
        Some(_) => found.values().next().map(serde_json::to_string),
        None => Some(serde_json::to_string(&found)),
    };
    match json {
        Some(Ok(json)) => ("200 OK", json),
        Some(Err(error)) => ("500 Internal Server Error", error.to_string()),
        None => (
            "404 Not Found",
            "{\"error\":\"no such cluster\"}".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_core::model::locality::Locality;
    use serde_json::Value;

    use super::*;
    use crate::cluster::Cluster;
    use crate::config::ModuleConfig;
    use crate::host_sets::assignment;
    use crate::host_sets::tests::Fake;

    #[test]
    fn clusters_are_explained_by_name_or_all_together() {
        let process = Process::default();
        let config = ModuleConfig::parse("{}")
            .unwrap()
            .cluster("orders")
            .unwrap();
        let now = process.now();
        let cluster = Arc::new(Cluster::new(config, Locality::zone_only("a"), None, now));
        process.add(&cluster);
        let hosts = assignment(&Fake::zones(&[("a", 2)]), "orders").unwrap();
        process.handle_hosts(&cluster, hosts);
        let get = |target: &str| respond(&process, &format!("GET {target} HTTP/1.1"));
        let (status, body) = get("/explain?cluster=orders");
        assert_eq!(status, "200 OK");
        let one: Value = serde_json::from_str(&body).unwrap();
        let (_, body) = get("/explain");
        let all: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(all["orders"]["endpoint_policy"], one["endpoint_policy"]);
        assert_eq!(get("/explain?cluster=other").0, "404 Not Found");
        assert_eq!(get("/other").0, "404 Not Found");
        assert_eq!(
            respond(&process, "POST /explain HTTP/1.1").0,
            "404 Not Found"
        );
    }

    #[test]
    fn web_pages_are_refused() {
        for host in ["127.0.0.1:9902", "localhost", "[::1]:80", "10.0.0.1"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["rebound.example:9902", "localhost.example", ""] {
            assert!(!is_local(host), "{host}");
        }
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn an_error_of_accept_is_waited_for() {
        let (_client, served) = pair();
        let address = served.peer_addr().unwrap();
        let mut results = vec![
            Ok((served, address)),
            Err(io::Error::from_raw_os_error(24)),
            Err(io::Error::from_raw_os_error(24)),
        ];
        let waited = std::cell::Cell::new(Duration::ZERO);
        let wait = |time| waited.set(waited.get() + time);
        let stream = accept(|| results.pop().unwrap(), wait);
        assert_eq!(stream.peer_addr().unwrap(), address);
        assert_eq!(waited.get(), 2 * ACCEPT_RETRY);
    }

    #[test]
    fn a_client_that_sends_byte_by_byte_is_given_up() {
        let (mut client, served) = pair();
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stop = Arc::clone(&done);
        let dripping = thread::spawn(move || {
            // Fails once the other end is closed.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && client.write(b"x").is_ok() {
                thread::yield_now();
            }
        });
        let error = loop {
            // 8 KiB may arrive in time: then it is a request, which is answered.
            match serve(&Process::default(), &served, Duration::from_millis(1)) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        let kinds = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        assert!(kinds.contains(&error.kind()), "{error}");
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(served);
        dripping.join().unwrap();
    }
}
