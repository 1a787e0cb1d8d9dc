//! [`Clusters`]: the clusters of a case as balancers; the case's traffic as requests to hosts.
//!
//! A case sets Envoy's counters directly, also to combinations that no request produces: a success
//! without an issued request, or a drop by category that is not counted as dropped. Here, a request
//! that ends in a case without starting in it was issued and reported before the case, and a
//! request that is dropped by category counts as dropped.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::host::{ActiveRequest, Host, RequestOutcome};
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, DropOverloadParts, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::picker::{PickArgs, PickResult, Picker};
use plimsoll_core::publish;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::time::Instant;
use plimsoll_xds::lrs::message::ClusterLoadStats;
use plimsoll_xds::lrs::{ClusterSelection, EdsNames, ReportedClusters, with_eds_names};
use serde::Deserialize;

use super::{CaseError, NAMED_METRICS, Step};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterStep {
    name: Arc<str>,
    #[serde(default)]
    eds_service_name: Arc<str>,
    #[serde(default)]
    hosts: Vec<HostStep>,
    drop_category: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostStep {
    locality: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrafficStep {
    cluster: Arc<str>,
    host: usize,
    #[serde(default)]
    issued: usize,
    #[serde(default)]
    success: usize,
    #[serde(default)]
    error: usize,
    active: Option<usize>,
    #[serde(default)]
    metrics: BTreeMap<String, f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DropStep {
    cluster: Arc<str>,
    #[serde(default)]
    dropped: u64,
    #[serde(default)]
    drop_overload: u64,
}

pub(super) struct Clusters {
    clusters: BTreeMap<Arc<str>, Cluster>,
    reported: ReportedClusters,
    eds_names: EdsNames,
    /// Requests in flight at the start of the case, by cluster and host.
    earlier: BTreeMap<(Arc<str>, usize), usize>,
}

struct Cluster {
    balancer: Balancer,
    hosts: Vec<Arc<Host>>,
    /// Requests in flight by host, oldest first.
    in_flight: Vec<VecDeque<ActiveRequest>>,
    picker: Picker<Xoshiro256>,
}

impl Clusters {
    /// Creates an empty set of clusters, for a case with these steps.
    pub(super) fn new(steps: &[Step]) -> Self {
        let mut open: BTreeMap<(Arc<str>, usize), usize> = BTreeMap::new();
        let mut earlier: BTreeMap<(Arc<str>, usize), usize> = BTreeMap::new();
        for step in steps {
            let Step::Traffic(step) = step else { continue };
            let key = (Arc::clone(&step.cluster), step.host);
            let open = open.entry(key.clone()).or_default();
            let ended = step.success + step.error;
            let needed = ended + step.active.unwrap_or(0);
            *earlier.entry(key).or_default() += needed.saturating_sub(*open + step.issued);
            *open = (*open + step.issued).max(needed) - ended;
        }
        Self {
            clusters: BTreeMap::new(),
            reported: ReportedClusters::default(),
            eds_names: EdsNames::new(),
            earlier,
        }
    }

    pub(super) fn add(&mut self, step: ClusterStep, now: Instant) -> Result<(), CaseError> {
        let mut cluster = Cluster::new(&step, now)?;
        for (index, host) in cluster.hosts.iter().enumerate() {
            let earlier = self.earlier.get(&(Arc::clone(&step.name), index));
            for _ in 0..earlier.copied().unwrap_or_default() {
                cluster.in_flight[index].push_back(host.begin_request());
            }
        }
        // Discard the counts of requests that were issued and reported before the case.
        cluster.balancer.drain_load_stats(false, now);
        if !step.eds_service_name.is_empty() {
            self.eds_names
                .insert(Arc::clone(&step.name), step.eds_service_name);
        }
        self.clusters.insert(step.name, cluster);
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<(), CaseError> {
        let cluster = self.clusters.remove(name).ok_or_else(no_cluster)?;
        self.reported.retire(cluster.balancer);
        Ok(())
    }

    pub(super) fn send(&mut self, step: &TrafficStep, now: Instant) -> Result<(), CaseError> {
        self.cluster(&step.cluster)?.send(step, now)
    }

    pub(super) fn drop_requests(&mut self, step: &DropStep) -> Result<(), CaseError> {
        let cluster = self.cluster(&step.cluster)?;
        for _ in 0..step.drop_overload {
            let picked = cluster.picker.pick(PickArgs::default());
            if !matches!(picked, PickResult::Drop { .. }) {
                return Err(CaseError::inputs("drop_overload without drop_category"));
            }
        }
        for _ in step.drop_overload..step.dropped {
            cluster.balancer.cluster_load().record_drop();
        }
        Ok(())
    }

    pub(super) fn select(&mut self, wanted: ClusterSelection, now: Instant) {
        let clusters = self.clusters.values_mut();
        let balancers = clusters.map(|cluster| &mut cluster.balancer);
        self.reported.select(wanted, balancers, now);
    }

    pub(super) fn drain(
        &mut self,
        wanted: &ClusterSelection,
        now: Instant,
    ) -> Vec<ClusterLoadStats> {
        let clusters = self.clusters.values_mut();
        let balancers = clusters.map(|cluster| &mut cluster.balancer);
        let stats = self.reported.drain(wanted, balancers, false, now);
        with_eds_names(stats, &self.eds_names)
    }

    fn cluster(&mut self, name: &str) -> Result<&mut Cluster, CaseError> {
        self.clusters.get_mut(name).ok_or_else(no_cluster)
    }
}

impl Cluster {
    fn new(step: &ClusterStep, now: Instant) -> Result<Self, CaseError> {
        let config = ClusterConfig::try_new(ClusterConfigParts {
            name: step.name.to_string(),
            lrs_report_endpoint_metrics: vec![format!("{NAMED_METRICS}*")],
            ..Default::default()
        })?;
        let mut balancer = Balancer::new(Arc::new(config), Locality::default(), now);
        balancer.handle_assignment(assignment(step)?, now);
        let (_, reader) = publish::channel(balancer.initial_snapshot(now));
        let host = |index: usize| {
            let mut hosts = balancer.hosts();
            let found = hosts.find(|(host, ..)| host.address() == address(index));
            found.map(|(host, ..)| Arc::clone(host))
        };
        let hosts: Vec<_> = (0..step.hosts.len()).filter_map(host).collect();
        Ok(Self {
            in_flight: hosts.iter().map(|_| VecDeque::new()).collect(),
            hosts,
            balancer,
            picker: Picker::new(reader, Xoshiro256::from_seed(0)),
        })
    }

    fn send(&mut self, step: &TrafficStep, now: Instant) -> Result<(), CaseError> {
        let no_host = || CaseError::inputs("host: unknown index");
        let host = self.hosts.get(step.host).ok_or_else(no_host)?;
        let in_flight = self.in_flight.get_mut(step.host).ok_or_else(no_host)?;
        for _ in 0..step.issued {
            in_flight.push_back(host.begin_request());
        }
        let outcomes = [
            (step.success, RequestOutcome::Success),
            (step.error, RequestOutcome::Error),
        ];
        for (count, outcome) in outcomes {
            for request in in_flight.drain(..count) {
                request.finish(outcome);
            }
        }
        if !step.metrics.is_empty() {
            let metrics = step.metrics.iter();
            let report = OrcaLoadReport {
                named_metrics: metrics
                    .map(|(name, value)| (name.as_str(), *value))
                    .collect(),
                ..Default::default()
            };
            host.observe_response_orca(&report, self.balancer.config(), now);
        }
        Ok(())
    }
}

/// Creates an assignment; with a drop category, every pick is dropped.
fn assignment(step: &ClusterStep) -> Result<ClusterLoadAssignment, CaseError> {
    let entry = |(index, host): (usize, &HostStep)| LocalityParts {
        locality: Locality::zone_only(&host.locality),
        lb_endpoints: vec![LbEndpoint::new(address(index))],
        ..Default::default()
    };
    let drop = |category: &String| DropOverloadParts {
        category: category.clone(),
        numerator: 100,
        denominator: 100,
    };
    Ok(ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: step.name.to_string(),
        endpoints: step.hosts.iter().enumerate().map(entry).collect(),
        drop_overloads: step.drop_category.iter().map(drop).collect(),
        ..Default::default()
    })?)
}

fn address(index: usize) -> SocketAddr {
    let host = u8::try_from(index).unwrap_or(u8::MAX);
    SocketAddr::from(([10, 0, 0, host], 80))
}

fn no_cluster() -> CaseError {
    CaseError::inputs("cluster: unknown name")
}
