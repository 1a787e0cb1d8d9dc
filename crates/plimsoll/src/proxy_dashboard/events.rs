//! Events of a proxy's dashboard document: changes of the proxy's routing, as text.

use std::sync::Arc;

use plimsoll_admin::state::{EventState, Severity};
use plimsoll_client::Client;
use plimsoll_core::event::Event;
use plimsoll_core::explain::StateName;

use crate::dashboard::WallClock;

const MAX_EVENTS: usize = 100;

/// Returns the latest events of these clusters, newest first.
pub(super) fn events(
    client: &Client,
    clusters: &[Arc<str>],
    wall_clock: WallClock,
) -> Vec<EventState> {
    let mut all: Vec<EventState> = Vec::new();
    for cluster in clusters {
        let recent = client.recent_events(cluster).into_iter();
        all.extend(recent.map(|(at, event)| {
            let (severity, text) = describe(&event);
            EventState {
                at_unix_ms: wall_clock.at(at),
                severity,
                text: format!("{cluster}: {text}"),
            }
        }));
    }
    // The sort is stable, so simultaneous events of a cluster keep their order.
    all.sort_by_key(|event| std::cmp::Reverse(event.at_unix_ms));
    all.truncate(MAX_EVENTS);
    all
}

fn describe(event: &Event) -> (Severity, String) {
    match event {
        Event::FractionsStale { age, threshold, .. } => {
            let (age, threshold) = (age.as_secs(), threshold.as_secs());
            let demand = format!("measured demand is stale ({age} s old, limit {threshold} s)");
            let text = format!("{demand}: falling back to host counts");
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
            let text = format!("{added} hosts added, {removed} removed, {total} in total");
            (Severity::Info, text)
        }
        Event::PanicChanged { priority, panic } if *panic => {
            let text = format!("priority {priority} is in panic: health of its hosts is ignored");
            (Severity::Error, text)
        }
        Event::PanicChanged { priority, .. } => {
            let text = format!("priority {priority} is no longer in panic");
            (Severity::Info, text)
        }
        Event::SubsetsChanged {
            created,
            removed,
            active,
        } => {
            let text = format!("{created} subsets created, {removed} removed, {active} in total");
            (Severity::Info, text)
        }
        Event::SubsetLimitReached { limit, .. } => {
            let text = format!("limit of {limit} subsets reached: others use the fallback");
            (Severity::Warning, text)
        }
        Event::ZoneRoutingChanged { state, reason, .. } => {
            let state = match state {
                StateName::LocalityDirect => "requests stay in their zone",
                StateName::LocalityResidual => "requests spill to other zones",
                StateName::LoadAwareLocality => "requests follow the load of hosts",
                StateName::LocalityWeighted => "requests follow locality weights",
                StateName::NoLocalityRouting => "zones are ignored",
                state => state.as_str(),
            };
            let why = reason.map(|reason| format!(" ({reason:?})"));
            (
                Severity::Info,
                format!("{state}{}", why.unwrap_or_default()),
            )
        }
        event => (Severity::Info, format!("{event:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::locality_picking::fractions::FractionOrigin;
    use plimsoll_core::locality_picking::zone_aware::Reason;

    use super::*;

    #[test]
    fn events_are_described_with_their_severity() {
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
            (stale, Severity::Warning, "61 s old, limit 60 s"),
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
                "zones are ignored (UpstreamTooSmall)",
            ),
        ];
        for (event, severity, part) in cases {
            let (found, text) = describe(&event);
            assert_eq!(found, severity, "{text}");
            assert!(text.contains(part), "{text}");
        }
    }
}
