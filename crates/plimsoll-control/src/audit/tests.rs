//! Entries of the audit, and their differences.

use super::*;
use crate::config::{ConfigFile, ControlConfig};

fn config(text: &str) -> ControlConfig {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: text.to_owned(),
    };
    ControlConfig::parse(&file, &[]).unwrap()
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

const BEFORE: &str = "
services:
- cluster: {name: orders}
  mode: SHADOW
  ramp: 10
  endpoints:
  - locality: {region: r1, zone: a}
    lb_endpoints: ['10.0.0.1:80']
- cluster: {name: search}
";

fn text(before: &str, after: &str) -> String {
    let audit = Audit::default();
    let changes = changes(Some(&config(before)), &config(after));
    let entry = audit.add(AuditKind::Changed, "edit of the files", changes, at(0));
    entry.text()
}

#[test]
fn changes_of_a_service_name_values_and_places() {
    let after = BEFORE
        .replace("SHADOW", "ENFORCE")
        .replace("ramp: 10", "ramp: 50");
    assert_eq!(
        text(BEFORE, &after),
        "orders: mode SHADOW → ENFORCE, ramp 10 → 50, control.yaml:4, control.yaml:5"
    );
    let after = BEFORE.replace("ramp: 10", "ramp: 10\n  visible_to: [web, batch]");
    assert_eq!(
        text(BEFORE, &after),
        "orders: visible_to batch, web added, control.yaml:3"
    );
    let after = BEFORE.replace("['10.0.0.1:80']", "['10.0.0.1:80', '10.0.0.2:80']");
    assert_eq!(
        text(BEFORE, &after),
        "orders: endpoints in r1/a 1 → 2, endpoint 10.0.0.2:80 r1/a UNKNOWN weight 1 added, \
         control.yaml:7"
    );
    let after = BEFORE.replace("10.0.0.1", "10.0.0.9");
    assert_eq!(
        text(BEFORE, &after),
        "orders: endpoint 10.0.0.1:80 r1/a UNKNOWN weight 1 removed, endpoint 10.0.0.9:80 r1/a \
         UNKNOWN weight 1 added, control.yaml:7"
    );
    let marked = "[{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}, \
        health_status: UNHEALTHY}]";
    let after = BEFORE.replace("['10.0.0.1:80']", marked);
    assert_eq!(
        text(BEFORE, &after),
        "orders: endpoint 10.0.0.1:80 r1/a UNKNOWN weight 1 → r1/a UNHEALTHY weight 1, \
         control.yaml:7"
    );
    let after = BEFORE.replace("{name: search}", "{name: search, lb_policy: MAGLEV}");
    let words = text(BEFORE, &after);
    assert!(
        words.starts_with("search: policy ") && words.contains("maglev"),
        "{words}"
    );
}

#[test]
fn added_and_removed_services_and_settings_are_named() {
    let after = BEFORE.replace("name: search", "name: carts")
        + "load_reporting: {interval: 5s}\nlimits: {nodes: 7}\n";
    assert_eq!(
        text(BEFORE, &after),
        "load_reporting.interval 10s → 5s, limits changed; search: removed, control.yaml:9; \
         carts: added (ENFORCE, 0 endpoints), control.yaml:9"
    );
    assert_eq!(text(BEFORE, BEFORE), "edit of the files: nothing changed");
    // A comment moves lines and changes nothing.
    assert_eq!(
        changes(Some(&config(BEFORE)), &config(&format!("# x\n{BEFORE}"))),
        []
    );
    let all = changes(None, &config(BEFORE));
    let entry = Audit::default().add(AuditKind::Started, "start", all, at(0));
    assert_eq!(
        entry.text(),
        "started with orders: added (SHADOW, ramp 10, 1 endpoint), control.yaml:3; \
         search: added (ENFORCE, 0 endpoints), control.yaml:9"
    );
}

#[test]
fn refused_edits_are_kept_with_their_reason() {
    let audit = Audit::default();
    let entry = audit.refuse("edit of the files", "control.yaml: x", at(1));
    assert_eq!(entry.text(), "edit of the files refused: control.yaml: x");
    audit.refuse("SIGHUP", &"é".repeat(10_000), at(2));
    let all = audit.all();
    assert_eq!(
        all.iter().map(|entry| entry.number).collect::<Vec<_>>(),
        [2, 1]
    );
    assert_eq!(all[1], entry);
    let reason = all[0].reason.as_ref().unwrap();
    assert!(reason.len() <= MAX_REASON + '…'.len_utf8() && reason.ends_with("é…"));
}

#[test]
fn memory_is_bounded() {
    let audit = Audit::default();
    let change = |number: usize| Change {
        service: None,
        field: number.to_string(),
        before: None,
        after: None,
        source: None,
    };
    for _ in 0..=CAPACITY {
        let changes = (0..MAX_CHANGES + 7).map(change).collect();
        audit.add(AuditKind::Changed, "test", changes, at(0));
    }
    let all = audit.all();
    assert_eq!((all.len(), all[0].number), (CAPACITY, CAPACITY as u64 + 1));
    assert_eq!(
        (all[0].changes.len(), all[0].more_changes),
        (MAX_CHANGES, 7)
    );
    assert!(all[0].text().ends_with("; and 7 more"));
}

#[test]
fn a_change_is_delivered_when_every_stream_has_answered() {
    let audit = Audit::default();
    let number = audit
        .add(AuditKind::Changed, "x", Vec::new(), at(100))
        .number;
    assert_eq!(
        audit.answer(1, Answer::Accepted(9), at(101)),
        None,
        "no one waits"
    );
    audit.await_answers(number, BTreeMap::from([(1, 5), (2, 5), (3, 6), (4, 6)]));
    assert_eq!(
        audit.answer(1, Answer::Accepted(4), at(110)),
        None,
        "an older view"
    );
    assert_eq!(audit.answer(1, Answer::Accepted(5), at(120)), None);
    assert_eq!(
        audit.answer(1, Answer::Accepted(5), at(121)),
        None,
        "counted once"
    );
    assert_eq!(
        audit.answer(7, Answer::Accepted(5), at(121)),
        None,
        "another stream"
    );
    assert_eq!(audit.answer(2, Answer::Refused, at(130)), None);
    assert_eq!(audit.answer(4, Answer::Closed, at(140)), None);
    let delivered = audit.answer(3, Answer::Accepted(8), at(150)).unwrap();
    let delivery = Delivery {
        streams: 4,
        accepted: 2,
        refused: 1,
        closed: 1,
        first_ack: Some(Duration::from_millis(20)),
        last_ack: Some(Duration::from_millis(50)),
        superseded: false,
    };
    assert_eq!(
        delivered,
        Delivered {
            number,
            delivery: delivery.clone()
        }
    );
    assert_eq!(
        delivered.text(),
        "change 1 accepted by 2 of 4 proxies, refused by 1"
    );
    assert_eq!(audit.all()[0].delivery, Some(delivery));
    assert!(!audit.is_waiting());
}

#[test]
fn a_later_change_supersedes_one_that_waits() {
    let audit = Audit::default();
    let add = |now| {
        audit
            .add(AuditKind::Changed, "x", Vec::new(), at(now))
            .number
    };
    let first = add(0);
    audit.await_answers(first, BTreeMap::from([(1, 5)]));
    let second = add(10);
    audit.await_answers(second, BTreeMap::from([(1, 6)]));
    let delivered = audit.answer(1, Answer::Accepted(6), at(20)).unwrap();
    assert_eq!(delivered.number, second);
    assert_eq!(
        delivered.text(),
        "change 2 accepted by 1 proxy within 10 ms"
    );
    let all = audit.all();
    assert!(all[1].delivery.as_ref().unwrap().superseded);
    assert!(!all[0].delivery.as_ref().unwrap().superseded);
    // Nothing to deliver.
    audit.await_answers(add(30), BTreeMap::new());
    assert_eq!(audit.all()[0].delivery, None);
}

#[test]
fn settings_of_the_control_plane_are_named_and_secrets_are_not_shown() {
    let base = "services: [{cluster: {name: orders}}]\n";
    let change = |more: &str| {
        let found = changes(Some(&config(base)), &config(&format!("{base}{more}")));
        let parts = found.into_iter().map(|change| {
            assert_eq!(change.service, None);
            (change.field, change.before, change.after)
        });
        parts.collect::<Vec<_>>()
    };
    let field = |name: &str, before: Option<&str>, after: Option<&str>| {
        let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
        vec![(name.to_owned(), owned(before), owned(after))]
    };
    assert_eq!(change(""), []);
    assert_eq!(
        change("load_reporting: {interval: 7s}"),
        field("load_reporting.interval", Some("10s"), Some("7s"))
    );
    assert_eq!(
        change("fleets: {leave_after: 11s}"),
        field("fleets.leave_after", Some("30s"), Some("11s"))
    );
}

#[test]
fn words_of_a_change_depend_on_its_values() {
    let words = |before: Option<&str>, after: Option<&str>| {
        let change = Change {
            service: None,
            field: "ramp".to_owned(),
            before: before.map(ToOwned::to_owned),
            after: after.map(ToOwned::to_owned),
            source: None,
        };
        diff::sentence(&[change])
    };
    assert_eq!(words(Some("1"), Some("2")), "ramp 1 → 2");
    assert_eq!(words(None, Some("2")), "ramp 2 added");
    assert_eq!(words(Some("1"), None), "ramp 1 removed");
    assert_eq!(words(None, None), "ramp changed");
    assert_eq!(diff::sentence(&[]), "");
}

#[test]
fn other_settings_of_a_service_are_named() {
    for (fields, words) in [
        ("delivery: FLEET_WEIGHTS", "delivery Auto → FleetWeights"),
        (
            "cluster: {name: search, connect_timeout: 1s}",
            "cluster.connect_timeout changed",
        ),
        (
            "cluster: {name: search, http2_protocol_options: {}}",
            "cluster.typed_extension_protocol_options changed",
        ),
        (
            "cluster: {name: search, common_lb_config: {healthy_panic_threshold: {value: 1}}}",
            "policy changed",
        ),
    ] {
        let after = if fields.starts_with("cluster") {
            BEFORE.replace("cluster: {name: search}", fields)
        } else {
            format!("{BEFORE}  {fields}\n")
        };
        let text = text(BEFORE, &after);
        let expected = format!("search: {words}, control.yaml:");
        assert!(text.starts_with(&expected), "{text}");
        assert_eq!(text.matches(',').count(), 1, "{text}");
    }
}

#[test]
fn endpoints_of_discovered_services_are_no_change() {
    let after = BEFORE
        .replace("10.0.0.1", "10.0.0.9")
        .replace("{name: search}", "{name: carts}");
    let between = |before: &str, after: &str| {
        let names = ["carts", "lost", "orders", "search"].map(Arc::from);
        let changes = discovered_changes(&config(before), &config(after), names.iter());
        let audit = Audit::default();
        audit.add(AuditKind::Changed, "x", changes, at(0)).text()
    };
    assert_eq!(
        between(BEFORE, &after),
        "carts: added (ENFORCE, 0 endpoints), control.yaml:9; search: removed, control.yaml:9"
    );
    assert_eq!(
        between(BEFORE, &BEFORE.replace("ramp: 10", "ramp: 50")),
        "orders: ramp 10 → 50, control.yaml:5"
    );
}

#[test]
fn a_flood_of_one_source_pushes_out_its_own_entries_only() {
    let audit = Audit::default();
    audit.refuse("edit of the files", "first", at(0));
    for number in 0..2 * CAPACITY as u64 {
        audit.refuse("Service shop/orders", "no", at(number));
    }
    let all = audit.all();
    assert_eq!(all.len(), CAPACITY);
    let oldest = all.last().unwrap();
    assert_eq!((oldest.number, &*oldest.by), (1, "edit of the files"));
}
