//! The module as an [`Engine`] of `plimsoll-conformance`, and the cases that run through it.
//!
//! Settings reach it as a control plane delivers them to modules, hosts as host sets of Envoy, and
//! load reports as headers of responses, which the filter reads.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use plimsoll_conformance::{Cluster as Subject, Engine, FileReport, Unsupported, run_dir};
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::{ClusterLoadAssignment, LocalityLbEndpoints};
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::stats::LoadAwareStats;
use plimsoll_core::time::Instant;
use plimsoll_xds::orca::{FirstReport, OrcaFormat, encode};
use plimsoll_xds::pb::AnyMessage;
use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::schema::field::raw_fields;
use plimsoll_xds::schema::metadata::struct_json;
use plimsoll_xds::wire::{ClusterOut, LocalityDelivery, encode_cluster};
use prost::Message as _;

use crate::cluster::Cluster;
use crate::config::ModuleConfig;
use crate::host_sets::assignment;
use crate::host_sets::tests::{Fake, FakeHost};
use crate::orca::{Headers, OrcaHosts};

/// Cases that must have run by file, so that a change of their format does not skip them all.
const LEAST: [(&str, usize); 3] = [
    ("load_aware_locality.json", 40),
    ("silent_reports.json", 30),
    ("zone_aware.json", 35),
];

struct Module;

impl Engine for Module {
    fn start(
        &self,
        config: &Arc<ClusterConfig>,
        own: &Locality,
        now: Instant,
    ) -> Result<Box<dyn Subject>, Unsupported> {
        let delivered = delivered(config).filter(|delivered| delivered == &**config);
        let delivered = delivered.ok_or(Unsupported("settings that cannot be delivered"))?;
        let cluster = Cluster::new(delivered, own.clone(), None, now);
        Ok(Box::new(ModuleCluster {
            due: cluster.handle_timeout(now),
            cluster,
            hosts: OrcaHosts::default(),
        }))
    }
}

/// Returns the settings that the module reads from the cluster that a control plane delivers;
/// `None` if it refuses them.
fn delivered(config: &ClusterConfig) -> Option<ClusterConfig> {
    let sent = encode_cluster(&ClusterOut::new(config, LocalityDelivery::Module));
    let list = ClusterMessage::decode(sent).unwrap().load_balancing_policy;
    let first = list.unwrap().policies.remove(0).typed_extension_config;
    let policy = first.unwrap().typed_config.unwrap();
    let lb_policy_config = raw_fields(&policy.value).last().unwrap().unwrap();
    let settings = AnyMessage::decode(lb_policy_config.value).unwrap();
    let text = struct_json(&settings.unpack().unwrap()).to_string();
    let module = ModuleConfig::parse(&text).ok()?;
    module.cluster(config.name()).ok()
}

struct ModuleCluster {
    cluster: Cluster,
    hosts: OrcaHosts,
    due: Option<Instant>,
}

/// The header of a response.
struct Report((&'static str, String));

impl Headers for Report {
    fn get(&self, name: &str) -> Option<&[u8]> {
        let (header, value) = &self.0;
        (name == *header).then_some(value.as_bytes())
    }
}

impl Subject for ModuleCluster {
    fn handle_hosts(
        &mut self,
        hosts: ClusterLoadAssignment,
        now: Instant,
    ) -> Result<(), Unsupported> {
        self.due = self.cluster.handle_hosts(through_envoy(&hosts)?, now);
        self.hosts.publish(self.cluster.orca_targets());
        Ok(())
    }

    fn handle_fleet(
        &mut self,
        fleet: ClusterLoadAssignment,
        now: Instant,
    ) -> Result<(), Unsupported> {
        self.due = self.cluster.handle_fleet(through_envoy(&fleet)?, now);
        Ok(())
    }

    fn handle_observed_traffic(&mut self, fractions: FractionMap, now: Instant) {
        self.due = self.cluster.handle_observed_traffic(fractions, now, now);
    }

    fn handle_report(&mut self, host: SocketAddr, report: &OrcaLoadReport, at: Instant) {
        let header = Report(encode(report, OrcaFormat::Bin).unwrap());
        let mut first = FirstReport::default();
        let address = host.to_string();
        let used = self.hosts.observe(|| &address, &header, &mut first, || at);
        assert!(used, "{address} has no target for {report:?}");
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.due = self.cluster.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn snapshot(&self) -> Arc<RoutingSnapshot> {
        self.cluster.snapshot()
    }

    fn load_aware_counters(&self) -> Vec<(&'static str, u64)> {
        self.cluster.update_tick_values(1, Instant::ORIGIN);
        let stats = self.cluster.tick_values().stats.clone().unwrap();
        let metrics = LoadAwareStats::METRICS.iter();
        metrics
            .map(|metric| (metric.name, stats.get(&metric.stat_name()).unwrap()))
            .collect()
    }
}

/// Returns hosts as the module gets them from Envoy's host sets.
fn through_envoy(hosts: &ClusterLoadAssignment) -> Result<ClusterLoadAssignment, Unsupported> {
    let mut fake = Fake::default();
    for entry in hosts.endpoints() {
        if entry.lb_endpoints.is_empty() {
            return Err(Unsupported("a locality without hosts"));
        }
        let priority = entry.priority as usize;
        let priorities = fake.priorities.len().max(priority + 1);
        fake.priorities.resize_with(priorities, Vec::new);
        fake.priorities[priority].extend(fake_hosts(entry));
    }
    Ok(assignment(&fake, hosts.cluster_name()).unwrap())
}

fn fake_hosts(entry: &LocalityLbEndpoints) -> impl Iterator<Item = FakeHost> {
    entry.lb_endpoints.iter().map(|endpoint| FakeHost {
        weight: endpoint.weight(),
        health: match endpoint.health_status {
            // Envoy shows them among the healthy hosts.
            HealthStatus::Unknown => HealthStatus::Healthy,
            other => other,
        },
        ..FakeHost::in_locality(entry.locality.clone(), &endpoint.address.to_string())
    })
}

#[test]
fn cases_that_need_a_cluster_hold_for_the_module() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let report = run_dir(&vectors, &Module).unwrap();
    let failures: Vec<_> = report
        .files
        .iter()
        .flat_map(|file| &file.failures)
        .collect();
    assert!(failures.is_empty(), "{failures:#?}");
    let run = |file: &&FileReport| file.passed > 0;
    let files = report.files.iter().filter(run);
    let passed: Vec<_> = files.map(|file| (&*file.file, file.passed)).collect();
    assert_eq!(passed.len(), LEAST.len(), "{passed:?}");
    for (least, passed) in LEAST.iter().zip(&passed) {
        assert!(least <= passed && least.0 == passed.0, "{passed:?}");
    }
}
