//! Tests of the owner of encoded resources, without the other owners.

use plimsoll_core::time::Instant;
use plimsoll_xds::ads::CLUSTER;

use super::*;
use crate::delivery::NodeClass;
use crate::demand::Demand;
use crate::fleet::{Peer, StreamKind};
use crate::state::tests::driver::{config, node};

/// Outputs for the one node of a fleet.
struct Rig {
    config: Arc<ControlConfig>,
    relayed: RelayedClusters,
    fleets: Fleets,
    demand: Demand,
    outputs: Outputs,
    key: ViewKey,
}

impl Rig {
    fn new() -> Self {
        let config = config("");
        let mut fleets = Fleets::default();
        let node = node(NodeClass::Envoy, "1", "a");
        let now = Instant::ORIGIN;
        let opened = fleets.open(&node, StreamKind::Ads, &Peer::default(), now);
        assert!(opened.is_ok());
        Self {
            outputs: Outputs::new(&config),
            demand: Demand::new(&config, now),
            relayed: RelayedClusters::default(),
            key: ViewKey::of(&node, false),
            fleets,
            config,
        }
    }

    fn refresh(&mut self) -> Vec<Arc<str>> {
        let inputs = inputs(&self.config, &self.relayed, &self.fleets, &self.demand);
        self.outputs.refresh(&inputs)
    }

    fn add(&mut self) {
        let inputs = inputs(&self.config, &self.relayed, &self.fleets, &self.demand);
        self.outputs.add(&self.key, &inputs);
    }

    fn polled(&mut self) -> usize {
        std::iter::from_fn(|| self.outputs.poll_output()).count()
    }

    /// Passes on an edit of these services; returns whether everything is built again.
    fn edit(&mut self, service: &str, names: &[&str], settings: bool) -> bool {
        self.config = config(service);
        let change = Change {
            services: ChangedServices {
                names: names.iter().map(|name| Arc::from(*name)).collect(),
                settings,
            },
            is_all: false,
            is_edit: true,
            has_new_zones: false,
            is_other_relay: false,
        };
        self.outputs
            .handle_change(&change, &self.config, &self.fleets)
    }
}

fn inputs<'a>(
    config: &'a Arc<ControlConfig>,
    relayed: &'a RelayedClusters,
    fleets: &'a Fleets,
    demand: &'a Demand,
) -> Inputs<'a> {
    Inputs {
        config,
        relayed,
        fleets,
        plans: demand.plans(),
        gate: demand.gate(),
    }
}

#[test]
fn an_output_is_published_when_it_changes_and_only_then() {
    let mut rig = Rig::new();
    rig.add();
    rig.refresh();
    assert_eq!(rig.polled(), 1, "the first one replaces an empty one");
    let first = rig.outputs.get(&rig.key).unwrap().clone();
    assert!(first.complete().unwrap().get(CLUSTER).is_some());
    rig.outputs.handle_fleet("gateway".into());
    assert!(!rig.outputs.is_current("gateway"));
    rig.refresh();
    assert!(rig.outputs.is_current("gateway"));
    assert_eq!(rig.polled(), 0, "it has the same content");
    assert!(rig.outputs.get(&rig.key).unwrap().is_same(&first));
}

#[test]
fn another_demand_of_fleets_builds_everything_again() {
    let mut rig = Rig::new();
    rig.add();
    rig.refresh();
    assert!(!rig.edit("", &["orders"], false), "endpoints");
    assert!(rig.edit("mode: SHADOW", &["orders"], true));
    assert!(rig.outputs.stale_fleets().contains("gateway"));
}

#[test]
fn a_fleet_without_nodes_and_outputs_is_gone() {
    let mut rig = Rig::new();
    rig.add();
    assert!(rig.refresh().is_empty());
    rig.fleets = Fleets::default();
    rig.outputs.handle_fleet("gateway".into());
    assert!(rig.refresh().is_empty(), "somebody still watches");
    rig.outputs.handle_unused(&rig.key);
    rig.outputs.handle_fleet("gateway".into());
    assert_eq!(rig.refresh(), ["gateway".into()]);
    assert!(rig.outputs.fleet_plan("gateway").is_none());
}
