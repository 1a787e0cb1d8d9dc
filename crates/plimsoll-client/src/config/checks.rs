//! Checks of a client before it starts: settings that are valid one by one, but cannot work
//! together. Called by `ClientBuilder::build`.

use std::collections::BTreeSet;

use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::log_line;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::units::FieldError;
use plimsoll_xds::upstream::{Discovery, UpstreamCluster};

use crate::log_lines;

/// What a client is about to start with.
pub(crate) struct Startup<'a> {
    pub(crate) own: &'a Locality,
    pub(crate) upstreams: &'a [UpstreamCluster],
    /// Clusters whose program asked for zone-aware routing.
    pub(crate) zone_aware: &'a BTreeSet<String>,
    /// Clusters with endpoints that the program assigns.
    pub(crate) assigned: Vec<(&'a ClusterConfig, Vec<&'a Locality>)>,
    pub(crate) demand: Option<&'a FractionMap>,
    pub(crate) has_fleet: bool,
    pub(crate) has_server: bool,
}

impl Startup<'_> {
    /// Refuses what cannot work. The error names the field and the reason.
    pub(crate) fn check(&self) -> Result<(), FieldError> {
        self.check_names()?;
        for cluster in self.upstreams {
            let path = format!("clusters[{}]", cluster.config.name());
            self.check_endpoints(cluster)
                .map_err(|error| error.under(&path))?;
            self.check_zone(cluster)
                .map_err(|error| error.under(&path))?;
        }
        let assigned = self.assigned.iter().map(|(config, _)| *config);
        for config in self
            .upstreams
            .iter()
            .map(|cluster| &cluster.config)
            .chain(assigned)
        {
            let path = format!("clusters[{}].policy", config.name());
            self.check_demand_source(config)
                .map_err(|error| error.under(&path))?;
        }
        match self.demand {
            Some(demand) => check_demand(demand, self.own, self.known_zones().as_ref()),
            None => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), FieldError> {
        let assigned = self.assigned.iter().map(|(config, _)| config.name());
        let mut seen = BTreeSet::new();
        let names = self.upstreams.iter().map(|cluster| cluster.config.name());
        match names.chain(assigned).find(|name| !seen.insert(*name)) {
            Some(name) => Err(FieldError::new(
                format!("clusters[{name}]"),
                "is added twice; names are unique",
            )),
            None => Ok(()),
        }
    }

    fn check_endpoints(&self, cluster: &UpstreamCluster) -> Result<(), FieldError> {
        if matches!(cluster.options.discovery, Discovery::Eds { .. }) {
            if self.has_server {
                return Ok(());
            }
            let reason = "endpoints from EDS need a management server: see ClientBuilder::xds";
            return Err(FieldError::new("eds_cluster_config", reason));
        }
        let mut entries = cluster
            .load_assignment
            .iter()
            .flat_map(|listed| &listed.endpoints);
        if entries.any(|entry| !entry.endpoints.is_empty()) {
            return Ok(());
        }
        let reason = "the cluster lists no host, so every request would fail; see Cluster::zone";
        Err(FieldError::new("endpoints", reason))
    }

    /// Checks that a cluster with zone-aware routing can find the zone of this process.
    fn check_zone(&self, cluster: &UpstreamCluster) -> Result<(), FieldError> {
        let name: &str = cluster.config.name();
        if !self.zone_aware.contains(name) {
            return Ok(());
        }
        if self.own.is_unset() {
            let reason = "zone-aware routing needs the zone of this process: call \
                          ClientBuilder::zone or set the environment variable PLIMSOLL_ZONE";
            return Err(FieldError::new("policy.zone_aware_lb_config", reason));
        }
        check_size(cluster)?;
        let listed = localities(cluster);
        let own = self.own;
        if listed.is_empty() || listed.contains(&own) {
            return Ok(());
        }
        let one_has_no_region = |other: &&Locality| {
            other.differs_by_region(own) && (own.region().is_empty() || other.region().is_empty())
        };
        if let Some(other) = listed.iter().copied().find(one_has_no_region) {
            let named = |locality: &Locality| match locality.region() {
                "" => format!("zone {:?} without a region", locality.zone()),
                region => format!("zone {:?} of region {region:?}", locality.zone()),
            };
            let reason = format!(
                "this process is in {}, the hosts are in {}: set both regions or none \
                 (Cluster::locality, ClientBuilder::locality, PLIMSOLL_REGION)",
                named(own),
                named(other)
            );
            return Err(FieldError::new("endpoints.locality", reason));
        }
        log_line!(log_lines::OWN_ZONE_WITHOUT_HOSTS, cluster = name, locality = %own);
        Ok(())
    }

    /// Checks that zone-aware routing can learn where demand arises.
    fn check_demand_source(&self, config: &ClusterConfig) -> Result<(), FieldError> {
        let basis = config.zone_aware().map(ZoneAware::locality_basis);
        let asked = self.zone_aware.contains(&**config.name());
        let needed = match basis {
            Some(LocalityBasis::LrsReportedRate) => true,
            Some(LocalityBasis::HealthyHostsNum | LocalityBasis::HealthyHostsWeight) => asked,
            Some(LocalityBasis::ObservedLoad) | None => false,
        };
        if !needed || self.has_server || self.has_fleet || self.demand.is_some() {
            return Ok(());
        }
        let reason = "needs the demand of each zone: state it (ClientBuilder::demand), connect to \
                      a management server (ClientBuilder::xds), or use observed_load";
        Err(FieldError::new(
            "zone_aware_lb_config.locality_basis",
            reason,
        ))
    }

    /// Returns all zones, or `None` if a management server may know more.
    fn known_zones(&self) -> Option<BTreeSet<&Locality>> {
        let listed = self.upstreams.iter().flat_map(localities);
        let assigned = self
            .assigned
            .iter()
            .flat_map(|(_, localities)| localities.iter().copied());
        (!self.has_server).then(|| listed.chain(assigned).collect())
    }
}

/// Checks that a cluster of listed hosts has enough of them for zone-aware routing.
fn check_size(cluster: &UpstreamCluster) -> Result<(), FieldError> {
    let Some(zone_aware) = cluster.config.zone_aware() else {
        return Ok(());
    };
    let entries = cluster.load_assignment.iter();
    let listed = entries.flat_map(|listed| &listed.endpoints);
    let hosts: usize = listed.map(|entry| entry.endpoints.len()).sum();
    let needed = zone_aware.min_cluster_size();
    let is_static = matches!(cluster.options.discovery, Discovery::Static);
    if !is_static || u64::try_from(hosts).is_ok_and(|hosts| hosts >= needed) {
        return Ok(());
    }
    let reason = format!(
        "zone-aware routing needs {needed} hosts and the cluster lists {hosts}: lower the limit \
         with min_cluster_size of the policy"
    );
    let field = "policy.zone_aware_lb_config.min_cluster_size";
    Err(FieldError::new(field, reason))
}

fn localities(cluster: &UpstreamCluster) -> Vec<&Locality> {
    let listed = cluster
        .load_assignment
        .iter()
        .flat_map(|listed| &listed.endpoints);
    listed.map(|entry| &entry.parts.locality).collect()
}

/// Checks the zones of stated demand; `known` is `None` if not all zones are known.
pub(crate) fn check_demand(
    demand: &FractionMap,
    own: &Locality,
    known: Option<&BTreeSet<&Locality>>,
) -> Result<(), FieldError> {
    if !own.is_unset() && !demand.contains_key(own) {
        let path = format!("demand[{own}]");
        return Err(FieldError::new(
            path,
            "the zone of this process has no demand: add it to the list",
        ));
    }
    let unknown = |zone: &&Locality| {
        let listed = known.is_none_or(|known| known.contains(zone));
        !listed && *zone != own
    };
    match demand.keys().find(unknown) {
        None => Ok(()),
        Some(zone) => {
            let known: Vec<String> = known
                .iter()
                .flat_map(|known| known.iter())
                .map(ToString::to_string)
                .collect();
            let reason = format!(
                "no cluster has this zone; known are {known:?}. A zone without hosts is declared \
                 by Cluster::empty_zone"
            );
            Err(FieldError::new(format!("demand[{zone}]"), reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Policy};
    use plimsoll_testing::CapturedLogs;

    fn upstream(cluster: Cluster) -> UpstreamCluster {
        let policy = Policy::zone_aware().min_cluster_size(1);
        cluster.policy(policy).build().unwrap()
    }

    /// Checks one zone-aware cluster, and returns the error and the number of log lines.
    fn check(own: &Locality, cluster: Cluster, has_fleet: bool) -> (Option<String>, usize) {
        let upstreams = [upstream(cluster)];
        let zone_aware = BTreeSet::from(["orders".to_owned()]);
        let startup = Startup {
            own,
            upstreams: &upstreams,
            zone_aware: &zone_aware,
            assigned: Vec::new(),
            demand: None,
            has_fleet,
            has_server: false,
        };
        let lines = CapturedLogs::default();
        let checked = tracing::subscriber::with_default(lines.clone(), || startup.check());
        let count = lines.0.lock().unwrap().len();
        (checked.err().map(|error| error.to_string()), count)
    }

    #[test]
    fn an_own_zone_without_hosts_is_logged() {
        let cluster = || Cluster::new("orders").zone("a", ["127.0.0.1:1"]);
        assert_eq!(check(&Locality::zone_only("a"), cluster(), true), (None, 0));
        assert_eq!(check(&Locality::zone_only("b"), cluster(), true), (None, 1));
        let error = check(&Locality::zone_only("a"), cluster(), false)
            .0
            .unwrap();
        assert!(error.contains("needs the demand of each zone"), "{error}");
    }

    #[test]
    fn regions_are_set_on_both_sides_or_on_none() {
        let own = Locality::new("r", "a", "");
        let hosts = |locality: Locality| Cluster::new("orders").locality(locality, ["127.0.0.1:1"]);
        let error = check(&own, hosts(Locality::zone_only("a")), true)
            .0
            .unwrap();
        assert!(error.contains("zone \"a\" of region \"r\""), "{error}");
        assert!(error.contains("zone \"a\" without a region"), "{error}");
        let reverse = check(&Locality::zone_only("a"), hosts(own.clone()), true);
        assert!(reverse.0.unwrap().contains("set both regions or none"));
        // Different regions are no mistake.
        let other = hosts(Locality::new("q", "a", ""));
        assert_eq!(check(&own, other, true), (None, 1));
        assert_eq!(check(&own, hosts(own.clone()), true), (None, 0));
    }

    #[test]
    fn the_size_of_a_cluster_is_known_only_if_its_hosts_are_listed() {
        let own = Locality::zone_only("a");
        let checked = |host: &str, size: u64| {
            let policy = Policy::zone_aware().min_cluster_size(size);
            let cluster = Cluster::new("orders").zone("a", [host]).policy(policy);
            check_size(&cluster.build().unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(checked("127.0.0.1:1", 1), Ok(()));
        assert_eq!(
            checked("orders.example:1", 2),
            Ok(()),
            "a name may have many"
        );
        let error = checked("127.0.0.1:1", 2).unwrap_err();
        assert!(
            error.contains("needs 2 hosts and the cluster lists 1"),
            "{error}"
        );
        assert!(check(&own, Cluster::new("orders"), true).0.is_some());
    }
}
