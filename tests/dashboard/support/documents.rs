//! Synthetic documents and a server for them, for tests without a control plane.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_admin::Dashboard;
use plimsoll_admin::source::{BoxFuture, Rejection, ShuttingDown, Source};
use plimsoll_admin::state::{
    AckStatus, ActionState, ClusterState, DashboardState, EventState, Flow, NodeState, Notice,
    Severity, ZoneState,
};
use plimsoll_core::model::locality::Locality;

/// Source of a document that changes with every request, and the actions it received.
#[derive(Clone)]
pub(crate) struct Documents {
    make: fn(u64) -> DashboardState,
    requests: Arc<Mutex<u64>>,
    pub(crate) actions_received: Arc<Mutex<Vec<String>>>,
}

impl Documents {
    /// Serves the documents of `make` until the test process exits.
    pub(crate) fn serve(make: fn(u64) -> DashboardState) -> (SocketAddr, Self) {
        let documents = Self {
            make,
            requests: Arc::default(),
            actions_received: Arc::default(),
        };
        (Self::listen(Dashboard::new(documents.clone())), documents)
    }

    /// Serves the documents of `make` with an hour of history, one every 30 s and at last every
    /// 5 s. Returns the address and the number of recorded documents.
    pub(crate) fn serve_with_history(make: fn(u64) -> DashboardState) -> (SocketAddr, u64) {
        let documents = Self {
            make,
            requests: Arc::default(),
            actions_received: Arc::default(),
        };
        let dashboard = Dashboard::new(documents);
        let now = unix_ms();
        let ages = (0..90)
            .map(|index| 3_600_000 - index * 30_000)
            .chain((0..180).map(|index| 900_000 - index * 5_000));
        let mut count = 0;
        for age in ages {
            count += 1;
            let mut document = make(count);
            document.taken_unix_ms = now - age;
            dashboard.history().record(&document);
        }
        (Self::listen(dashboard), count)
    }

    fn listen(dashboard: Dashboard) -> SocketAddr {
        let router = dashboard.router();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        receiver.recv().unwrap()
    }
}

impl Source for Documents {
    fn state(&self) -> BoxFuture<'_, Result<Arc<DashboardState>, ShuttingDown>> {
        let mut requests = self.requests.lock().unwrap();
        *requests += 1;
        let state = (self.make)(*requests);
        Box::pin(std::future::ready(Ok(Arc::new(state))))
    }

    fn act(&self, action: String) -> BoxFuture<'_, Result<String, Rejection>> {
        let done = format!("did {action}");
        self.actions_received.lock().unwrap().push(action);
        Box::pin(std::future::ready(Ok(done)))
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn place(zone: &str) -> Locality {
    Locality::new("eu-1", zone, "")
}

/// Document without any data.
pub(crate) fn nothing(_: u64) -> DashboardState {
    DashboardState {
        title: "plimsoll".to_owned(),
        version: "0".to_owned(),
        nodes: Some(Vec::new()),
        ..Default::default()
    }
}

/// Reasons of the zones of [`uneven`].
const REASONS: [&str; 3] = [
    "the own locality issues 50 % of the demand but has 30 % of the capacity: 60 % stays local, \
     the rest goes where capacity is spare",
    "the own locality issues 35 % of the demand and has 50 % of the capacity: everything stays \
     local",
    "the own locality issues 15 % of the demand and has 20 % of the capacity: everything stays \
     local",
];

/// Three unevenly loaded zones, one of them with an unhealthy host.
pub(crate) fn uneven(request: u64) -> DashboardState {
    let now = unix_ms();
    #[expect(clippy::cast_precision_loss, reason = "a test document")]
    let wave = ((request as f64) / 8.0).sin() * 20.0;
    let arrives = [500.0 + wave, 350.0, 150.0 - wave];
    let shares = [0.3, 0.5, 0.2];
    let kept = [0.8, 1.0, 1.0];
    let mut flows = Vec::new();
    for (zone, (demand, kept)) in arrives.into_iter().zip(kept).enumerate() {
        flows.push(Flow(zone, zone, demand * kept));
        if kept < 1.0 {
            flows.push(Flow(zone, (zone + 1) % 3, demand * (1.0 - kept)));
        }
    }
    let zones = ["zone-a", "zone-b", "zone-c"]
        .into_iter()
        .enumerate()
        .map(|(index, zone)| {
            let served: f64 = flows.iter().filter(|f| f.1 == index).map(|f| f.2).sum();
            ZoneState {
                locality: place(zone),
                proxies: Some(1),
                healthy_hosts: [3, 4, 2][index],
                hosts: [3, 5, 2][index],
                capacity_share: Some(shares[index]),
                demand_requests_per_second: Some(arrives[index]),
                served_requests_per_second: Some(served),
                line_requests_per_second: Some(1000.0 * shares[index]),
                utilization: Some(0.6 * served / (1000.0 * shares[index])),
                load: Some(served / (1000.0 * shares[index])),
                kept_local: Some(kept[index]),
                kept_local_planned: Some([0.6, 1.0, 1.0][index]),
                measured_bp: Some([5000, 3500, 1500][index]),
                delivered_bp: Some([5000, 3500, 1500][index]),
                state: Some(
                    ["LocalityResidual", "LocalityDirect", "LocalityDirect"][index].to_owned(),
                ),
                reason: Some(REASONS[index].to_owned()),
                ..Default::default()
            }
        });
    let action = |name: &str, label: &str, group: &str, pressed| ActionState {
        name: name.to_owned(),
        label: label.to_owned(),
        help: format!("does {name}"),
        pressed,
        group: group.to_owned(),
        unavailable: (name == "convergent").then(|| "not supported by this host".to_owned()),
    };
    DashboardState {
        title: "plimsoll demo".to_owned(),
        subtitle: "three zones on loopback".to_owned(),
        version: "0".to_owned(),
        taken_unix_ms: now,
        notices: vec![Notice {
            severity: Severity::Warning,
            text: "one host of zone-b does not answer".to_owned(),
        }],
        clusters: vec![ClusterState {
            cluster: "orders".to_owned(),
            fleet: "gateway".to_owned(),
            mode: Some("ENFORCE".to_owned()),
            ramp_percent: Some(100),
            policy: "zone_aware, least_request".to_owned(),
            basis: "measured_demand".to_owned(),
            confirmed_unix_ms: Some(now - 1300),
            staleness_threshold_ms: Some(60_000),
            zones: zones.collect(),
            flows_measured: true,
            flows,
            cross_zone_bytes_per_second: Some(1_250_000.0),
            ..Default::default()
        }],
        nodes: Some(vec![node(0, now), node(1, now), refused(2, now)]),
        events: vec![EventState {
            at_unix_ms: now - now % 60_000,
            severity: Severity::Info,
            text: "fleet gateway has 3 proxies".to_owned(),
        }],
        actions: vec![
            action("headroom", "HEADROOM", "Policy", true),
            action("convergent", "CONVERGENT", "Policy", false),
            action("kill", "Kill zone-b", "Trouble", false),
        ],
        ..Default::default()
    }
}

fn node(index: usize, now: u64) -> NodeState {
    let age = u64::try_from(index % 10).unwrap() * 1000;
    NodeState {
        id: format!("gateway-{index:04}"),
        fleet: "gateway".to_owned(),
        locality: place(&format!("zone-{:02}", index % 100)),
        software: "envoy 1.40.0".to_owned(),
        delivery: "fleet_weights".to_owned(),
        connected: true,
        answer: AckStatus::Accepted,
        answered_unix_ms: Some(now - now % 10_000 - age),
        accepted_version: Some("2e83acf0f382b6f3".to_owned()),
        reported_unix_ms: Some(now - now % 10_000 - age),
        report_interval_ms: Some(10_000),
        requests_per_second: Some(100.0),
        ..Default::default()
    }
}

fn refused(index: usize, now: u64) -> NodeState {
    NodeState {
        answer: AckStatus::Refused,
        refusal: Some("orders: malformed endpoint weights".to_owned()),
        ..node(index, now)
    }
}

/// 100 zones that each send to ten others, and 5,000 nodes, two of them with problems.
pub(crate) fn large(request: u64) -> DashboardState {
    let mut state = zoned(request, 100);
    let now = state.taken_unix_ms;
    let mut nodes: Vec<NodeState> = (0..5000).map(|index| node(index, now)).collect();
    nodes[4321] = refused(4321, now);
    nodes[777].connected = false;
    state.nodes = Some(nodes);
    state
}

/// A hundred zones, and fifty services in all of them.
pub(crate) fn large_with_services(request: u64) -> DashboardState {
    let mut state = large(request);
    let first = state.clusters[0].clone();
    state.clusters = (0..50)
        .map(|index| ClusterState {
            cluster: format!("service-{index:02}"),
            ..first.clone()
        })
        .collect();
    state
}

/// Fourteen zones, as one region of a large provider may have with its neighbors.
pub(crate) fn fourteen(request: u64) -> DashboardState {
    zoned(request, 14)
}

pub(crate) fn thirty(request: u64) -> DashboardState {
    zoned(request, 30)
}

/// One proxy that sends to thirty zones.
pub(crate) fn one_of_thirty(request: u64) -> DashboardState {
    let mut state = zoned(request, 30);
    state.one_proxy = true;
    state.nodes = None;
    let cluster = &mut state.clusters[0];
    cluster.flows.retain(|Flow(from, ..)| *from == 3);
    for zone in &mut cluster.zones {
        zone.demand_requests_per_second = None;
        zone.served_requests_per_second = None;
        zone.line_requests_per_second = None;
    }
    state
}

/// Zones that each send to ten others, with nine nodes.
fn zoned(request: u64, count: usize) -> DashboardState {
    let now = unix_ms();
    let mut flows = Vec::new();
    let mut served = vec![0.0; count];
    let mut arrived = vec![0.0; count];
    for (from, arrived) in arrived.iter_mut().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a test document")]
        let demand = 500.0 + 300.0 * ((from as f64) * 0.7 + (request as f64) * 0.05).sin();
        *arrived = demand;
        for step in 0..=10 {
            let share = if step == 0 { 0.8 } else { 0.02 };
            let to = (from + step * 7) % count;
            served[to] += demand * share;
            flows.push(Flow(from, to, (demand * share * 1000.0).round() / 1000.0));
        }
    }
    let zones = served.iter().enumerate().map(|(index, served)| ZoneState {
        locality: place(&format!("zone-{index:02}")),
        proxies: Some(50),
        healthy_hosts: 20,
        hosts: 20,
        capacity_share: Some(1.0 / zones_f64(count)),
        demand_requests_per_second: Some(arrived[index]),
        served_requests_per_second: Some(*served),
        line_requests_per_second: Some(500.0),
        load: Some(served / 500.0),
        kept_local: Some(0.8),
        state: Some("LocalityResidual".to_owned()),
        ..Default::default()
    });
    DashboardState {
        title: "plimsoll control".to_owned(),
        subtitle: "large".to_owned(),
        version: "0".to_owned(),
        taken_unix_ms: now,
        clusters: vec![ClusterState {
            cluster: "orders".to_owned(),
            fleet: "gateway".to_owned(),
            policy: "zone_aware, least_request".to_owned(),
            basis: "measured_demand".to_owned(),
            confirmed_unix_ms: Some(now - 2500),
            zones: zones.collect(),
            flows_measured: true,
            flows,
            ..Default::default()
        }],
        nodes: Some((0..9).map(|index| node(index, now)).collect()),
        ..Default::default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of zones")]
fn zones_f64(count: usize) -> f64 {
    count as f64
}
