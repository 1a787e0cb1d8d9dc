//! Three replicas of the control plane with an etcd of three members; three Envoys and three
//! Plimsoll proxies in three zones under 60/20/20, and a watcher of the fractions in all of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::backends::Backends;
use super::control::{Control, bootstrap};
use super::envoy::{CURRENT, Envoy, ingress};
use super::etcd::EtcdCluster;
use super::fleet::shares;
use super::http::{get, get_json};
use super::load::{Load, Source};
use super::proxy::{Proxy, file, listener, route_all_to, with_management_server};
use super::{balancer, scratch, wait_until};

/// Zone, requests per tick of each of its two proxies, share of demand, number of servers.
const ZONES: [(&str, u64, u64, usize); 3] = [
    ("zone-a", 6, 6000, 2),
    ("zone-b", 2, 2000, 2),
    ("zone-c", 2, 2000, 2),
];
/// 20 requests per tick are 400 per second.
const TICK: Duration = Duration::from_millis(50);
/// Every node is within 2 points of the truth, always, and within half a point when settled.
const ALWAYS_BP: u64 = 200;
const SETTLED_BP: u64 = 50;
/// Fractions are settled after this many requests, whatever happened: those of 15 s. Time is
/// counted in requests, because a busy machine is slower.
const SETTLING_REQUESTS: u64 = 15 * 400;
const INTERVAL: Duration = Duration::from_millis(100);

/// Processes of the test. Dropped in this order: watcher, traffic, proxies, control planes, etcd.
pub(crate) struct Replicated {
    watcher: Option<Watcher>,
    load: Load,
    nodes: Arc<Nodes>,
    pub(crate) replicas: Vec<Control>,
    pub(crate) etcd: EtcdCluster,
    _backends: Backends,
}

/// The six data planes.
struct Nodes {
    envoys: Vec<Envoy>,
    proxies: Vec<Proxy>,
}

/// Largest deviation of a fraction that was seen since the last phase began.
struct Watcher {
    stop: Arc<AtomicBool>,
    largest_bp: Arc<AtomicU64>,
    worst: Arc<Mutex<String>>,
    thread: Option<JoinHandle<()>>,
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
            replicas,
            etcd,
            _backends: backends,
        };
        testbed.settle("at the start");
        testbed.watcher = Some(Watcher::start(Arc::clone(&testbed.nodes)));
        testbed
    }

    /// Waits until all is as it should be, within the settling time: every node has the true
    /// fractions, and every replica that runs counts every node once.
    pub(crate) fn settle(&mut self, when: &str) {
        let (start, from) = (Instant::now(), self.load.succeeded());
        wait_until(&format!("fractions and counts settle {when}"), || {
            let counts = self
                .replicas
                .iter_mut()
                .all(|replica| !replica.is_alive() || counts(replica) == Some((6, 6)));
            counts
                && self
                    .nodes
                    .largest_bp()
                    .is_some_and(|(bp, _)| bp <= SETTLED_BP)
        });
        let requests = self.load.succeeded() - from;
        let took = start.elapsed().as_secs_f64();
        eprintln!("settled {when}: {took:.1} s, {requests} requests");
        assert!(
            self.watcher.is_none() || requests <= SETTLING_REQUESTS,
            "{when}: {requests} requests"
        );
        self.assert_harmless(when);
    }

    /// Asserts that no request failed and that fractions were near the truth all the time.
    pub(crate) fn assert_harmless(&self, when: &str) {
        assert_eq!(self.load.failed(), 0, "{when}");
        if let Some(watcher) = &self.watcher {
            let largest = watcher.largest_bp.load(Ordering::Relaxed);
            let worst = watcher.worst.lock().unwrap().clone();
            eprintln!("largest deviation until {when}: {largest} bp at {worst}");
            assert!(largest <= ALWAYS_BP, "{when}: {largest} bp at {worst}");
        }
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

    /// Waits for requests of this many seconds.
    pub(crate) fn run_for(&self, seconds: u64) {
        let per_tick: u64 = ZONES.iter().map(|(_, per_tick, ..)| 2 * per_tick).sum();
        let ticks = 1000 * seconds / u64::try_from(TICK.as_millis()).unwrap();
        let target = self.load.succeeded() + ticks * per_tick;
        wait_until("requests are answered", || self.load.succeeded() >= target);
    }
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

impl Watcher {
    fn start(nodes: Arc<Nodes>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let largest_bp = Arc::new(AtomicU64::new(0));
        let worst = Arc::<Mutex<String>>::default();
        let (ends, largest, text) = (stop.clone(), largest_bp.clone(), worst.clone());
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                // A busy admin interface may not answer in time.
                let (bp, place) = (0..3)
                    .find_map(|_| nodes.largest_bp())
                    .unwrap_or_else(|| (10_000, "a node without fractions".to_owned()));
                if bp > largest.fetch_max(bp, Ordering::Relaxed) {
                    *text.lock().unwrap() = place;
                }
                thread::sleep(INTERVAL);
            }
        });
        Self {
            stop,
            largest_bp,
            worst,
            thread: Some(thread),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was already printed.
            let _ = thread.join();
        }
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
    let store = json!({ "etcd": { "endpoints": etcd.endpoints(), "lease_ttl": "15s" } });
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
