//! In-band load reports (ORCA): from the headers of responses to the hosts of the engine.
//!
//! Envoy passes no report to a module's policy, so an upstream HTTP filter of the same library
//! reads them. It knows the address of the host; all clusters of the process that have a host with
//! that address get the report, because it is the same server. Workers read the table of hosts
//! without a lock; it is replaced when the hosts of a cluster change.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use plimsoll_core::host::Host;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::time::Instant;
use plimsoll_xds::orca::{
    ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN, FirstReport, OrcaLimits,
};

use crate::host_sets::parse_address;
use crate::host_table::AddressHasher;

/// A host that load reports are applied to.
#[derive(Clone, Debug)]
pub struct Target {
    pub host: Arc<Host>,
    pub config: Arc<ClusterConfig>,
}

type Targets = HashMap<SocketAddr, Vec<Target>, BuildHasherDefault<AddressHasher>>;

/// Hosts by address, of all clusters that use load reports.
#[derive(Debug, Default)]
pub struct OrcaHosts {
    targets: ArcSwap<Targets>,
}

/// Headers or trailers of a response, which may have a load report.
pub trait Headers {
    /// Returns the first value of a header.
    fn get(&self, name: &str) -> Option<&[u8]>;
}

impl OrcaHosts {
    /// Replaces the table, after the hosts of a cluster have changed.
    pub fn publish(&self, targets: impl IntoIterator<Item = Target>) {
        let mut table = Targets::default();
        for target in targets {
            let address = target.host.address();
            table.entry(address).or_default().push(target);
        }
        self.targets.store(Arc::new(table));
    }

    /// Applies the report of a response of the host at `address`, if there is one. Malformed
    /// reports change nothing.
    pub fn observe<'a>(
        &self,
        address: impl FnOnce() -> &'a str,
        headers: &impl Headers,
        first: &mut FirstReport,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let names = [ENDPOINT_LOAD_METRICS_BIN, ENDPOINT_LOAD_METRICS];
        let pairs = names
            .into_iter()
            .filter_map(|name| Some((name, headers.get(name)?)));
        let Ok(Some(report)) = first.parse(pairs, &OrcaLimits::default()) else {
            return false;
        };
        let Some(address) = parse_address(address()) else {
            return false;
        };
        let targets = self.targets.load();
        let Some(targets) = targets.get(&address) else {
            return false;
        };
        let now = now();
        let mut used = false;
        for Target { host, config } in targets {
            used |= host.observe_response_orca(&report, config, now);
        }
        used
    }
}

/// Whether a cluster uses load reports of its hosts.
pub fn uses_reports(config: &ClusterConfig) -> bool {
    let policy = config.endpoint_policy();
    config.load_aware_locality().is_some()
        || matches!(policy, EndpointPolicy::ClientSideWeightedRoundRobin(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::config::ModuleConfig;
    use crate::host_sets::assignment;
    use crate::host_sets::tests::Fake;
    use plimsoll_core::model::locality::Locality;

    const NOW: Instant = Instant::from_secs(1);

    struct Pairs(&'static [(&'static str, &'static str)]);

    impl Headers for Pairs {
        fn get(&self, name: &str) -> Option<&[u8]> {
            let found = self.0.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.as_bytes())
        }
    }

    fn cluster(name: &str, policy: &str) -> Cluster {
        let text = format!(
            "cluster: {{load_balancing_policy: {{policies: [{{typed_extension_config: {{name: x, \
             typed_config: {{'@type': type.googleapis.com/envoy.extensions.\
             load_balancing_policies.{policy}}}}}}}]}}}}"
        );
        let module = ModuleConfig::parse(&text).unwrap();
        let config = module.cluster(name).unwrap();
        let cluster = Cluster::new(config, Locality::zone_only("a"), None, NOW);
        let hosts = assignment(&Fake::zones(&[("a", 2)]), name).unwrap();
        cluster.handle_hosts(hosts, NOW);
        cluster
    }

    #[test]
    fn reports_reach_all_clusters_with_the_address() {
        let child = "endpoint_picking_policy: {policies: [{typed_extension_config: {name: y, \
                     typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                     load_balancing_policies.round_robin.v3.RoundRobin}}}]}";
        let policy = format!("load_aware_locality.v3.LoadAwareLocality, {child}");
        let clusters = [cluster("one", &policy), cluster("two", &policy)];
        let plain = cluster("three", "round_robin.v3.RoundRobin");
        assert!(!uses_reports(plain.config()));
        let hosts = OrcaHosts::default();
        hosts.publish(clusters.iter().flat_map(Cluster::orca_targets));
        let observe = |address: &'static str, headers: &Pairs| {
            let mut first = FirstReport::default();
            hosts.observe(|| address, headers, &mut first, || NOW)
        };
        let report = Pairs(&[("endpoint-load-metrics", "TEXT application_utilization=0.7")]);
        assert!(observe("10.0.1.2:80", &report));
        assert!(!observe("10.0.1.9:80", &report), "an unknown host");
        assert!(!observe("/pipe", &report));
        assert!(!observe("10.0.1.1:80", &Pairs(&[])), "no report");
        let broken = Pairs(&[("endpoint-load-metrics", "TEXT x")]);
        assert!(!observe("10.0.1.1:80", &broken));
        for cluster in &clusters {
            let seen: Vec<_> = cluster
                .orca_targets()
                .map(|target| target.host.utilization().map(|(value, _)| value))
                .collect();
            assert_eq!(seen, [None, Some(0.7)]);
        }
    }
}
