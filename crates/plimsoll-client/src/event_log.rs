//! [`log`]: one log line per [`Event`] of a cluster, with the level of docs/observability.md, a
//! stable message and the facts in fields.
//!
//! Degraded service is a warning: fractions that became stale, a priority in panic.

use plimsoll_core::event::Event;
use plimsoll_core::model::load_aware_locality::LoadAwareLocality;

/// Writes the line of `event`.
pub(crate) fn log(cluster: &str, event: &Event) {
    match event {
        Event::FractionsStale {
            origin,
            age,
            threshold,
        } => {
            let (age_s, threshold_s) = (age.as_secs_f64(), threshold.as_secs_f64());
            tracing::warn!(
                cluster,
                ?origin,
                age_s,
                threshold_s,
                "LRS traffic fractions are stale; falling back to host counts \
                 unless another origin is fresh"
            );
        }
        Event::FractionsRecovered { origin } => {
            tracing::info!(cluster, ?origin, "LRS traffic fractions are fresh again");
        }
        Event::MembershipChanged {
            added,
            removed,
            total,
        } => tracing::debug!(cluster, added, removed, total, "hosts changed"),
        Event::PanicChanged {
            priority,
            panic: true,
        } => tracing::warn!(
            cluster,
            priority,
            "priority is in panic; health of its hosts is ignored"
        ),
        Event::PanicChanged {
            priority,
            panic: false,
        } => tracing::info!(cluster, priority, "priority is no longer in panic"),
        Event::SubsetsChanged {
            created,
            removed,
            active,
        } => tracing::debug!(cluster, created, removed, active, "subsets changed"),
        Event::SubsetLimitReached { limit, left_out } => tracing::warn!(
            cluster,
            limit,
            left_out,
            "too many subsets; requests for those left out use the fallback"
        ),
        Event::ZoneRoutingChanged {
            priority,
            state,
            reason,
            ..
        } => match reason {
            Some(reason) => tracing::info!(
                cluster,
                priority,
                ?state,
                ?reason,
                "zone-aware routing changed"
            ),
            None => tracing::info!(cluster, priority, ?state, "zone-aware routing changed"),
        },
    }
}

/// Says once that load reports do not come often enough (seed `001…`, scaling of probes): a host of
/// another locality is probed every (hosts elsewhere) / (requests per second x probe fraction)
/// seconds, and when that is longer than reports are good for, load-awareness is lost.
pub(crate) fn log_expired_reports(cluster: &str, settings: &LoadAwareLocality, localities: usize) {
    let expiration = settings.weight_expiration_period().unwrap_or_default();
    let weight_expiration_period_s = expiration.as_secs_f64();
    let remote_probe_fraction = settings.remote_probe_fraction();
    tracing::warn!(
        cluster,
        localities,
        remote_probe_fraction,
        weight_expiration_period_s,
        "load reports of a locality expired before others arrived, so it is weighed by host \
         count: raise remote_probe_fraction or weight_expiration_period, or set \
         enable_oob_load_report"
    );
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use plimsoll_core::explain::StateName;
    use plimsoll_core::locality_picking::fractions::FractionOrigin;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Level, Metadata, Subscriber};

    use super::*;

    /// Level, message and fields of every line.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

    struct Text(String);

    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            write!(self.0, "{}={value:?} ", field.name()).unwrap();
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut text = Text(String::new());
            event.record(&mut text);
            let line = (*event.metadata().level(), text.0);
            self.0.lock().unwrap().push(line);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    fn line_of(event: &Event) -> (Level, String) {
        only_line(|| log("orders", event))
    }

    fn only_line(write: impl FnOnce()) -> (Level, String) {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), write);
        let mut lines = lines.0.lock().unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }

    #[test]
    fn expired_reports_are_a_warning_with_what_to_change() {
        let settings = LoadAwareLocality::try_new(Default::default()).unwrap();
        let (level, line) = only_line(|| log_expired_reports("orders", &settings, 12));
        assert_eq!(level, Level::WARN);
        let facts = "localities=12 remote_probe_fraction=0.03 weight_expiration_period_s=180.0";
        assert!(line.contains(facts), "{line}");
        assert!(line.contains("enable_oob_load_report"), "{line}");
    }

    /// The level in the table of docs/observability.md.
    fn documented(name: &str) -> String {
        let table = include_str!("../../../docs/observability.md");
        let row = table
            .lines()
            .find(|line| line.contains(&format!("| `{name}` |")));
        let level = row.and_then(|row| row.split('|').nth(2));
        level.expect("the event has a row").trim().to_uppercase()
    }

    #[test]
    fn every_event_has_its_documented_level_and_its_facts() {
        let stale = Event::FractionsStale {
            origin: FractionOrigin::EdsField,
            age: Duration::from_secs(61),
            threshold: Duration::from_secs(60),
        };
        let panic = |panic| Event::PanicChanged { priority: 1, panic };
        let cases = [
            ("FractionsStale", stale, "age_s=61.0 threshold_s=60.0"),
            (
                "FractionsRecovered",
                Event::FractionsRecovered {
                    origin: FractionOrigin::EdsField,
                },
                "origin=EdsField",
            ),
            (
                "MembershipChanged",
                Event::MembershipChanged {
                    added: 2,
                    removed: 1,
                    total: 5,
                },
                "added=2 removed=1 total=5",
            ),
            ("PanicChanged", panic(true), "priority=1"),
            (
                "ZoneRoutingChanged",
                Event::ZoneRoutingChanged {
                    cluster: "orders".into(),
                    priority: 0,
                    state: StateName::LocalityDirect,
                    reason: None,
                },
                "state=LocalityDirect",
            ),
        ];
        for (name, event, facts) in cases {
            let (level, line) = line_of(&event);
            assert_eq!(level.to_string(), documented(name), "{name}");
            assert!(line.contains("cluster=\"orders\""), "{line}");
            assert!(line.contains(facts), "{line}");
        }
        assert_eq!(line_of(&panic(false)).0, Level::INFO);
    }
}
