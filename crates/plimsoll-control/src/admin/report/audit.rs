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

#[cfg(test)]
mod tests {
    use plimsoll_core::time::Instant;
    use serde_json::json;

    use super::*;
    use crate::audit::{AuditKind, Change, Delivery};

    fn changed(
        number: u64,
        service: Option<&str>,
        delivery: Option<Delivery>,
    ) -> audit::AuditEntry {
        let change = Change {
            service: service.map(Arc::from),
            field: "ramp".to_owned(),
            before: None,
            after: Some("5".to_owned()),
            source: None,
        };
        audit::AuditEntry {
            number,
            at: Instant::from_nanos(5_000_000),
            kind: AuditKind::Changed,
            by: "edit of the files".into(),
            changes: vec![change],
            more_changes: 0,
            reason: None,
            delivery,
        }
    }

    #[test]
    fn entries_are_selected_by_service() {
        let delivery = Delivery {
            streams: 5,
            accepted: 2,
            refused: 1,
            closed: 1,
            first_ack: Some(Duration::from_millis(7)),
            last_ack: Some(Duration::from_millis(9)),
            superseded: false,
        };
        let entries = [
            changed(3, Some("search"), None),
            changed(2, Some("orders"), Some(delivery)),
            changed(1, None, None),
        ];
        let page = |service: Option<&str>, offset| {
            let query = AuditQuery {
                service: service.map(ToOwned::to_owned),
                offset,
                limit: 2,
            };
            json!(audit(&entries, &query, Duration::from_secs(1)))
        };
        let all = page(None, 0);
        let numbers = |page: &serde_json::Value| {
            let entries = page["entries"].as_array().unwrap();
            let numbers = entries.iter().map(|entry| entry["number"].as_u64());
            numbers.flatten().collect::<Vec<_>>()
        };
        assert_eq!((numbers(&all), &all["total"]), (vec![3, 2], &json!(3)));
        assert_eq!(numbers(&page(None, 2)), [1]);
        assert_eq!(page(Some("lost"), 0)["total"], 0);
        let expected = json!({ "total": 1, "offset": 0, "entries": [{
            "number": 2, "at_unix_ms": 1005, "kind": "changed", "by": "edit of the files",
            "text": "orders: ramp 5 added", "changes": [{ "service": "orders", "field": "ramp",
                "before": null, "after": "5", "source": null }],
            "more_changes": 0, "reason": null, "delivery": { "streams": 5, "accepted": 2,
                "refused": 1, "closed": 1, "waiting": 1, "superseded": false, "first_ack_ms": 7,
                "last_ack_ms": 9 } }] });
        assert_eq!(page(Some("orders"), 0), expected);
    }
}
