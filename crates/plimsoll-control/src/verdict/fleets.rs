//! Findings about proxies: refused updates and clients, wrong identities, missing load reports.

use super::{LookAt, Severity, Signs, Verdict, counted};
use crate::load_line::LoadLines;

/// What is wrong with proxies, and what is still missing for a first picture.
pub(super) fn findings(signs: &Signs, lines: &LoadLines) -> impl Iterator<Item = Verdict> + use<> {
    let mut found: Vec<Verdict> = Vec::new();
    found.extend(update_rejected(signs));
    found.extend(clients_refused(signs));
    found.extend(handshakes_fail(signs));
    found.extend(identities(signs));
    found.extend(unknown_locality(signs));
    found.extend(reports(signs));
    found.extend(first_steps(signs, lines));
    found.into_iter()
}

fn update_rejected(signs: &Signs) -> Option<Verdict> {
    let (count, first) = signs.rejected_updates.as_ref()?;
    let proxies = if *count == 1 { "proxy" } else { "proxies" };
    let what = format!("{count} {proxies} rejected the last update");
    Some(
        Verdict::finding(Severity::Error, "update_rejected", what)
            .because(first)
            .so("the previous version stays in force; correct the service")
            .look(LookAt::Nodes),
    )
}

fn clients_refused(signs: &Signs) -> Option<Verdict> {
    let refused = signs.refused_client.as_ref()?;
    Some(
        Verdict::finding(
            Severity::Warning,
            "clients_refused",
            "clients are refused".to_owned(),
        )
        .because(refused)
        .so("correct their certificates, or identities in the configuration")
        .look(LookAt::Events),
    )
}

fn handshakes_fail(signs: &Signs) -> Option<Verdict> {
    let (text, remedy) = signs.failed_handshake.as_ref()?;
    Some(
        Verdict::finding(
            Severity::Warning,
            "handshakes_fail",
            "connections fail".to_owned(),
        )
        .because(text)
        .so(*remedy)
        .look(LookAt::Events),
    )
}

fn identities(signs: &Signs) -> Vec<Verdict> {
    let duplicate = signs.duplicate_id.iter().map(|node| {
        Verdict::finding(
            Severity::Warning,
            "duplicate_id",
            format!("the id of {node} is in use by two addresses"),
        )
        .because("the second is refused")
        .so("give each proxy its own node.id")
        .look(LookAt::Nodes)
    });
    let shared = signs.shared_id.iter().map(|node| {
        Verdict::finding(
            Severity::Warning,
            "shared_id",
            format!("several proxies have the id of {node}"),
        )
        .because("their load reports replace each other, so demand is too small")
        .so("give each its own node.id (plimsoll bootstrap envoy --id)")
        .look(LookAt::Nodes)
    });
    duplicate.chain(shared).collect()
}

fn unknown_locality(signs: &Signs) -> Option<Verdict> {
    let unknown = signs.unknown_locality.as_ref()?;
    let nodes = counted(unknown.nodes, "node");
    let fleet = &unknown.fleet;
    let verdict = |what: String| Verdict::finding(Severity::Warning, "unknown_locality", what);
    let verdict = if unknown.locality.is_unset() {
        verdict(format!("the demand of {nodes} of {fleet} does not count"))
            .because("without a locality")
            .so("set node.locality in their bootstrap files")
    } else {
        let at = &unknown.locality;
        let meant = unknown.nearest.as_ref();
        let so = meant.map_or_else(
            || "add the zone to fleets.zones or to the endpoints".to_owned(),
            |meant| format!("did you mean {meant}?"),
        );
        verdict(format!(
            "the demand of {nodes} of {fleet} in {at} does not count"
        ))
        .because("no service has hosts there")
        .so(so)
    };
    Some(verdict.look(LookAt::Nodes))
}

fn reports(signs: &Signs) -> Option<Verdict> {
    let (count, first) = signs.without_reports.as_ref()?;
    let all = signs.proxies;
    Some(
        Verdict::finding(
            Severity::Warning,
            "no_load_reports",
            format!("{count} of {all} proxies send no load reports"),
        )
        .because(format!("the demand at {first} is not known"))
        .so("give them load_stats_config (plimsoll bootstrap envoy writes it)")
        .look(LookAt::Nodes),
    )
}

/// What is missing before there is a picture at all.
fn first_steps(signs: &Signs, lines: &LoadLines) -> Option<Verdict> {
    let finding = |kind, what: &str| Verdict::finding(Severity::Info, kind, what.to_owned());
    if signs.proxies == 0 {
        return Some(
            finding("no_proxies", "no proxy is connected")
                .so("start one: plimsoll bootstrap envoy writes its configuration"),
        );
    }
    if let Some(line) = lines.iter().find(|line| line.warming_up) {
        let fleet = &line.fleet;
        let what = format!("demand of {fleet} is not complete yet");
        return Some(
            finding("warming_up", &what)
                .because("not every proxy has reported since it connected")
                .so("wait for the next load reports")
                .look(LookAt::Nodes),
        );
    }
    let has_demand = lines.iter().any(|line| line.demand() > 0.0);
    (!has_demand).then(|| {
        finding("no_demand", "no requests are reported")
            .because("proxies are idle, or do not report load")
            .so("send requests through a proxy")
            .look(LookAt::Nodes)
    })
}
