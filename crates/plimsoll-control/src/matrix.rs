//! What data planes are sent for a service, for every policy, delivery, mode and source of the
//! settings, read from the encoded resources.
//!
//! `docs/reference/deliveries.md` is made of these [`Cell`]s. A test compares each with what
//! explanations, their `changes`, the admin API and conditions say. `policies` has the rows,
//! `fleet` drives a [`State`] of the worked example, `decode` reads the bytes as a receiver does.
//! The test suite compares the cells with what real streams receive.

mod decode;
mod fleet;
mod policies;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::time::Instant;
use serde_json::{Map, Value, json};

use crate::config::{ConfigFile, ControlConfig, Delivery, Service};
use crate::delivery::{NodeClass, NotSteeredReason, Steering, not_steered};
use crate::state::State;

pub use decode::Received;
pub use fleet::{LOCAL_CLUSTER, ZONES, node};
pub use policies::policies;

/// Name of the service in every cell.
pub(crate) const SERVICE: &str = "orders";

/// A load-balancing policy: a row of the matrix.
#[derive(Clone, Debug)]
pub struct Policy {
    pub title: &'static str,
    /// Fields of the cluster in a file, without its name.
    cluster: Map<String, Value>,
    /// Locality weights that are written on the endpoints; not in Kubernetes, which has none.
    weights: Option<[u32; 3]>,
}

/// Where the settings of the service are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    File,
    /// A ZoneRoutingPolicy that a Service of Kubernetes has.
    Kubernetes,
    /// The policy is that of the relayed server, the rest is in the relay's file.
    Relay,
    /// All is in the relay's file.
    RelayFile,
}

impl Source {
    /// Each of which a test compares with the encoded resources.
    pub const ALL: [Self; 4] = [Self::File, Self::Kubernetes, Self::Relay, Self::RelayFile];
}

/// How much demand may steer.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub name: &'static str,
    /// The field `mode` of a file; `None` for the default, ENFORCE, which contradicts no policy.
    written: Option<&'static str>,
    /// The field `ramp`, which is not written if it is 100.
    ramp: u32,
}

impl Mode {
    pub const ENFORCE: Self = Self::enforced("ENFORCE", 100);
    pub const SHADOW: Self = Self::without_demand("SHADOW");
    pub const OFF: Self = Self::without_demand("OFF");
    pub const RAMP: Self = Self::enforced("ramp 37", 37);
    #[cfg(test)]
    pub(crate) const FIRST_PERCENT: Self = Self::enforced("ramp 1", 1);

    const fn enforced(name: &'static str, ramp: u32) -> Self {
        Self {
            name,
            written: None,
            ramp,
        }
    }

    /// Whether the mode is ENFORCE.
    pub const fn is_enforced(self) -> bool {
        self.written.is_none()
    }

    const fn without_demand(name: &'static str) -> Self {
        Self {
            name,
            written: Some(name),
            ramp: 100,
        }
    }
}

/// Modes of the matrix; ramps are further ones.
pub const MODES: [Mode; 4] = [Mode::ENFORCE, Mode::SHADOW, Mode::OFF, Mode::RAMP];

/// By what proxies of a class choose the zone of a request, as their resources say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Measured demand, in these forms at the same time.
    Demand(BTreeSet<Delivery>),
    /// Load reports of hosts, with measured demand as feed-forward in these forms.
    FeedForward(BTreeSet<Delivery>),
    /// Load reports of hosts alone.
    Utilization,
    ObservedLoad,
    /// Zone-aware routing by numbers of healthy hosts.
    HostCounts,
    /// Zone-aware routing by weights of hosts, in the fleet and upstream.
    HostWeights,
    /// Locality weights that are the same for all zones of proxies: written, or numbers of hosts.
    SameWeights,
    /// Consistent hashing: the request decides.
    Request,
    /// Zones do not matter.
    AllHosts,
}

impl Routing {
    /// Whether measured demand has a part in it.
    pub const fn uses_demand(&self) -> bool {
        matches!(self, Self::Demand(_) | Self::FeedForward(_))
    }
}

/// What proxies of one class are sent.
#[derive(Clone, Debug)]
pub struct Cell {
    pub class: NodeClass,
    pub routing: Routing,
    /// How the service is steered, as the admin API says.
    pub said: Steering,
    /// Why measured demand does not steer, as the admin API says.
    pub reason: Option<NotSteeredReason>,
    /// Share of the requests of zone a by upstream zone.
    pub split: BTreeMap<String, f64>,
    /// The cluster as receivers interpret it.
    pub config: ClusterConfig,
}

/// A control plane with one service and, for each class, a fleet of a proxy per zone that has
/// reported its demand.
#[derive(Debug)]
pub struct Setup {
    pub(crate) state: State,
    pub(crate) now: Instant,
    /// Classes of the proxies that are connected.
    classes: Vec<NodeClass>,
    service: Option<Arc<Service>>,
    /// The service as the relayed server has it.
    theirs: Option<Arc<Service>>,
}

/// The settings are refused at load; a message with the reason.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    pub reason: String,
    /// Why demand cannot steer the service at all, if that is the reason.
    pub not_steered: Option<NotSteeredReason>,
}

impl Setup {
    /// Starts a control plane with these settings, and lets proxies of all classes report.
    pub fn new(
        policy: &Policy,
        delivery: Delivery,
        mode: Mode,
        source: Source,
    ) -> Result<Self, Refused> {
        Self::with_nodes_of(&NodeClass::ALL, policy, delivery, mode, source)
    }

    /// Like [`Setup::new`], with proxies of these classes alone.
    pub fn with_nodes_of(
        classes: &[NodeClass],
        policy: &Policy,
        delivery: Delivery,
        mode: Mode,
        source: Source,
    ) -> Result<Self, Refused> {
        let written = Written {
            policy,
            delivery,
            mode,
        };
        let refused = |reason: String| written.refused(reason);
        let mut setup = match source {
            Source::File => {
                let service = written.service(true, mode.written);
                Self::with(&json!({ "services": [service] }))
            }
            Source::Kubernetes => written.kubernetes(),
            Source::Relay | Source::RelayFile => written.relayed(source),
        }
        .map_err(refused)?;
        setup.classes = classes.to_vec();
        setup.drive().map_err(refused)?;
        Ok(setup)
    }

    /// Starts a control plane with a file that has another service, too, which demand steers.
    pub fn beside_a_steered_service(policy: &Policy, mode: Mode) -> Result<Self, Refused> {
        let written = Written {
            policy,
            delivery: Delivery::Auto,
            mode,
        };
        let other = json!({ "cluster": { "name": "other" }, "endpoints": fleet::endpoints(None) });
        let services = [written.service(true, mode.written), other];
        let refused = |reason: String| written.refused(reason);
        let mut setup = Self::with(&json!({ "services": services })).map_err(refused)?;
        setup.drive().map_err(refused)?;
        Ok(setup)
    }

    /// Reads what nodes of a class in zone a are sent.
    pub fn cell(&self, class: NodeClass) -> Result<Cell, String> {
        let decoded = self.decode(class)?;
        let service = self.service.as_ref().ok_or("no service")?;
        let said = self
            .state
            .steering(service, class, Some(fleet::name(class)));
        Ok(Cell {
            class,
            routing: decoded.routing(class),
            said,
            reason: match said {
                Steering::AsConfigured(reason) => Some(reason),
                _ => None,
            },
            split: decoded.split(),
            config: decoded.config,
        })
    }

    fn with(file: &Value) -> Result<Self, String> {
        let config = Arc::new(parse(file)?);
        Ok(Self {
            state: State::new(config, Instant::ORIGIN),
            now: Instant::ORIGIN,
            classes: NodeClass::ALL.to_vec(),
            service: None,
            theirs: None,
        })
    }
}

/// Returns the service of a cell as in a file, under another name.
pub fn service_in_file(name: &str, policy: &Policy, delivery: Delivery, mode: Mode) -> Value {
    let written = Written {
        policy,
        delivery,
        mode,
    };
    let mut service = written.service(true, mode.written);
    service["cluster"]["name"] = json!(name);
    service
}

/// Settings of the service in a cell.
struct Written<'a> {
    policy: &'a Policy,
    delivery: Delivery,
    mode: Mode,
}

impl Written<'_> {
    /// Returns the service as in a file.
    fn service(&self, has_policy: bool, mode: Option<&str>) -> Value {
        let mut cluster = Map::new();
        if has_policy {
            cluster.clone_from(&self.policy.cluster);
        }
        cluster.insert("name".to_owned(), json!(SERVICE));
        let mut service = json!({
            "cluster": cluster,
            "delivery": crate::delivery::proto_name(self.delivery),
        });
        if let Some(mode) = mode {
            service["mode"] = json!(mode);
        }
        if self.mode.ramp < 100 {
            service["ramp"] = json!(self.mode.ramp);
        }
        if self.delivery == Delivery::Auto {
            // Nothing asks for demand.
            drop(
                service
                    .as_object_mut()
                    .and_then(|all| all.remove("delivery")),
            );
        }
        service["endpoints"] = fleet::endpoints(self.policy.weights);
        service
    }

    fn refused(&self, reason: String) -> Refused {
        // Mode OFF takes everything.
        let file = json!({ "services": [self.service(true, Some("OFF"))] });
        let accepted = parse(&file).ok();
        let service = accepted.and_then(|config| config.services.get(SERVICE).cloned());
        let classes = NodeClass::ALL.into_iter();
        let with_subsets = classes.filter(|class| *class != NodeClass::Grpc);
        Refused {
            reason,
            not_steered: service.and_then(|service| not_steered(&service, with_subsets)),
        }
    }
}

/// Parses a control plane's file.
fn parse(file: &Value) -> Result<ControlConfig, String> {
    let mut file = file.clone();
    file["load_reporting"] = json!({ "interval": "1s" });
    file["demand"] = json!({ "smoothing_time_constant": "0.001s" });
    let file = ConfigFile {
        name: "matrix".to_owned(),
        text: file.to_string(),
    };
    ControlConfig::parse(&file, &[]).map_err(|error| error.error.reason().to_owned())
}
