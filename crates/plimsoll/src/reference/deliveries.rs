//! Page about deliveries of measured demand: which data plane gets what, for every policy.
//!
//! Cells are read from the resources that a control plane encodes (`plimsoll_control::matrix`),
//! where tests compare them with what is said about them. `evidence` names the tests over real
//! streams and with real data planes; a test fails if a cell with demand has none, or if a named
//! test does not exist.

mod evidence;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use plimsoll_control::config::Delivery;
use plimsoll_control::delivery::{NodeClass, NotSteeredReason, Steering, proto_name};
use plimsoll_control::matrix::{Cell, Mode, Policy, Refused, Routing, Setup, Source, policies};
use plimsoll_xds::yaml::proto_json::ProtoEnum as _;

use evidence::{EVERY_CELL, LIVE_TESTS, LiveTest, SIMPLE, Test, WIRE, WIRE_NAME};

/// Title of each table and the class of nodes it describes.
const PLANES: [(&str, NodeClass); 4] = [
    ("Plimsoll's client and proxy", NodeClass::Plimsoll),
    ("Envoy with Plimsoll's module", NodeClass::EnvoyModule),
    ("Envoy", NodeClass::Envoy),
    ("gRPC clients", NodeClass::Grpc),
];

/// Generates one table per data plane, one for the modes without demand, the reasons why demand
/// does not steer, and the tests.
pub(super) fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut reasons = BTreeMap::new();
    let enforced: Vec<_> = policies()
        .iter()
        .map(|policy| {
            let row = deliveries().map(|(_, delivery)| cells(policy, delivery, Mode::ENFORCE));
            (policy.clone(), row.collect::<Vec<_>>())
        })
        .collect();
    for (title, class) in PLANES {
        let _ = write!(text, "\n## {title}\n\n| policy |");
        deliveries().for_each(|(name, _)| {
            let _ = write!(text, " `{name}` |");
        });
        text.push_str("\n|---|---|---|---|---|---|---|\n");
        for (policy, row) in &enforced {
            let _ = write!(text, "| {} |", policy.title);
            for cells in row {
                let cell = match cells {
                    Ok(cells) => cells
                        .iter()
                        .find(|cell| cell.class == class)
                        .map_or_else(String::new, |cell| with_tests(policy, cell, &mut reasons)),
                    Err(refused) => rejected(refused, &mut reasons),
                };
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
    }
    text.push_str(RAMPS);
    by_policy(&mut text, &[Mode::RAMP], &mut reasons);
    text.push_str(WITHOUT_DEMAND);
    by_policy(&mut text, &[Mode::SHADOW, Mode::OFF], &mut BTreeMap::new());
    text.push_str("\n## Reasons\n\n| in a cell | means |\n|---|---|\n");
    for (name, reason) in &reasons {
        let _ = writeln!(text, "| {name} | {reason} |");
    }
    tests(&mut text);
    text
}

const INTRODUCTION: &str = "
How measured demand reaches a data plane from `plimsoll control`, by the policy of the service \
(rows) and its `delivery` (columns). A cell names what decides about the zone of a request, as \
read from the encoded resources: the forms in which they have demand, first the one closest to \
`delivery` that the data plane supports; or what decides without demand, and why. Extensions of \
Plimsoll are sent only to Plimsoll's own data planes and to [its module](../envoy-module.md). \
[control.md](../control.md#deliveries) describes the forms. Numbers and `W` refer to the \
[tests](#tests): `W` runs the cell over real streams, numbers are tests with real data planes. *By \
round robin* means that these run the form, and that how this policy uses it is compared in what \
the streams of `W` receive. Explanations list a form other than `delivery` among the `changes`.

Settings in a file, in a ZoneRoutingPolicy of Kubernetes and in the file of a relay are delivered \
alike, with two exceptions. Kubernetes rejects no cell: the condition `ZoneRouting` says \
`NotSteered`. A relay passes the policy of the other server on, byte for byte, where demand does \
not steer and its file has no policy.
";

/// Returns what each class is sent, with the settings in a file.
fn cells(policy: &Policy, delivery: Delivery, mode: Mode) -> Result<Vec<Cell>, Refused> {
    let setup = Setup::new(policy, delivery, mode, Source::File)?;
    let cells = NodeClass::ALL.map(|class| setup.cell(class));
    let cells: Result<Vec<_>, String> = cells.into_iter().collect();
    cells.map_err(|reason| Refused {
        reason,
        not_steered: None,
    })
}

/// Returns the text of a cell with the numbers of its tests.
fn with_tests(policy: &Policy, cell: &Cell, reasons: &mut BTreeMap<String, String>) -> String {
    let text = cell_text(policy, cell, Mode::ENFORCE, reasons);
    let tests = tests_of(policy.title, cell);
    let form = |index: &usize| LIVE_TESTS[*index].policy.is_none() && policy.title != SIMPLE;
    let (of_form, own): (Vec<usize>, Vec<usize>) = tests.partition(form);
    let numbers = |tests: &[usize], rest: &str| {
        let numbers = tests.iter().map(|index| (index + 1).to_string());
        let numbers: Vec<_> = numbers.collect();
        (!tests.is_empty()).then(|| numbers.join(", ") + rest)
    };
    let named = [numbers(&own, ""), numbers(&of_form, " by round robin")];
    with_wire(text, cell, named.into_iter().flatten())
}

/// Adds the names of tests to the text of a cell with demand: of the one over real streams, and of
/// those with real data planes.
fn with_wire(text: String, cell: &Cell, live: impl Iterator<Item = String>) -> String {
    if !cell.routing.uses_demand() {
        return text;
    }
    let named = [WIRE_NAME.to_owned()].into_iter().chain(live);
    format!("{text} ({})", named.collect::<Vec<_>>().join("; "))
}

/// Returns the indexes of the tests that run the form of a cell: those of its policy, or, if there
/// are none, those of [`SIMPLE`].
fn tests_of(policy: &str, cell: &Cell) -> impl Iterator<Item = usize> + use<> {
    let fits = |test: &LiveTest| {
        let form = test.form.is_none_or(|form| form == cell.said);
        cell.routing.uses_demand() && test.classes.contains(&cell.class) && form
    };
    let of = |wanted: Option<&str>| -> Vec<usize> {
        let tests = LIVE_TESTS.iter().enumerate();
        let found = tests.filter(|(_, test)| test.policy == wanted && fits(test));
        found.map(|(index, _)| index).collect()
    };
    let has_form = |index: &usize| LIVE_TESTS[*index].form.is_some();
    let own = of(Some(policy));
    let common = if own.iter().any(has_form) {
        Vec::new()
    } else {
        of(None)
    };
    own.into_iter().chain(common)
}

/// Returns the text of a cell; reasons are explained once, below the tables.
fn cell_text(
    policy: &Policy,
    cell: &Cell,
    mode: Mode,
    reasons: &mut BTreeMap<String, String>,
) -> String {
    let forms = |forms: &BTreeSet<Delivery>| {
        let said = match cell.said {
            Steering::Demand(form) | Steering::FeedForward(form) => Some(form),
            _ => None,
        };
        let others = forms.iter().copied().filter(|form| Some(*form) != said);
        let all = said.into_iter().chain(others);
        let names: Vec<_> = all.map(|form| format!("`{}`", proto_name(form))).collect();
        names.join(", ")
    };
    let routing = match &cell.routing {
        Routing::Demand(found) => forms(found),
        Routing::FeedForward(found) => {
            let meaning = "load reports of backends decide, with demand as feed-forward: shares \
                           follow a step in demand before hosts report it";
            reasons.insert("feed-forward".to_owned(), meaning.to_owned());
            format!("feed-forward: {}", forms(found))
        }
        Routing::Utilization => "utilization".to_owned(),
        Routing::ObservedLoad => "observed load".to_owned(),
        Routing::HostCounts => "host counts".to_owned(),
        Routing::HostWeights if follows_others(policy, cell.class, mode) => {
            let meaning = "of the fleet and upstream. The weights of the fleet follow measured \
                           demand as soon as the fleet's assignment carries it for another service";
            reasons.insert("host weights*".to_owned(), meaning.to_owned());
            "host weights*".to_owned()
        }
        Routing::HostWeights => "host weights".to_owned(),
        Routing::SameWeights if sends_to_all_alike(cell) => "all hosts alike".to_owned(),
        Routing::SameWeights => "written weights".to_owned(),
        Routing::Request => "the request".to_owned(),
        Routing::AllHosts => "all hosts alike".to_owned(),
    };
    match cell.reason.map(|reason| (name_of(reason), reason)) {
        Some((name, reason)) => {
            reasons.insert(name.to_owned(), reason.text().to_owned());
            format!("{routing} ({name})")
        }
        None => routing,
    }
}

/// Whether receivers follow the demand that the fleet's assignment carries for another service.
fn follows_others(policy: &Policy, class: NodeClass, mode: Mode) -> bool {
    let beside = Setup::beside_a_steered_service(policy, mode);
    let cell = beside.ok().and_then(|setup| setup.cell(class).ok());
    cell.is_some_and(|cell| cell.routing.uses_demand())
}

/// Whether requests are divided by numbers of hosts, as without written weights: 3, 5 and 2.
fn sends_to_all_alike(cell: &Cell) -> bool {
    let hosts = [("a", 0.3), ("b", 0.5), ("c", 0.2)];
    let share = |zone| cell.split.get(zone).copied().unwrap_or_default();
    hosts
        .iter()
        .all(|(zone, hosts)| f64::abs(share(*zone) - hosts) < 0.005)
}

fn rejected(refused: &Refused, reasons: &mut BTreeMap<String, String>) -> String {
    let meaning = "`plimsoll check` and the control plane reject a file with it";
    reasons.insert("rejected".to_owned(), meaning.to_owned());
    match refused.not_steered {
        Some(reason) => {
            let name = name_of(reason);
            reasons.insert(name.to_owned(), reason.text().to_owned());
            format!("rejected ({name})")
        }
        None => format!("rejected: {}", refused.reason),
    }
}

/// Returns a reason in a cell.
const fn name_of(reason: NotSteeredReason) -> &'static str {
    match reason {
        NotSteeredReason::ModeOff => "OFF",
        NotSteeredReason::ModeShadow => "SHADOW",
        NotSteeredReason::ExplicitBasis => "basis",
        NotSteeredReason::Hashing => "hash",
        NotSteeredReason::LoadAwareLocality => "load reports",
        NotSteeredReason::Subsets => "subsets",
        NotSteeredReason::WithoutEds => "without EDS",
        NotSteeredReason::SharedEndpoints => "shared endpoints",
        NotSteeredReason::ZoneFails => "zone fails",
    }
}

fn deliveries() -> impl Iterator<Item = (&'static str, Delivery)> {
    Delivery::VALUES
        .iter()
        .map(|(name, _, delivery)| (*name, *delivery))
}

const RAMPS: &str = "
## Ramps

What decides with a `ramp` below 100, whatever `delivery` is. Weights divide the requests between \
where `OFF` sends them and where demand does; feed-forward has its ramp in the policy.

";

const WITHOUT_DEMAND: &str = "
## SHADOW and OFF

Demand is not used, whatever `delivery` is. A cell names both modes if they differ.

";

/// Writes a table of what decides in these modes, by policy and data plane.
fn by_policy(text: &mut String, modes: &[Mode], reasons: &mut BTreeMap<String, String>) {
    text.push_str("| policy |");
    for (title, _) in PLANES {
        let _ = write!(text, " {title} |");
    }
    text.push_str("\n|---|---|---|---|---|\n");
    for policy in policies() {
        let _ = write!(text, "| {} |", policy.title);
        let of_mode = |mode: &Mode| (*mode, cells(&policy, Delivery::Auto, *mode));
        let cells: Vec<_> = modes.iter().map(of_mode).collect();
        for (_, class) in PLANES {
            let mut texts = Vec::new();
            for (mode, found) in &cells {
                let cell = match found {
                    Err(refused) => rejected(refused, reasons),
                    Ok(cells) => match cells.iter().find(|cell| cell.class == class) {
                        Some(cell) if mode.is_enforced() => {
                            let text = cell_text(&policy, cell, *mode, reasons);
                            with_wire(text, cell, std::iter::empty())
                        }
                        Some(cell) => {
                            // The mode is the reason.
                            let mut cell = cell.clone();
                            cell.reason = None;
                            cell_text(&policy, &cell, *mode, reasons)
                        }
                        None => String::new(),
                    },
                };
                texts.push((mode.name, cell));
            }
            let is_same = texts.iter().all(|(_, cell)| *cell == texts[0].1);
            if is_same {
                let _ = write!(text, " {} |", texts[0].1);
            } else {
                let named = texts.iter().map(|(mode, cell)| format!("{mode}: {cell}"));
                let _ = write!(text, " {} |", named.collect::<Vec<_>>().join("; "));
            }
        }
        text.push('\n');
    }
}

fn tests(text: &mut String) {
    let place = |(file, test): Test| format!("`{test}` (`{file}`)");
    text.push_str(
        "\n## Tests\n\nEvery cell, for every mode and source: what explanations, `changes`, \
         the admin API and conditions say is compared with the encoded resources, and forms \
         of demand with \
         the resulting split:\n\n",
    );
    for test in EVERY_CELL {
        let _ = writeln!(text, "* {}", place(test));
    }
    let _ = write!(
        text,
        "\n`{WIRE_NAME}`, over real streams: a running control plane, and proxies of all classes \
         that discover and report. What they receive decides as each cell of a file says, and \
         with the same split, without a ramp and with `ramp: 37`: {}\n",
        place(WIRE)
    );
    text.push_str(
        "\nWith real data planes:\n\n| | data plane | form | test |\n|---|---|---|---|\n",
    );
    for (index, live) in LIVE_TESTS.iter().enumerate() {
        let form = match live.form {
            Some(Steering::Demand(form)) => Some(format!("`{}`", proto_name(form))),
            Some(Steering::FeedForward(form)) => {
                Some(format!("feed-forward: `{}`", proto_name(form)))
            }
            _ => None,
        };
        let policy = live.policy.map(str::to_owned);
        let words: Vec<String> = form.into_iter().chain(policy).collect();
        let what = words.join(" over ");
        let (number, plane) = (index + 1, live.plane);
        let _ = writeln!(
            text,
            "| {number} | {plane} | {what} | {} |",
            place(live.test)
        );
    }
}

#[cfg(test)]
mod tests;
