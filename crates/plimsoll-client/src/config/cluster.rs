//! [`Cluster`]: a cluster as code: hosts by zone, policy, circuit breakers and connection settings.

use std::net::IpAddr;
use std::time::Duration;

use plimsoll_core::model::cluster::LocalitySampling;
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::EndpointLoadMetricsFormat;
use plimsoll_core::model::subset::LbSubsetConfig;
use plimsoll_core::units::FieldError;
use plimsoll_xds::upstream::{
    CircuitBreakers, ClusterEndpoints, Discovery, DnsLookupFamily, DnsOptions, EdsSource,
    Http2Options, HttpVersion, LoadAssignment, NamedLocality, RetryBudget, TcpKeepalive,
    UpstreamCluster, UpstreamOptions, UpstreamTls,
};

use super::{ActiveHealthCheck, Endpoint, Outliers, Policy};
use crate::error::{Error, ErrorKind};

/// A group of upstream hosts and how requests are sent to them; for
/// [`ClientBuilder::cluster`](crate::ClientBuilder::cluster).
///
/// ```
/// use std::time::Duration;
/// use plimsoll_client::{Cluster, Policy};
///
/// let orders = Cluster::new("orders")
///     .zone("zone-a", ["10.0.0.1:80", "10.0.0.2:80"])
///     .zone("zone-b", ["10.0.1.1:80", "10.0.1.2:80"])
///     .policy(Policy::zone_aware().measured().min_cluster_size(1))
///     .connect_timeout(Duration::from_secs(1))
///     .max_requests(10_000);
/// # orders.build()?;
/// # Ok::<(), plimsoll_client::Error>(())
/// ```
///
/// Settings have Envoy's names and defaults. Hosts are IP addresses or DNS names; a name is
/// resolved every 5 s and each of its addresses is a host (Envoy's `STRICT_DNS`). Errors are
/// reported by [`ClientBuilder::build`](crate::ClientBuilder::build), with the field.
#[derive(Clone, Debug)]
pub struct Cluster {
    parts: ClusterConfigParts,
    options: UpstreamOptions,
    assignment: LoadAssignment,
    locality_weights: Vec<(Locality, u32)>,
    dns: Option<DnsOptions>,
    /// Whether the cluster says which hosts it has: without, those it had stay.
    listed: bool,
    /// Endpoints that the program found, instead of listed ones.
    assigned: Option<ClusterEndpoints>,
    /// The program asked for zone-aware routing, which is also the default of other policies.
    zone_aware: bool,
    /// The first error, reported when the cluster is built.
    error: Option<FieldError>,
}

impl Cluster {
    /// Creates a cluster whose hosts the program lists, by address or DNS name.
    pub fn new(name: impl Into<String>) -> Self {
        let mut parts = ClusterConfigParts::default();
        let mut assignment = LoadAssignment::default();
        parts.name = name.into();
        assignment.cluster_name.clone_from(&parts.name);
        Self {
            parts,
            options: UpstreamOptions::default(),
            assignment,
            locality_weights: Vec::new(),
            dns: None,
            listed: false,
            assigned: None,
            zone_aware: false,
            error: None,
        }
    }

    /// Creates a cluster whose hosts come from a management server (EDS); needs
    /// `ClientBuilder::xds`. The assignment has the name of the cluster unless
    /// [`Self::eds_service_name`] sets another one.
    pub fn eds(name: impl Into<String>) -> Self {
        let mut cluster = Self::new(name);
        cluster.options.discovery = Discovery::Eds {
            service_name: None,
            source: EdsSource::Ads,
        };
        cluster
    }

    /// Adds hosts in a zone.
    #[must_use]
    pub fn zone<E: Into<Endpoint>>(
        self,
        zone: &str,
        endpoints: impl IntoIterator<Item = E>,
    ) -> Self {
        self.locality(zone, endpoints)
    }

    /// Declares a zone without hosts, in which [demand](crate::ClientBuilder::demand) may arise.
    #[must_use]
    pub fn empty_zone(self, zone: &str) -> Self {
        self.zone(zone, std::iter::empty::<Endpoint>())
    }

    /// Adds hosts in a locality, which may have a region and a sub-zone. Localities are the same
    /// if all three parts are: hosts without region are not local to a process with a region.
    #[must_use]
    pub fn locality<E: Into<Endpoint>>(
        mut self,
        locality: impl Into<Locality>,
        endpoints: impl IntoIterator<Item = E>,
    ) -> Self {
        let locality = locality.into();
        self.listed = true;
        self.entry(&locality, 0);
        for endpoint in endpoints {
            let endpoint = endpoint.into();
            self.note(endpoint.check());
            let entry = self.entry(&locality, endpoint.priority);
            entry.endpoints.push(endpoint.named);
        }
        self
    }

    /// Adds hosts without a locality.
    #[must_use]
    pub fn endpoints<E: Into<Endpoint>>(self, endpoints: impl IntoIterator<Item = E>) -> Self {
        self.locality(Locality::default(), endpoints)
    }

    /// Sets the endpoints as an assignment, instead of listing hosts. It may be empty, for hosts
    /// that the program finds later and sets with
    /// [`Client::update_endpoints`](crate::Client::update_endpoints).
    #[must_use]
    pub fn assignment(mut self, endpoints: impl Into<ClusterEndpoints>) -> Self {
        self.assigned = Some(endpoints.into());
        self
    }

    /// Sets the weight of a locality, for [`Policy::locality_weighted`] and
    /// [`Policy::wrr_locality`]. Localities without a weight get no requests then.
    #[must_use]
    pub fn locality_weight(mut self, locality: impl Into<Locality>, weight: u32) -> Self {
        self.locality_weights.push((locality.into(), weight));
        self
    }

    /// Sets the load-balancing policy; by default Envoy's: round robin with zone-aware routing.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<Policy>) -> Self {
        match policy.into().checked() {
            Err(error) => self.note(Err(error.under("policy"))),
            Ok((endpoint, locality)) => {
                self.zone_aware = matches!(locality, Some(LocalityPolicy::ZoneAware(_)));
                self.parts.locality_policy = match locality {
                    Some(policy) => policy,
                    None if endpoint.is_hash() => LocalityPolicy::Flat,
                    None => LocalityPolicy::default(),
                };
                self.parts.endpoint_policy = endpoint;
            }
        }
        self
    }

    setters! {
        /// Sets the concurrent requests of all hosts together; 1,024 by default, as in Envoy.
        /// Further ones fail with [`ErrorKind::Overflow`](crate::ErrorKind::Overflow).
        max_requests(requests: u32) => options.circuit_breakers.max_requests = requests;
        /// Sets the open connections of all hosts together; 1,024 by default, as in Envoy.
        max_connections(connections: u32) => options.circuit_breakers.max_connections = connections;
        /// Sets the requests that may wait for a connection; 1,024 by default, as in Envoy.
        max_pending_requests(requests: u32) =>
            options.circuit_breakers.max_pending_requests = requests;
        /// Sets the concurrent retries; 3 by default, as in Envoy.
        max_retries(retries: u32) => options.circuit_breakers.max_retries = retries;
        /// Lifts all circuit breakers: connections, waiting requests, requests and retries.
        without_circuit_breakers() => options.circuit_breakers = unlimited();
        /// Sets how long opening a connection may take; 5 s by default.
        connect_timeout(timeout: Duration) => options.connect_timeout = timeout;
        /// Closes a connection after this time without requests; 1 h by default, `None` is never.
        idle_timeout(timeout: impl Into<Option<Duration>>) => options.idle_timeout = timeout.into();
        /// Closes a connection at this age, once its requests have ended.
        max_connection_duration(age: Duration) => options.max_connection_duration = Some(age);
        /// Bounds the time of a request and its response, including bodies.
        max_stream_duration(time: Duration) => options.max_stream_duration = Some(time);
        /// Closes a connection after this number of requests.
        max_requests_per_connection(requests: u32) =>
            options.max_requests_per_connection = Some(requests);
        /// Uses HTTP/2, as gRPC needs; HTTP/1.1 by default.
        http2() => options.http_version = HttpVersion::Http2;
        /// Sets TCP keepalive; that of the system by default.
        tcp_keepalive(keepalive: TcpKeepalive) => options.tcp_keepalive = Some(keepalive);
        /// Encrypts connections: a [`Tls`](crate::Tls) or Envoy's settings.
        tls(tls: impl Into<UpstreamTls>) => options.tls = Some(tls.into());
        /// Reports the load of this cluster to the management server (`lrs_server`).
        report_load() => options.lrs = true;
        /// Closes the connections of a host when a health check finds it unhealthy.
        close_connections_on_host_health_failure() =>
            options.close_connections_on_host_health_failure = true;
        /// Replaces all settings of connections and health, including those set before.
        options(options: UpstreamOptions) => options = options;
        /// Sets the percentage of usable hosts below which health is ignored; 50 by default, 0 is
        /// never.
        panic_threshold(percent: f64) => parts.healthy_panic_threshold = Some(percent);
        /// Sets how zones are drawn: at random, or evenly spaced. Each policy has its default.
        locality_sampling(sampling: LocalitySampling) => parts.locality_sampling = Some(sampling);
        /// Lets requests ask hosts for load reports in this format, for servers that report only
        /// when asked, such as vLLM and Triton.
        endpoint_load_metrics_format(format: EndpointLoadMetricsFormat) =>
            parts.endpoint_load_metrics_format = Some(format);
        /// Leaves hosts out of all counts until their first health check.
        ignore_new_hosts_until_first_hc() =>
            parts.health_checking.ignore_new_hosts_until_first_hc = true;
        /// Divides hosts into subsets by metadata; see docs/subsets.md.
        subsets(subsets: LbSubsetConfig) => parts.lb_subset_config = Some(subsets);
        /// Sets the overprovisioning factor of priorities in percent; 140 by default.
        overprovisioning_factor(percent: u32) => assignment.overprovisioning_factor = Some(percent);
    }

    /// Limits retries to a percentage of active requests, with a minimum, instead of
    /// [`Self::max_retries`].
    #[must_use]
    pub fn retry_budget(mut self, percent: f64, min_retry_concurrency: u32) -> Self {
        let path = "circuit_breakers.retry_budget";
        match RetryBudget::try_new(Some(percent), Some(min_retry_concurrency)) {
            Ok(budget) => self.options.circuit_breakers.retry_budget = Some(budget),
            Err(error) => self.note(Err(error.under(path))),
        }
        self
    }

    /// Uses HTTP/2 with these settings.
    #[must_use]
    pub fn http2_options(mut self, http2: Http2Options) -> Self {
        self.options.http2 = http2;
        self.http2()
    }

    /// Sets the time between two lookups of DNS names; 5 s by default.
    #[must_use]
    pub fn dns_refresh_rate(mut self, rate: Duration) -> Self {
        self.dns.get_or_insert_default().refresh_rate = rate;
        self
    }

    /// Sets which addresses of DNS names are used; IPv6 if there is any by default, as in Envoy.
    #[must_use]
    pub fn dns_lookup_family(mut self, family: DnsLookupFamily) -> Self {
        self.dns.get_or_insert_default().lookup_family = family;
        self
    }

    /// Uses only the first address of the one DNS name of the cluster (Envoy's `LOGICAL_DNS`).
    #[must_use]
    pub fn logical_dns(mut self) -> Self {
        self.options.discovery = Discovery::LogicalDns(DnsOptions::default());
        self
    }

    /// Sets the name of the EDS assignment, if it is not the name of the cluster.
    #[must_use]
    pub fn eds_service_name(mut self, name: impl Into<String>) -> Self {
        match &mut self.options.discovery {
            Discovery::Eds { service_name, .. } => *service_name = Some(name.into()),
            _ => {
                let reason = "only a cluster of Cluster::eds has it";
                self.note(Err(FieldError::new(
                    "eds_cluster_config.service_name",
                    reason,
                )));
            }
        }
        self
    }

    /// Adds an active health check. A host is healthy if it passes all checks of the cluster.
    #[must_use]
    pub fn health_check(mut self, check: ActiveHealthCheck) -> Self {
        let index = self.options.health_checks.len();
        match check.checked() {
            Ok(check) => self.options.health_checks.push(check),
            Err(error) => self.note(Err(error.under(&format!("health_checks[{index}]")))),
        }
        self
    }

    /// Ejects hosts whose requests fail.
    #[must_use]
    pub fn outlier_detection(mut self, outliers: Outliers) -> Self {
        match outliers.checked() {
            Ok(checked) => self.options.outlier_detection = Some(checked),
            Err(error) => self.note(Err(error.under("outlier_detection"))),
        }
        self
    }

    /// Sets the backend metrics that load reports contain (gRFC A85).
    #[must_use]
    pub fn lrs_report_endpoint_metrics<S: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = S>,
    ) -> Self {
        self.parts.lrs_report_endpoint_metrics = names.into_iter().map(Into::into).collect();
        self
    }

    /// Checks all settings and returns them in Envoy's terms, without an
    /// [assignment](Self::assignment). [`ClientBuilder::build`](crate::ClientBuilder::build) and
    /// [`Client::set_cluster`](crate::Client::set_cluster) check the clusters that they are given.
    pub fn build(self) -> Result<UpstreamCluster, Error> {
        let name = self.parts.name.clone();
        self.checked().map_err(|error| {
            let error = error.under(&format!("clusters[{name}]"));
            Error::new(ErrorKind::Config, error.to_string())
        })
    }

    /// Returns the hosts alone, checked, for
    /// [`Client::update_endpoints`](crate::Client::update_endpoints). Fails for DNS names.
    pub fn build_endpoints(mut self) -> Result<ClusterEndpoints, Error> {
        if let Some(assigned) = self.assigned.take() {
            return self.build().map(|_| assigned);
        }
        let cluster = self.build()?;
        let invalid = |error: FieldError| Error::new(ErrorKind::Config, error.to_string());
        let listed = cluster.load_assignment.unwrap_or_default();
        match listed.names().first() {
            Some((path, name)) => {
                let reason = format!("{name:?} is not an IP address");
                Err(invalid(FieldError::new(path, reason)))
            }
            None => listed.resolve(|_| &[]).map_err(invalid),
        }
    }

    pub(crate) const fn asks_for_zones(&self) -> bool {
        self.zone_aware
    }

    /// Checks all settings, and says which hosts the cluster has.
    pub(crate) fn build_with_hosts(mut self) -> Result<(UpstreamCluster, Hosts), Error> {
        if self.assigned.is_some() && matches!(self.options.discovery, Discovery::Eds { .. }) {
            let reason = "endpoints of Cluster::eds come from the management server";
            self.note(Err(FieldError::new("assignment", reason)));
        }
        let (assigned, listed) = (self.assigned.take(), self.listed);
        let cluster = self.build()?;
        let hosts = match assigned {
            Some(endpoints) => Hosts::Assigned(endpoints),
            None if listed || cluster.eds_name().is_some() => Hosts::Listed,
            None => Hosts::Unchanged,
        };
        Ok((cluster, hosts))
    }

    fn checked(mut self) -> Result<UpstreamCluster, FieldError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        for (locality, weight) in &self.locality_weights {
            let entries = self.assignment.endpoints.iter_mut();
            let mut found = false;
            for entry in entries.filter(|entry| entry.parts.locality == *locality) {
                entry.parts.load_balancing_weight = Some(*weight);
                found = true;
            }
            if !found {
                let path = format!("locality_weight[{locality}]");
                return Err(FieldError::new(path, "the cluster has no hosts there"));
            }
        }
        self.parts.health_checking.active = !self.options.health_checks.is_empty();
        let is_name = |host: &str| host.parse::<IpAddr>().is_err();
        let mut hosts = self
            .assignment
            .endpoints
            .iter()
            .flat_map(|entry| &entry.endpoints);
        let named = hosts.any(|endpoint| is_name(&endpoint.host));
        match &mut self.options.discovery {
            Discovery::StrictDns(dns) | Discovery::LogicalDns(dns) => {
                *dns = self.dns.unwrap_or(*dns);
            }
            Discovery::Static if named => {
                self.options.discovery = Discovery::StrictDns(self.dns.unwrap_or_default());
            }
            Discovery::Static | Discovery::Eds { .. } => {}
        }
        let eds = matches!(self.options.discovery, Discovery::Eds { .. });
        let listed = !(eds && self.assignment.endpoints.is_empty());
        let config = ClusterConfig::try_new(self.parts)?;
        UpstreamCluster::try_new(config, self.options, listed.then_some(self.assignment))
    }

    fn entry(&mut self, locality: &Locality, priority: u32) -> &mut NamedLocality {
        let entries = &mut self.assignment.endpoints;
        let same = |entry: &NamedLocality| {
            entry.parts.locality == *locality && entry.parts.priority == priority
        };
        let index = entries.iter().position(same).unwrap_or_else(|| {
            let mut entry = NamedLocality::new(locality.clone());
            entry.parts.priority = priority;
            entries.push(entry);
            entries.len() - 1
        });
        &mut entries[index]
    }

    fn note(&mut self, outcome: Result<(), FieldError>) {
        if let (Err(error), None) = (outcome, &self.error) {
            self.error = Some(error);
        }
    }
}

/// A cluster in Envoy's format, to change it with the methods of [`Cluster`].
impl From<UpstreamCluster> for Cluster {
    fn from(cluster: UpstreamCluster) -> Self {
        let name = cluster.config.name().as_ref().to_owned();
        let listed = cluster.load_assignment.is_some();
        let mut assignment = cluster.load_assignment.unwrap_or_default();
        if assignment.cluster_name.is_empty() {
            assignment.cluster_name.clone_from(&name);
        }
        Self {
            parts: cluster.config.into_parts(),
            options: cluster.options,
            assignment,
            listed,
            ..Self::new(name)
        }
    }
}

/// The policies of a cluster, with default settings for everything else and without hosts.
impl From<ClusterConfig> for Cluster {
    fn from(config: ClusterConfig) -> Self {
        let name = config.name().as_ref().to_owned();
        Self {
            parts: config.into_parts(),
            ..Self::new(name)
        }
    }
}

/// Hosts of a cluster that the program adds or changes.
#[derive(Debug)]
pub(crate) enum Hosts {
    /// Those of its `load_assignment`, or of EDS.
    Listed,
    Assigned(ClusterEndpoints),
    /// The cluster names none: those that it has stay.
    Unchanged,
}

const fn unlimited() -> CircuitBreakers {
    CircuitBreakers {
        max_connections: u32::MAX,
        max_pending_requests: u32::MAX,
        max_requests: u32::MAX,
        max_retries: u32::MAX,
        retry_budget: None,
        _non_exhaustive: (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_of_a_file_keeps_its_settings_as_code() {
        let code = Cluster::new("orders")
            .zone("a", ["127.0.0.1:1"])
            .policy(Policy::maglev())
            .panic_threshold(7.0)
            .max_requests(3);
        let built = code.build().unwrap();
        let again = Cluster::from(built.clone()).build().unwrap();
        assert_eq!(again.config, built.config);
        assert_eq!(again.options, built.options);
        assert_eq!(again.load_assignment, built.load_assignment);
        let limited = Cluster::from(built.clone()).max_requests(4);
        let changed = limited.build().unwrap();
        assert_eq!(changed.config, built.config);
        assert_eq!(changed.options.circuit_breakers.max_requests, 4);
    }

    #[test]
    fn the_first_mistake_is_reported() {
        let code = Cluster::new("orders")
            .endpoints(["no address"])
            .eds_service_name("x");
        let error = code.build().unwrap_err().to_string();
        assert!(error.starts_with("clusters[orders].endpoints: "), "{error}");
        let weighted = Cluster::new("orders")
            .zone("a", ["127.0.0.1:1"])
            .locality_weight("a", 3);
        let listed = weighted.clone().build().unwrap().load_assignment;
        let weight = listed.unwrap().endpoints[0].parts.load_balancing_weight;
        assert_eq!(weight, Some(3));
        let error = weighted.locality_weight("b", 1).build().unwrap_err();
        let text = "clusters[orders].locality_weight[b]: the cluster has no hosts there";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn names_are_resolved_unless_endpoints_come_from_elsewhere() {
        let discovery = |cluster: Cluster| cluster.build().unwrap().options.discovery;
        let rate = Duration::from_secs(7);
        let named = || Cluster::new("orders").endpoints(["orders.example:1"]);
        let mut dns = DnsOptions::default();
        dns.refresh_rate = rate;
        assert_eq!(
            discovery(named()),
            Discovery::StrictDns(DnsOptions::default())
        );
        assert_eq!(
            discovery(named().dns_refresh_rate(rate)),
            Discovery::StrictDns(dns)
        );
        let logical = named().logical_dns().dns_refresh_rate(rate);
        assert_eq!(discovery(logical), Discovery::LogicalDns(dns));
        let listed = Cluster::new("orders").endpoints(["127.0.0.1:1"]);
        assert_eq!(discovery(listed), Discovery::Static);
        let named = Cluster::eds("orders").eds_service_name("zones/orders");
        let eds = named.build().unwrap();
        assert_eq!(eds.eds_name(), Some("zones/orders"));
        assert!(eds.load_assignment.is_none());
    }
}
