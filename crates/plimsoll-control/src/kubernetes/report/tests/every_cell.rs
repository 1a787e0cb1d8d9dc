//! Compares the condition `ZoneRouting` with the decoded resources of every cell of the matrix.

use plimsoll_xds::yaml::proto_json::ProtoEnum as _;

use super::*;
use crate::config::Delivery;
use crate::load_line::tests::lines_of;
use crate::matrix::{Cell, MODES, Mode, SERVICE, Setup, Source, policies};

/// Returns the condition of the policy that has the settings of a setup with this many fleets, one
/// per class.
fn condition_of(setup: &Setup, fleets: usize) -> Condition {
    let lines = lines_of(&setup.state, &ShareCache::default(), setup.now);
    assert_eq!(lines.iter().count(), fleets, "a fleet per class");
    let reported = report(&setup.state, &lines, &view(&[SERVICE]));
    let mut conditions = reported.status.conditions.into_iter();
    conditions.find(|one| one.kind == "ZoneRouting").unwrap()
}

#[test]
fn the_condition_says_what_the_resources_of_every_cell_do() {
    let mut steered = 0;
    for policy in policies() {
        for (_, _, delivery) in Delivery::VALUES {
            for mode in MODES {
                let setup = Setup::new(&policy, *delivery, mode, Source::Kubernetes).unwrap();
                let condition = condition_of(&setup, NodeClass::ALL.len());
                let cells = NodeClass::ALL.map(|class| setup.cell(class).unwrap());
                let (by_demand, others): (Vec<&Cell>, Vec<&Cell>) =
                    cells.iter().partition(|cell| cell.routing.uses_demand());
                let said = (&*condition.status, &*condition.reason);
                let message = &condition.message;
                let name = format!("{} {delivery:?} {}: {message}", policy.title, mode.name);
                match mode.name {
                    "OFF" => assert_eq!(said, ("False", "ModeOff"), "{name}"),
                    "SHADOW" => assert_eq!(said, ("False", "ModeShadow"), "{name}"),
                    _ if by_demand.is_empty() => {
                        assert_eq!(said, ("False", "NotSteered"), "{name}");
                        let reason = cells[0].reason.unwrap();
                        assert_eq!(*message, reason.text(), "{name}");
                    }
                    _ => {
                        assert_eq!(said, ("True", "DemandSteers"), "{name}");
                        let mut expected = "measured demand steers".to_owned();
                        for cell in &others {
                            let (class, text) = (nodes_of(cell.class), cell.reason.unwrap().text());
                            expected += &format!("; not {class}: {text}");
                        }
                        let replaced = message.strip_prefix(&*expected).expect(&name);
                        if mode.name == "ENFORCE" {
                            let is_met = *delivery == Delivery::Auto
                                || by_demand.iter().any(|cell| has_form(cell, *delivery));
                            let asked = proto_name(*delivery);
                            let text = format!("; delivery {asked} has no effect: it is ");
                            assert_eq!(replaced.starts_with(&text), !is_met, "{name}");
                        }
                        steered += 1;
                    }
                }
                if mode.name == "OFF" || mode.name == "SHADOW" {
                    assert!(by_demand.is_empty(), "{name}");
                }
            }
        }
    }
    assert!(steered > 50, "{steered}");
}

/// With nodes of one class, a `delivery` that another class would get is not met.
#[test]
fn the_condition_names_a_delivery_that_no_connected_node_gets() {
    let mut unmet = 0;
    for policy in policies() {
        for (_, _, delivery) in Delivery::VALUES {
            for class in NodeClass::ALL {
                let source = Source::Kubernetes;
                let classes = &[class];
                let setup =
                    Setup::with_nodes_of(classes, &policy, *delivery, Mode::ENFORCE, source)
                        .unwrap();
                let condition = condition_of(&setup, 1);
                let cell = setup.cell(class).unwrap();
                let message = &condition.message;
                let name = format!("{} {delivery:?} {class:?}: {message}", policy.title);
                let is_steered = cell.routing.uses_demand();
                assert_eq!(condition.reason == "DemandSteers", is_steered, "{name}");
                let is_met = *delivery == Delivery::Auto || has_form(&cell, *delivery);
                let text = format!("; delivery {} has no effect: it is ", proto_name(*delivery));
                assert_eq!(message.contains(&text), is_steered && !is_met, "{name}");
                unmet += usize::from(is_steered && !is_met);
            }
        }
    }
    assert!(unmet > 20, "{unmet}");
}

/// Whether receivers get demand in a form, as the one that is said to them.
fn has_form(cell: &Cell, form: Delivery) -> bool {
    use crate::matrix::Routing::{Demand, FeedForward};
    match &cell.routing {
        Demand(forms) | FeedForward(forms) => forms.contains(&form),
        _ => false,
    }
}
