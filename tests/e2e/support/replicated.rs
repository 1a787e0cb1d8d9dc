//! Three replicas of the control plane with an etcd of three members; three Envoys and three
//! Plimsoll proxies in three zones under 60/20/20, and a watcher of the fractions in all of them
//! and of the demand that every replica sums up.

mod watcher;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plimsoll_testing::http::{get, get_json};
use serde_json::{Value, json};

use super::backends::Backends;
use super::control::{Control, bootstrap};
use super::envoy::{CURRENT, Envoy, ingress};
use super::etcd::EtcdCluster;
use super::fleet::shares;
use super::load::{Load, Source};
use super::proxy::{Proxy, file, listener, route_all_to, with_management_server};
use super::{asserts_promises, balancer, scratch, wait_to_see, wait_until};
use watcher::Watcher;

/// Zone, requests per tick of each of its two proxies, share of demand, number of servers.
const ZONES: [(&str, u64, u64, usize); 3] = [
    ("zone-a", 6, 6000, 2),
    ("zone-b", 2, 2000, 2),
    ("zone-c", 2, 2000, 2),
];
/// 20 requests per tick are 400 per second.
const TICK: Duration = Duration::from_millis(50);
/// Every node is within half a point of the truth when settled.
const SETTLED_BP: u64 = 50;

/// How far nodes and replicas may be from the truth.
struct Limits {
    /// Fractions of any node at any time, in basis points.
    always_bp: u64,
    /// Requests until fractions are settled, whatever happened. Time is counted in requests,
    /// because a busy machine is slower.
    settling_requests: u64,
    /// Deviation of the demand that a replica sums up for a zone from the requests that were sent
    /// there, in percent.
    sum_percent: u64,
}

/// What `make bench-loop` asserts: two points, the requests of 15 s.
const PROMISED: Limits = Limits {
    always_bp: 200,
    settling_requests: 15 * 400,
    sum_percent: 25,
};

/// A node of the six that counts twice or not at all makes fractions wrong by 727 basis points at
/// least, and the sum of its zone by 50 %; what does not settle stays so. Half of that is left to
/// reports that come late on a busy machine.
const SEPARATING: Limits = Limits {
    always_bp: 400,
    settling_requests: 60 * 400,
    sum_percent: 35,
};

fn limits() -> Limits {
    if asserts_promises() {
        PROMISED
    } else {
        SEPARATING
    }
}

/// Processes of the test. Dropped in this order: watcher, traffic, proxies, control planes, etcd.
pub(crate) struct Replicated {
    watcher: Option<Watcher>,
    load: Load,
    nodes: Arc<Nodes>,
    pub(crate) replicas: Vec<Control>,
    admin: watcher::Replicas,
    pub(crate) etcd: EtcdCluster,
    _backends: Backends,
}

/// When something was broken, or works again.
pub(crate) struct Fault {
    at: Instant,
    /// Requests that had succeeded.
    requests: u64,
}

/// The six data planes.
struct Nodes {
    envoys: Vec<Envoy>,
    proxies: Vec<Proxy>,
}

impl Replicated {
    /// Starts everything and waits until every node knows the true demand.
    pub(crate) fn start() -> Self {
        let directory = scratch("replicas");
        let backends = Backends::start(&ZONES.map(|(zone, _, _, hosts)| (zone, hosts)));
        let etcd = EtcdCluster::start(&directory);
        let config = config(&backends, &etcd);
        let replicas: Vec<_> = (0..3)
            .map(|index| {
                let own = directory.join(format!("r{index}"));
                std::fs::create_dir_all(&own).unwrap();
                Control::start_replica(&own, &config, &format!("r{index}"))
            })
            .collect();
        let addresses: Vec<_> = replicas.iter().map(|replica| replica.xds).collect();
        let nodes = Nodes::start(&directory, &addresses);
        let load = Load::start_at_rate(&nodes.sources(), TICK);
        let mut testbed = Self {
            watcher: None,
            load,
            nodes: Arc::new(nodes),
            admin: Arc::new(Mutex::new(admin_addresses(&replicas))),
            replicas,
            etcd,
            _backends: backends,
        };
        let start = testbed.fault();
        testbed.settle(&start, "at the start");
        let (nodes, admin) = (Arc::clone(&testbed.nodes), Arc::clone(&testbed.admin));
        testbed.watcher = Some(Watcher::start(nodes, admin, testbed.load.meter()));
        testbed
    }

    /// Returns the time of a fault, for [`Self::settle`].
    pub(crate) fn fault(&self) -> Fault {
        Fault {
            at: Instant::now(),
            requests: self.load.succeeded(),
        }
    }

    /// Waits until all is as it should be, within the settling time after a fault: every node has
    /// the true fractions, and every replica that runs counts every node once.
    pub(crate) fn settle(&mut self, fault: &Fault, when: &str) {
        let nodes = Arc::clone(&self.nodes);
        let counts_and_deviation = || {
            let alive = self.replicas.iter_mut().filter_map(|replica| {
                let counts = |replica: &Control| (replica.xds, counts(replica));
                replica.is_alive().then(|| counts(replica))
            });
            (alive.collect::<Vec<_>>(), nodes.largest_bp())
        };
        let what = format!("fractions and counts settle {when}");
        wait_to_see(&what, counts_and_deviation, |(counts, largest)| {
            counts.iter().all(|(_, counts)| *counts == Some((6, 6)))
                && largest.as_ref().is_some_and(|(bp, _)| *bp <= SETTLED_BP)
        });
        let requests = self.load.succeeded() - fault.requests;
        let took = fault.at.elapsed().as_secs_f64();
        eprintln!("settled {when}: {took:.1} s, {requests} requests");
        assert!(
            self.watcher.is_none() || requests <= limits().settling_requests,
            "{when}: {requests} requests"
        );
        self.assert_harmless(when);
    }

    /// Waits until every replica counts every node once, and asserts that nothing bad happened.
    /// Used without etcd: nodes of other replicas count with their last report then, one second of
    /// traffic in these tests, so fractions stay near the truth but need not settle.
    pub(crate) fn hold(&self, when: &str) {
        wait_until(&format!("every node counts once {when}"), || {
            let mut replicas = self.replicas.iter();
            replicas.all(|replica| counts(replica) == Some((6, 6)))
        });
        self.assert_harmless(when);
    }

    /// Asserts that no request failed and that fractions were near the truth all the time.
    pub(crate) fn assert_harmless(&self, when: &str) {
        assert_eq!(self.load.failed(), 0, "{when}");
        if let Some(watcher) = &self.watcher {
            let seen = watcher.seen();
            let (fractions, sums) = (&seen.fractions, &seen.sums);
            eprintln!("largest deviation until {when}: basis points {fractions}; percent {sums}");
            let deviation = fractions.deviation;
            let limits = limits();
            assert!(
                deviation <= limits.always_bp,
                "{when}: basis points {fractions}"
            );
            assert!(
                sums.deviation <= limits.sum_percent,
                "{when}: percent {sums}"
            );
        }
    }

    /// Starts a replica again, which was killed.
    pub(crate) fn restart(&mut self, replica: usize) {
        self.replicas[replica].restart();
        *self.admin.lock().unwrap() = admin_addresses(&self.replicas);
    }

    /// Returns how often the sums of a replica were compared with the truth.
    pub(crate) fn sums_compared(&self) -> u64 {
        let watcher = self.watcher.as_ref().expect("it has started");
        watcher.seen().sums_compared
    }

    /// Waits until no node belongs to a replica any more, as another one sees it.
    pub(crate) fn wait_until_left(&self, gone: usize, seen_by: usize) {
        let name = format!("r{gone}");
        wait_until("nodes report to other replicas", || {
            let page = self.replicas[seen_by].page("nodes");
            let nodes = page["nodes"].as_array().cloned().unwrap_or_default();
            nodes.len() == 6 && nodes.iter().all(|node| node["replica"] != name.as_str())
        });
    }

    /// Waits until every replica says that the store is connected, or that it is not.
    pub(crate) fn wait_for_store(&self, connected: bool) {
        wait_until("replicas know the state of the store", || {
            self.replicas
                .iter()
                .all(|replica| replica.page("replicas")["store"]["connected"] == json!(connected))
        });
    }

    /// Waits until the latest reports of all nodes, as every replica knows them, are those of even
    /// traffic.
    pub(crate) fn wait_for_even_reports(&self) {
        wait_until("latest reports are even at every replica", || {
            let shares = self.replicas.iter().map(reported_shares);
            shares.flatten().count() == 3 * ZONES.len()
        });
    }

    /// Waits for requests of this many seconds.
    pub(crate) fn run_for(&self, seconds: u64) {
        let per_tick: u64 = ZONES.iter().map(|(_, per_tick, ..)| 2 * per_tick).sum();
        let ticks = 1000 * seconds / u64::try_from(TICK.as_millis()).unwrap();
        let target = self.load.succeeded() + ticks * per_tick;
        wait_until("requests are answered", || self.load.succeeded() >= target);
    }
}

/// Returns the zones whose share of the latest reports is near the truth.
#[expect(clippy::cast_precision_loss, reason = "basis points are small")]
fn reported_shares(replica: &Control) -> Vec<&'static str> {
    let page = replica.page("fleets");
    let demand = &page["fleets"][0]["demand"][0]["zones"];
    let zones = demand.as_array().cloned().unwrap_or_default();
    let rate = |zone: &Value| zone["requests_per_second"].as_f64().unwrap_or_default();
    let sum: f64 = zones.iter().map(rate).sum();
    let is_near = |(name, _, truth, _): &(&str, u64, u64, usize)| {
        let found = zones.iter().find(|zone| zone["locality"]["zone"] == *name);
        let share_bp = found.map_or(0.0, |zone| 10_000.0 * rate(zone) / sum);
        (share_bp - *truth as f64).abs() <= SETTLED_BP as f64
    };
    let near = ZONES.iter().filter(|zone| is_near(zone));
    near.map(|(name, ..)| *name).collect()
}

fn admin_addresses(replicas: &[Control]) -> Vec<SocketAddr> {
    replicas.iter().map(|replica| replica.admin).collect()
}

/// Returns the number of nodes and of reporters in the only fleet, as a replica counts them.
fn counts(replica: &Control) -> Option<(u64, u64)> {
    let page = replica.page("fleets");
    let fleet = &page["fleets"][0];
    let zones = fleet["demand"][0]["zones"].as_array()?;
    let reporters = zones.iter().map(|zone| zone["reporters"].as_u64());
    Some((fleet["nodes"].as_u64()?, reporters.sum::<Option<u64>>()?))
}

impl Nodes {
    fn start(directory: &Path, replicas: &[SocketAddr]) -> Self {
        let envoys = ZONES.map(|(zone, ..)| {
            let bootstrap = envoy_bootstrap(zone, replicas);
            Envoy::start_with(directory, zone, CURRENT, &bootstrap)
        });
        // A proxy has one address of the control plane, for example that of a service.
        let service = balancer::start(replicas.to_vec());
        let proxies = ZONES.map(|(zone, ..)| {
            let file = proxy_file(zone, service);
            Proxy::start(directory, &format!("proxy-{zone}"), &file)
        });
        let nodes = Self {
            envoys: envoys.into(),
            proxies: proxies.into(),
        };
        wait_until("every node serves", || {
            let mut sources = nodes.sources().into_iter();
            sources.all(|source| get(source.to, "/").is_some())
        });
        nodes
    }

    fn sources(&self) -> Vec<Source> {
        let envoys = self.envoys.iter().map(|envoy| envoy.listener);
        let proxies = self.proxies.iter().map(|proxy| proxy.listener("ingress"));
        let both = envoys.zip(&ZONES).chain(proxies.zip(&ZONES));
        both.map(|(to, (zone, per_tick, ..))| Source {
            to,
            from: (*zone).to_owned(),
            per_tick: *per_tick,
        })
        .collect()
    }

    /// Returns the largest deviation of a fraction from the truth at any node, and where it is;
    /// `None` if a node does not know fractions.
    fn largest_bp(&self) -> Option<(u64, String)> {
        let mut largest = (0, String::new());
        let envoys = self.envoys.iter().map(|envoy| {
            let name = format!("Envoy in {}", envoy.zone);
            (name, shares(&envoy.weights("local_cluster")))
        });
        let proxies = self.proxies.iter().map(|proxy| {
            let name = format!("proxy {:?}", proxy.listeners[0].1);
            (name, proxy_fractions(proxy))
        });
        for (name, fractions) in envoys.chain(proxies) {
            for (zone, _, truth, _) in ZONES {
                let deviation = fractions.get(zone)?.abs_diff(truth);
                if deviation >= largest.0 {
                    largest = (deviation, format!("{name}: {fractions:?}"));
                }
            }
        }
        Some(largest)
    }
}

/// Returns the shares of demand that a proxy uses; empty if it uses host counts.
fn proxy_fractions(proxy: &Proxy) -> BTreeMap<String, u64> {
    let page = get_json(proxy.admin, "/explain?cluster=orders").unwrap_or_default();
    if page["fractions"]["status"] != "fresh" {
        return BTreeMap::new();
    }
    let localities = page["localities"].as_array().cloned().unwrap_or_default();
    let share = |locality: &Value| {
        let zone = locality["zone"].as_str()?.to_owned();
        Some((zone, locality["local_bp"].as_u64()?))
    };
    localities.iter().filter_map(share).collect()
}

/// Returns the bootstrap of an Envoy with all replicas as endpoints of its control plane.
fn envoy_bootstrap(zone: &str, replicas: &[SocketAddr]) -> Value {
    let all: Vec<_> = replicas.iter().map(ToString::to_string).collect();
    let mut args = vec![
        "envoy",
        "--zone",
        zone,
        "--region",
        "r1",
        "--admin-port",
        "0",
    ];
    for replica in &all {
        args.extend(["--control", replica]);
    }
    let mut bootstrap = bootstrap(&args);
    bootstrap["static_resources"]["listeners"] = json!([ingress()]);
    bootstrap
}

fn proxy_file(zone: &str, control: SocketAddr) -> Value {
    let local = json!({
        "name": "local_cluster",
        "type": "EDS",
        "eds_cluster_config": { "eds_config": { "ads": {} } },
    });
    let listeners = [listener("ingress", &route_all_to("orders"))];
    let mut file = with_management_server(file(zone, &listeners, &[local]), control, "GRPC");
    file["node"]["id"] = json!(format!("proxy-{zone}"));
    file["cluster_manager"] = json!({
        "local_cluster_name": "local_cluster",
        "load_stats_config": file["dynamic_resources"]["ads_config"],
    });
    file
}

fn config(backends: &Backends, etcd: &EtcdCluster) -> String {
    let endpoints = backends.endpoints();
    let store = json!({ "etcd": { "endpoints": etcd.endpoints() } });
    let policy = "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3";
    format!(
        "load_reporting: {{interval: 1s}}
demand: {{smoothing_time_constant: 5s, material_change_bp: 10, heartbeat: 2s}}
store: {store}
services:
- cluster:
    name: orders
    connect_timeout: 5s
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.round_robin
          typed_config:
            '@type': {policy}.RoundRobin
            locality_lb_config: {{zone_aware_lb_config: {{min_cluster_size: 1}}}}
  endpoints:
{endpoints}"
    )
}
