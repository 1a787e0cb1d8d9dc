//! Property: what replicas count depends neither on who hears a node nor on the order of events,
//! and they deliver the same.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::set::Set;
use crate::delivery::NodeClass;
use crate::state::tests::driver::node;

const REPLICAS: usize = 3;
const NODES: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    Move { node: usize, to: usize },
    Lose { replica: usize },
    Find { replica: usize },
    Restart { replica: usize, reads_first: bool },
    Wait { tenths: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..NODES, 0..REPLICAS).prop_map(|(node, to)| Step::Move { node, to }),
        1 => (0..REPLICAS).prop_map(|replica| Step::Lose { replica }),
        2 => (0..REPLICAS).prop_map(|replica| Step::Find { replica }),
        1 => (0..REPLICAS, any::<bool>())
            .prop_map(|(replica, reads_first)| Step::Restart { replica, reads_first }),
        2 => (1..30_u64).prop_map(|tenths| Step::Wait { tenths }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_replica_counts_every_node_once(
        steps in prop::collection::vec(step(), 0..20),
        // None is far above the others: such a node would count with a part of its rate only.
        rates in prop::array::uniform5(100..1000_u64),
    ) {
        let zones = ["a", "b", "c"];
        let nodes: Vec<_> = (0..NODES)
            .map(|index| node(NodeClass::Envoy, &index.to_string(), zones[index % 3]))
            .collect();
        let mut truth: BTreeMap<String, u64> = BTreeMap::new();
        for (index, rate) in rates.iter().enumerate() {
            *truth.entry(zones[index % 3].to_owned()).or_default() += rate;
        }
        let mut set = Set::new(REPLICAS);
        let mut at = [0_usize; NODES];
        for node in &nodes {
            set.open(0, node);
        }
        for step in steps {
            match step {
                Step::Move { node, to } => {
                    set.close(at[node], &nodes[node]);
                    set.open(to, &nodes[node]);
                    at[node] = to;
                }
                Step::Lose { replica } => set.disconnect(replica),
                Step::Find { replica } => set.connect(replica),
                Step::Restart { replica, reads_first } => {
                    set.restart(replica);
                    if reads_first {
                        set.connect(replica);
                    }
                    for (index, node) in nodes.iter().enumerate() {
                        if at[index] == replica {
                            set.open(replica, node);
                        }
                    }
                    set.connect(replica);
                }
                Step::Wait { tenths } => set.advance(tenths * 100),
            }
            for (index, node) in nodes.iter().enumerate() {
                set.report(at[index], node, rates[index]);
            }
        }
        // Whatever happened: once the store is back, everything is right, and stays so.
        for replica in 0..REPLICAS {
            set.connect(replica);
        }
        for _ in 0..2 {
            let reports: Vec<_> = (0..NODES).map(|i| (at[i], &nodes[i], rates[i])).collect();
            set.traffic(&reports, 20);
            for replica in 0..REPLICAS {
                prop_assert_eq!(set.demand(replica), truth.clone());
                prop_assert_eq!(set.nodes(replica), NODES);
            }
            prop_assert_eq!(set.store.records.len(), NODES);
        }
        for replica in 1..REPLICAS {
            prop_assert_eq!(set.delivered(replica), set.delivered(0));
        }
    }
}
