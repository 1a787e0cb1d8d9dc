//! Keys of views and events of the state.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{Plan, PlannerEvent};
use plimsoll_xds::node::NodeInfo;

use crate::delivery::NodeClass;
use crate::fleet::{OpenRefusal, StreamKind};

/// Identifies a view: receivers with the same key see the same resources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ViewKey {
    /// Fleet of the receivers (`node.cluster`).
    pub fleet: Arc<str>,
    pub class: NodeClass,
    /// Locality of the receivers (`node.locality`).
    pub locality: Locality,
    /// Whether the receivers had an assignment before this control plane started.
    pub returning: bool,
}

impl ViewKey {
    /// Returns the key of a node's view.
    pub fn of(node: &NodeInfo, returning: bool) -> Self {
        Self {
            fleet: Arc::clone(&node.node.cluster),
            class: NodeClass::of(node),
            locality: node.node.locality.clone(),
            returning,
        }
    }
}

/// Identifies receivers of demand with LRS responses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrafficKey {
    pub fleet: Arc<str>,
    /// `EnvoyModule` for modules inside Envoys, `Plimsoll` for all other nodes; of these, only
    /// Plimsoll data planes are sent demand.
    pub class: NodeClass,
}

impl TrafficKey {
    /// Fractions are made for each of these classes.
    pub const CLASSES: [NodeClass; 2] = [NodeClass::Plimsoll, NodeClass::EnvoyModule];

    /// Returns the keys of all receivers of a fleet.
    pub(crate) fn all(fleet: &Arc<str>) -> [Self; 2] {
        Self::CLASSES.map(|class| Self {
            fleet: Arc::clone(fleet),
            class,
        })
    }

    /// Returns the key of a load reporting stream of a node.
    pub fn of(node: &NodeInfo) -> Self {
        let class = match StreamKind::of_lrs(node) {
            StreamKind::Module => NodeClass::EnvoyModule,
            StreamKind::Lrs | StreamKind::Ads => NodeClass::Plimsoll,
        };
        Self {
            fleet: Arc::clone(&node.node.cluster),
            class,
        }
    }
}

/// An event for logs and counters.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlEvent {
    Planner(PlannerEvent),
    /// There is another plan. It is not delivered while demand is still incomplete.
    Planned(Arc<Plan>),
    ConfigApplied {
        services: usize,
    },
    /// The heartbeat is shorter than configured, because a `staleness_threshold` requires it.
    HeartbeatShortened {
        /// Service with the shortest staleness threshold.
        cluster: Arc<str>,
        staleness_threshold: Duration,
        /// Configured or default value of `demand.heartbeat`.
        written: Duration,
        heartbeat: Duration,
    },
    FleetChanged {
        fleet: Arc<str>,
        nodes: usize,
    },
    /// A node is in a locality that neither a service nor `fleets.zones` has, or in none: its
    /// demand does not count.
    UnknownLocality {
        fleet: Arc<str>,
        node: Arc<str>,
        locality: Locality,
        /// The known locality that was probably meant.
        nearest: Option<Locality>,
    },
    /// More streams of a kind are open for a node than one proxy opens: two proxies have its id.
    SharedId {
        fleet: Arc<str>,
        node: Arc<str>,
        streams: u32,
    },
    /// A stream of a node was refused.
    StreamRefused {
        fleet: Arc<str>,
        node: Arc<str>,
        refusal: OpenRefusal,
    },
    /// A node reports to this replica of the control plane and to another at the same time.
    DuplicateNode {
        fleet: Arc<str>,
        node: Arc<str>,
        replica: Arc<str>,
    },
    /// The store that replicas share is connected, and has this many nodes.
    StoreConnected {
        nodes: usize,
    },
    /// The store that replicas share cannot be reached.
    StoreLost {
        reason: String,
    },
}
