//! What happened to the routing of a proxy, in words.

use std::sync::Arc;

use plimsoll_admin::state::{EventState, Severity};
use plimsoll_client::Client;
use plimsoll_core::event::Event;
use plimsoll_core::explain::StateName;

use crate::dashboard::Moments;

/// Events of the page.
const EVENTS: usize = 100;

/// The last events of these clusters, newest first.
pub(super) fn events(client: &Client, clusters: &[Arc<str>], origin: Moments) -> Vec<EventState> {
    let mut all: Vec<EventState> = Vec::new();
    for cluster in clusters {
        let recent = client.recent_events(cluster).into_iter();
        all.extend(recent.map(|(at, event)| {
            let (severity, text) = words(&event);
            EventState {
                at_unix_ms: origin.at(at),
                severity,
                text: format!("{cluster}: {text}"),
            }
        }));
    }
    // Those of one cluster are in order already and stay so.
    all.sort_by_key(|event| std::cmp::Reverse(event.at_unix_ms));
    all.truncate(EVENTS);
    all
}

fn words(event: &Event) -> (Severity, String) {
    match event {
        Event::FractionsStale { age, threshold, .. } => {
            let (age, threshold) = (age.as_secs(), threshold.as_secs());
            let text = format!(
                "measured demand is {age} s old, more than {threshold} s: host counts are used"
            );
            (Severity::Warning, text)
        }
        Event::FractionsRecovered { .. } => {
            let text = "measured demand is in force again".to_owned();
            (Severity::Info, text)
        }
        Event::MembershipChanged {
            added,
            removed,
            total,
        } => {
            let text = format!("{added} hosts came, {removed} went, {total} are there");
            (Severity::Info, text)
        }
        Event::PanicChanged { priority, panic } => match panic {
            true => {
                let text = format!("priority {priority} is in panic: all its hosts are used");
                (Severity::Error, text)
            }
            false => {
                let text = format!("priority {priority} is no longer in panic");
                (Severity::Info, text)
            }
        },
        Event::SubsetsChanged {
            created,
            removed,
            active,
        } => {
            let text = format!("{created} subsets came, {removed} went, {active} are there");
            (Severity::Info, text)
        }
        Event::SubsetLimitReached { limit, .. } => {
            let text = format!("more than {limit} subsets: those left out use the fallback");
            (Severity::Warning, text)
        }
        Event::ZoneRoutingChanged { state, reason, .. } => {
            let state = match state {
                StateName::LocalityDirect => "requests stay in their zone",
                StateName::LocalityResidual => "requests spill to other zones",
                StateName::NoLocalityRouting => "zones play no part",
            };
            let why = reason.map(|reason| format!(" ({reason:?})"));
            (
                Severity::Info,
                format!("{state}{}", why.unwrap_or_default()),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::locality_picking::fractions::FractionOrigin;
    use plimsoll_core::locality_picking::zone_aware::Reason;

    use super::*;

    #[test]
    fn every_event_is_said_in_words() {
        let origin = FractionOrigin::LrsResponse;
        let stale = Event::FractionsStale {
            origin,
            age: Duration::from_millis(61_500),
            threshold: Duration::from_secs(60),
        };
        let routing = |state, reason| Event::ZoneRoutingChanged {
            cluster: "orders".into(),
            priority: 0,
            state,
            reason,
        };
        let panic = |panic| Event::PanicChanged { priority: 0, panic };
        let cases = [
            (stale, Severity::Warning, "is 61 s old, more than 60 s"),
            (
                Event::FractionsRecovered { origin },
                Severity::Info,
                "again",
            ),
            (panic(true), Severity::Error, "is in panic"),
            (panic(false), Severity::Info, "no longer"),
            (
                routing(StateName::LocalityDirect, None),
                Severity::Info,
                "stay in their zone",
            ),
            (
                routing(StateName::NoLocalityRouting, Some(Reason::UpstreamTooSmall)),
                Severity::Info,
                "zones play no part (UpstreamTooSmall)",
            ),
        ];
        for (event, severity, part) in cases {
            let (found, text) = words(&event);
            assert_eq!(found, severity, "{text}");
            assert!(text.contains(part), "{text}");
        }
    }
}
