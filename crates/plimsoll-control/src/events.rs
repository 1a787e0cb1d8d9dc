//! Events of the control plane. Each describes itself once, as a `Description`; the log, the list
//! of recent events, the counters and the list of suspects only read that.
//!
//! [`ControlEvent`] has the events of the state, `streams` those of streams; entries of the audit
//! describe themselves in `audit`. To add an event, describe it, and declare its line in
//! `log_lines`.

mod control_event;
mod planner;
mod queue;
pub(crate) mod reasons;
mod recent;
pub(crate) mod streams;
mod throttle;

use std::fmt;
use std::sync::Arc;

use plimsoll_core::time::Instant;

use crate::counters::Counters;
use crate::fleet::Suspicion;

pub use control_event::ControlEvent;
pub(crate) use queue::EventQueue;
pub(crate) use recent::cut;
pub use recent::{EventSeverity, RecentEvent, RecentEvents};
pub(crate) use throttle::Throttle;

/// What an event tells its readers.
pub(crate) struct Description<'a> {
    /// Writes the log line with its fields, and with the number of lines that were left out.
    log: Box<dyn Fn(u64) + 'a>,
    /// Peers can cause such lines at will: those with the same name are limited together.
    limit: Option<&'static str>,
    /// For the list of recent events.
    shown: Option<(EventSeverity, String)>,
    /// Whether the event is only shown if it is logged.
    is_shown_as_logged: bool,
    /// Fleet whose size changed: consecutive events about it are shown as one.
    fleet: Option<&'a Arc<str>>,
    /// Name of the counter, and its label.
    counted: Option<(&'static str, &'static str)>,
    /// Node that may not be what it says, as fleet and id.
    pub(crate) suspect: Option<(Suspicion, &'a Arc<str>, &'a Arc<str>)>,
}

impl<'a> Description<'a> {
    /// Describes an event that writes its line with `log`.
    pub(crate) fn logged(log: impl Fn(u64) + 'a) -> Self {
        Self {
            log: Box::new(log),
            limit: None,
            shown: None,
            is_shown_as_logged: false,
            fleet: None,
            counted: None,
            suspect: None,
        }
    }

    pub(crate) fn limited(self, limit: &'static str) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }

    pub(crate) fn error(self, text: String) -> Self {
        self.shown(EventSeverity::Error, text)
    }

    pub(crate) fn warning(self, text: String) -> Self {
        self.shown(EventSeverity::Warning, text)
    }

    pub(crate) fn info(self, text: String) -> Self {
        self.shown(EventSeverity::Info, text)
    }

    fn shown(self, severity: EventSeverity, text: String) -> Self {
        Self {
            shown: Some((severity, text)),
            ..self
        }
    }

    fn shown_as_logged(self) -> Self {
        Self {
            is_shown_as_logged: true,
            ..self
        }
    }

    fn fleet(self, fleet: &'a Arc<str>) -> Self {
        Self {
            fleet: Some(fleet),
            ..self
        }
    }

    pub(crate) fn counted(self, metric: &'static str, label: &'static str) -> Self {
        Self {
            counted: Some((metric, label)),
            ..self
        }
    }

    fn suspect(self, kind: Suspicion, fleet: &'a Arc<str>, node: &'a Arc<str>) -> Self {
        Self {
            suspect: Some((kind, fleet, node)),
            ..self
        }
    }
}

impl fmt::Debug for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Description");
        all.field("shown", &self.shown);
        all.field("counted", &self.counted).finish_non_exhaustive()
    }
}

/// Log, recent events and counters: the readers of events that streams and the writer share.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) counters: Counters,
    pub(crate) recent: RecentEvents,
    pub(crate) throttle: Throttle,
}

impl Events {
    /// Counts, shows and logs an event.
    pub(crate) fn tell(&self, event: Description<'_>, now: Instant) {
        if let Some((metric, label)) = event.counted {
            self.counters.add(metric, label, 1);
        }
        let suppressed = match event.limit {
            Some(limit) => self.throttle.admit(limit, now),
            None => Some(0),
        };
        if let Some((severity, text)) = event.shown
            && (suppressed.is_some() || !event.is_shown_as_logged)
        {
            let shown = RecentEvent {
                at: now,
                severity,
                text,
            };
            self.recent.add(shown, event.fleet.cloned());
        }
        if let Some(suppressed) = suppressed {
            (event.log)(suppressed);
        }
    }
}

#[cfg(test)]
mod tests;
