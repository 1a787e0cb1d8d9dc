//! Writes to a scripted API server: status, events, and DestinationRules of others.

use plimsoll_kubernetes::ApiAccess;
use plimsoll_kubernetes::objects::{Condition, ObjectKey, PolicyStatus};
use plimsoll_kubernetes::write::{ApiWriter, Warning};
use serde_json::json;

use plimsoll_testing::api_server::{ApiServer, service};

fn writer(server: &ApiServer) -> ApiWriter {
    ApiWriter::new(ApiAccess::Explicit {
        server: server.url(),
        ca_file: None,
        token_file: None,
    })
}

#[tokio::test]
async fn status_is_merged_and_the_spec_stays() {
    let server = ApiServer::start().await;
    let policy = json!({"metadata": {"namespace": "shop", "name": "p"}, "spec": {"ramp": 5}});
    server.put("zoneroutingpolicies", policy);
    let status = PolicyStatus {
        observed_generation: 3,
        conditions: vec![Condition {
            kind: "Accepted".to_owned(),
            status: "True".to_owned(),
            ..Condition::default()
        }],
        ..PolicyStatus::default()
    };
    let key = ObjectKey::new("shop", "p");
    writer(&server).patch_status(&key, &status).await.unwrap();
    let stored = server.object("zoneroutingpolicies", "shop", "p").unwrap();
    assert_eq!(stored["spec"], json!({"ramp": 5}));
    assert_eq!(stored["status"]["observedGeneration"], 3);
    assert_eq!(stored["status"]["conditions"][0]["type"], "Accepted");
    let request = server.requests().pop().unwrap();
    assert!(request.path.ends_with("/zoneroutingpolicies/p/status"));
    assert_eq!(request.query["fieldManager"], "plimsoll");
    let missing = ObjectKey::new("shop", "other");
    let failure = writer(&server).patch_status(&missing, &status).await;
    assert!(failure.unwrap_err().text().contains("404"));
}

#[tokio::test]
async fn an_event_names_its_service() {
    let server = ApiServer::start().await;
    server.put("services", service("shop", "orders"));
    let key = ObjectKey::new("shop", "orders");
    let mut writer = writer(&server);
    // Another replica writes the same event and does not count it.
    for (repeats, count) in [(true, 1), (false, 1), (true, 2), (true, 3)] {
        let warning = Warning {
            reason: "InvalidSetting",
            message: "ramp: 200",
        };
        let sent = writer.warn_service(&key, "uid-orders", warning, repeats);
        sent.await.unwrap();
        assert_eq!(server.objects("events")[0]["count"], count);
    }
    let events = server.objects("events");
    assert_eq!(events.len(), 1, "the same text is one event");
    let times = ["firstTimestamp", "lastTimestamp"].map(|time| events[0][time].clone());
    assert!(times[0].as_str() <= times[1].as_str(), "{times:?}");
    assert_eq!(events[0]["involvedObject"]["uid"], "uid-orders");
    assert_eq!(events[0]["type"], "Warning");
    assert_eq!(events[0]["message"], "ramp: 200");
}

#[tokio::test]
async fn a_rule_of_another_manager_is_a_conflict_that_names_it() {
    let server = ApiServer::start().await;
    let rule = |name: &str, host: &str| {
        let metadata = json!({"namespace": "shop", "name": name});
        json!({"metadata": metadata, "spec": {"host": host}})
    };
    server.put("destinationrules", rule("orders", "orders"));
    let mut owned = rule("users", "users.shop.svc.cluster.local");
    owned["metadata"]["testManagers"] = "argocd".into();
    server.put("destinationrules", owned);
    let mut writer = writer(&server);
    let rules = writer.destination_rules("shop").await.unwrap();
    let hosts: Vec<_> = rules.iter().map(|rule| rule.host.as_str()).collect();
    assert_eq!(hosts, ["orders", "users.shop.svc.cluster.local"]);
    let distribute = json!([{"from": "r/a/*", "to": {"r/a/*": 100}}]);
    let key = ObjectKey::new("shop", "orders");
    writer
        .apply_distribute(&key, "orders", &distribute)
        .await
        .unwrap();
    let rules = writer.destination_rules("shop").await.unwrap();
    assert_eq!(rules[0].distribute, distribute);
    let key = ObjectKey::new("shop", "users");
    let conflict = writer
        .apply_distribute(&key, &rules[1].host, &distribute)
        .await;
    let text = conflict.unwrap_err().text();
    assert!(text.contains("409") && text.contains("argocd"), "{text}");
    let applied = server.requests().pop().unwrap();
    assert!(!applied.query.contains_key("force"), "never by force");
}
