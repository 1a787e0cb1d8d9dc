//! Compares every cell with what explanations, their `changes` and the admin API say.

mod changes;

use plimsoll_core::explain::Explanation;
use plimsoll_core::model::zone_aware::LocalityBasis;

use super::*;
use crate::admin::only_cluster;
use crate::delivery::{proto_name, written_basis};
use crate::explain::{Question, explain};

/// Share of requests by zone.
type Split = BTreeMap<String, f64>;

/// Tolerance of traffic shares: weights are integers, and Envoy truncates to basis points.
const ROUNDING: f64 = 0.005;

const DELIVERIES: [Delivery; 6] = [
    Delivery::Auto,
    Delivery::EdsField,
    Delivery::LocalityMetadata,
    Delivery::LrsResponse,
    Delivery::FleetWeights,
    Delivery::LocalityWeights,
];

/// Calls `check` for every setup that is not refused; returns the number of those that are.
fn each_setup(source: Source, mut check: impl FnMut(&str, &Policy, &Setup, Mode)) -> usize {
    let mut refused = 0;
    for policy in policies() {
        for delivery in DELIVERIES {
            for mode in MODES {
                let name = format!("{source:?} {} {delivery:?} {}", policy.title, mode.name);
                match Setup::new(&policy, delivery, mode, source) {
                    Ok(setup) => check(&name, &policy, &setup, mode),
                    Err(error) => {
                        refused += 1;
                        let asks = delivery != Delivery::Auto || mode.ramp < 100;
                        let is_off = mode.written == Some("OFF");
                        let is_known = error.reason.ends_with("; remove one of the two");
                        assert!(asks && !is_off && is_known, "{name}: {error}");
                    }
                }
            }
        }
    }
    refused
}

fn explained(setup: &Setup, class: NodeClass) -> Explanation {
    let question = Question {
        cluster: SERVICE.to_owned(),
        fleet: Some(fleet::name(class).to_owned()),
        locality: Some(fleet::key(class, "a").locality),
        ..Question::default()
    };
    explain(&setup.state, &question, setup.now).unwrap()
}

/// Whether the other server's policy has measured demand as its basis, and is passed on.
fn follows_by_itself(setup: &Setup, service: &Service) -> bool {
    theirs_follows(setup, service) && service.mode != crate::config::Mode::Enforce
}

/// Whether the policy is the other server's, and has measured demand as its basis.
fn theirs_follows(setup: &Setup, service: &Service) -> bool {
    let rules = service.config.zone_aware();
    setup.theirs.is_some()
        && !service.has_explicit_policy
        && rules.is_some_and(|rules| rules.locality_basis() == LocalityBasis::LrsReportedRate)
}

/// Shares of requests by demand that the rows call for: of the worked example, but for settings
/// that say otherwise.
fn by_demand(policy: &Policy) -> [(&'static str, f64); 3] {
    let (demand, hosts) = ([0.6, 0.3, 0.1], [0.3, 0.5, 0.2]);
    let written = serde_json::to_string(&policy.cluster).unwrap();
    let shares = if written.contains("force_local_zone") {
        [1.0, 0.0, 0.0]
    } else if written.contains("routing_enabled") {
        [0, 1, 2].map(|zone| 0.6 * demand[zone] + 0.4 * hosts[zone])
    } else {
        demand
    };
    [("a", shares[0]), ("b", shares[1]), ("c", shares[2])]
}

/// What the admin API says must be what is sent.
fn assert_said(name: &str, policy: &Policy, setup: &Setup, page: &Value, cell: &Cell, mode: Mode) {
    let service = setup.service.as_ref().unwrap();
    let fleets = page["fleets"].as_array().unwrap();
    let class = fleet::name(cell.class);
    let own = fleets.iter().find(|one| one["fleet"] == class).unwrap();
    let [shown] = &own["delivery"].as_array().unwrap()[..] else {
        panic!("{name}: one class of nodes: {own}");
    };
    assert_eq!(shown["class"], class);
    let mut of_all_fleets = page["delivery"].as_array().unwrap().iter();
    assert!(of_all_fleets.any(|one| one == shown), "{name}: {page}");
    let (word, basis) = (shown["delivery"].as_str().unwrap(), &own["basis"]);
    let (reason, said) = (&shown["reason"], cell.said);
    let name = format!("{name} to {:?}: {said:?} {shown} {basis}", cell.class);
    match (said, &cell.routing) {
        (Steering::Demand(form), Routing::Demand(forms)) => {
            assert!(forms.contains(&form), "{name}: {forms:?}");
            assert_eq!(word, proto_name(form).to_lowercase(), "{name}");
            assert_eq!(basis, "measured_demand", "{name}");
            assert_eq!(*reason, Value::Null, "{name}");
            for (zone, share) in by_demand(policy).into_iter().filter(|_| mode.ramp == 100) {
                let near = (cell.split[zone] - share).abs() < ROUNDING;
                assert!(near, "{name}: {:?}", cell.split);
            }
        }
        (Steering::FeedForward(form), Routing::FeedForward(forms)) => {
            assert!(forms.contains(&form), "{name}: {forms:?}");
            assert_eq!(
                (word, basis),
                ("feed_forward", &json!("utilization")),
                "{name}"
            );
        }
        // The policy of the other server follows demand, and nothing replaces it.
        (Steering::AsConfigured(_), routing) if follows_by_itself(setup, service) => {
            assert_eq!(routing.uses_demand(), basis == "measured_demand", "{name}");
            let reason = reason.as_str().unwrap();
            assert!(reason.starts_with("mode_"), "{name}");
        }
        (Steering::AsConfigured(_) | Steering::HostCounts, routing) => {
            assert!(!routing.uses_demand(), "{name}: {routing:?}");
            assert!(["as_configured", "host_counts"].contains(&word), "{name}");
            assert!(reason.is_string(), "{name}");
            assert_ne!(basis, "measured_demand", "{name}");
        }
        (_, routing) => assert_eq!(format!("{routing:?}"), "", "{name}"),
    }
}

/// Explanations must describe what the receiver does, and list what is not sent as written.
fn assert_explained(name: &str, policy: &Policy, setup: &Setup, cell: &Cell) {
    let explanation = explained(setup, cell.class);
    let name = format!("{name} to {:?}", cell.class);
    assert_eq!(explanation.localities.len(), 3, "{name}");
    for row in &explanation.localities {
        let done = cell.split.get(&row.zone).copied().unwrap_or_default();
        let said = row.expected_share;
        assert!(
            (said - done).abs() < ROUNDING,
            "{name}: {said} to {} is said, {:?} is done",
            row.zone,
            cell.split
        );
    }
    let listed = explanation.changes.iter();
    let listed: BTreeSet<_> = listed
        .map(|one| (one.setting.clone(), one.written.clone(), one.sent.clone()))
        .collect();
    assert_eq!(listed, changes::expected(policy, setup, cell), "{name}");
}

/// Whether it is known where a service without demand sends requests, and whether a ramp starts
/// there.
fn starts_from_off(setup: &Setup, service: &Service, class: NodeClass) -> bool {
    // A gRPC client uses no locality without a weight, and only its own server knows what it would
    // send then.
    let has_weights = service.assignment.endpoints()[0].load_balancing_weight > 0;
    let is_unknown = class == NodeClass::Grpc && setup.theirs.is_some() && !has_weights;
    // A policy of the other server that follows demand does so in OFF.
    !is_unknown && !theirs_follows(setup, service)
}

/// Returns the number of setups that are refused, and of cells in which a ramp was compared.
fn what_is_said_is_what_is_sent(source: Source) -> (usize, usize) {
    let mut blended = 0;
    // Splits by policy, delivery, class and mode: those of a ramp are compared with its ends.
    let mut splits = BTreeMap::new();
    let refused = each_setup(source, |name, policy, setup, mode| {
        let service = setup.service.as_ref().unwrap();
        let page = only_cluster(&setup.state, setup.now);
        for class in NodeClass::ALL {
            let found = setup.cell(class);
            let cell = found
                .map_err(|error| format!("{name} to {class:?}: {error}"))
                .unwrap();
            assert_said(name, policy, setup, &page, &cell, mode);
            assert_explained(name, policy, setup, &cell);
            let of_mode = |mode| (policy.title, proto_name(service.delivery), class, mode);
            // Nothing but the ramp asks for demand: without one, in ENFORCE, the policy of the
            // other server is passed on.
            let asks_alone = service.delivery == Delivery::Auto
                && setup.theirs.is_some()
                && !service.has_explicit_policy
                && written_basis(service).is_some();
            if mode.ramp < 100 && starts_from_off(setup, service, class) && !asks_alone {
                // Kubernetes does not refuse a ramp that has no effect, and a relay cannot.
                let ignored = [NotSteeredReason::Subsets, NotSteeredReason::ExplicitBasis];
                let is_ignored = cell.reason.is_some_and(|reason| ignored.contains(&reason));
                let last = if is_ignored { Mode::OFF } else { Mode::ENFORCE };
                let end = |mode: Mode| splits.get(&of_mode(mode.name));
                let [off, end] = [Mode::OFF, last].map(end);
                assert_blended(name, mode.ramp, off.unwrap(), end.unwrap(), &cell);
                blended += 1;
            }
            splits.insert(of_mode(mode.name), cell.split);
            // The condition `ZoneRouting` of a ZoneRoutingPolicy goes by it.
            let can_be = not_steered(service, [class]).is_none();
            let is = cell.routing.uses_demand() && !follows_by_itself(setup, service);
            assert_eq!(is, can_be && mode.written.is_none(), "{name} to {class:?}");
        }
    });
    (refused, blended)
}

/// A ramp of N moves N % of the requests from where OFF sends them to where ENFORCE does.
fn assert_blended(name: &str, ramp: u32, off: &Split, end: &Split, cell: &Cell) {
    let part = f64::from(ramp) / 100.0;
    for (zone, share) in &cell.split {
        let expected = (1.0 - part) * off[zone] + part * end[zone];
        assert!(
            (share - expected).abs() < ROUNDING,
            "{name} to {:?}: {:?} between {off:?} and {end:?}",
            cell.class,
            cell.split
        );
    }
}

#[test]
fn what_a_file_says_is_what_is_sent() {
    let (refused, blended) = what_is_said_is_what_is_sent(Source::File);
    assert!(refused > 50 && blended > 250, "{refused} {blended}");
}

#[test]
fn what_a_policy_of_kubernetes_says_is_what_is_sent() {
    let (refused, blended) = what_is_said_is_what_is_sent(Source::Kubernetes);
    assert_eq!(refused, 0, "conditions say it");
    assert!(blended > 400, "{blended}");
}

#[test]
fn what_a_relay_says_is_what_is_sent() {
    let (_, blended) = what_is_said_is_what_is_sent(Source::Relay);
    assert!(blended > 300, "{blended}");
}

#[test]
fn what_the_file_of_a_relay_says_is_what_is_sent() {
    let (_, blended) = what_is_said_is_what_is_sent(Source::RelayFile);
    assert!(blended > 200, "{blended}");
}

/// The first step of a ramp moves one request in a hundred from where OFF sends it, whatever the
/// policy, and by the same basis.
#[test]
fn the_first_percent_of_a_ramp_moves_a_percent() {
    for source in Source::ALL {
        for policy in policies() {
            // Below 100 its form does not depend on `delivery`.
            for delivery in [Delivery::Auto, Delivery::LocalityWeights] {
                let of_mode = |mode| Setup::new(&policy, delivery, mode, source);
                let Ok(first) = of_mode(Mode::FIRST_PERCENT) else {
                    continue;
                };
                let off = of_mode(Mode::OFF).unwrap();
                let service = first.service.as_ref().unwrap();
                for class in NodeClass::ALL {
                    if !starts_from_off(&first, service, class) {
                        continue;
                    }
                    let [off, first] = [&off, &first].map(|setup| setup.cell(class).unwrap());
                    let name = format!("{source:?} {} {delivery:?} {class:?}", policy.title);
                    for (zone, share) in &first.split {
                        let moved = (share - off.split[zone]).abs();
                        assert!(moved < 0.01 + ROUNDING, "{name}: {moved}");
                    }
                    // The split of proxies that have sent nothing is that of host counts.
                    let observe = [&off, &first].map(|cell| cell.routing == Routing::ObservedLoad);
                    assert_eq!(observe[0], observe[1], "{name}: {:?}", first.routing);
                }
            }
        }
    }
}

/// The reference shows cells of a file only.
#[test]
fn demand_is_sent_in_the_same_form_from_every_source() {
    let mut compared = 0;
    for policy in policies() {
        for delivery in DELIVERIES {
            let Ok(file) = Setup::new(&policy, delivery, Mode::ENFORCE, Source::File) else {
                continue;
            };
            for source in Source::ALL {
                let other = Setup::new(&policy, delivery, Mode::ENFORCE, source).unwrap();
                for class in NodeClass::ALL {
                    let [file, other] = [&file, &other].map(|setup| setup.cell(class).unwrap());
                    let name = format!("{source:?} {} {delivery:?} {class:?}", policy.title);
                    assert_eq!(file.said, other.said, "{name}");
                    let passes = source == Source::Relay && !file.routing.uses_demand();
                    if !passes {
                        assert_eq!(file.routing, other.routing, "{name}");
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 500, "{compared}");
}

/// The reference shows one cell for all deliveries.
#[test]
fn shadow_and_off_are_the_same_for_every_delivery() {
    for policy in policies() {
        for mode in [Mode::SHADOW, Mode::OFF] {
            let sent = |delivery| {
                let setup = Setup::new(&policy, delivery, mode, Source::Kubernetes).unwrap();
                NodeClass::ALL.map(|class| setup.cell(class).unwrap().routing)
            };
            let auto = sent(Delivery::Auto);
            for delivery in DELIVERIES {
                assert_eq!(sent(delivery), auto, "{} {delivery:?}", policy.title);
            }
        }
    }
}

/// The fleet's assignment has demand for one of two services. Only what decision 0017 gave up
/// follows it: on a stock Envoy, `HEALTHY_HOSTS_WEIGHT` reads its weights.
#[test]
fn a_steered_service_does_not_change_how_another_is_routed() {
    for policy in policies() {
        for mode in MODES {
            let beside = Setup::beside_a_steered_service(&policy, mode);
            let alone = Setup::new(&policy, Delivery::Auto, mode, Source::File);
            let (Ok(beside), Ok(alone)) = (beside, alone) else {
                assert!(mode.ramp < 100, "{} {}", policy.title, mode.name);
                continue;
            };
            for class in NodeClass::ALL {
                let [beside, alone] = [&beside, &alone].map(|setup| setup.cell(class).unwrap());
                let name = format!("{} {} to {class:?}", policy.title, mode.name);
                assert_eq!(beside.said, alone.said, "{name}");
                let reads_weights =
                    class == NodeClass::Envoy && alone.routing == Routing::HostWeights;
                if reads_weights {
                    let weights = BTreeSet::from([Delivery::FleetWeights]);
                    assert_eq!(beside.routing, Routing::Demand(weights), "{name}");
                    continue;
                }
                let kind = std::mem::discriminant::<Routing>;
                assert_eq!(kind(&beside.routing), kind(&alone.routing), "{name}");
                for (zone, share) in &alone.split {
                    let near = (beside.split[zone] - share).abs() < ROUNDING;
                    assert!(near, "{name}: {:?} {:?}", beside.split, alone.split);
                }
            }
        }
    }
}
