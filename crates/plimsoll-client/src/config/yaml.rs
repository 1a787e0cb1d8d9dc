//! Clusters in Envoy's YAML. The only part of the builders that needs a YAML parser.

use plimsoll_xds::yaml::parse_upstream_cluster;

use super::Cluster;
use crate::error::{Error, ErrorKind};

impl Cluster {
    /// Reads a cluster in Envoy's format: the text is one entry of Envoy's `clusters` list, in YAML
    /// or JSON. Errors name the field, line and column. The methods of [`Cluster`] change what was
    /// read.
    ///
    /// ```
    /// use plimsoll_client::Cluster;
    ///
    /// let cluster = Cluster::from_yaml("
    /// name: orders
    /// type: STRICT_DNS
    /// lb_policy: LEAST_REQUEST
    /// load_assignment:
    ///   cluster_name: orders
    ///   endpoints:
    ///   - lb_endpoints:
    ///     - endpoint: {address: {socket_address: {address: orders.svc, port_value: 80}}}
    /// ")?;
    /// let cluster = cluster.max_requests(5_000).build()?;
    /// assert_eq!(cluster.options.circuit_breakers.max_requests, 5_000);
    ///
    /// let error = Cluster::from_yaml("name: orders\nlb_polcy: RANDOM").unwrap_err();
    /// assert!(error.to_string().starts_with("lb_polcy: "));
    /// # Ok::<(), plimsoll_client::Error>(())
    /// ```
    pub fn from_yaml(text: &str) -> Result<Self, Error> {
        let parsed = parse_upstream_cluster(text);
        let invalid = |error: plimsoll_xds::yaml::ConfigError| {
            Error::new(ErrorKind::Config, error.to_string())
        };
        Ok(Self::from(parsed.map_err(invalid)?))
    }
}
