//! [`AuditRecord`]: an entry of the audit with the time of the wall clock, as the admin API shows
//! it and as it is kept on disk.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AuditEntry, AuditKind, Change, Delivery};

/// An entry of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditRecord {
    pub number: u64,
    pub at_unix_ms: u64,
    pub kind: AuditKind,
    pub by: Arc<str>,
    pub text: String,
    pub changes: Vec<Change>,
    pub more_changes: usize,
    pub reason: Option<String>,
    pub delivery: Option<AuditDelivery>,
}

/// How far proxies have accepted a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditDelivery {
    pub streams: usize,
    pub accepted: usize,
    pub refused: usize,
    pub closed: usize,
    pub waiting: usize,
    pub superseded: bool,
    pub first_ack_ms: Option<u64>,
    pub last_ack_ms: Option<u64>,
}

impl AuditRecord {
    /// `origin` is the Unix time of the origin of instants.
    pub fn of(entry: &AuditEntry, origin: Duration) -> Self {
        let at = origin + Duration::from_nanos(entry.at.as_nanos());
        Self {
            number: entry.number,
            at_unix_ms: millis(at),
            kind: entry.kind,
            by: Arc::clone(&entry.by),
            text: entry.text(),
            changes: entry.changes.clone(),
            more_changes: entry.more_changes,
            reason: entry.reason.clone(),
            delivery: entry.delivery.as_ref().map(AuditDelivery::of),
        }
    }

    /// Whether the entry is about a service.
    pub fn is_about(&self, service: &str) -> bool {
        let mut services = self.changes.iter().map(|change| change.service.as_deref());
        services.any(|one| one == Some(service))
    }
}

impl AuditDelivery {
    pub(super) fn of(delivery: &Delivery) -> Self {
        let answered = delivery.accepted + delivery.refused + delivery.closed;
        Self {
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
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
