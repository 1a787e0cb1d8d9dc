//! [`log`]: one log line per [`Event`] of a cluster.
//!
//! Events that degrade routing (stale traffic fractions, a priority in panic mode) are warnings.

use plimsoll_core::event::Event;
use plimsoll_core::log_line;
use plimsoll_core::model::load_aware_locality::LoadAwareLocality;

use crate::log_lines;

pub(crate) fn log(cluster: &str, event: &Event) {
    match event {
        Event::FractionsStale {
            origin,
            age,
            threshold,
        } => {
            let (age_s, threshold_s) = (age.as_secs_f64(), threshold.as_secs_f64());
            log_line!(
                log_lines::FRACTIONS_STALE,
                cluster,
                ?origin,
                age_s,
                threshold_s
            );
        }
        Event::FractionsRecovered { origin } => {
            log_line!(log_lines::FRACTIONS_RECOVERED, cluster, ?origin);
        }
        Event::MembershipChanged {
            added,
            removed,
            total,
        } => log_line!(
            log_lines::MEMBERSHIP_CHANGED,
            cluster,
            added,
            removed,
            total
        ),
        Event::PanicChanged {
            priority,
            panic: true,
        } => log_line!(log_lines::PANIC_ENTERED, cluster, priority),
        Event::PanicChanged {
            priority,
            panic: false,
        } => log_line!(log_lines::PANIC_LEFT, cluster, priority),
        Event::SubsetsChanged {
            created,
            removed,
            active,
        } => log_line!(
            log_lines::SUBSETS_CHANGED,
            cluster,
            created,
            removed,
            active
        ),
        Event::SubsetLimitReached { limit, left_out } => {
            log_line!(log_lines::SUBSET_LIMIT_REACHED, cluster, limit, left_out);
        }
        Event::ZoneRoutingChanged {
            priority,
            state,
            reason,
            ..
        } => match reason {
            Some(reason) => log_line!(
                log_lines::ZONE_ROUTING_CHANGED,
                cluster,
                priority,
                ?state,
                ?reason
            ),
            None => log_line!(log_lines::ZONE_ROUTING_CHANGED, cluster, priority, ?state),
        },
        event => debug_assert!(false, "no log line for {event:?}"),
    }
}

/// Warns that ORCA load reports arrive too rarely: a host of another locality is probed every
/// (remote hosts) / (requests per second x probe fraction) seconds. If that exceeds
/// `weight_expiration_period`, the locality is weighed by host count.
pub(crate) fn log_expired_reports(cluster: &str, settings: &LoadAwareLocality, localities: usize) {
    let expiration = settings.weight_expiration_period().unwrap_or_default();
    let weight_expiration_period_s = expiration.as_secs_f64();
    let remote_probe_fraction = settings.remote_probe_fraction();
    log_line!(
        log_lines::LOAD_REPORTS_EXPIRED,
        cluster,
        localities,
        remote_probe_fraction,
        weight_expiration_period_s
    );
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::explain::StateName;
    use plimsoll_core::locality_picking::fractions::FractionOrigin;
    use tracing::Level;

    use super::*;
    use crate::cluster::captured_logs::CapturedLogs;

    fn line_of(event: &Event) -> (Level, String) {
        only_line(|| log("orders", event))
    }

    fn only_line(write: impl FnOnce()) -> (Level, String) {
        let lines = CapturedLogs::default();
        tracing::subscriber::with_default(lines.clone(), write);
        let mut lines = lines.0.lock().unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }

    #[test]
    fn expired_load_reports_are_a_warning() {
        let settings = LoadAwareLocality::try_new(Default::default()).unwrap();
        let (level, line) = only_line(|| log_expired_reports("orders", &settings, 12));
        assert_eq!(level, Level::WARN);
        let fields = "localities=12 remote_probe_fraction=0.03 weight_expiration_period_s=180.0";
        assert!(line.contains(fields), "{line}");
    }

    #[test]
    fn every_event_is_logged_with_its_fields() {
        let stale = Event::FractionsStale {
            origin: FractionOrigin::EdsField,
            age: Duration::from_secs(61),
            threshold: Duration::from_secs(60),
        };
        let panic = |panic| Event::PanicChanged { priority: 1, panic };
        let cases = [
            (Level::WARN, stale, "age_s=61.0 threshold_s=60.0"),
            (
                Level::INFO,
                Event::FractionsRecovered {
                    origin: FractionOrigin::EdsField,
                },
                "origin=EdsField",
            ),
            (
                Level::DEBUG,
                Event::MembershipChanged {
                    added: 2,
                    removed: 1,
                    total: 5,
                },
                "added=2 removed=1 total=5",
            ),
            (Level::WARN, panic(true), "priority=1"),
            (
                Level::INFO,
                Event::ZoneRoutingChanged {
                    cluster: "orders".into(),
                    priority: 0,
                    state: StateName::LocalityDirect,
                    reason: None,
                },
                "state=LocalityDirect",
            ),
        ];
        for (expected, event, fields) in cases {
            let (level, line) = line_of(&event);
            assert_eq!(level, expected, "{line}");
            assert!(line.contains("cluster=\"orders\""), "{line}");
            assert!(line.contains(fields), "{line}");
        }
        assert_eq!(line_of(&panic(false)).0, Level::INFO);
    }
}
