//! Clusters and routes from an xDS management server.
//!
//! `subscriber` runs the discovery stream and updates the cluster manager; `decode` decodes
//! resources; `dependencies` decides which listeners, routes, clusters and assignments to subscribe
//! to; `load_reporting` reports load. Without a reachable server, all resources stay in use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::bootstrap::Bootstrap;
use plimsoll_xds::driver::ConnectOptions;
use plimsoll_xds::node::{NodeInfo, PLIMSOLL_FEATURE};
use plimsoll_xds::upstream::UpstreamOptions;

use crate::error::{Error, ErrorKind};

pub(crate) mod decode;
pub(crate) mod dependencies;
mod environment;
pub(crate) mod load_reporting;
mod status;
pub(crate) mod subscriber;
mod transport;

pub use decode::{ListenerCompiler, RouteCompiler};
pub use status::{IgnoredFields, RouteStatus, XdsState, XdsStatus};

/// Default name of the fleet's assignment, as in the bootstrap of `plimsoll control`.
const LOCAL_CLUSTER: &str = "local_cluster";

/// First and longest reconnect backoff. Shorter than in most clients: measured demand goes stale,
/// so a restarted server needs the load reports of all clients soon.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

/// A management server, and the resources to subscribe to; for [`ClientBuilder::xds`].
///
/// ```
/// use plimsoll_client::{Variant, XdsOptions};
///
/// let bootstrap = r#"{
///     "xds_servers": [{"server_uri": "10.0.0.1:18000", "channel_creds": [{"type": "insecure"}]}],
///     "node": {"id": "checkout-1", "cluster": "checkout", "locality": {"zone": "zone-a"}}
/// }"#;
/// let options = XdsOptions::from_bootstrap(bootstrap)?.variant(Variant::Delta);
/// assert_eq!(options.locality().zone(), "zone-a");
/// # Ok::<(), plimsoll_client::Error>(())
/// ```
///
/// [`ClientBuilder::xds`]: crate::ClientBuilder::xds
#[derive(Clone, Debug)]
pub struct XdsOptions {
    pub(crate) server: ConnectOptions,
    /// Best first: the next one is used while those before it cannot be reached and a resource is
    /// missing (gRFC A71).
    pub(crate) fallback: Vec<ConnectOptions>,
    pub(crate) node: Node,
    pub(crate) variant: Variant,
    pub(crate) all_clusters: bool,
    pub(crate) clusters: Vec<Arc<str>>,
    pub(crate) local_cluster_name: Arc<str>,
    pub(crate) load_reporting: LoadReporting,
    pub(crate) listener_template: String,
    pub(crate) compile_routes: Option<RouteCompiler>,
    pub(crate) compile_listeners: Option<ListenerCompiler>,
}

/// Subscriptions by name, for programs with their own listeners, such as a proxy; for
/// [`Client::subscribe`](crate::Client::subscribe).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscriptions {
    pub routes: BTreeSet<Arc<str>>,
    /// Clusters that the program adds itself, with the name of the assignment if their endpoints
    /// come from EDS. Not subscribed to (CDS); clusters of the server with these names are ignored.
    pub own_clusters: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// Overrides [`XdsOptions::local_cluster_name`]; empty if the program sets its fleet itself.
    pub local_cluster_name: Option<Arc<str>>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

fn connect_options(uri: impl Into<String>) -> ConnectOptions {
    ConnectOptions {
        backoff: BACKOFF,
        ..ConnectOptions::new(uri)
    }
}

/// Whether load is reported to the management server (LRS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadReporting {
    /// Starts with the first cluster that has `lrs_server`.
    #[default]
    PerCluster,
    /// Starts with the client, for all clusters that the server's LRS response selects.
    Always,
    Never,
}

impl XdsOptions {
    /// Creates options for a server at `uri` (`http://host:port`), without subscriptions.
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
            compile_routes: None,
            compile_listeners: None,
        }
    }

    setters! {
        /// Sets the node that names this process to the server: id, fleet (`cluster`), locality.
        node(node: Node) => node = node;
        /// Sets how resources are sent: all of a type (`Sotw`, the default), or what changes
        /// (`Delta`).
        variant(variant: Variant) => variant = variant;
        /// Subscribes to all clusters (wildcard), not only to those that routes name.
        all_clusters(all: bool) => all_clusters = all;
        /// Subscribes to these clusters, for [`Client::service`](crate::Client::service).
        clusters(names: impl IntoIterator<Item = impl Into<Arc<str>>>) =>
            clusters = names.into_iter().map(Into::into).collect();
        /// Sets the name of the assignment of the fleet, the processes like this one;
        /// `local_cluster` by default. It is subscribed to while any cluster uses it, for example
        /// with zone-aware routing or locality weights.
        local_cluster_name(name: impl Into<Arc<str>>) => local_cluster_name = name.into();
        /// Sets whether load is reported to the server (LRS).
        load_reporting(reporting: LoadReporting) => load_reporting = reporting;
        /// Sets the template of listener names; `%s`, the default, is replaced by the target.
        listener_template(template: impl Into<String>) => listener_template = template.into();
        /// Sets how long a connection attempt to the server may take; 5 s by default.
        connect_timeout(timeout: Duration) => server.connect_timeout = timeout;
        /// Sets the largest message that is accepted from the server; 64 MiB by default.
        max_message_size(bytes: usize) => server.max_message_size = bytes;
    }

    /// Sets the first and the longest delay between two connection attempts; 0.5 s and 3 s by
    /// default.
    #[must_use]
    pub const fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.server.backoff = (first, longest);
        self
    }

    /// Adds the server of other options, after those before it: it is used while they cannot be
    /// reached and a resource is missing (gRFC A71).
    #[must_use]
    pub fn fallback(mut self, other: Self) -> Self {
        self.fallback.push(other.server);
        self
    }

    /// Compiles routes before they are accepted, and rejects what the program does not support.
    /// Without it, unsupported parts of routes are ignored, as in gRPC.
    #[cfg(feature = "unstable-proxy")]
    #[must_use]
    pub fn compile_routes(mut self, compiler: RouteCompiler) -> Self {
        self.compile_routes = Some(compiler);
        self
    }

    /// Subscribes to all listeners (LDS, wildcard) and compiles them before they are accepted. For
    /// programs that accept connections; [`Client::target`](crate::Client::target) works without it
    /// only.
    #[cfg(feature = "unstable-proxy")]
    #[must_use]
    pub fn compile_listeners(mut self, compiler: ListenerCompiler) -> Self {
        self.compile_listeners = Some(compiler);
        self
    }

    /// Connects to the server with the TLS, connect timeout and keepalive settings of `options`.
    /// Certificates are read again for every connection.
    #[must_use]
    pub fn with_transport(mut self, options: UpstreamOptions) -> Self {
        transport::set_transport(&mut self.server, options);
        self
    }

    /// Parses a gRPC bootstrap in JSON (gRFC A27, A65).
    pub fn from_bootstrap(text: &str) -> Result<Self, Error> {
        let config = |message: String| Error::new(ErrorKind::Config, message);
        let bootstrap = Bootstrap::parse(text).map_err(|error| config(error.to_string()))?;
        let mut servers = bootstrap
            .xds_servers
            .iter()
            .map(transport::server)
            .collect::<Result<Vec<_>, _>>()?
            .into_iter();
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

    /// Locality of this process, from its node.
    pub const fn locality(&self) -> &Locality {
        &self.node.locality
    }

    /// Node that is sent to the server, with the client feature for measured demand.
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
    fn a_grpc_bootstrap_is_parsed() {
        let options = XdsOptions::from_bootstrap(BOOTSTRAP).unwrap();
        assert_eq!(options.server.uri, "http://127.0.0.1:18000");
        assert!(options.server.connector.is_none());
        assert_eq!(&*options.node.id, "n");
        assert_eq!(options.locality().zone(), "a");
        assert_eq!(options.listener_template, "%s");
    }

    #[test]
    fn further_servers_are_fallbacks() {
        let second = r#"[{"server_uri": "b:2", "channel_creds": [{"type": "insecure"}]},"#;
        let options = XdsOptions::from_bootstrap(&BOOTSTRAP.replacen('[', second, 1)).unwrap();
        assert_eq!(options.server.uri, "http://b:2");
        let fallback: Vec<&str> = options.fallback.iter().map(|server| &*server.uri).collect();
        assert_eq!(fallback, ["http://127.0.0.1:18000"]);
        assert_eq!(options.fallback[0].backoff, BACKOFF);
    }

    #[test]
    fn errors_name_the_field_of_the_bootstrap() {
        let error = XdsOptions::from_bootstrap("{}").unwrap_err();
        assert!(error.to_string().contains("xds_servers"), "{error}");
    }
}
