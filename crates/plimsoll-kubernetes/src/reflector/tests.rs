//! The protocol, with scripted answers of an API server.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::objects::{Service, ZoneRoutingPolicy};

fn service(name: &str, version: u64) -> Value {
    json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": version.to_string()},
           "spec": {"ports": [{"port": 80}]}})
}

fn page(items: &[Value], version: u64, next: &str) -> ListJson {
    let page = json!({"metadata": {"resourceVersion": version.to_string(), "continue": next},
                      "items": items});
    serde_json::from_str(&page.to_string()).unwrap()
}

fn event(kind: &str, object: &Value) -> WatchEventJson {
    let event = json!({"type": kind, "object": object});
    serde_json::from_str(&event.to_string()).unwrap()
}

fn status(code: u16) -> Failure {
    Failure::Status {
        status: Status {
            code,
            ..Status::default()
        },
        retry_after: None,
    }
}

const NOW: Instant = Instant::from_secs(100);

fn new() -> Reflector<Service> {
    Reflector::new(RemovalGuard::default())
}

/// A mirror of services a and b at version 5.
fn synced() -> Reflector<Service> {
    let mut reflector = new();
    reflector.handle_page(page(&[service("a", 1), service("b", 2)], 5, ""), NOW);
    changes(&mut reflector);
    reflector
}

fn changes(reflector: &mut Reflector<Service>) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(change) = reflector.poll_change() {
        found.push(match change {
            Change::Applied(object) => format!("+{}@{}", object.key.name, object.resource_version),
            Change::Deleted(key) => format!("-{}", key.name),
        });
    }
    found
}

fn list(token: Option<&str>) -> Step {
    Step::List {
        continue_token: token.map(str::to_owned),
    }
}

fn watch(version: &str) -> Step {
    Step::Watch {
        resource_version: version.to_owned(),
    }
}

/// The next step once any wait is over.
fn next_step(reflector: &mut Reflector<Service>) -> Step {
    reflector.poll_step(Instant::from_secs(1_000_000))
}

#[test]
fn a_list_takes_effect_with_its_last_page() {
    let mut reflector = new();
    assert_eq!(reflector.poll_step(NOW), list(None));
    reflector.handle_page(page(&[service("a", 1)], 5, "next"), NOW);
    assert_eq!(changes(&mut reflector), [""; 0]);
    assert!(!reflector.is_synced());
    assert_eq!(reflector.poll_step(NOW), list(Some("next")));
    reflector.handle_page(page(&[service("b", 2)], 5, ""), NOW);
    assert_eq!(changes(&mut reflector), ["+a@1", "+b@2"]);
    assert!(reflector.is_synced());
    assert_eq!(reflector.poll_step(NOW), watch("5"));
}

#[test]
fn events_and_bookmarks_advance_the_version() {
    let mut reflector = synced();
    let events = [
        event("ADDED", &service("c", 6)),
        event("MODIFIED", &service("a", 7)),
        event("DELETED", &service("b", 8)),
        event("BOOKMARK", &json!({"metadata": {"resourceVersion": "12"}})),
    ];
    for event in &events {
        reflector.handle_event(event, 0, NOW).unwrap();
    }
    assert_eq!(changes(&mut reflector), ["+c@6", "+a@7", "-b"]);
    reflector.handle_watch_end(true, 0, NOW);
    assert_eq!(reflector.poll_step(NOW), watch("12"));
    assert_eq!(reflector.counts().bookmarks, 1);
    assert_eq!(reflector.counts().events, 3);
}

#[test]
fn a_watch_that_breaks_continues_where_it_was() {
    let mut reflector = synced();
    let added = event("ADDED", &service("c", 6));
    reflector.handle_event(&added, 0, NOW).unwrap();
    reflector.handle_failure(&Failure::Transport("reset".into()), 0, NOW);
    assert!(matches!(reflector.poll_step(NOW), Step::Wait(_)));
    assert_eq!(next_step(&mut reflector), watch("6"));
    assert_eq!(reflector.len(), 3, "nothing is forgotten");
}

#[test]
fn after_410_objects_stay_until_the_new_list_is_complete() {
    for as_event in [false, true] {
        let mut reflector = synced();
        if as_event {
            let gone = event("ERROR", &json!({"code": 410, "reason": "Expired"}));
            reflector.handle_event(&gone, 0, NOW).unwrap_err();
        } else {
            reflector.handle_failure(&status(410), 0, NOW);
        }
        assert_eq!(next_step(&mut reflector), list(None));
        reflector.handle_page(page(&[service("a", 1), service("c", 9)], 20, "x"), NOW);
        assert_eq!(changes(&mut reflector), [""; 0]);
        assert_eq!(reflector.len(), 2);
        reflector.handle_page(page(&[], 20, ""), NOW);
        assert_eq!(changes(&mut reflector), ["-b", "+c@9"]);
        assert_eq!(next_step(&mut reflector), watch("20"));
        assert_eq!(reflector.counts().gone, 1);
    }
}

#[test]
fn a_page_token_that_expires_starts_the_list_over() {
    let mut reflector = new();
    reflector.handle_page(page(&[service("old", 1)], 5, "next"), NOW);
    reflector.handle_failure(&status(410), 0, NOW);
    assert_eq!(next_step(&mut reflector), list(None));
    reflector.handle_page(page(&[service("a", 3)], 9, ""), NOW);
    assert_eq!(changes(&mut reflector), ["+a@3"]);
}

#[test]
fn an_api_server_that_always_answers_410_is_paced() {
    let mut reflector = new();
    let mut now = NOW;
    for _ in 0..6 {
        reflector.handle_failure(&status(410), 0, now);
        let Step::Wait(until) = reflector.poll_step(now) else {
            panic!("does not wait");
        };
        now = until;
    }
    let waited = now.saturating_duration_since(NOW);
    assert!(waited > Duration::from_secs(5), "{waited:?}");
}

#[test]
fn retry_after_is_a_lower_bound() {
    let mut reflector = synced();
    let mut failure = status(429);
    let asked = |failure: &mut Failure, seconds| match failure {
        Failure::Status { retry_after, .. } => *retry_after = Some(Duration::from_secs(seconds)),
        Failure::Transport(_) => {}
    };
    asked(&mut failure, 7);
    reflector.handle_failure(&failure, 0, NOW);
    assert_eq!(
        reflector.poll_step(NOW),
        Step::Wait(Instant::from_secs(107))
    );
    assert_eq!(reflector.poll_step(Instant::from_secs(107)), watch("5"));
    asked(&mut failure, 86_400);
    reflector.handle_failure(&failure, 0, NOW);
    assert_eq!(
        reflector.poll_step(NOW),
        Step::Wait(Instant::from_secs(400))
    );
}

#[test]
fn failures_wait_longer_and_longer() {
    let mut reflector = new();
    let mut waits = Vec::new();
    for _ in 0..4 {
        reflector.handle_failure(&status(503), 0, NOW);
        let Step::Wait(until) = reflector.poll_step(NOW) else {
            panic!("does not wait");
        };
        waits.push(until.saturating_duration_since(NOW).as_millis());
    }
    assert_eq!(waits, [125, 250, 500, 1000]);
    assert_eq!(reflector.counts().failures, 4);
}

#[test]
fn a_watch_that_ends_without_events_is_paced() {
    let mut reflector = synced();
    reflector.handle_watch_end(false, 0, NOW);
    let until = Instant::from_millis(100_125);
    assert_eq!(reflector.poll_step(NOW), Step::Wait(until));
    assert_eq!(reflector.poll_step(until), watch("5"));
}

#[test]
fn an_object_that_cannot_be_decoded_stays_as_it_was() {
    let mut reflector = synced();
    let mut broken = service("a", 6);
    broken["spec"]["ports"] = json!([{"port": "http"}]);
    reflector
        .handle_event(&event("MODIFIED", &broken), 0, NOW)
        .unwrap();
    assert_eq!(changes(&mut reflector), [""; 0]);
    reflector.handle_failure(&status(410), 0, NOW);
    reflector.handle_page(page(&[broken, service("b", 2)], 9, ""), NOW);
    assert_eq!(changes(&mut reflector), [""; 0]);
    assert_eq!(reflector.len(), 2);
    assert_eq!(reflector.counts().invalid, 2);
}

#[test]
fn a_kind_without_crd_is_empty_and_asked_for_again() {
    let mut reflector: Reflector<ZoneRoutingPolicy> = Reflector::new(RemovalGuard::default());
    reflector.handle_failure(&status(404), 0, NOW);
    assert!(reflector.is_synced() && reflector.is_missing());
    assert_eq!(
        reflector.poll_step(NOW),
        Step::Wait(Instant::from_secs(130))
    );
    assert_eq!(reflector.poll_step(Instant::from_secs(130)), list(None));
    let mut builtin = new();
    builtin.handle_failure(&status(404), 0, NOW);
    assert!(!builtin.is_synced(), "Services exist everywhere");
}

#[test]
fn an_unknown_event_ends_the_watch() {
    let mut reflector = synced();
    let unknown = event("EXPLODED", &json!({}));
    let failure = reflector.handle_event(&unknown, 0, NOW).unwrap_err();
    assert!(failure.text().contains("EXPLODED"));
    assert_eq!(next_step(&mut reflector), watch("5"));
}

fn relist(reflector: &mut Reflector<Service>, items: &[Value], now: Instant) -> Vec<String> {
    reflector.handle_failure(&status(410), 0, now);
    reflector.handle_page(page(items, 50, ""), now);
    changes(reflector)
}

#[test]
fn a_list_that_lost_most_objects_is_believed_later() {
    let mut reflector = synced();
    assert_eq!(relist(&mut reflector, &[], NOW), [""; 0]);
    assert_eq!(reflector.held(), 2);
    assert_eq!(reflector.poll_timeout(), Some(Instant::from_secs(400)));
    // Another list does not start the time again, and what it has again stays.
    let later = Instant::from_secs(300);
    let listed = [service("b", 2)];
    assert_eq!(
        relist(&mut reflector, &listed, later),
        ["-a"],
        "half may go"
    );
    assert_eq!(reflector.held(), 0);
    assert_eq!(relist(&mut reflector, &[], later), [""; 0]);
    reflector.handle_timeout(Instant::from_secs(600));
    assert_eq!(changes(&mut reflector), ["-b"]);
    assert!(reflector.is_empty());
}

#[test]
fn objects_that_were_all_replaced_by_others_are_not_held_back() {
    let mut reflector = synced();
    let listed = [service("c", 8), service("d", 9)];
    let expected = ["-a", "-b", "+c@8", "+d@9"];
    assert_eq!(relist(&mut reflector, &listed, NOW), expected);
    assert_eq!(reflector.held(), 0);
}

#[test]
fn an_explicit_deletion_is_never_held_back() {
    let mut reflector = synced();
    relist(&mut reflector, &[], NOW);
    let deleted = event("DELETED", &service("a", 60));
    reflector.handle_event(&deleted, 0, NOW).unwrap();
    assert_eq!(changes(&mut reflector), ["-a"]);
    let added = event("ADDED", &service("b", 61));
    reflector.handle_event(&added, 0, NOW).unwrap();
    assert_eq!(changes(&mut reflector), ["+b@61"]);
    reflector.handle_timeout(Instant::from_secs(1_000));
    assert_eq!(changes(&mut reflector), [""; 0], "b is known again");
}

proptest! {
    /// After any sequence of events, failures and lists, the changes that came out build the
    /// objects of the mirror, and a complete list makes it equal to the server's.
    #[test]
    fn changes_build_the_mirror(steps in prop::collection::vec((0_u8..6, 0_u8..5), 0..60)) {
        let guard = RemovalGuard { max_removed_percent: 100, ..RemovalGuard::default() };
        let mut reflector: Reflector<Service> = Reflector::new(guard);
        let mut server: BTreeMap<String, u64> = BTreeMap::new();
        let mut built: BTreeMap<String, u64> = BTreeMap::new();
        let mut version = 10;
        for (step, object) in steps {
            version += 1;
            let name = format!("s{object}");
            let watching = matches!(next_step(&mut reflector), Step::Watch { .. });
            match step {
                0 | 1 => {
                    server.insert(name.clone(), version);
                    if watching {
                        let event = event("MODIFIED", &service(&name, version));
                        reflector.handle_event(&event, 0, NOW).unwrap();
                    }
                }
                2 => {
                    if server.remove(&name).is_some() && watching {
                        let event = event("DELETED", &service(&name, version));
                        reflector.handle_event(&event, 0, NOW).unwrap();
                    }
                }
                3 => reflector.handle_failure(&status(410), 0, NOW),
                _ => {
                    let items: Vec<Value> =
                        server.iter().map(|(name, at)| service(name, *at)).collect();
                    reflector.handle_page(page(&items, version, ""), NOW);
                }
            }
            while let Some(change) = reflector.poll_change() {
                match change {
                    Change::Applied(object) => {
                        let at = object.resource_version.parse().unwrap();
                        built.insert(object.key.name.to_string(), at);
                    }
                    Change::Deleted(key) => drop(built.remove(&*key.name)),
                }
            }
            if matches!(next_step(&mut reflector), Step::Watch { .. }) {
                prop_assert_eq!(&built, &server);
            }
            prop_assert_eq!(built.len(), reflector.len());
        }
    }
}
