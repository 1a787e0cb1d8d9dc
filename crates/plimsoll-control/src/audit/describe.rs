//! Entries of the audit, and deliveries of changes, as events.

use std::fmt::Write as _;
use std::time::Duration;

use plimsoll_core::log_line;

use super::{AuditEntry, AuditKind, Change, Delivered, diff};
use crate::events::Description;
use crate::log_lines;

impl AuditEntry {
    /// Returns what the entry tells the readers of events: a line for each change.
    pub(crate) fn describe(&self) -> Description<'_> {
        let event = Description::logged(move |_| {
            self.changes.iter().for_each(|change| self.log(change));
            let (number, by) = (self.number, &*self.by);
            if let Some(reason) = &self.reason {
                log_line!(log_lines::CHANGE_REFUSED, number, by, reason);
            }
        });
        match self.kind {
            AuditKind::Refused => event.error(self.text()),
            AuditKind::Started | AuditKind::Changed => event.info(self.text()),
        }
    }

    fn log(&self, change: &Change) {
        let (number, by) = (self.number, &*self.by);
        let service = change.service.as_deref().unwrap_or("");
        let [before, after, source] = [&change.before, &change.after, &change.source]
            .map(|value| value.as_deref().unwrap_or(""));
        let field = change.field.as_str();
        if self.kind == AuditKind::Changed {
            log_line!(
                log_lines::SETTING_CHANGED,
                number,
                by,
                service,
                field,
                before,
                after,
                source
            );
        } else {
            log_line!(
                log_lines::SETTING_READ,
                number,
                by,
                service,
                field,
                after,
                source
            );
        }
    }

    /// Returns the entry as a sentence, such as
    /// `orders: mode SHADOW → ENFORCE, ramp 10 → 50, control.yaml:14`.
    pub fn text(&self) -> String {
        match self.kind {
            AuditKind::Started => "started".to_owned() + &self.listed(" with "),
            AuditKind::Changed if self.changes.is_empty() => {
                format!("{}: nothing changed", self.by)
            }
            AuditKind::Changed => self.listed(""),
            AuditKind::Refused => {
                let reason = self.reason.as_deref().unwrap_or_default();
                format!("{} refused: {reason}", self.by)
            }
        }
    }

    /// Lists the changes by service, with the places where they are written.
    fn listed(&self, before: &str) -> String {
        let mut text = String::new();
        let mut rest = &self.changes[..];
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|each| each.service == first.service);
            let count = same.count();
            let (group, others) = rest.split_at(count);
            let separator = if text.is_empty() { before } else { "; " };
            let _ = write!(text, "{separator}{}", diff::sentence(group));
            rest = others;
        }
        if self.more_changes > 0 {
            let _ = write!(text, "; and {} more", self.more_changes);
        }
        text
    }
}

impl Delivered {
    /// Returns what the delivery tells the readers of events.
    pub(crate) fn describe(&self) -> Description<'_> {
        let Self { number, delivery } = self;
        let millis = |time: Option<Duration>| {
            time.map_or(0, |time| {
                u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
            })
        };
        let event = Description::logged(move |_| {
            log_line!(
                log_lines::CHANGE_DELIVERED,
                number,
                streams = delivery.streams,
                accepted = delivery.accepted,
                refused = delivery.refused,
                closed = delivery.closed,
                first_ack_ms = millis(delivery.first_ack),
                last_ack_ms = millis(delivery.last_ack)
            );
        });
        if delivery.refused > 0 {
            event.error(self.text())
        } else {
            event.info(self.text())
        }
    }

    /// Returns the delivery as a sentence.
    pub fn text(&self) -> String {
        let Self { number, delivery } = self;
        let streams = match delivery.streams {
            1 => "1 proxy".to_owned(),
            streams => format!("{streams} proxies"),
        };
        let mut text = match (delivery.accepted, delivery.last_ack) {
            (accepted, Some(last)) if accepted == delivery.streams => {
                format!(
                    "change {number} accepted by {streams} within {} ms",
                    last.as_millis()
                )
            }
            (accepted, _) => format!("change {number} accepted by {accepted} of {streams}"),
        };
        if delivery.refused > 0 {
            let _ = write!(text, ", refused by {}", delivery.refused);
        }
        text
    }
}
