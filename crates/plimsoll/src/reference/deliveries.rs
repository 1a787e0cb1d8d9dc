//! Page about deliveries of measured demand: which data plane gets what, for every policy.
//!
//! Cells are computed by [`steering`], which the control plane uses, from services that are parsed
//! like any other. [`LIVE_TESTS`] names the tests that prove the cells; a test in this file fails
//! if a cell has none or if a named test does not exist.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plimsoll_control::config::{ConfigFile, ControlConfig, Delivery, Service};
use plimsoll_control::delivery::{NodeClass, NotSteeredReason, Steering, proto_name, steering};
use plimsoll_xds::yaml::proto_json::ProtoEnum as _;

/// Title of each table and the class of nodes it describes.
const PLANES: [(&str, NodeClass); 4] = [
    ("Plimsoll's client and proxy", NodeClass::Plimsoll),
    ("Envoy with Plimsoll's module", NodeClass::EnvoyModule),
    ("Envoy", NodeClass::Envoy),
    ("gRPC clients", NodeClass::Grpc),
];

/// Row of a table: title, name of the policy, its message, and further fields in YAML.
type Policy = (&'static str, &'static str, &'static str, String);

/// Test that decodes the resources sent for every cell that delivers demand, and compares the
/// resulting traffic shares with the measured demand.
const EVERY_CELL: Test = (
    "crates/plimsoll-control/src/explain/tests.rs",
    "sent_resources_split_traffic_by_demand",
);

/// Test that decodes the resources of every other cell and compares them with the explanation.
const EVERY_OTHER_CELL: Test = (
    "crates/plimsoll-control/src/explain/tests.rs",
    "explanations_match_sent_resources",
);

/// File and function name of a test.
type Test = (&'static str, &'static str);

const CLIENTS: &str = "crates/plimsoll/tests/e2e/real_peers/clients.rs";
const CLOSED_LOOP: &str = "crates/plimsoll/tests/e2e/real_peers/closed_loop.rs";
const ENVOYS: &str = "crates/plimsoll/tests/e2e/real_peers/envoys.rs";
const SUBSETS: &str = "crates/plimsoll/tests/e2e/real_peers/subsets.rs";
const GRPC: &str = "crates/plimsoll/tests/e2e/real_peers/grpc.rs";

/// Tests with real data planes: data plane, how demand is delivered, test.
const LIVE_TESTS: [(&str, &str, Test); 16] = [
    (
        "client",
        "`EDS_FIELD`",
        (CLIENTS, "demand_delivered_by_eds_field"),
    ),
    (
        "client",
        "`LOCALITY_METADATA`",
        (CLIENTS, "demand_delivered_by_locality_metadata"),
    ),
    (
        "client",
        "`LRS_RESPONSE`",
        (CLIENTS, "demand_delivered_by_lrs_response"),
    ),
    (
        "client",
        "`LOCALITY_WEIGHTS`",
        (CLIENTS, "demand_delivered_by_locality_weights"),
    ),
    (
        "client",
        "`EDS_FIELD` over client-side weighted round robin",
        (
            CLOSED_LOOP,
            "embedded_clients_even_out_zones_by_demand_and_hosts_by_orca",
        ),
    ),
    (
        "proxy",
        "`EDS_FIELD` over round robin",
        (CLOSED_LOOP, "measured_demand_evens_out_zones"),
    ),
    (
        "proxy",
        "`EDS_FIELD` over client-side weighted round robin",
        (
            CLOSED_LOOP,
            "proxies_even_out_zones_by_demand_and_hosts_by_orca",
        ),
    ),
    (
        "proxy",
        "`load_aware_locality` with CONVERGENT",
        (
            CLOSED_LOOP,
            "convergent_evens_out_zones_without_oscillation",
        ),
    ),
    (
        "proxy",
        "the same, led by demand",
        (CLOSED_LOOP, "demand_feed_forward_speeds_up_convergent"),
    ),
    (
        "proxy and Envoy",
        "`subset`",
        (SUBSETS, "envoy_and_the_proxy_send_to_the_same_subsets"),
    ),
    (
        "Envoy with the module",
        "`LRS_RESPONSE`",
        (
            CLOSED_LOOP,
            "the_control_plane_steers_modules_inside_envoys",
        ),
    ),
    (
        "Envoy with the module",
        "`load_aware_locality` with CONVERGENT, led by demand",
        (CLOSED_LOOP, "demand_feed_forward_speeds_up_modules"),
    ),
    (
        "Envoy",
        "`FLEET_WEIGHTS`",
        (ENVOYS, "fleet_weights_even_out_zones_of_envoys"),
    ),
    (
        "Envoy",
        "`LOCALITY_WEIGHTS`",
        (ENVOYS, "locality_weights_even_out_zones_of_envoys"),
    ),
    (
        "gRPC C-core",
        "`LOCALITY_WEIGHTS`",
        (
            GRPC,
            "c_core_clients_follow_locality_weights_and_report_load",
        ),
    ),
    (
        "grpc-js",
        "`LOCALITY_WEIGHTS`",
        (GRPC, "grpc_js_clients_report_load_and_fractions_follow"),
    ),
];

/// Generates one table per data plane, the reasons why demand does not steer, and the tests.
pub(super) fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut reasons = BTreeMap::new();
    for (title, class) in PLANES {
        let _ = write!(text, "\n## {title}\n\n| policy |");
        deliveries().for_each(|name| {
            let _ = write!(text, " `{name}` |");
        });
        text.push_str("\n|---|---|---|---|---|---|---|\n");
        for policy in policies() {
            let _ = write!(text, "| {} |", policy.0);
            for delivery in deliveries() {
                let cell = match service(&policy, delivery) {
                    Ok(service) => cell(steering(&service, class, 100), &mut reasons),
                    Err(reason) => rejected(&reason, &mut reasons),
                };
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
    }
    text.push_str("\n## Reasons\n\n| in a cell | means |\n|---|---|\n");
    for (name, reason) in &reasons {
        let _ = writeln!(text, "| {name} | {reason} |");
    }
    tests(&mut text);
    text
}

const INTRODUCTION: &str = "
How measured demand reaches a data plane from `plimsoll control`, by the policy of the service \
(rows) and its `delivery` (columns). A cell names the form that is sent, the closest to `delivery` \
that the data plane supports, or why demand is not used. Extensions of Plimsoll are sent only to \
Plimsoll's own data planes and to [its module](../envoy-module.md). \
[control.md](../control.md#deliveries) describes the forms.
";

fn policies() -> Vec<Policy> {
    let plain = String::new;
    let mut all = vec![
        ("round robin", "round_robin", "RoundRobin", plain()),
        ("least request", "least_request", "LeastRequest", plain()),
        ("random", "random", "Random", plain()),
        (
            "client-side weighted round robin",
            "client_side_weighted_round_robin",
            "ClientSideWeightedRoundRobin",
            plain(),
        ),
    ];
    all.extend(bases());
    all.extend(parents());
    all.push(("ring hash", "ring_hash", "RingHash", plain()));
    all.push(("Maglev", "maglev", "Maglev", plain()));
    all
}

/// Returns round robin with each way to choose a locality.
fn bases() -> impl Iterator<Item = Policy> {
    let basis = |name: &str| format!("{{zone_aware_lb_config: {{locality_basis: {name}}}}}");
    let weighted = "{locality_weighted_lb_config: {}}".to_owned();
    let rows = [
        (
            "`locality_basis: LRS_REPORTED_RATE`",
            basis("LRS_REPORTED_RATE"),
        ),
        (
            "`locality_basis: HEALTHY_HOSTS_NUM`",
            basis("HEALTHY_HOSTS_NUM"),
        ),
        (
            "`locality_basis: HEALTHY_HOSTS_WEIGHT`",
            basis("HEALTHY_HOSTS_WEIGHT"),
        ),
        ("`locality_basis: OBSERVED_LOAD`", basis("OBSERVED_LOAD")),
        ("`locality_weighted_lb_config`", weighted),
    ];
    rows.into_iter().map(|(title, config)| {
        let fields = format!(", locality_lb_config: {config}");
        (title, "round_robin", "RoundRobin", fields)
    })
}

/// Returns policies with round robin as their child.
fn parents() -> [Policy; 4] {
    let child = |field: &str| {
        format!(
            ", {field}: {{policies: [{{typed_extension_config: {{name: r, typed_config: {{'@type': \
             type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin\
             }}}}}}]}}"
        )
    };
    let picking = child("endpoint_picking_policy");
    let converging = format!("{picking}, spill_controller: CONVERGENT");
    let subset = child("subset_lb_policy") + ", subset_selectors: [{keys: [stage]}]";
    let load_aware = ("load_aware_locality", "LoadAwareLocality");
    [
        (
            "`wrr_locality`",
            "wrr_locality",
            "WrrLocality",
            picking.clone(),
        ),
        ("`load_aware_locality`", load_aware.0, load_aware.1, picking),
        (
            "the same with `CONVERGENT`",
            load_aware.0,
            load_aware.1,
            converging,
        ),
        ("`subset`", "subset", "Subset", subset),
    ]
}

/// Parses the service of one row and one column; the error says why it is invalid.
fn service((_, name, message, fields): &Policy, delivery: &str) -> Result<Service, String> {
    let policy = format!(
        "{{policies: [{{typed_extension_config: {{name: {name}, typed_config: {{'@type': \
         type.googleapis.com/envoy.extensions.load_balancing_policies.{name}.v3.{message}{fields}\
         }}}}}}]}}"
    );
    let text = format!(
        "services: [{{delivery: {delivery}, cluster: {{name: orders, load_balancing_policy: \
         {policy}}}}}]"
    );
    let name = "a row of the table".to_owned();
    let config = ControlConfig::parse(&ConfigFile { name, text }, &[])
        .map_err(|error| error.error.reason().to_owned())?;
    let service = config
        .services
        .get("orders")
        .map(|service| Service::clone(service));
    service.ok_or_else(|| "the service is missing".to_owned())
}

/// Returns the text of a cell; reasons are explained once, below the tables.
fn cell(steering: Steering, reasons: &mut BTreeMap<String, String>) -> String {
    let (name, reason) = match steering {
        Steering::Demand(delivery) => return format!("`{}`", proto_name(delivery)),
        Steering::FeedForward(delivery) => {
            reasons.insert(FEED_FORWARD.to_owned(), FEED_FORWARD_MEANING.to_owned());
            return format!("`{}`, {FEED_FORWARD}", proto_name(delivery));
        }
        Steering::HostCounts => ("host counts", "the service is in mode `SHADOW`"),
        Steering::AsConfigured(NotSteeredReason::ModeOff) => {
            ("as written", "the service is in mode `OFF`")
        }
        Steering::AsConfigured(NotSteeredReason::ExplicitBasis) => (
            "as written: basis",
            "the cluster sets `locality_basis`, which the control plane does not change; a basis \
             that Envoy and gRPC do not know is not sent to them",
        ),
        Steering::AsConfigured(NotSteeredReason::Hashing) => (
            "as written: hash",
            "consistent hashing chooses the host by the request, not by the zone",
        ),
        Steering::AsConfigured(NotSteeredReason::LoadAwareLocality) => (
            "as written: load aware",
            "load reports of backends decide; only Plimsoll's data planes and its module support \
             `CONVERGENT`, which can use demand as feed-forward",
        ),
        Steering::AsConfigured(NotSteeredReason::Subsets) => (
            "as written: subsets",
            "demand would need locality weights, which subsets use only with \
             `locality_weight_aware`",
        ),
    };
    reasons.insert(name.to_owned(), reason.to_owned());
    name.to_owned()
}

const FEED_FORWARD: &str = "feed-forward";
const FEED_FORWARD_MEANING: &str = "load reports of backends decide, with demand as feed-forward: \
                                    shares follow a step in demand before hosts report it";

fn rejected(reason: &str, reasons: &mut BTreeMap<String, String>) -> String {
    let text = format!("`plimsoll check` and the control plane reject it, for example: {reason}");
    reasons.entry("rejected".to_owned()).or_insert(text);
    "rejected".to_owned()
}

fn deliveries() -> impl Iterator<Item = &'static str> {
    Delivery::VALUES.iter().map(|(name, _, _)| *name)
}

fn tests(text: &mut String) {
    let place = |(file, test): Test| format!("`{test}` (`{file}`)");
    let _ = write!(
        text,
        "\n## Tests\n\nEvery cell with a form of demand: {}, from the bytes that are sent to the \
         resulting split. Every other cell: {}. With real data planes:\n\n\
         | data plane | form | test |\n|---|---|---|\n",
        place(EVERY_CELL),
        place(EVERY_OTHER_CELL),
    );
    for (plane, gets, test) in LIVE_TESTS {
        let _ = writeln!(text, "| {plane} | {gets} | {} |", place(test));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn named_tests_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let live = LIVE_TESTS.map(|(_, _, test)| test);
        for (file, test) in live.into_iter().chain([EVERY_CELL, EVERY_OTHER_CELL]) {
            let text = fs::read_to_string(root.join(file)).unwrap();
            let definition = format!("#[test]\nfn {test}() {{");
            assert!(text.contains(&definition), "{file} has no test {test}");
        }
    }

    #[test]
    fn every_form_is_tested_with_a_real_data_plane() {
        for (title, class) in PLANES {
            let mut forms: Vec<_> = policies()
                .iter()
                .flat_map(|policy| deliveries().map(|delivery| service(policy, delivery)))
                .filter_map(|service| match steering(&service.ok()?, class, 100) {
                    Steering::Demand(delivery) => Some(format!("`{}`", proto_name(delivery))),
                    _ => None,
                })
                .collect();
            forms.sort();
            forms.dedup();
            assert!(!forms.is_empty(), "{title} has no form of demand");
            let planes: &[&str] = match class {
                NodeClass::Plimsoll => &["client", "proxy"],
                // Locality weights are followed by Envoy's own policies.
                NodeClass::EnvoyModule => &["Envoy with the module", "Envoy"],
                NodeClass::Envoy => &["Envoy"],
                NodeClass::Grpc => &["gRPC C-core", "grpc-js"],
            };
            for form in forms {
                let is_tested = LIVE_TESTS
                    .iter()
                    .any(|(plane, gets, _)| planes.contains(plane) && gets.starts_with(&form));
                assert!(is_tested, "{title}: {form} has no live test");
            }
        }
    }
}
