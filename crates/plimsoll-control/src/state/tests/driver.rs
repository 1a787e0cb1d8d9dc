//! [`Driver`]: drives a [`State`] as the writer does, with simulated time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::CLUSTER_LOAD_ASSIGNMENT;
use plimsoll_xds::ads::view::{Resource, View};
use plimsoll_xds::lrs::LrsTraffic;
use plimsoll_xds::node::{ENVOY_MODULE_FEATURE, NodeInfo, PLIMSOLL_FEATURE};

use crate::config::{ConfigFile, ControlConfig};
use crate::delivery::NodeClass;
use crate::fleet::StreamKind;
use crate::relay::Patch;
use crate::state::{ControlEvent, State, TrafficKey, ViewKey};
use crate::view::tests::walk;

/// The worked example: capacity 3/5/2, load reports every second, almost no smoothing.
pub(crate) const HEAD: &str =
    "load_reporting: {interval: 1s}\ndemand: {smoothing_time_constant: 0.001s}\n";
/// Endpoints of the worked example.
pub(crate) const ENDPOINTS: &str = "endpoints: [\
    {locality: {zone: a}, lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80']}, \
    {locality: {zone: b}, lb_endpoints: ['10.0.1.1:80', '10.0.1.2:80', '10.0.1.3:80', \
    '10.0.1.4:80', '10.0.1.5:80']}, \
    {locality: {zone: c}, lb_endpoints: ['10.0.2.1:80', '10.0.2.2:80']}]";

/// A state with simulated time and the views that it has published.
pub(crate) struct Driver {
    pub(crate) state: State,
    pub(crate) now: Instant,
    /// Number of times each output was published.
    pub(crate) published: BTreeMap<ViewKey, usize>,
    /// Patches that were published and not taken by the test.
    pub(crate) patches: BTreeMap<ViewKey, Arc<Patch>>,
    pub(crate) events: Vec<ControlEvent>,
}

impl Driver {
    /// Creates a service `orders` with these further fields, in YAML flow style.
    pub(crate) fn new(service: &str) -> Self {
        Self::with_config(config(service))
    }

    pub(crate) fn with_config(config: Arc<ControlConfig>) -> Self {
        Self {
            state: State::new(config, Instant::ORIGIN),
            now: Instant::ORIGIN,
            published: BTreeMap::new(),
            patches: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// Opens discovery and load reporting streams of a node that has no resources yet.
    pub(crate) fn open(&mut self, node: &NodeInfo) -> ViewKey {
        self.open_as(node, false)
    }

    pub(crate) fn open_as(&mut self, node: &NodeInfo, returning: bool) -> ViewKey {
        let key = self
            .state
            .handle_open(
                node,
                StreamKind::Ads,
                returning,
                &crate::fleet::Peer::default(),
                self.now,
            )
            .unwrap();
        self.state
            .handle_open(
                node,
                StreamKind::Lrs,
                false,
                &crate::fleet::Peer::default(),
                self.now,
            )
            .unwrap();
        self.drain();
        key
    }

    pub(crate) fn close(&mut self, node: &NodeInfo) {
        for kind in [StreamKind::Ads, StreamKind::Lrs] {
            self.state.handle_close(node, kind, self.now);
        }
        self.drain();
    }

    pub(crate) fn reload(&mut self, config: Arc<ControlConfig>) {
        self.state.handle_config(config, self.now);
        self.drain();
    }

    pub(crate) fn report(&mut self, node: &NodeInfo, cluster: &str, requests: u64) {
        self.report_stats(node, stats(cluster, requests));
    }

    pub(crate) fn report_stats(&mut self, node: &NodeInfo, stats: ClusterStats) {
        self.state.handle_report(node, &[stats], self.now);
        self.drain();
    }

    /// Advances the simulated time, calling `handle_timeout` whenever it is due.
    pub(crate) fn advance(&mut self, milliseconds: u64) {
        let end = self.now.saturating_add(Duration::from_millis(milliseconds));
        let mut woken = 0;
        while let Some(due) = self.state.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.state.handle_timeout(self.now);
            self.drain();
            woken += 1;
            assert!(woken < 10_000, "{due:?} never comes to an end");
        }
        self.now = end;
    }

    /// Lets every node report its number of requests to `orders` once per second.
    pub(crate) fn traffic(&mut self, nodes: &[(&NodeInfo, u64)], seconds: u64) {
        for _ in 0..seconds {
            self.advance(1000);
            for (node, requests) in nodes {
                self.report(node, "orders", *requests);
            }
        }
    }

    /// Returns how often the view with `key` was published since the last call.
    pub(crate) fn publications(&mut self, key: &ViewKey) -> usize {
        self.published.remove(key).unwrap_or_default()
    }

    pub(crate) fn view(&self, key: &ViewKey) -> &Arc<View> {
        self.state.view(key).expect("somebody looks at it")
    }

    /// Returns the assignment with this name in the view with `key`.
    pub(crate) fn assignment(&self, key: &ViewKey, name: &str) -> Option<Resource> {
        let assignments = self.view(key).get(CLUSTER_LOAD_ASSIGNMENT)?;
        assignments.get(name).cloned()
    }

    /// Returns the demand in LRS responses to nodes of a class.
    pub(crate) fn told(&self, class: NodeClass) -> Arc<LrsTraffic> {
        self.state.traffic(&TrafficKey {
            fleet: "gateway".into(),
            class,
        })
    }

    /// Drains all outputs, as the writer does after each message.
    pub(crate) fn drain(&mut self) {
        while let Some((key, output)) = self.state.poll_output() {
            if let Some(patch) = output.patch() {
                self.patches.insert(key.clone(), Arc::clone(patch));
            }
            *self.published.entry(key).or_default() += 1;
        }
        while self.state.poll_traffic().is_some() {}
        while let Some(event) = self.state.poll_event() {
            self.events.push(event);
        }
    }
}

/// The worked example with further fields of its service.
pub(crate) fn config(service: &str) -> Arc<ControlConfig> {
    let policy = "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3";
    let cluster = format!(
        "load_balancing_policy: {{policies: [{{typed_extension_config: {{name: round_robin, \
         typed_config: {{'@type': {policy}.RoundRobin, locality_lb_config: \
         {{zone_aware_lb_config: {{min_cluster_size: 1}}}}}}}}}}]}}"
    );
    config_of(&cluster, service)
}

/// The worked example with another load-balancing policy.
pub(crate) fn config_of(cluster: &str, service: &str) -> Arc<ControlConfig> {
    try_config_of(cluster, service).unwrap_or_else(|error| panic!("{error}: {cluster} {service}"))
}

/// Like `config_of`, for configurations that may be rejected; returns the error.
pub(crate) fn try_config_of(cluster: &str, service: &str) -> Result<Arc<ControlConfig>, String> {
    let service = match service {
        "" => String::new(),
        fields => format!("{fields}, "),
    };
    try_parse(&format!(
        "{HEAD}services: [{{cluster: {{name: orders, {cluster}}}, {service}{ENDPOINTS}}}]"
    ))
}

/// Parses the text of a main configuration file.
pub(crate) fn parse(text: &str) -> Arc<ControlConfig> {
    try_parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Like [`parse`], for texts that may be rejected; returns the error.
pub(crate) fn try_parse(text: &str) -> Result<Arc<ControlConfig>, String> {
    let file = ConfigFile {
        name: "test".to_owned(),
        text: text.to_owned(),
    };
    let config = ControlConfig::parse(&file, &[]).map_err(|error| error.to_string())?;
    Ok(Arc::new(config))
}

/// A node of the fleet `gateway`.
pub(crate) fn node(class: NodeClass, id: &str, zone: &str) -> NodeInfo {
    let (user_agent_name, features) = match class {
        NodeClass::Plimsoll => ("plimsoll", vec![PLIMSOLL_FEATURE.to_owned()]),
        NodeClass::EnvoyModule => ("envoy", vec![ENVOY_MODULE_FEATURE.to_owned()]),
        NodeClass::Grpc => ("gRPC C-core", Vec::new()),
        NodeClass::Envoy => ("envoy", Vec::new()),
    };
    NodeInfo {
        node: Node {
            id: id.into(),
            cluster: "gateway".into(),
            locality: Locality::zone_only(zone),
        },
        user_agent_name: user_agent_name.to_owned(),
        user_agent_version: String::new(),
        client_features: features,
    }
}

/// Three nodes of a class, one per zone.
pub(crate) fn fleet(class: NodeClass) -> [NodeInfo; 3] {
    ["a", "b", "c"].map(|zone| node(class, &format!("{class:?}-{zone}"), zone))
}

/// A load report that covers one second.
pub(crate) fn stats(cluster: &str, requests: u64) -> ClusterStats {
    ClusterStats {
        cluster_name: cluster.into(),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            total_issued_requests: requests,
            total_successful_requests: requests,
            ..Default::default()
        }],
        total_dropped_requests: 0,
        load_report_interval: Duration::from_secs(1),
    }
}

/// Sums the endpoint weights by zone; an endpoint without weight counts 1.
pub(crate) fn endpoint_weights(assignment: &Resource) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for locality in walk::at(&assignment.body, &[2]) {
        let zone = zone_of(&locality);
        for endpoint in walk::at(&locality, &[2]) {
            let weight = walk::at(&endpoint, &[4]).pop();
            let weight = weight.map_or(1, |weight| walk::number(&weight, 1));
            *sums.entry(zone.clone()).or_default() += weight;
        }
    }
    sums
}

/// Returns the locality weights at priority 0 by zone, without localities that have none.
pub(crate) fn locality_weights(assignment: &Resource) -> BTreeMap<String, u64> {
    let localities = walk::at(&assignment.body, &[2]).into_iter();
    let first = localities.filter(|locality| walk::number(locality, 5) == 0);
    let weighted = first.filter_map(|locality| {
        let weight = walk::at(&locality, &[3]).pop()?;
        Some((zone_of(&locality), walk::number(&weight, 1)))
    });
    weighted.collect()
}

/// Returns `observed_traffic_fraction` (field 10) by zone.
pub(crate) fn fractions(assignment: &Resource) -> BTreeMap<String, u64> {
    let localities = walk::at(&assignment.body, &[2]).into_iter();
    let announced = localities.filter_map(|locality| {
        let fraction = walk::at(&locality, &[10]).pop()?;
        Some((zone_of(&locality), walk::number(&fraction, 1)))
    });
    announced.collect()
}

/// Returns the cluster name in an assignment.
pub(crate) fn assignment_name(assignment: &Resource) -> String {
    walk::text(&assignment.body, 1)
}

fn zone_of(locality: &[u8]) -> String {
    walk::text(&walk::at(locality, &[1]).pop().unwrap_or_default(), 2)
}
