//! CPU time per request with the module and with Envoy's own policies.

use serde_json::{Value, json};

use crate::support::bootstrap::{Endpoint, bootstrap, cluster, module, write_endpoints};
use crate::support::envoy::Envoy;
use crate::support::scratch;
use crate::support::servers::Server;
use crate::support::traffic::{Statuses, send};

/// Requests per round and policy, and rounds: 50,500 requests for each policy. Rounds are short,
/// because a shared machine is faster and slower in turn.
const REQUESTS: usize = 500;
const ROUNDS: usize = 101;

#[test]
#[ignore = "takes a minute; prints what docs/benchmarks.md shows"]
fn cpu_per_request() {
    let directory = scratch("cost");
    let servers = Server::zones(&[("zone-a", 3), ("zone-b", 3), ("zone-c", 3)]);
    // Envoy's own policies use all hosts here, so the others must not keep requests in their zone.
    let settings = |policy: &str, percent: u32| {
        let rules = json!({ "routing_enabled": { "value": percent } });
        let common = json!({ "zone_aware_lb_config": rules });
        let cluster = json!({ "lb_policy": policy, "common_lb_config": common });
        crate::support::bootstrap::policy("plimsoll", &module(&cluster))
    };
    let policies = [
        ("round_robin", built_in("round_robin", "RoundRobin")),
        ("least_request", built_in("least_request", "LeastRequest")),
        ("module_round_robin", settings("ROUND_ROBIN", 0)),
        ("module_least_request", settings("LEAST_REQUEST", 0)),
        ("module_zone_aware", settings("ROUND_ROBIN", 100)),
        ("fleet", settings("ROUND_ROBIN", 100)),
    ];
    let clusters = policies.each_ref().map(|(name, policy)| {
        write_endpoints(&directory, name, servers.iter().map(Endpoint::from));
        cluster(&directory, name, policy)
    });
    let envoy = Envoy::start("1.40.0", &directory, &bootstrap(&clusters, &[]));
    let names: Vec<_> = policies[..5].iter().map(|(name, _)| *name).collect();
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    let mut hosts = vec![0; names.len()];
    for round in 0..=ROUNDS {
        for turn in 0..names.len() {
            // Another order in every round.
            let at = (turn + round) % names.len();
            let before = envoy.cpu_seconds();
            let counts: Vec<_> = servers.iter().map(|server| server.requests()).collect();
            let statuses = send(envoy.listener, &format!("/{}", names[at]), REQUESTS);
            assert_eq!(statuses, Statuses::from([(200, REQUESTS as u64)]));
            let cost = (envoy.cpu_seconds() - before) * 1e6 / REQUESTS as f64;
            let used = servers.iter().zip(counts);
            hosts[at] = used
                .filter(|(server, count)| server.requests() > *count)
                .count();
            // The first round opens connections.
            if round > 0 {
                costs[at].push(cost);
            }
        }
    }
    let base = costs[0].clone();
    for ((name, costs), hosts) in names.iter().zip(costs).zip(hosts) {
        let pairs = costs.iter().zip(&base).map(|(cost, base)| cost - base);
        eprintln!(
            "{name} over {hosts} hosts: {:.1} µs of CPU per request, {:+.1} µs against round_robin \
             in the same round",
            median(costs.clone()),
            median(pairs.collect()),
        );
    }
}

/// Returns one of Envoy's own policies.
fn built_in(name: &str, message: &str) -> Value {
    let package = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    json!({ "policies": [{ "typed_extension_config": {
        "name": format!("envoy.load_balancing_policies.{name}"),
        "typed_config": { "@type": format!("{package}.{name}.v3.{message}") },
    } }] })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
