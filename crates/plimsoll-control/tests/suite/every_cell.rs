//! Every cell of the reference of deliveries over real streams: a running control plane with a
//! service per policy, `delivery` and ramp, and fleets of all classes that discover and report.
//! What they receive must decide as the cell says, with the same split.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use plimsoll_control::config::Delivery;
use plimsoll_control::delivery::NodeClass;
use plimsoll_control::matrix::{
    Cell, LOCAL_CLUSTER, Mode, Received, Routing, Setup, Source, ZONES, node, policies,
    service_in_file,
};
use plimsoll_control::run::{Control, Options};
use plimsoll_core::model::load_report::{ClusterStats, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;
use plimsoll_serve::AdminOptions;
use plimsoll_xds::ads::client::{Client, ClientSettings};
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, Request, Response, Variant};
use plimsoll_xds::driver::{
    Clock, DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES, STREAM_LOAD_STATS,
};
use plimsoll_xds::lrs::message::LoadStatsRequest;
use plimsoll_xds::node::{NodeInfo, PLIMSOLL_FEATURE};
use plimsoll_xds::wire;
use plimsoll_xds::yaml::proto_json::ProtoEnum as _;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::support::stream;

/// Only failing tests wait this long.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Reports hold for longer than the test runs, so each proxy sends one.
const INTERVAL: Duration = Duration::from_secs(60);
/// Tolerance of traffic shares: weights are integers.
const ROUNDING: f64 = 0.005;

/// A service of the file, and what its cells say.
struct Row {
    name: Arc<str>,
    title: String,
    cells: Vec<Cell>,
}

/// What the streams of one proxy have received.
#[derive(Debug, Default)]
struct Seen {
    /// Bodies by type and name.
    resources: BTreeMap<(&'static str, Arc<str>), Bytes>,
    told: BTreeMap<Arc<str>, BTreeMap<Locality, BasisPoints>>,
}

/// A proxy with its streams.
#[derive(Clone)]
struct Proxy {
    info: NodeInfo,
    requests: u64,
    seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
}

/// Returns a row for every policy, delivery and ramp that a file may have, and the file.
fn rows() -> (Vec<Row>, String) {
    let (mut rows, mut services) = (Vec::new(), Vec::new());
    for policy in policies() {
        for (delivery_name, _, delivery) in Delivery::VALUES {
            for mode in [Mode::ENFORCE, Mode::RAMP] {
                let Ok(setup) = Setup::new(&policy, *delivery, mode, Source::File) else {
                    continue;
                };
                let name = format!("s{}", rows.len());
                services.push(service_in_file(&name, &policy, *delivery, mode));
                rows.push(Row {
                    name: name.into(),
                    title: format!("{} {delivery_name} {}", policy.title, mode.name),
                    cells: NodeClass::ALL
                        .map(|class| setup.cell(class).unwrap())
                        .into(),
                });
            }
        }
    }
    let file = json!({
        "services": services,
        "load_reporting": {"interval": format!("{}s", INTERVAL.as_secs())},
    });
    (rows, file.to_string())
}

impl Proxy {
    fn new(class: NodeClass, zone: &str, requests: u64, changed: &Arc<Notify>) -> Self {
        Self {
            info: node(class, zone),
            requests,
            seen: Arc::default(),
            changed: Arc::clone(changed),
        }
    }

    /// Discovers all services, until the stream ends.
    async fn discover(self, address: SocketAddr, services: Vec<Arc<str>>, variant: Variant) {
        let path = match variant {
            Variant::Sotw => STREAM_AGGREGATED_RESOURCES,
            Variant::Delta => DELTA_AGGREGATED_RESOURCES,
        };
        let (sender, mut responses) = stream::open(address, path).await;
        let raw = wire::encode_node(&self.info);
        let info = self.info.clone();
        let message = NodeMessage { info, raw };
        let settings = ClientSettings::default();
        let mut client: Client = Client::new(variant, message, wire::resource_name, settings);
        client.subscribe(&CLUSTER.into(), &"*".into());
        for name in services.iter().chain([&LOCAL_CLUSTER.into()]) {
            client.subscribe(&CLUSTER_LOAD_ASSIGNMENT.into(), name);
        }
        client.handle_connected();
        let clock = Clock::system();
        loop {
            while let Some(request) = client.poll_transmit(clock.now()) {
                let bytes = match request {
                    Request::Sotw(request) => wire::encode_discovery_request(&request),
                    Request::Delta(request) => wire::encode_delta_discovery_request(&request),
                };
                sender.send(bytes.into()).await.unwrap();
            }
            let Ok(Some(bytes)) = responses.message().await else {
                return;
            };
            let response = match variant {
                Variant::Sotw => Response::Sotw(wire::decode_discovery_response(bytes).unwrap()),
                Variant::Delta => {
                    Response::Delta(wire::decode_delta_discovery_response(bytes).unwrap())
                }
            };
            client.handle_response(response, |_, body| Ok(body.clone()), clock.now());
            while client.poll_event().is_some() {}
            let mut seen = self.seen.lock().unwrap();
            for kind in [CLUSTER, CLUSTER_LOAD_ASSIGNMENT] {
                let all = client.resources(kind);
                let bodies = all.map(|one| ((kind, Arc::clone(&one.name)), one.body.clone()));
                seen.resources.extend(bodies);
            }
            self.changed.notify_one();
        }
    }

    /// Returns the module inside an Envoy, which has a load reporting stream of its own.
    fn module(&self) -> Self {
        let mut module = self.clone();
        let features = &mut module.info.client_features;
        features.push(PLIMSOLL_FEATURE.to_owned());
        module
    }

    /// Reports its requests to these services once, and reads responses until the stream ends.
    async fn report(self, address: SocketAddr, services: Vec<Arc<str>>) {
        let (sender, mut responses) = stream::open(address, STREAM_LOAD_STATS).await;
        let send = |cluster_stats| {
            let request = LoadStatsRequest {
                node: Some(self.info.clone()),
                cluster_stats,
                ..LoadStatsRequest::default()
            };
            sender.send(wire::encode_load_stats_request(&request).into())
        };
        send(Vec::new()).await.unwrap();
        let stats = |name: &Arc<str>| ClusterStats {
            cluster_name: Arc::clone(name),
            upstream_locality_stats: vec![UpstreamLocalityStats {
                total_issued_requests: self.requests * INTERVAL.as_secs(),
                total_successful_requests: self.requests * INTERVAL.as_secs(),
                ..UpstreamLocalityStats::default()
            }],
            total_dropped_requests: 0,
            load_report_interval: INTERVAL,
        };
        let mut has_reported = false;
        while let Ok(Some(bytes)) = responses.message().await {
            let response = wire::decode_load_stats_response(&bytes).unwrap();
            if !has_reported && !services.is_empty() {
                send(services.iter().map(stats).collect()).await.unwrap();
                has_reported = true;
            }
            let mut seen = self.seen.lock().unwrap();
            for cluster in response.observed_traffic {
                let fractions = cluster.fractions.into_iter().collect();
                seen.told.insert(cluster.cluster_name, fractions);
            }
            self.changed.notify_one();
        }
    }
}

/// Returns what the proxies in zones a and b of a class have received for a service.
fn received(fleet: &[Proxy], name: &Arc<str>) -> Option<Received> {
    let [a, b] = [0, 1].map(|zone| fleet[zone].seen.lock().unwrap());
    let body = |seen: &Seen, kind, name: &Arc<str>| {
        let key = (kind, Arc::clone(name));
        seen.resources.get(&key).cloned()
    };
    Some(Received {
        cluster: body(&a, CLUSTER, name)?,
        assignment: body(&a, CLUSTER_LOAD_ASSIGNMENT, name)?,
        assignment_in_b: body(&b, CLUSTER_LOAD_ASSIGNMENT, name)?,
        fleet: body(&a, CLUSTER_LOAD_ASSIGNMENT, &LOCAL_CLUSTER.into())?,
        told: a.told.get(name).cloned().unwrap_or_default(),
    })
}

/// Compares what was received with a cell.
fn compare(cell: &Cell, received: Option<&Received>) -> Result<(), String> {
    let received = received.ok_or("not received")?;
    let (routing, split) = received.read(cell.class)?;
    // A stock Envoy reads the weights of the fleet's assignment, which has demand for the other
    // services (decision 0017).
    let reads_others = cell.class == NodeClass::Envoy && cell.routing == Routing::HostWeights;
    if reads_others {
        return Ok(());
    }
    // Others than those of the service may be in the fleet's assignment.
    let has_forms = match (&cell.routing, &routing) {
        (Routing::Demand(own), Routing::Demand(found))
        | (Routing::FeedForward(own), Routing::FeedForward(found)) => own.is_subset(found),
        (own, found) => own == found,
    };
    if !has_forms {
        return Err(format!("{routing:?} instead of {:?}", cell.routing));
    }
    let near = |zone: &String| (split[zone] - cell.split[zone]).abs() < ROUNDING;
    if split.len() == cell.split.len() && split.keys().all(near) {
        Ok(())
    } else {
        Err(format!("{split:?} instead of {:?}", cell.split))
    }
}

#[tokio::test]
async fn every_cell_is_received_over_real_streams() {
    let (rows, text) = rows();
    let by_demand = |cell: &&Cell| cell.routing.uses_demand();
    let cells = rows.iter().flat_map(|row| &row.cells);
    assert!(cells.clone().filter(by_demand).count() > 400, "all forms");
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("control.yaml");
    std::fs::write(&config, text).unwrap();
    let control = Control::start(Options {
        config,
        listen: Some("127.0.0.1:0".parse().unwrap()),
        ..Options::default()
    });
    let control = control.await.unwrap();
    let context = control.context().clone();
    let address = context.bound.xds;
    let running = tokio::spawn(control.run(AdminOptions::default()));

    let services: Vec<_> = rows.iter().map(|row| Arc::clone(&row.name)).collect();
    let changed = Arc::new(Notify::new());
    let mut streams = JoinSet::new();
    let mut fleets = BTreeMap::new();
    for class in NodeClass::ALL {
        let of_zone = |(zone, _, requests)| Proxy::new(class, zone, requests, &changed);
        let fleet = ZONES.map(of_zone);
        for (index, proxy) in fleet.iter().enumerate() {
            let variant = [Variant::Sotw, Variant::Delta][index % 2];
            let (names, of_report) = (services.clone(), services.clone());
            streams.spawn(proxy.clone().discover(address, names, variant));
            streams.spawn(proxy.clone().report(address, of_report));
            if class == NodeClass::EnvoyModule {
                streams.spawn(proxy.module().report(address, Vec::new()));
            }
        }
        fleets.insert(class, fleet);
    }
    let differing = || {
        let cells = rows
            .iter()
            .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
        let compared = cells.filter_map(|(row, cell)| {
            let found = received(&fleets[&cell.class], &row.name);
            let error = compare(cell, found.as_ref()).err()?;
            Some(format!("{} to {:?}: {error}", row.title, cell.class))
        });
        compared.collect::<Vec<_>>()
    };
    let waiting = async {
        while !differing().is_empty() {
            changed.notified().await;
        }
    };
    if tokio::time::timeout(TIMEOUT, waiting).await.is_err() {
        let differing = differing();
        panic!(
            "{} cells: {:#?}",
            differing.len(),
            &differing[..differing.len().min(10)]
        );
    }
    streams.shutdown().await;
    context.stopping.cancel();
    drop(context);
    running.await.unwrap().unwrap();
}
