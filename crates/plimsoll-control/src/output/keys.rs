//! Keys of views and of receivers of demand.

use std::sync::Arc;

use plimsoll_core::model::locality::Locality;
use plimsoll_xds::node::NodeInfo;

use crate::delivery::NodeClass;
use crate::fleet::StreamKind;

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
