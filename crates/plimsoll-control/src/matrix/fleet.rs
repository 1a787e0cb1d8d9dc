//! Drives a control plane as its writer does, with simulated time: the worked example, with three,
//! five and two hosts in zones a, b and c, and demand 50/35/15.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;
use plimsoll_kubernetes::Batch;
use plimsoll_kubernetes::inventory::Inventory;
use plimsoll_kubernetes::objects::{self, EndpointSlice, Service, ZoneRoutingPolicy};
use plimsoll_kubernetes::reflector::Change;
use plimsoll_xds::ads::view::{Resource, View};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};
use plimsoll_xds::node::{ENVOY_MODULE_FEATURE, NodeInfo, PLIMSOLL_FEATURE};
use plimsoll_xds::wire::{ClusterOut, LocalityDelivery, encode_cluster};
use serde_json::{Value, json};

use super::{SERVICE, Setup, Source, Written, parse};
use crate::admin::class_name;
use crate::delivery::{NodeClass, proto_name};
use crate::fleet::{Peer, StreamKind};
use crate::kubernetes::Translator;
use crate::relay::passed_on;
use crate::state::{TrafficKey, ViewKey};
use crate::view::assignment::as_written;

/// Zones with their numbers of hosts, and of requests per second of their proxies.
pub const ZONES: [(&str, u8, u64); 3] = [("a", 3, 500), ("b", 5, 350), ("c", 2, 150)];
/// Name of the assignment of a proxy's own fleet.
pub const LOCAL_CLUSTER: &str = "local_cluster";
/// Reports of each proxy, one per second.
const SECONDS: usize = 4;

/// Returns the fleet of the proxies of a class.
pub(super) const fn name(class: NodeClass) -> &'static str {
    class_name(class)
}

/// Returns the endpoints as in a file, with these weights of their zones.
pub(super) fn endpoints(weights: Option<[u32; 3]>) -> Value {
    let zone = |(index, (zone, hosts, _)): (usize, &(&str, u8, u64))| {
        let hosts = (1..=*hosts).map(|host| format!("10.0.{index}.{host}:80"));
        let hosts: Vec<_> = hosts.collect();
        let mut entry = json!({ "locality": { "zone": zone }, "lb_endpoints": hosts });
        if let Some(weights) = weights {
            entry["load_balancing_weight"] = json!(weights[index]);
        }
        entry
    };
    ZONES.iter().enumerate().map(zone).collect()
}

/// Returns the proxy of a class in a zone.
pub fn node(class: NodeClass, zone: &str) -> NodeInfo {
    let (user_agent_name, feature) = match class {
        NodeClass::Plimsoll => ("plimsoll", Some(PLIMSOLL_FEATURE)),
        NodeClass::EnvoyModule => ("envoy", Some(ENVOY_MODULE_FEATURE)),
        NodeClass::Grpc => ("gRPC C-core", None),
        NodeClass::Envoy => ("envoy", None),
    };
    NodeInfo {
        node: Node {
            id: format!("{}-{zone}", name(class)).into(),
            cluster: name(class).into(),
            locality: Locality::zone_only(zone),
        },
        user_agent_name: user_agent_name.to_owned(),
        user_agent_version: String::new(),
        client_features: feature.map(str::to_owned).into_iter().collect(),
    }
}

pub(super) fn key(class: NodeClass, zone: &str) -> ViewKey {
    ViewKey::of(&node(class, zone), false)
}

/// Returns the proxies of these classes, with their requests per second.
fn nodes(classes: &[NodeClass]) -> Vec<(NodeInfo, u64)> {
    let of_class =
        |class: &NodeClass| ZONES.map(|(zone, _, requests)| (node(*class, zone), requests));
    classes.iter().flat_map(of_class).collect()
}

/// The resources of the service for proxies of a class and zone.
pub(super) struct Sent {
    pub(super) cluster: Resource,
    pub(super) orders: Resource,
    pub(super) fleet: Resource,
}

impl Setup {
    /// Opens the streams of all proxies, and lets them report.
    pub(super) fn drive(&mut self) -> Result<(), String> {
        for (node, _) in nodes(&self.classes) {
            for kind in [StreamKind::Ads, StreamKind::Lrs] {
                let opened = self
                    .state
                    .handle_open(&node, kind, false, &Peer::default(), self.now);
                opened.map_err(|refusal| format!("{refusal:?}"))?;
                self.drain();
            }
        }
        self.learn()?;
        for _ in 0..SECONDS {
            self.advance();
            for (node, requests) in nodes(&self.classes) {
                let stats = UpstreamLocalityStats {
                    total_issued_requests: requests,
                    total_successful_requests: requests,
                    ..Default::default()
                };
                let report = ClusterStats {
                    cluster_name: SERVICE.into(),
                    upstream_locality_stats: vec![stats],
                    total_dropped_requests: 0,
                    load_report_interval: Duration::from_secs(1),
                };
                self.state.handle_report(&node, &[report], self.now);
                self.drain();
            }
        }
        self.learn()?;
        self.service = self.state.service(SERVICE).cloned();
        Ok(())
    }

    /// Lets a second pass.
    fn advance(&mut self) {
        let end = self.now.saturating_add(Duration::from_secs(1));
        while let Some(due) = self.state.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.state.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while self.state.poll_output().is_some() {}
        while self.state.poll_traffic().is_some() {}
        while self.state.poll_event().is_some() {}
    }

    /// Passes what a relay learns from the other server to its state.
    fn learn(&mut self) -> Result<(), String> {
        let Some(theirs) = self.resources_of_theirs() else {
            return Ok(());
        };
        let key = key(NodeClass::Envoy, "a");
        let patch = self.state.patch(&key).ok_or("no patch")?;
        for learned in passed_on(patch, &theirs).1 {
            self.state.handle_relayed(learned, self.now);
        }
        self.drain();
        Ok(())
    }

    /// Returns the resources of the other server: the cluster as it is written, and its endpoints.
    fn resources_of_theirs(&self) -> Option<[(&'static str, Resource); 2]> {
        let theirs = self.theirs.as_ref()?;
        let cluster = ClusterOut::new(&theirs.config, LocalityDelivery::AsConfigured);
        let cluster = Resource::new(SERVICE, encode_cluster(&cluster));
        let assignment = Resource::new(SERVICE, as_written(theirs));
        Some([(CLUSTER, cluster), (CLUSTER_LOAD_ASSIGNMENT, assignment)])
    }

    /// Returns the resources that proxies of a class and zone are sent.
    pub(super) fn sent(&self, class: NodeClass, zone: &str) -> Result<Sent, String> {
        let key = key(class, zone);
        let view: Arc<View> = match self.resources_of_theirs() {
            Some(theirs) => {
                let patch = self.state.patch(&key).ok_or("no patch")?;
                passed_on(patch, &theirs).0.ok_or("no view")?
            }
            None => Arc::clone(self.state.view(&key).ok_or("no view")?),
        };
        let resource = |kind: &str, name: &str| {
            let found = view.get(kind).and_then(|all| all.get(name)).cloned();
            found.ok_or_else(|| format!("{name} is missing"))
        };
        Ok(Sent {
            cluster: resource(CLUSTER, SERVICE)?,
            orders: resource(CLUSTER_LOAD_ASSIGNMENT, SERVICE)?,
            fleet: resource(CLUSTER_LOAD_ASSIGNMENT, LOCAL_CLUSTER)?,
        })
    }

    /// Returns the demand for the service in responses to load reports of a class.
    pub(super) fn told(&self, class: NodeClass) -> BTreeMap<Locality, BasisPoints> {
        let traffic = self.state.traffic(&TrafficKey {
            fleet: name(class).into(),
            class,
        });
        let mut clusters = traffic.clusters.iter();
        let own = clusters.find(|own| &*own.cluster_name == SERVICE);
        let hears = matches!(class, NodeClass::Plimsoll | NodeClass::EnvoyModule);
        let own = own.filter(|_| hears);
        own.map(|own| own.fractions.iter().cloned().collect())
            .unwrap_or_default()
    }
}

impl Written<'_> {
    /// A relay with the service, whose endpoints are those of the other server.
    pub(super) fn relayed(&self, source: Source) -> Result<Setup, String> {
        let in_file = source == Source::RelayFile;
        let mut service = self.service(in_file, self.mode.written);
        drop(
            service
                .as_object_mut()
                .and_then(|all| all.remove("endpoints")),
        );
        let file = json!({ "relay": { "address": "their-server:18000" }, "services": [service] });
        let mut setup = Setup::with(&file)?;
        let theirs = json!({ "services": [self.service(!in_file, Some("OFF"))] });
        setup.theirs = parse(&theirs)?.services.get(SERVICE).cloned();
        Ok(setup)
    }

    /// A control plane that finds the service, with a ZoneRoutingPolicy, in Kubernetes.
    pub(super) fn kubernetes(&self) -> Result<Setup, String> {
        let file = json!({ "kubernetes": { "cluster_name": "{service}", "namespaces": ["shop"] } });
        let mut setup = Setup::with(&file)?;
        let settings = parse(&file)?.sources.kubernetes.ok_or("no section")?;
        let mut inventory = Inventory::default();
        let metadata = |name: &str| json!({ "namespace": "shop", "name": name });
        let ports = json!([{ "name": "http", "port": 80 }]);
        let service = json!({ "metadata": metadata(SERVICE), "spec": { "ports": ports } });
        inventory.handle_service(applied::<Service>(service)?, setup.now);
        for (index, (zone, hosts, _)) in ZONES.iter().enumerate() {
            let hosts = (1..=*hosts).map(|host| format!("10.0.{index}.{host}"));
            let endpoint = |address| json!({ "addresses": [address], "zone": zone });
            let mut metadata = metadata(zone);
            metadata["labels"] = json!({ "kubernetes.io/service-name": SERVICE });
            let slice = json!({
                "metadata": metadata, "addressType": "IPv4", "ports": ports,
                "endpoints": hosts.map(endpoint).collect::<Vec<_>>(),
            });
            inventory.handle_slice(applied::<EndpointSlice>(slice)?, setup.now);
        }
        let mut spec = json!({
            "targetRefs": [{ "group": "", "kind": "Service", "name": SERVICE }],
            "mode": self.mode.written.unwrap_or("ENFORCE"), "delivery": proto_name(self.delivery),
            "cluster": self.policy.cluster,
        });
        if self.mode.ramp < 100 {
            spec["ramp"] = json!(self.mode.ramp);
        }
        let policy = json!({ "metadata": metadata("policy"), "spec": spec });
        inventory.handle_policy(applied::<ZoneRoutingPolicy>(policy)?);
        let mut batch = Batch::default();
        while let Some((key, found)) = inventory.poll_changed() {
            batch.services.insert(key, found);
        }
        let (changes, refused) = Translator::new(settings).handle_batch(batch);
        if let Some(refused) = refused.into_iter().next() {
            return Err(refused.reason);
        }
        setup.state.handle_services(changes, setup.now);
        Ok(setup)
    }
}

/// An object of Kubernetes as it is read from the API.
fn applied<R: objects::Resource>(json: Value) -> Result<Change<R>, String> {
    let json = serde_json::from_value(json).map_err(|error| error.to_string())?;
    Ok(Change::Applied(Arc::new(R::from_json(json))))
}
