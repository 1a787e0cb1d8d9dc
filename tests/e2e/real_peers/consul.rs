//! Services of a real agent of Consul with real Envoys: endpoints and their zones come from Consul
//! alone, and its loss costs no request.

use plimsoll_testing::Consul;
use serde_json::json;

use crate::support::fleet::{Testbed, TestbedSpec, start_backends};
use crate::support::{scratch, wait_until};

const SERVICE: &str = "orders";
/// As in the other tests with small fleets: zone-aware routing for ten hosts.
const CLUSTER: &str = "cluster: {load_balancing_policy: {policies: [{typed_extension_config: {
  name: envoy.load_balancing_policies.round_robin, typed_config: {
  '@type': type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin,
  locality_lb_config: {zone_aware_lb_config: {min_cluster_size: 1}}}}}]}}";

fn register(agent: &Consul, zone: &str, index: usize, address: std::net::SocketAddr) {
    let more = json!({"Meta": {"zone": zone}, "Tags": ["http"]});
    agent.register(SERVICE, &format!("{zone}-{index}"), address, more);
}

fn wait_for_hosts(testbed: &Testbed, expected: u64) {
    wait_until("every Envoy has these hosts", || {
        let envoys = testbed.envoys.iter();
        let mut counts = envoys.map(|envoy| envoy.weights(SERVICE).values().sum::<u64>());
        counts.all(|count| count == expected)
    });
}

#[test]
fn endpoints_of_consul_reach_envoys_and_no_outage_loses_requests() {
    let directory = scratch("consul");
    let backends = start_backends();
    let mut agent = Consul::start(&directory, &json!({}));
    let hosts: Vec<_> = backends
        .addresses()
        .iter()
        .flat_map(|(zone, addresses)| {
            let addresses = addresses.iter().enumerate();
            addresses.map(move |(index, address)| (zone.clone(), index, *address))
        })
        .collect();
    for (zone, index, address) in &hosts {
        register(&agent, zone, *index, *address);
    }
    let config = format!(
        "load_reporting: {{interval: 1s}}
demand: {{smoothing_time_constant: 5s, material_change_bp: 10}}
consul: {{address: 'http://{}', datacenters: [{{name: dc1, region: r1}}], tags: [http],
  mode: ENFORCE, {CLUSTER}}}
",
        agent.http()
    );
    let spec = TestbedSpec {
        name: "consul",
        ..TestbedSpec::default()
    };
    let testbed = Testbed::start_with(&spec, &directory, backends, &config);
    testbed.wait_for_fleet_weights(150);

    let (zone, index, _) = &hosts[0];
    agent.deregister(&format!("{zone}-{index}"));
    wait_for_hosts(&testbed, 9);

    // The agent dies, and comes back without its data.
    agent.kill();
    let connected = "source_connected{source=\"consul\",kind=\"health\"}";
    let held = "source_held_objects{source=\"consul\",kind=\"health\"}";
    let metric = |name: &str| testbed.control.metric(name);
    wait_until("the outage is noticed", || metric(connected) == 0);
    wait_for_hosts(&testbed, 9);
    agent.restart();
    wait_until("the loss is noticed", || metric(held) == 9);
    wait_until("the dashboard says so", || {
        testbed
            .control
            .notices()
            .contains("the last list of Consul lacks 9 objects")
    });
    wait_for_hosts(&testbed, 9);
    for (zone, index, address) in &hosts {
        register(&agent, zone, *index, *address);
    }
    wait_until("all are listed again", || metric(held) == 0);
    wait_for_hosts(&testbed, 10);
    assert_eq!(testbed.load.failed(), 0);
}
