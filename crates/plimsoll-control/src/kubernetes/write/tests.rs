//! Writes to a scripted API server: how many of a report, when again, and what failures change.

use std::collections::BTreeSet;

use plimsoll_kubernetes::objects::{PolicyStatus, Resource as _, ZoneRoutingPolicy, ZoneStatus};
use plimsoll_kubernetes::settings::Distribute;
use plimsoll_kubernetes::{ApiAccess, SourceOptions};
use plimsoll_testing::api_server::{self, ApiServer};
use serde_json::{Value, json};

use super::*;
use crate::kubernetes::translate::Translator;
use crate::kubernetes::{ReportOutputs, run};
use crate::run::Bound;
use crate::state::tests::driver::parse;

/// A reporter with a control plane that has no services.
struct Setup {
    server: ApiServer,
    reporter: Reporter,
    policies: watch::Sender<Arc<Vec<PolicyView>>>,
    refused: mpsc::Sender<Refused>,
}

impl Setup {
    async fn new() -> Self {
        let server = ApiServer::start().await;
        let (writer, handle) = crate::server::start(parse("{}"));
        tokio::spawn(writer.run());
        let bound = Bound {
            xds: ([127, 0, 0, 1], 18000).into(),
            admin: None,
            read_only: None,
        };
        let access = access(&server);
        let source = plimsoll_kubernetes::start(&SourceOptions {
            access: access.clone(),
            ..SourceOptions::default()
        });
        let (policies, received_policies) = watch::channel(Arc::default());
        let (refused, received_refused) = mpsc::channel(100);
        let inputs = ReportInputs {
            policies: received_policies,
            refused: received_refused,
            status: Arc::clone(source.status()),
        };
        let context = Context::new(handle, bound);
        Self {
            server,
            reporter: Reporter::new(ApiWriter::new(access), context, inputs),
            policies,
            refused,
        }
    }

    /// Number of requests that change something.
    fn writes(&self) -> usize {
        let requests = self.server.requests();
        let changing = requests.iter().filter(|request| request.method != "GET");
        changing.count()
    }

    async fn report(&mut self) {
        self.reporter.report().await.unwrap();
    }
}

fn access(server: &ApiServer) -> ApiAccess {
    ApiAccess::Explicit {
        server: server.url(),
        ca_file: None,
        token_file: None,
    }
}

/// A policy whose target does not exist.
fn view(name: &str) -> PolicyView {
    let json = serde_json::from_value(object(name)).unwrap();
    PolicyView {
        policy: Arc::new(ZoneRoutingPolicy::from_json(json)),
        clusters: Vec::new(),
        missing: Vec::new(),
        preferred: BTreeSet::new(),
        error: None,
        notes: BTreeSet::new(),
        distribute: Distribute::Off,
    }
}

fn object(name: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": {}})
}

#[tokio::test]
async fn a_report_writes_a_limited_number_of_events() {
    let mut setup = Setup::new().await;
    for index in 0..=MAX_WRITES {
        let refused = Refused {
            event: "InvalidSetting",
            object: "Service shop/a".to_owned(),
            reason: format!("reason {index}"),
            service: Some((ObjectKey::new("shop", "a"), "uid".into())),
            limit: None,
        };
        setup.refused.try_send(refused).unwrap();
    }
    setup.report().await;
    assert_eq!(setup.server.objects("events").len(), MAX_WRITES);
    setup.report().await;
    assert_eq!(setup.server.objects("events").len(), MAX_WRITES + 1);
}

#[tokio::test]
async fn an_event_that_could_not_be_written_is_written_later_and_one_that_is_refused_is_not() {
    let mut setup = Setup::new().await;
    for (code, written) in [(503, 1), (403, 0)] {
        let refused = Refused {
            event: "InvalidSetting",
            object: "Service shop/a".to_owned(),
            reason: format!("reason {code}"),
            service: Some((ObjectKey::new("shop", "a"), "uid".into())),
            limit: None,
        };
        setup.refused.try_send(refused).unwrap();
        let before = setup.server.objects("events").len();
        setup
            .server
            .set_faults(|faults| faults.fail = Some((code, None, usize::MAX)));
        setup.report().await;
        setup.server.set_faults(|faults| faults.fail = None);
        setup.report().await;
        assert_eq!(
            setup.server.objects("events").len(),
            before + written,
            "{code}"
        );
    }
}

#[tokio::test]
async fn a_report_writes_a_limited_number_of_statuses_and_each_once() {
    let mut setup = Setup::new().await;
    let names: Vec<String> = (0..=MAX_WRITES).map(|index| format!("p{index}")).collect();
    for name in &names {
        setup.server.put("zoneroutingpolicies", object(name));
    }
    let views = names.iter().map(|name| view(name)).collect();
    setup.policies.send_replace(Arc::new(views));
    for written in [MAX_WRITES, MAX_WRITES + 1, MAX_WRITES + 1] {
        setup.report().await;
        assert_eq!(setup.writes(), written);
    }
    let last = setup.server.object("zoneroutingpolicies", "shop", "p20");
    let conditions = &last.unwrap()["status"]["conditions"];
    assert_eq!(conditions[0]["reason"], "TargetNotFound");
    // Policies that are gone are forgotten.
    setup.policies.send_replace(Arc::new(vec![view("p0")]));
    setup.report().await;
    let refreshed: Vec<_> = setup.reporter.refreshed.keys().cloned().collect();
    assert_eq!(refreshed, [ObjectKey::new("shop", "p0")]);
}

#[tokio::test]
async fn numbers_of_zones_are_written_once_a_minute() {
    let mut setup = Setup::new().await;
    setup.server.put("zoneroutingpolicies", object("p"));
    setup.reporter.writes = MAX_WRITES;
    let key = ObjectKey::new("shop", "p");
    let report = |load: &str| PolicyReport {
        policy: view("p").policy,
        status: PolicyStatus {
            zones: vec![ZoneStatus {
                load: load.to_owned(),
                ..ZoneStatus::default()
            }],
            ..PolicyStatus::default()
        },
        distribution: None,
    };
    setup.reporter.write_report(report("1.00")).await;
    setup.reporter.write_report(report("1.10")).await;
    assert_eq!(setup.writes(), 1, "too early");
    let minute_ago = Instant::now().checked_sub(REFRESH_INTERVAL).unwrap();
    setup.reporter.refreshed.insert(key.clone(), minute_ago);
    setup.reporter.write_report(report("1.10")).await;
    assert_eq!(setup.writes(), 2);
    let object = setup.server.object("zoneroutingpolicies", "shop", "p");
    assert_eq!(object.unwrap()["status"]["zones"][0]["load"], "1.10");
    assert_eq!(setup.reporter.writes, MAX_WRITES - 2);
    assert_eq!(setup.reporter.written[&key].zones[0].load, "1.10");
}

#[tokio::test]
async fn a_distribution_is_written_unless_it_is_there() {
    let mut setup = Setup::new().await;
    setup.reporter.writes = MAX_WRITES;
    let distribute = json!([{"from": "r/a/*", "to": {"r/a/*": 100}}]);
    let distribution = |shown_only, distribute| ServiceDistribution {
        service: ObjectKey::new("shop", "orders"),
        shown_only,
        distribute,
    };
    for (distribution, expected) in [
        (
            distribution(None, Err("no region")),
            Verdict::new("False", "NoRegion", "no region"),
        ),
        (
            distribution(None, Ok(json!([]))),
            Verdict::new("False", "NoDemand", "no demand is known"),
        ),
        (
            distribution(Some("DryRun"), Ok(distribute.clone())),
            Verdict::new("False", "DryRun", format!("would write {distribute}")),
        ),
        (
            distribution(Some("ModeShadow"), Ok(distribute.clone())),
            Verdict::new("False", "ModeShadow", format!("would write {distribute}")),
        ),
    ] {
        assert_eq!(setup.reporter.distribute(&distribution).await, expected);
    }
    assert_eq!(setup.writes(), 0);
    let written = distribution(None, Ok(distribute.clone()));
    let message = format!("DestinationRule orders has {distribute}");
    for _ in 0..2 {
        let verdict = setup.reporter.distribute(&written).await;
        assert_eq!(verdict, Verdict::new("True", "Written", message.clone()));
        assert_eq!((setup.writes(), setup.reporter.writes), (1, MAX_WRITES - 1));
    }
    let rules = setup.server.objects("destinationrules");
    assert_eq!(rules[0]["spec"]["host"], "orders.shop.svc.cluster.local");
    // Somebody else owns the field.
    let mut owned = rules[0].clone();
    owned["metadata"]["testManagers"] = json!("someone");
    owned["spec"]["trafficPolicy"] = json!({});
    setup.server.put("destinationrules", owned);
    let refused = "Apply failed with 1 conflict: conflict with \"someone\"";
    let expected = Verdict::new("False", "Conflict", format!("409 {refused}: {refused}"));
    assert_eq!(setup.reporter.distribute(&written).await, expected);
    let fault = Some((403, None, 1));
    setup.server.set_faults(|faults| faults.fail = fault);
    let verdict = setup.reporter.distribute(&written).await;
    assert!(format!("{verdict:?}").contains("\"Failed\""), "{verdict:?}");
}

#[tokio::test]
async fn failures_are_logged_once_a_minute_and_no_answer_ends_a_report() {
    let mut reporter = Setup::new().await.reporter;
    let now = Instant::now();
    let before = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
    reporter.writes = 7;
    let refused = Failure::Status {
        status: Default::default(),
        retry_after: None,
    };
    reporter.failed(&refused, "Event");
    assert!(reporter.logged.is_some_and(|logged| logged >= now));
    assert_eq!(reporter.writes, 7);
    reporter.logged = Some(before(30));
    reporter.failed(&Failure::Transport("refused".to_owned()), "Event");
    assert_eq!((reporter.logged, reporter.writes), (Some(before(30)), 0));
    reporter.logged = Some(before(61));
    reporter.failed(&refused, "Event");
    assert!(reporter.logged.is_some_and(|logged| logged >= now));
}

#[tokio::test]
async fn policies_are_shown_again_when_their_targets_change() {
    let Setup {
        server, reporter, ..
    } = Setup::new().await;
    let mut policy = object("p");
    policy["spec"] = json!({"targetRefs": [{"group": "", "kind": "Service", "name": "a"}]});
    server.put("zoneroutingpolicies", policy);
    let source = plimsoll_kubernetes::start(&SourceOptions {
        access: access(&server),
        ..SourceOptions::default()
    });
    let settings = parse("kubernetes: {}").sources.kubernetes.clone().unwrap();
    let (policies, mut shown) = watch::channel(Arc::default());
    let (refused, _unread) = mpsc::channel(10);
    let outputs = ReportOutputs { policies, refused };
    let handle = reporter.context.handle.clone();
    let running = tokio::spawn(run(source, Translator::new(settings), handle, outputs));
    for has_target in [false, true] {
        if has_target {
            server.put("services", api_server::service("shop", "a"));
        }
        let is_shown = |views: &Arc<Vec<PolicyView>>| {
            let targets = views.iter().map(|view| view.missing.is_empty());
            targets.eq([has_target])
        };
        let waiting = shown.wait_for(is_shown);
        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(waited.is_ok_and(|views| views.is_ok()), "{has_target}");
    }
    running.abort();
}
