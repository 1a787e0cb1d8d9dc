//! Response of `/api/v1/audit`: what was changed and refused, by whom, and when it was delivered.

use std::sync::Arc;
use std::time::Duration;

use super::super::responses::{Audit, AuditDelivery, AuditEntry};
use super::millis;
use crate::audit;

#[derive(Clone, Debug, Default)]
pub(in crate::admin) struct AuditQuery {
    pub(in crate::admin) service: Option<String>,
    pub(in crate::admin) offset: usize,
    pub(in crate::admin) limit: usize,
}

/// Lists entries, newest first. `origin` is the Unix time of the origin of instants.
pub(in crate::admin) fn audit(
    entries: &[audit::AuditEntry],
    query: &AuditQuery,
    origin: Duration,
) -> Audit {
    let is_about = |entry: &&audit::AuditEntry| {
        let mut services = entry.changes.iter().map(|change| change.service.as_deref());
        let wanted = query.service.as_deref();
        wanted.is_none() || services.any(|service| service == wanted)
    };
    let matching = || entries.iter().filter(is_about);
    let shown = matching().skip(query.offset).take(query.limit);
    Audit {
        total: matching().count(),
        offset: query.offset,
        entries: shown.map(|one| entry(one, origin)).collect(),
    }
}

fn entry(entry: &audit::AuditEntry, origin: Duration) -> AuditEntry {
    let at = origin + Duration::from_nanos(entry.at.as_nanos());
    AuditEntry {
        number: entry.number,
        at_unix_ms: millis(at),
        kind: entry.kind,
        by: Arc::clone(&entry.by),
        text: entry.text(),
        changes: entry.changes.clone(),
        more_changes: entry.more_changes,
        reason: entry.reason.clone(),
        delivery: entry.delivery.as_ref().map(delivery),
    }
}

fn delivery(delivery: &audit::Delivery) -> AuditDelivery {
    let answered = delivery.accepted + delivery.refused + delivery.closed;
    AuditDelivery {
        streams: delivery.streams,
        accepted: delivery.accepted,
        refused: delivery.refused,
        closed: delivery.closed,
        waiting: delivery.streams.saturating_sub(answered),
        superseded: delivery.superseded,
        first_ack_ms: delivery.first_ack.map(millis),
        last_ack_ms: delivery.last_ack.map(millis),
    }
}
