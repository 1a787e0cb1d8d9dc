//! One log line per [`Event`] of a cluster, as all data planes write it.

use plimsoll_core::event::Event;
use plimsoll_core::model::load_aware_locality::LoadAwareLocality;

pub(crate) fn log(cluster: &str, event: &Event) {
    plimsoll_core::log_event!(cluster, event);
}

pub(crate) fn log_expired_reports(cluster: &str, settings: &LoadAwareLocality, localities: usize) {
    plimsoll_core::log_expired_reports!(cluster, settings, localities);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::explain::StateName;
    use plimsoll_core::locality_picking::fractions::FractionOrigin;
    use tracing::Level;

    use super::*;
    use plimsoll_testing::CapturedLogs;

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
        let fields = "localities=12 out_of_band=false remote_probe_fraction=0.03 \
                      weight_expiration_period_s=180.0";
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
