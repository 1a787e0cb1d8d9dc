//! A reverse proxy on hyper that balances with `plimsoll-core`, zone-aware by measured demand.
//!
//! `own_proxy LISTEN ZONE/DEMAND/ADDRESS,ADDRESS…`: the proxy is in the zone of the first entry.
//! DEMAND is the percentage of all requests that arrive at proxies of the zone.
#![expect(clippy::print_stdout, reason = "an example")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "IO")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use plimsoll_core::embed::{
    AssignmentParts, Balancer, ClusterConfig, ClusterConfigParts, ClusterLoadAssignment, Host,
    Instant, Locality, LocalityBasis, LocalityParts, LocalityPolicy, PickArgs, Picker, Publisher,
    RequestOutcome, RoutingSnapshot, Xoshiro256, ZoneAware, ZoneAwareParts, channel,
};
use tokio::net::{TcpListener, TcpStream};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
const USAGE: &str = "own_proxy LISTEN ZONE/DEMAND/ADDRESS,ADDRESS...";

/// Zone-aware routing by measured demand (`LRS_REPORTED_RATE`), from one host per zone on.
fn settings() -> Result<ClusterConfig, BoxError> {
    let zone_aware = ZoneAware::try_new(ZoneAwareParts {
        locality_basis: LocalityBasis::LrsReportedRate,
        min_cluster_size: Some(1),
        ..Default::default()
    })?;
    Ok(ClusterConfig::try_new(ClusterConfigParts {
        locality_policy: LocalityPolicy::ZoneAware(zone_aware),
        ..ClusterConfigParts::new("orders")
    })?)
}

/// Returns a zone's upstream hosts, and the zone as part of the fleet of proxies.
fn zone(entry: &str) -> Result<(LocalityParts, LocalityParts), BoxError> {
    let mut parts = entry.splitn(3, '/');
    let mut part = || parts.next().ok_or(USAGE);
    let (name, demand, addresses) = (part()?, part()?, part()?);
    let parsed: Result<Vec<SocketAddr>, _> = addresses.split(',').map(str::parse).collect();
    let hosts = parsed?;
    let locality = Locality::zone_only(name);
    let upstream = LocalityParts::new(locality.clone(), hosts.clone());
    // The fleet has a proxy beside each host.
    let fleet = LocalityParts {
        observed_traffic_fraction: Some(demand.parse::<u64>()? * 100),
        ..LocalityParts::new(locality, hosts)
    };
    Ok((upstream, fleet))
}

/// Drives the balancer, the one writer: inputs and timers in, snapshots and events out.
async fn drive(
    mut balancer: Balancer,
    mut publisher: Publisher<RoutingSnapshot>,
    fleet: ClusterLoadAssignment,
    started: std::time::Instant,
) {
    let mut demand = tokio::time::interval(Duration::from_secs(10));
    loop {
        while let Some(snapshot) = balancer.poll_snapshot() {
            let explanation = snapshot.explain();
            println!("{}: {}", explanation.state.as_str(), explanation.reason);
            publisher.publish(snapshot);
        }
        while let Some(event) = balancer.poll_event() {
            println!("{event:?}");
        }
        let timeout = balancer
            .poll_timeout()
            .unwrap_or(Instant::from_secs(86_400));
        let deadline = started + Duration::from_nanos(timeout.as_nanos());
        tokio::select! {
            // A control plane would send new fractions here. Old ones expire after a minute.
            _ = demand.tick() => balancer.handle_fleet_assignment(fleet.clone(), now(started)),
            () = tokio::time::sleep_until(deadline.into()) => balancer.handle_timeout(now(started)),
        }
    }
}

fn now(started: std::time::Instant) -> Instant {
    Instant::ORIGIN.saturating_add(started.elapsed())
}

/// Forwards a request, to another host if a connection fails. A real proxy would pool connections.
async fn forward(
    picker: Arc<Mutex<Picker>>,
    request: Request<Incoming>,
) -> Result<Response<Incoming>, BoxError> {
    let mut tried: Vec<Arc<Host>> = Vec::new();
    while tried.len() < 3 {
        let active = {
            let mut picker = picker.lock().map_err(|_| "a request panicked")?;
            let result = picker.pick(PickArgs {
                avoid: &tried,
                ..Default::default()
            });
            result.host().ok_or("no host available")?.begin_request()
        };
        let Ok(socket) = TcpStream::connect(active.host().address()).await else {
            tried.push(Arc::clone(active.host()));
            active.finish(RequestOutcome::Error);
            continue;
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        active.finish(RequestOutcome::Success);
        return Ok(response);
    }
    Err("no host accepts connections".into())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let listener = TcpListener::bind(args.next().ok_or(USAGE)?).await?;
    let zones: Result<Vec<_>, _> = args.map(|entry| zone(&entry)).collect();
    let (upstream, fleet): (Vec<_>, Vec<_>) = zones?.into_iter().unzip();
    let own = upstream.first().ok_or(USAGE)?.locality.clone();
    let upstream = ClusterLoadAssignment::try_new(AssignmentParts::new("orders", upstream))?;
    let fleet = ClusterLoadAssignment::try_new(AssignmentParts::new("fleet", fleet))?;

    let started = std::time::Instant::now();
    let mut balancer = Balancer::new(Arc::new(settings()?), own, now(started));
    let (publisher, reader) = channel(balancer.initial_snapshot(now(started)));
    balancer.handle_assignment(upstream, now(started));
    tokio::spawn(drive(balancer, publisher, fleet, started));

    let mut picker = Picker::new(reader, Xoshiro256::from_seed(std::process::id().into()));
    loop {
        let (socket, _) = listener.accept().await?;
        let picker = Arc::new(Mutex::new(picker.fork()));
        tokio::spawn(async move {
            let service = service_fn(|request| forward(Arc::clone(&picker), request));
            let server = hyper::server::conn::http1::Builder::new();
            // Fails if no host answers, or if the client disconnects.
            let _ = server.serve_connection(TokioIo::new(socket), service).await;
        });
    }
}
