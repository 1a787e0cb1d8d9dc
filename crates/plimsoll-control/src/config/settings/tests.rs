//! Every setting of the file is in the table, and every reader of the table sees its edits.

use super::*;
use crate::audit::{Change, changes};

const TLS: &str = "{certificate: c.pem, private_key: hunter2.pem}";
const MUTUAL_TLS: &str = "{certificate: c.pem, private_key: hunter2.pem, client_ca: ca.pem}";

fn parse(text: &str) -> ControlConfig {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: text.to_owned(),
    };
    ControlConfig::parse(&file, &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// An edit of each setting: the files before and after, and the values in the audit.
fn edits() -> Vec<(&'static str, String, String, [Option<&'static str>; 2])> {
    let edit = |name, before: &str, after: &str, values: [&'static str; 2]| {
        let values = values.map(|value| Some(value).filter(|value| !value.is_empty()));
        (name, before.to_owned(), after.to_owned(), values)
    };
    let added = |name, after: &str, values| edit(name, "{}", after, values);
    vec![
        edit(
            "identities",
            &format!("tls: {MUTUAL_TLS}"),
            &format!("{{tls: {MUTUAL_TLS}, identities: [{{uri: 'spiffe://td/hunter2'}}]}}"),
            ["", ""],
        ),
        added(
            "listen",
            "listen: 127.0.0.1:1",
            ["127.0.0.1:18000", "127.0.0.1:1"],
        ),
        added("tls", &format!("tls: {TLS}"), ["none", "set"]),
        added("insecure", "insecure: true", ["false", "true"]),
        added("admin", "admin: ''", ["127.0.0.1:18001", "none"]),
        added("admin_tls", &format!("admin_tls: {TLS}"), ["none", "set"]),
        edit(
            "admin_identities",
            &format!(
                "{{admin_tls: {MUTUAL_TLS}, admin_identities: [{{uri: 'spiffe://td/hunter2'}}]}}"
            ),
            &format!("{{admin_tls: {MUTUAL_TLS}, admin_identities: []}}"),
            ["1 patterns", "0 patterns"],
        ),
        added(
            "read_only",
            "read_only: 127.0.0.1:1",
            ["none", "127.0.0.1:1"],
        ),
        edit(
            "kubernetes",
            "kubernetes: {api_server: 'http://a:1'}",
            "kubernetes: {api_server: 'http://a:1', token_file: hunter2}",
            ["", ""],
        ),
        edit(
            "consul",
            "consul: {}",
            "consul: {token_file: hunter2}",
            ["", ""],
        ),
        edit(
            "dns",
            "dns: {names: [{name: a.example, cluster: a}]}",
            "dns: {names: [{name: hunter2.example, cluster: a}]}",
            ["", ""],
        ),
        added("relay", "relay: {address: 'h:1'}", ["none", "h:1"]),
        edit(
            "store",
            "store: {etcd: {endpoints: ['[::1]:1']}}",
            "store: {etcd: {endpoints: ['[::1]:1'], tls: {ca: hunter2}}}",
            ["", ""],
        ),
        added(
            "otlp",
            "otlp: {endpoint: 'http://me:hunter2@h:1'}",
            ["none", "set"],
        ),
        added(
            "load_reporting.interval",
            "load_reporting: {interval: 7s}",
            ["10s", "7s"],
        ),
        added(
            "load_reporting.report_endpoint_granularity",
            "load_reporting: {report_endpoint_granularity: true}",
            ["false", "true"],
        ),
        added("demand.heartbeat", "demand: {heartbeat: 5s}", ["20s", "5s"]),
        added(
            "demand.max_times_median",
            "demand: {max_times_median: 5}",
            ["20", "5"],
        ),
        added(
            "demand.idle_timeout",
            "demand: {idle_timeout: 60s}",
            ["3600s", "60s"],
        ),
        added("limits", "limits: {nodes: 5}", ["", ""]),
        added(
            "demand.smoothing_time_constant",
            "demand: {smoothing_time_constant: 5s}",
            ["20s", "5s"],
        ),
        added(
            "demand.missed_intervals",
            "demand: {missed_intervals: 5}",
            ["3", "5"],
        ),
        added(
            "demand.material_change_bp",
            "demand: {material_change_bp: 5}",
            ["50", "5"],
        ),
        added(
            "fleets.local_cluster_names",
            "fleets: {local_cluster_names: [a, b]}",
            ["[local_cluster, local]", "[a, b]"],
        ),
        added(
            "fleets.leave_after",
            "fleets: {leave_after: 5s}",
            ["30s", "5s"],
        ),
        added(
            "fleets.endpoint_stale_after",
            "fleets: {endpoint_stale_after: 60s}",
            ["none", "60s"],
        ),
        added("fleets.zones", "fleets: {zones: [{zone: a}]}", ["", ""]),
        added(
            "reload.max_removed_percent",
            "reload: {max_removed_percent: 100}",
            ["50", "100"],
        ),
        added("cost", "cost: {bytes_per_request: 1}", ["", ""]),
        added("evacuation", "evacuation: {max_utilization: 0.5}", ["", ""]),
        edit(
            "listeners",
            "services: [{cluster: {name: a}}]",
            "{services: [{cluster: {name: a}}], listeners: [{name: in, address: '127.0.0.1:1',
              virtual_hosts: [{name: all, routes: [{match: {prefix: /}, route: {cluster: a}}]}]}]}",
            ["", ""],
        ),
    ]
}

/// Settings whose changes are those of services, which the audit names one by one.
const SERVICES: [&str; 2] = ["include", "services"];

#[test]
fn the_audit_names_every_edited_setting_and_shows_no_secrets() {
    let edits = edits();
    for (name, before, after, [old, new]) in &edits {
        let expected = Change {
            service: None,
            field: (*name).to_owned(),
            before: old.map(ToOwned::to_owned),
            after: new.map(ToOwned::to_owned),
            source: None,
        };
        let [before, after] = [before, after].map(|text| parse(text));
        let found = changes(Some(&before), &after);
        assert_eq!(found, [expected], "{name}");
        assert!(!format!("{found:?}").contains("hunter2"), "{name}");
        assert_eq!(changes(Some(&after), &after), [], "{name}");
    }
    let mut edited: Vec<_> = edits.iter().map(|(name, ..)| *name).collect();
    edited.extend(SERVICES);
    edited.sort_unstable();
    let mut all: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(edited, all, "an edit of every setting");
}

#[test]
fn settings_that_need_a_restart_say_so_and_only_these() {
    for (name, before, after, _) in edits() {
        let needs_restart = SETTINGS.iter().any(|one| {
            one.name == name && one.needs_restart && one.differs(&parse(&before), &parse(&after))
        });
        let expected: &[&str] = if needs_restart { &[name] } else { &[] };
        let waiting = restart_needed(&parse(&before), &parse(&after));
        assert_eq!(waiting, expected);
    }
}

/// Names of the fields of the file; of sections whose fields are settings, `section.field`.
#[cfg(feature = "schema")]
fn fields() -> BTreeSet<String> {
    let schema = serde_json::to_value(crate::config::schema()).unwrap();
    let properties = |of: &Value| of["properties"].as_object().cloned().unwrap_or_default();
    let mut names = BTreeSet::new();
    for (name, field) in properties(&schema) {
        let reference = field["$ref"].as_str().unwrap_or_default();
        let section = reference
            .strip_prefix('#')
            .and_then(|path| schema.pointer(path));
        let prefix = format!("{name}.");
        match section {
            Some(section) if SETTINGS.iter().any(|one| one.name.starts_with(&prefix)) => {
                names.extend(
                    properties(section)
                        .keys()
                        .map(|field| format!("{prefix}{field}")),
                );
            }
            _ => drop(names.insert(name)),
        }
    }
    names
}

#[cfg(feature = "schema")]
#[test]
fn every_field_of_the_file_is_in_the_table() {
    let table: BTreeSet<_> = SETTINGS.iter().map(|one| one.name.to_owned()).collect();
    assert_eq!(fields(), table);
}

#[cfg(feature = "schema")]
#[test]
fn an_edit_of_any_limit_is_audited() {
    let limits = crate::config::limit_fields();
    assert!(limits.len() >= 20, "{limits:?}");
    for limit in limits {
        // One of these is in the range of every limit, and the default of none.
        let values = ["777", "777777", "7777777", "7s"];
        let texts = values.map(|value| format!("limits: {{{limit}: {value}}}"));
        let edited = texts.iter().find_map(|text| {
            let file = ConfigFile {
                name: String::new(),
                text: text.clone(),
            };
            ControlConfig::parse(&file, &[]).ok()
        });
        let changes = changes(Some(&parse("{}")), &edited.unwrap());
        let fields: Vec<_> = changes.iter().map(|change| change.field.as_str()).collect();
        assert_eq!(fields, ["limits"], "{limit}");
    }
}

const AGREED: &str = "
load_reporting: {interval: 5s}
demand: {heartbeat: 5s, missed_intervals: 5}
fleets: {local_cluster_names: [own], endpoint_stale_after: 60s, zones: [{zone: a}]}
services:
- cluster: {name: orders, connect_timeout: 1s, lb_policy: LEAST_REQUEST}
  mode: SHADOW
  ramp: 10
- cluster: {name: search}
listeners:
- name: in
  address: 127.0.0.1:1
  virtual_hosts: [{name: all, routes: [{match: {prefix: /}, route: {cluster: orders}}]}]
";

const RELAYED: &str = "relay: {address: 'h:1', tls: {ca: ca.pem, server_name: h}}";

/// Replicas of different versions agree only if this value stays. If it has to change, replicas do
/// not agree on plans during an upgrade: say so in the changelog.
#[test]
fn the_agreement_of_replicas_is_the_same_in_all_versions() {
    assert_eq!(parse("{}").fingerprint(), xxh64(b"[]", 0));
    assert_eq!(parse(AGREED).fingerprint(), 13_311_270_183_759_907_653);
    assert_eq!(parse(RELAYED).fingerprint(), 4_722_829_412_166_220_073);
}

#[test]
fn every_agreed_setting_is_part_of_the_agreement_and_no_other() {
    for (name, before, after, _) in edits() {
        let [before, after] = [before, after].map(|text| parse(&text).fingerprint());
        let unshared = [
            "listen",
            "tls",
            "insecure",
            "admin",
            "admin_tls",
            "admin_identities",
            "read_only",
            "kubernetes",
            "consul",
            "dns",
            "store",
            "otlp",
            "limits",
            "reload.max_removed_percent",
            "cost",
            "evacuation",
            "identities",
            "load_reporting.report_endpoint_granularity",
        ];
        assert_eq!(before == after, unshared.contains(&name), "{name}");
    }
    let base = parse(AGREED).fingerprint();
    for (old, new) in [
        ("ramp: 10", "ramp: 20"),
        ("mode: SHADOW", "mode: OFF"),
        ("connect_timeout: 1s", "connect_timeout: 2s"),
        ("{name: search}", "{name: carts}"),
        ("prefix: /", "prefix: /x"),
    ] {
        assert_ne!(
            parse(&AGREED.replace(old, new)).fingerprint(),
            base,
            "{new}"
        );
    }
    let other = RELAYED.replace("server_name: h", "server_name: i");
    assert_ne!(parse(&other).fingerprint(), parse(RELAYED).fingerprint());
    let same = AGREED.replace(
        "{name: orders, connect_timeout: 1s, lb_policy: LEAST_REQUEST}",
        "{lb_policy: LEAST_REQUEST, name: orders, connect_timeout: 1s}",
    );
    assert_eq!(parse(&same).fingerprint(), base, "another order");
    let limit = "limits: {clusters_per_report: 5}";
    assert_ne!(parse(limit).fingerprint(), parse("{}").fingerprint());
}

#[test]
fn settings_that_need_a_restart_count_with_their_running_value() {
    let started = Arc::new(parse("demand: {missed_intervals: 5}"));
    let mut agreement = Agreement::new(&started);
    assert_eq!(agreement.hash(), started.fingerprint());
    agreement.update(&parse("demand: {missed_intervals: 6}"));
    assert_eq!(agreement.hash(), started.fingerprint(), "at the next start");
    let other = parse("demand: {missed_intervals: 6, heartbeat: 5s}");
    agreement.update(&other);
    let in_force = parse("demand: {missed_intervals: 5, heartbeat: 5s}");
    assert_eq!(agreement.hash(), in_force.fingerprint(), "at once");
}
