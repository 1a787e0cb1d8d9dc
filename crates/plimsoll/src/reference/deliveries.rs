//! The page that says what reaches which data plane: every policy, every delivery.
//!
//! Cells are computed by [`steering`], which decides for the control plane, from services that are
//! parsed like any other. [`SHOWN_LIVE`] names the tests behind the cells; a test here fails when a
//! cell has none, or when a named test is gone.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plimsoll_control::config::{ControlConfig, Delivery, File, Service};
use plimsoll_control::delivery::{Class, Steering, WhyNot, name_of, steering};
use plimsoll_xds::yaml::proto_json::ProtoEnum as _;

/// Title, who is meant, and the kind of node that the control plane takes it for.
const PLANES: [(&str, Class); 3] = [
    ("Plimsoll's client and proxy", Class::Plimsoll),
    ("Stock Envoy", Class::Envoy),
    ("gRPC clients", Class::Grpc),
];

/// A row: what people call it, the policy's name, its message, and further fields in YAML.
type Policy = (&'static str, &'static str, &'static str, String);

/// Test of the control plane that reads back, for every cell that says how demand arrives, the
/// bytes that are sent, and compares the split with the one that demand asks for.
const EVERY_CELL: Test = (
    "crates/plimsoll-control/src/explain/tests.rs",
    "where_demand_steers_the_bytes_split_as_it_asks",
);

/// Test of the control plane that reads back every other cell and compares it with its explanation.
const EVERY_OTHER_CELL: Test = (
    "crates/plimsoll-control/src/explain/tests.rs",
    "what_is_explained_is_what_is_sent",
);

/// File and name of a test.
type Test = (&'static str, &'static str);

const CLIENTS: &str = "crates/plimsoll/tests/e2e/real_peers/clients.rs";
const CLOSED_LOOP: &str = "crates/plimsoll/tests/e2e/real_peers/closed_loop.rs";
const ENVOYS: &str = "crates/plimsoll/tests/e2e/real_peers/envoys.rs";
const SUBSETS: &str = "crates/plimsoll/tests/e2e/real_peers/subsets.rs";
const GRPC: &str = "crates/plimsoll/tests/e2e/real_peers/grpc.rs";

/// Tests with real data planes: which one, what it gets, the test.
const SHOWN_LIVE: [(&str, &str, Test); 14] = [
    (
        "client",
        "`EDS_FIELD`",
        (
            CLIENTS,
            "measured_demand_by_the_field_of_the_fleet_assignment",
        ),
    ),
    (
        "client",
        "`LOCALITY_METADATA`",
        (CLIENTS, "measured_demand_by_the_metadata_of_localities"),
    ),
    (
        "client",
        "`LRS_RESPONSE`",
        (CLIENTS, "measured_demand_by_the_answer_to_load_reports"),
    ),
    (
        "client",
        "`LOCALITY_WEIGHTS`",
        (CLIENTS, "measured_demand_by_the_weights_of_localities"),
    ),
    (
        "client",
        "`EDS_FIELD` over client-side weighted round robin",
        (
            CLOSED_LOOP,
            "embedded_clients_level_zones_by_demand_and_hosts_by_weights_from_orca",
        ),
    ),
    (
        "proxy",
        "`EDS_FIELD` over round robin",
        (CLOSED_LOOP, "measured_demand_levels_zones"),
    ),
    (
        "proxy",
        "`EDS_FIELD` over client-side weighted round robin",
        (
            CLOSED_LOOP,
            "measured_demand_levels_zones_and_weights_from_orca_their_hosts",
        ),
    ),
    (
        "proxy",
        "`load_aware_locality` with CONVERGENT",
        (CLOSED_LOOP, "convergent_levels_zones_and_does_not_cycle"),
    ),
    (
        "proxy",
        "the same, led by demand",
        (CLOSED_LOOP, "measured_demand_leads_a_step_of_convergent"),
    ),
    (
        "proxy and stock Envoy",
        "`subset`",
        (SUBSETS, "envoy_and_the_proxy_send_to_the_same_subsets"),
    ),
    (
        "stock Envoy",
        "`FLEET_WEIGHTS`",
        (ENVOYS, "three_envoys_by_fleet_weights"),
    ),
    (
        "stock Envoy",
        "`LOCALITY_WEIGHTS`",
        (ENVOYS, "three_envoys_by_locality_weights"),
    ),
    (
        "gRPC C-core",
        "`LOCALITY_WEIGHTS`",
        (GRPC, "clients_follow_the_weights_of_their_zone_and_report"),
    ),
    (
        "grpc-js",
        "`LOCALITY_WEIGHTS`",
        (
            GRPC,
            "demand_of_grpc_js_clients_arrives_and_fractions_follow_it",
        ),
    ),
];

/// A table per data plane, the reasons, and the tests.
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
                    Err(reason) => refused(&reason, &mut reasons),
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
What a service of `plimsoll control` gets, by its policy (rows), its `delivery` (columns) and the \
data plane that connects. A cell names the form in which measured demand arrives, which is the \
nearest to what `delivery` asks for that the data plane understands, or why demand does not steer. \
Nothing that only Plimsoll's own data planes understand is ever sent to others. \
[control.md](../control.md#deliveries) describes the forms.
";

/// Every way to choose zones and hosts that a service can be written with.
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

/// Round robin with settings for the choice of a locality.
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

/// Policies with round robin as their child.
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

/// The service of one row and one column, or why there is none.
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
    let config = ControlConfig::parse(&File { name, text }, &[])
        .map_err(|error| error.error.reason().to_owned())?;
    let service = config
        .services
        .get("orders")
        .map(|service| Service::clone(service));
    service.ok_or_else(|| "no such service".to_owned())
}

/// What a cell says; a reason is explained once, below the tables.
fn cell(steering: Steering, reasons: &mut BTreeMap<String, String>) -> String {
    let (name, reason) = match steering {
        Steering::Demand(delivery) => return format!("`{}`", name_of(delivery)),
        Steering::FeedForward(delivery) => {
            reasons.insert(LEADS.to_owned(), LEADS_MEANS.to_owned());
            return format!("`{}`, {LEADS}", name_of(delivery));
        }
        Steering::HostCounts => ("host counts", "the service is in mode `SHADOW`"),
        Steering::AsConfigured(WhyNot::ModeOff) => ("as written", "the service is in mode `OFF`"),
        Steering::AsConfigured(WhyNot::BasisWritten) => (
            "as written: basis",
            "the cluster names the `locality_basis` it goes by, which the control plane leaves \
             alone; a stock Envoy and gRPC are not sent a basis that they do not know",
        ),
        Steering::AsConfigured(WhyNot::Hashing) => (
            "as written: hash",
            "consistent hashing chooses by the request, not by the zone",
        ),
        Steering::AsConfigured(WhyNot::LoadAwareLocality) => (
            "as written: load aware",
            "backends' own load reports decide; only Plimsoll's data planes have `CONVERGENT`, \
             which demand can lead",
        ),
        Steering::AsConfigured(WhyNot::Subsets) => (
            "as written: subsets",
            "only weights of localities could carry demand there, and subsets look at those only \
             with `locality_weight_aware`",
        ),
    };
    reasons.insert(name.to_owned(), reason.to_owned());
    name.to_owned()
}

const LEADS: &str = "feed-forward";
const LEADS_MEANS: &str = "backends' load reports decide, and demand leads: shares follow a step \
                           in demand before hosts report it";

fn refused(reason: &str, reasons: &mut BTreeMap<String, String>) -> String {
    let text = format!("`plimsoll check` and the control plane refuse it, as in: {reason}");
    reasons.entry("refused".to_owned()).or_insert(text);
    "refused".to_owned()
}

/// Every `delivery`, as files spell it.
fn deliveries() -> impl Iterator<Item = &'static str> {
    Delivery::VALUES.iter().map(|(name, _, _)| *name)
}

fn tests(text: &mut String) {
    let link = |(file, test): Test| format!("[`{test}`](../../{file})");
    let _ = write!(
        text,
        "\n## Tests\n\nEvery cell with the name of a form: {}, from the bytes that are sent to the \
         split that the engine makes of them. Every other cell: {}. With real data planes:\n\n\
         | data plane | gets | test |\n|---|---|---|\n",
        link(EVERY_CELL),
        link(EVERY_OTHER_CELL),
    );
    for (plane, gets, test) in SHOWN_LIVE {
        let _ = writeln!(text, "| {plane} | {gets} | {} |", link(test));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn tests_behind_the_cells_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let live = SHOWN_LIVE.map(|(_, _, test)| test);
        for (file, test) in live.into_iter().chain([EVERY_CELL, EVERY_OTHER_CELL]) {
            let text = fs::read_to_string(root.join(file)).unwrap();
            let definition = format!("#[test]\nfn {test}() {{");
            assert!(text.contains(&definition), "{file} has no test {test}");
        }
    }

    #[test]
    fn forms_are_shown_live_on_the_data_planes_that_take_them() {
        for (title, class) in PLANES {
            let mut forms: Vec<_> = policies()
                .iter()
                .flat_map(|policy| deliveries().map(|delivery| service(policy, delivery)))
                .filter_map(|service| match steering(&service.ok()?, class, 100) {
                    Steering::Demand(delivery) => Some(format!("`{}`", name_of(delivery))),
                    _ => None,
                })
                .collect();
            forms.sort();
            forms.dedup();
            assert!(!forms.is_empty(), "{title} gets nothing");
            let planes: &[&str] = match class {
                Class::Plimsoll => &["client", "proxy"],
                Class::Envoy => &["stock Envoy"],
                Class::Grpc => &["gRPC C-core", "grpc-js"],
            };
            for form in forms {
                let is_shown = SHOWN_LIVE
                    .iter()
                    .any(|(plane, gets, _)| planes.contains(plane) && gets.starts_with(&form));
                assert!(is_shown, "{title}: {form} is not shown live");
            }
        }
    }
}
