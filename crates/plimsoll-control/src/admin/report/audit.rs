//! Response of `/api/v1/audit`: what was changed and refused, by whom, and when it was delivered.

use super::super::responses::Audit;
use crate::audit::AuditRecord;

#[derive(Clone, Debug, Default)]
pub(in crate::admin) struct AuditQuery {
    pub(in crate::admin) service: Option<String>,
    pub(in crate::admin) offset: usize,
    pub(in crate::admin) limit: usize,
}

/// Lists entries, newest first.
pub(in crate::admin) fn audit(entries: &[AuditRecord], query: &AuditQuery) -> Audit {
    let wanted = query.service.as_deref();
    let is_about = |entry: &&AuditRecord| wanted.is_none_or(|service| entry.is_about(service));
    let matching = || entries.iter().filter(is_about);
    let shown = matching().skip(query.offset).take(query.limit);
    Audit {
        total: matching().count(),
        offset: query.offset,
        entries: shown.cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use plimsoll_core::time::Instant;
    use serde_json::json;

    use super::*;
    use crate::audit::{AuditEntry, AuditKind, Change, Delivery};

    fn changed(number: u64, service: Option<&str>, delivery: Option<Delivery>) -> AuditRecord {
        let change = Change {
            service: service.map(Arc::from),
            field: "ramp".to_owned(),
            before: None,
            after: Some("5".to_owned()),
            source: None,
        };
        let entry = AuditEntry {
            number,
            at: Instant::from_nanos(5_000_000),
            kind: AuditKind::Changed,
            by: "edit of the files".into(),
            changes: vec![change],
            more_changes: 0,
            reason: None,
            delivery,
        };
        AuditRecord::of(&entry, Duration::from_secs(1))
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
            json!(audit(&entries, &query))
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
