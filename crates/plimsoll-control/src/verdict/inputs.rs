//! Findings about what the control plane depends on: files, sources, the store, a relayed server.

use super::{LookAt, Severity, Signs, Verdict, counted};
use crate::certificates::Stage;
use crate::sources::SourceState;

pub(super) fn findings(signs: &Signs) -> impl Iterator<Item = Verdict> + use<> {
    let mut found: Vec<Verdict> = Vec::new();
    found.extend(edit_rejected(signs));
    found.extend(signs.sources.iter().flat_map(source));
    found.extend(store(signs));
    found.extend(relay(signs));
    found.extend(certificate(signs));
    found.into_iter()
}

fn edit_rejected(signs: &Signs) -> Option<Verdict> {
    let error = signs.rejected_edit.as_ref()?;
    Some(
        Verdict::finding(
            Severity::Error,
            "edit_rejected",
            "the last edit has no effect".to_owned(),
        )
        .because(error)
        .so("correct the file; plimsoll check finds every fault")
        .look(LookAt::Events),
    )
}

fn source(source: &SourceState) -> Vec<Verdict> {
    let name = source.id.name();
    let mut found = Vec::new();
    if let Some((since, reason)) = &source.failing {
        let seconds = since.as_secs();
        let verdict = if source.is_synced {
            Verdict::finding(
                Severity::Error,
                "source_silent",
                format!("{name} has not answered for {seconds} s"),
            )
            .so("services and endpoints stay as they were until it does")
        } else {
            Verdict::finding(
                Severity::Error,
                "source_not_listed",
                format!("services of {name} have not been listed since the start"),
            )
            .so("proxies are refused until they are")
        };
        found.push(verdict.because(reason).look(LookAt::Events));
    }
    if source.held > 0 {
        let objects = counted(source.held, "object");
        let label = source.id.label();
        found.push(
            Verdict::finding(
                Severity::Error,
                "objects_held",
                format!("the last list of {name} lacks {objects} that were known"),
            )
            .so(format!(
                "they stay for {label}.removal_delay; check the source"
            ))
            .look(LookAt::Events),
        );
    }
    found
}

fn store(signs: &Signs) -> Option<Verdict> {
    let store = signs.store.as_ref()?;
    let error = |kind, what: &str| Verdict::finding(Severity::Error, kind, what.to_owned());
    let verdict = if !store.is_synced {
        error(
            "store_not_read",
            "the store has not been read since the start",
        )
        .because("new proxies get host counts until it is")
        .so("check that the store answers")
    } else if !store.is_connected {
        error("store_lost", "the store cannot be reached")
            .because("proxies of other replicas count with their last load reports")
            .so("check that the store answers")
    } else if let Some(first) = &store.other_configuration {
        Verdict::finding(
            Severity::Warning,
            "other_configuration",
            format!("{first} has another configuration than this replica"),
        )
        .so("give all replicas the same files")
    } else {
        return None;
    };
    Some(verdict.look(LookAt::Replicas))
}

fn relay(signs: &Signs) -> Option<Verdict> {
    let status = signs.relay.as_ref()?;
    let (connected, streams) = (status.connected, status.streams);
    if connected >= streams {
        return None;
    }
    let what = format!("{connected} of {streams} streams to the relayed server are connected");
    let verdict = Verdict::finding(Severity::Warning, "relay_lost", what);
    let verdict = match &status.last_error {
        Some(error) => verdict.because(error),
        None => verdict,
    };
    Some(
        verdict
            .so("proxies keep what they have")
            .look(LookAt::Events),
    )
}

fn certificate(signs: &Signs) -> Option<Verdict> {
    let (stage, text) = signs.ending.first()?;
    let severity = if *stage == Stage::Soon {
        Severity::Warning
    } else {
        Severity::Error
    };
    Some(
        Verdict::finding(severity, "certificate_expires", text.clone())
            .because("new connections fail without it")
            .so("renew it; new files take effect without a restart")
            .look(LookAt::Events),
    )
}
