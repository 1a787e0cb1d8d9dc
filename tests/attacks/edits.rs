//! Edits of the configuration that would take services away: a file that is cut off, and an
//! operator who means it.

use plimsoll_testing::tasks::{wait_to_see, wait_until};

use super::support::Control;

/// A configuration with the first of four services.
fn services(count: usize) -> String {
    let mut text = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nservices:\n".to_owned();
    for index in 0..count {
        text += &format!(
            "- cluster: {{name: service-{index}}}\n  endpoints:\n  \
             - {{locality: {{zone: zone-a}}, lb_endpoints: ['10.0.0.{index}:80']}}\n"
        );
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_cut_off_takes_no_services_away() {
    let control = Control::start_with(&services(4), |_| ());
    assert_eq!(control.metric("clusters{mode=\"ENFORCE\"}").await, 4.0);
    control.write_config(&services(1));
    control
        .wait_for_metric("config_removals_refused_total")
        .await;
    control
        .wait_for_log("removes 3 of 4 services (service-1, service-2, service-3)")
        .await;
    assert_eq!(control.metric("clusters{mode=\"ENFORCE\"}").await, 4.0);
    control
        .wait_for_value("config_in_force", "0", |value| value == 0.0)
        .await;
    let status = async || control.get("/api/v1/status").await;
    wait_to_see("the status says what the edit removes", status, |seen| {
        seen.contains("removes 3 of 4 services")
    })
    .await;
    // Asking again changes nothing, unless the operator means it.
    let (status, body) = control.post("/api/v1/reload", String::new()).await;
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("removes 3 of 4 services"), "{body}");
    let path = "/api/v1/reload?allow_removal=true";
    let (status, body) = control.post(path, String::new()).await;
    assert_eq!((status, &*body), (200, "{\"restart_needed\":[]}"));
    assert_eq!(control.metric("clusters{mode=\"ENFORCE\"}").await, 1.0);
    control
        .wait_for_value("config_in_force", "1", |value| value == 1.0)
        .await;
    // The guard compares with what is in force now; the setting in an edit allows that edit.
    control.write_config(&services(3));
    wait_until("three services", async || {
        control.metric("clusters{mode=\"ENFORCE\"}").await == 3.0
    })
    .await;
    control.write_config(&(services(1) + "reload: {max_removed_percent: 100}\n"));
    wait_until("one service", async || {
        control.metric("clusters{mode=\"ENFORCE\"}").await == 1.0
    })
    .await;
    assert_eq!(control.metric("config_removals_refused_total").await, 2.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_cut_off_drops_no_rules_and_no_cluster_of_kubernetes() {
    let tls = "tls: {certificate: server.pem, private_key: server.key, client_ca: server.pem}\n";
    let identities = "identities:\n- uri: spiffe://td/gateway\n";
    let kubernetes = "kubernetes: {api_server: 'http://127.0.0.1:1'}\n";
    let start = services(4) + tls;
    let complete = format!("{start}{identities}  fleets: [gateway]\n{kubernetes}");
    let control = Control::start_with(&complete, |directory| {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(directory.join("server.pem"), made.cert.pem()).unwrap();
        let key = made.signing_key.serialize_pem();
        std::fs::write(directory.join("server.key"), key).unwrap();
    });
    for (cut, removed) in [
        (services(4), "the edit removes identities"),
        (start.clone(), "the edit removes identities"),
        (
            format!("{start}{identities}"),
            "the edit removes kubernetes",
        ),
        (
            format!("{start}{identities}{kubernetes}"),
            "the edit removes 1 of 1 restrictions of identities",
        ),
    ] {
        control.write_config(&cut);
        let (status, body) = control.post("/api/v1/reload", String::new()).await;
        assert_eq!(status, 409, "{body}");
        assert!(body.contains(removed), "{body}");
        control.wait_for_log(removed).await;
        control
            .wait_for_value("config_in_force", "0", |value| value == 0.0)
            .await;
    }
    let path = "/api/v1/reload?allow_removal=true";
    let (status, body) = control.post(path, String::new()).await;
    assert_eq!(status, 200, "{body}");
    control
        .wait_for_value("config_in_force", "1", |value| value == 1.0)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_reloads_the_file_and_ends_nothing() {
    let control = Control::start_with(&services(4), |_| ());
    control.write_config(&services(1));
    control
        .wait_for_metric("config_removals_refused_total")
        .await;
    control.signal("HUP");
    wait_until("a refused reload by SIGHUP", async || {
        control.get("/api/v1/audit").await.contains("SIGHUP")
    })
    .await;
    assert_eq!(control.metric("clusters{mode=\"ENFORCE\"}").await, 4.0);
    control.write_config(&services(3));
    control.signal("HUP");
    wait_until("three services", async || {
        control.metric("clusters{mode=\"ENFORCE\"}").await == 3.0
    })
    .await;
}
