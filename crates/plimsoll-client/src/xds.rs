//! Clusters and routes from a management server: what is asked for, and what becomes of answers.
//!
//! [`XdsOptions`] say which server and what of it. `dependencies` decides which resources are
//! needed (listener, routes, clusters, assignments), `subscriber` runs the discovery stream and
//! tells the cluster manager, `load_reporting` sends load reports. Losing the server changes
//! nothing but the age of the data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::bootstrap::Bootstrap;
use plimsoll_xds::driver::ConnectOptions;
use plimsoll_xds::node::{NodeInfo, PLIMSOLL_FEATURE};
use plimsoll_xds::route::RouteConfiguration;
use plimsoll_xds::upstream::UpstreamOptions;
use plimsoll_xds::wire;

use crate::error::{Error, ErrorKind};

pub(crate) mod dependencies;
pub(crate) mod load_reporting;
mod status;
pub(crate) mod subscriber;
mod transport;

pub use status::{IgnoredFields, RouteStatus, XdsState, XdsStatus};

/// Name under which the own fleet is asked for, unless options say otherwise: the one that Envoy's
/// examples and the bootstrap of the control plane use.
const LOCAL_CLUSTER: &str = "local_cluster";

/// Bounds of the pause between two attempts to reach the server. Shorter than those of most
/// clients: demand that is no longer told goes stale, and the server must hear of everybody's soon
/// after its return.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

/// A management server and what is wanted of it.
#[derive(Clone, Debug)]
pub struct XdsOptions {
    /// Where it is.
    pub server: ConnectOptions,
    /// Others, best first: the next one is used while those before it cannot be reached and
    /// something is missing (gRFC A71).
    pub fallback: Vec<ConnectOptions>,
    /// Who we are.
    pub node: Node,
    /// State of the world or incremental.
    pub variant: Variant,
    /// Whether every cluster of the server is wanted, not only those that routes name.
    pub all_clusters: bool,
    /// Clusters that are wanted by name.
    pub clusters: Vec<Arc<str>>,
    /// Name of the assignment that holds the processes like this one: the fleet. Asked for while a
    /// cluster can use it, whether the server or the program added that: one that is routed by
    /// zone, by locality weights, or by `CONVERGENT` with measured demand.
    pub local_cluster_name: Arc<str>,
    /// When load is reported.
    pub load_reporting: LoadReporting,
    /// Name of the listener of a target; `%s` stands for the target.
    pub listener_template: String,
    /// Judges routes before they are accepted; without it, as gRPC does: what is not known is
    /// ignored.
    pub route_check: Option<RouteCheck>,
}

/// What is followed by name, for programs with listeners of their own: see
/// [`Client::follow`](crate::Client::follow).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Following {
    /// Route configurations.
    pub routes: BTreeSet<Arc<str>>,
    /// Clusters that the program adds itself, with the name of the assignment if their endpoints
    /// come by EDS. The server is not asked for them, and what it says about them does not count.
    pub own_clusters: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// Name of the fleet's assignment instead of [`XdsOptions::local_cluster_name`]; an empty one
    /// if the program knows its fleet already.
    pub local_cluster_name: Option<Arc<str>>,
}

/// Says whether a program can do what routes ask for. What it refuses is refused to the server,
/// with the path of the field, and the routes before it stay.
#[derive(Clone)]
pub struct RouteCheck(Arc<Judge>);

type Judge = dyn Fn(RouteConfiguration) -> Result<(), FieldError> + Send + Sync;

impl RouteCheck {
    /// Asks `judge`.
    pub fn new(
        judge: impl Fn(RouteConfiguration) -> Result<(), FieldError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(judge))
    }

    fn check(&self, body: &[u8]) -> Result<(), String> {
        let routes = wire::decode_route_configuration(body).map_err(|error| error.to_string())?;
        (self.0)(routes).map_err(|error| error.to_string())
    }
}

impl fmt::Debug for RouteCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouteCheck")
    }
}

/// The defaults, for a server at `uri`.
fn connect_options(uri: impl Into<String>) -> ConnectOptions {
    ConnectOptions {
        backoff: BACKOFF,
        ..ConnectOptions::new(uri)
    }
}

/// When load is reported to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadReporting {
    /// From the first cluster on that says so (`lrs_server`).
    #[default]
    AsClustersSay,
    /// From the beginning, of all clusters that the server asks for.
    Always,
    /// Never.
    Never,
}

impl XdsOptions {
    /// A server at `uri` (`http://host:port`), asked by `node`, for nothing yet.
    pub fn new(uri: impl Into<String>, node: Node) -> Self {
        Self {
            server: connect_options(uri),
            fallback: Vec::new(),
            node,
            variant: Variant::Sotw,
            all_clusters: false,
            clusters: Vec::new(),
            local_cluster_name: LOCAL_CLUSTER.into(),
            load_reporting: LoadReporting::default(),
            listener_template: "%s".to_owned(),
            route_check: None,
        }
    }

    /// Connects to the server as to a host of a cluster with these options: with its TLS, connect
    /// timeout and keep-alive. Certificates are read anew for every connection.
    #[must_use]
    pub fn with_transport(mut self, options: UpstreamOptions) -> Self {
        transport::secure(&mut self.server, options);
        self
    }

    /// What a bootstrap of gRPC says (gRFC A27, A65).
    pub fn from_bootstrap(text: &str) -> Result<Self, Error> {
        let config = |message: String| Error::new(ErrorKind::Config, message);
        let bootstrap = Bootstrap::parse(text).map_err(|error| config(error.to_string()))?;
        let servers = bootstrap.xds_servers.iter().map(transport::server);
        let mut servers = servers.collect::<Result<Vec<_>, _>>()?.into_iter();
        let first = servers
            .next()
            .ok_or_else(|| config("xds_servers: must not be empty".to_owned()))?;
        let mut options = Self {
            server: first,
            fallback: servers.collect(),
            ..Self::new("", bootstrap.node.clone())
        };
        options
            .listener_template
            .clone_from(&bootstrap.client_default_listener_resource_name_template);
        Ok(options)
    }

    /// Where we are.
    pub const fn locality(&self) -> &Locality {
        &self.node.locality
    }

    /// What the server is told about us: among others that measured demand is understood.
    pub(crate) fn node_info(&self) -> NodeInfo {
        NodeInfo {
            node: self.node.clone(),
            user_agent_name: "plimsoll".to_owned(),
            user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            client_features: vec![PLIMSOLL_FEATURE.to_owned()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTSTRAP: &str = r#"{
        "xds_servers": [{"server_uri": "127.0.0.1:18000", "channel_creds": [{"type": "insecure"}]}],
        "node": {"id": "n", "cluster": "fleet", "locality": {"zone": "a"}}
    }"#;

    #[test]
    fn the_bootstrap_of_grpc_is_understood() {
        let options = XdsOptions::from_bootstrap(BOOTSTRAP).unwrap();
        assert_eq!(options.server.uri, "http://127.0.0.1:18000");
        assert!(options.server.connector.is_none());
        assert_eq!(&*options.node.id, "n");
        assert_eq!(options.locality().zone(), "a");
        assert_eq!(options.listener_template, "%s");
    }

    #[test]
    fn further_servers_are_for_when_the_first_is_lost() {
        let second = r#"[{"server_uri": "b:2", "channel_creds": [{"type": "insecure"}]},"#;
        let options = XdsOptions::from_bootstrap(&BOOTSTRAP.replacen('[', second, 1)).unwrap();
        assert_eq!(options.server.uri, "http://b:2");
        let fallback: Vec<&str> = options.fallback.iter().map(|server| &*server.uri).collect();
        assert_eq!(fallback, ["http://127.0.0.1:18000"]);
        assert_eq!(options.fallback[0].backoff, BACKOFF);
    }

    #[test]
    fn faults_of_a_bootstrap_are_named() {
        let error = XdsOptions::from_bootstrap("{}").unwrap_err();
        assert!(error.to_string().contains("xds_servers"), "{error}");
    }
}
