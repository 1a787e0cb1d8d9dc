//! What `changes` of an explanation must list: where the decoded bytes of a cell differ from its
//! row. Computed from the row as it is written and from the settings that receivers have, and not
//! from what the control plane compares.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::load_aware_locality::LoadAwareLocality;
use plimsoll_core::model::zone_aware::{CapacityBasis, ZoneAware};

use super::*;

/// Setting, as it is written, and as it is sent.
type Change = (String, Option<String>, String);

pub(super) fn expected(policy: &Policy, setup: &Setup, cell: &Cell) -> BTreeSet<Change> {
    let service = setup.service.as_ref().unwrap();
    let (wanted, got) = (&service.config, &cell.config);
    let mut all = Vec::new();
    let names = |config: &ClusterConfig| {
        let zones = config.locality_policy().name().to_owned();
        (zones, config.endpoint_policy().name().to_owned())
    };
    let ((wanted_zones, wanted_hosts), (zones, hosts)) = (names(wanted), names(got));
    if wanted_hosts != hosts {
        all.push(("endpoint policy", Some(wanted_hosts), hosts));
    }
    match (wanted.locality_policy(), got.locality_policy()) {
        // Both are locality weights, under different names.
        _ if wanted.locality_weighted() && got.locality_weighted() => {}
        (LocalityPolicy::ZoneAware(wanted), LocalityPolicy::ZoneAware(got)) => {
            all.extend(rules(policy, wanted, got));
        }
        (LocalityPolicy::LoadAwareLocality(wanted), LocalityPolicy::LoadAwareLocality(got)) => {
            all.extend(by_reports(cell.class, wanted, got));
        }
        (was, _) => {
            if wanted_zones != zones {
                let is_written = *was != LocalityPolicy::default();
                all.push((
                    "locality policy",
                    Some(wanted_zones).filter(|_| is_written),
                    zones,
                ));
            }
            // Weights have neither.
            for setting in ["fail_traffic_on_panic", "all_priorities"] {
                if got.locality_weighted()
                    && let Some(written) = written(policy, setting)
                {
                    all.push((setting, Some(written), "false".to_owned()));
                }
            }
        }
    }
    all.extend(weights(policy, setup, cell));
    if let (Steering::Demand(form) | Steering::FeedForward(form), asked) =
        (cell.said, service.delivery)
        && asked != Delivery::Auto
        && asked != form
    {
        let [asked, form] = [asked, form].map(|form| proto_name(form).to_owned());
        all.push(("delivery", Some(asked), form));
    }
    let named = all.into_iter();
    named
        .map(|(setting, written, sent)| (setting.to_owned(), written, sent))
        .collect()
}

/// Returns a setting as the row writes it.
fn written(policy: &Policy, setting: &str) -> Option<String> {
    fn find<'a>(value: &'a Value, setting: &str) -> Option<&'a Value> {
        match value {
            Value::Object(fields) => fields
                .get(setting)
                .or_else(|| fields.values().find_map(|field| find(field, setting))),
            Value::Array(items) => items.iter().find_map(|item| find(item, setting)),
            _ => None,
        }
    }
    let found = policy
        .cluster
        .values()
        .find_map(|field| find(field, setting))?;
    Some(match (found, found.as_object()) {
        (Value::String(text), _) => text.clone(),
        (_, Some(fields)) if fields.contains_key("value") => format!("{} %", fields["value"]),
        (_, Some(fields)) => format!("min_size {}", fields["min_size"]),
        (plain, None) => plain.to_string(),
    })
}

/// Zone-aware settings that differ.
fn rules(
    policy: &Policy,
    wanted: &ZoneAware,
    got: &ZoneAware,
) -> Vec<(&'static str, Option<String>, String)> {
    let basis = |rules: &ZoneAware| proto_name(rules.locality_basis()).to_owned();
    let forced = |rules: &ZoneAware| match rules.force_local_zone() {
        Some(size) => format!("min_size {size}"),
        None => "unset".to_owned(),
    };
    let source = |rules: &ZoneAware| proto_name(rules.fraction_source()).to_owned();
    let capacity = |rules: &ZoneAware| {
        let by_weight = rules.locality_basis() == LocalityBasis::HealthyHostsWeight
            || rules.upstream_locality_basis() == CapacityBasis::HealthyHostsWeight;
        let name = if by_weight {
            "HEALTHY_HOSTS_WEIGHT"
        } else {
            "HEALTHY_HOSTS_NUM"
        };
        name.to_owned()
    };
    let is_measured = got.locality_basis() == LocalityBasis::LrsReportedRate;
    let of = |rules: &ZoneAware| {
        [
            ("locality_basis", basis(rules)),
            ("min_cluster_size", rules.min_cluster_size().to_string()),
            ("routing_enabled", format!("{} %", rules.routing_enabled())),
            ("all_priorities", rules.all_priorities().to_string()),
            (
                "fail_traffic_on_panic",
                rules.fail_traffic_on_panic().to_string(),
            ),
            ("force_local_zone", forced(rules)),
            ("upstream_locality_basis", capacity(rules)),
            ("fraction_source", source(rules)),
        ]
    };
    let pairs = of(wanted).into_iter().zip(of(got));
    let differing = pairs.filter(|((setting, wanted), (_, got))| {
        wanted != got && (*setting != "fraction_source" || is_measured)
    });
    // `locality_basis: HEALTHY_HOSTS_WEIGHT` says it for upstream, too.
    let implied = |setting: &str| {
        let basis = written(policy, "locality_basis")?;
        (setting == "upstream_locality_basis" && basis == "HEALTHY_HOSTS_WEIGHT").then_some(basis)
    };
    differing
        .map(|(_, (setting, got))| {
            let as_written = written(policy, setting).or_else(|| implied(setting));
            (setting, as_written, got)
        })
        .collect()
}

/// Settings of `load_aware_locality` that differ.
fn by_reports(
    class: NodeClass,
    wanted: &LoadAwareLocality,
    got: &LoadAwareLocality,
) -> Vec<(&'static str, Option<String>, String)> {
    if wanted.spill_controller() != got.spill_controller() {
        let [wanted, got] =
            [wanted, got].map(|rules| proto_name(rules.spill_controller()).to_owned());
        // Demand leads the controller alone.
        assert!(
            matches!(class, NodeClass::Envoy | NodeClass::Grpc),
            "{class:?}"
        );
        return vec![("spill_controller", Some(wanted), got)];
    }
    match (
        wanted.demand_feed_forward_percent(),
        got.demand_feed_forward_percent(),
    ) {
        (wanted, got) if wanted == got => Vec::new(),
        (_, 0) => vec![("demand_feed_forward", None, "false".to_owned())],
        (wanted, got) => {
            let setting = "demand_feed_forward_percent";
            vec![(setting, Some(wanted.to_string()), got.to_string())]
        }
    }
}

/// Written locality weights that are sent differently.
fn weights(
    policy: &Policy,
    setup: &Setup,
    cell: &Cell,
) -> Option<(&'static str, Option<String>, String)> {
    let service = setup.service.as_ref().unwrap();
    let is_written = |weight: &u32| *weight > 0;
    let entries = service.assignment.endpoints().iter();
    let written: Vec<u32> = entries.map(|entry| entry.load_balancing_weight).collect();
    if !written.iter().any(is_written) {
        return None;
    }
    assert_eq!(policy.weights, written.clone().try_into().ok());
    let orders = setup.decode(cell.class).unwrap().orders;
    let entries = orders.endpoints().iter();
    let sent: Vec<u32> = entries.map(|entry| entry.load_balancing_weight).collect();
    let text = |weights: &[u32]| {
        let weights: Vec<String> = weights.iter().map(u32::to_string).collect();
        weights.join("/")
    };
    (written != sent).then(|| ("load_balancing_weight", Some(text(&written)), text(&sent)))
}
