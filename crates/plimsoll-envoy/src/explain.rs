//! Explanations over HTTP on loopback: `GET /explain?cluster=NAME`, or of all clusters without a
//! name. Off unless `admin.address` is set.
//!
//! Envoy's admin interface has no pages for policies of a module. This server answers one short
//! request per connection on a thread of its own, so that it needs no HTTP library; it refuses
//! browsers by refusing any `Host` that is not an IP address or `localhost`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::log::{self, Level};
use crate::process::Process;

/// Longest request and longest wait for it: a client that stalls holds up the others.
const MAX_REQUEST: u64 = 8 * 1024;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the server; returns its address.
pub fn start(process: &'static Process, address: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    let thread = thread::Builder::new().name("plimsoll-explain".to_owned());
    thread.spawn(move || {
        for stream in listener.incoming() {
            let served = stream.and_then(|stream| serve(process, &stream));
            if let Err(error) = served {
                log::write(Level::Debug, &format!("plimsoll: explain: {error}"));
            }
        }
    })?;
    log::write(
        Level::Info,
        &format!("plimsoll: explanations on http://{bound}/explain"),
    );
    Ok(bound)
}

fn serve(process: &Process, stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut lines = BufReader::new(stream.take(MAX_REQUEST)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let mut host = None;
    for line in lines {
        let line = line?;
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
        respond(process, &request)
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    let mut stream = stream;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
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
}
