//! What-if questions to one proxy: a balancer is run with the proxy's inputs and the hypothetical
//! changes. A proxy knows only the numbers of hosts and proxies, which is all that zone-aware
//! routing needs. Questions about policies that depend on other inputs are answered with an error.

use std::borrow::Cow;

use plimsoll_admin::what_if::{WhatIf, WhatIfQuestion};
use plimsoll_core::explain::{Explanation, FractionStatus, LocalityExplanation, ProxyInput};
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::zone_aware::LocalityBasis;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::units::{BasisPoints, FieldError};

/// Explains the current situation and the hypothetical one.
pub(super) fn answer(
    explanation: &Explanation,
    snapshot: &RoutingSnapshot,
    question: &WhatIfQuestion,
) -> Result<WhatIf, FieldError> {
    if let Some(reason) = unanswerable(explanation) {
        return Err(FieldError::new("", reason));
    }
    let upstream = assignment(&explanation.cluster, &explanation.localities, endpoints)?;
    let fleet = assignment("fleet", &explanation.localities, |zone| {
        hosts(zone.fleet_hosts, 0)
    })?;
    let in_force = matches!(
        explanation.fractions.status,
        FractionStatus::Fresh | FractionStatus::Partial
    );
    let zones = explanation.localities.iter().filter(|_| in_force);
    let fractions = zones.filter_map(|zone| {
        let share = BasisPoints::new(zone.observed_traffic_fraction_bp?, "demand").ok()?;
        Some((zone.locality(), share))
    });
    let input = ProxyInput {
        config: snapshot.config().as_ref().clone(),
        locality: explanation.own_locality.clone().unwrap_or_default(),
        upstream: Cow::Owned(upstream),
        fleet: Cow::Owned(fleet),
        fractions: fractions.collect(),
        observed_traffic: Vec::new(),
    };
    let nothing = WhatIfQuestion::default();
    let [before, after] =
        [&nothing, question].map(|asked| input.clone().snapshot(&asked.hosts, &asked.demand));
    Ok(WhatIf::new([&before?.explain(), &after?.explain()]))
}

/// Returns why the routing of a policy cannot be predicted; `None` if it can.
fn unanswerable(explanation: &Explanation) -> Option<&'static str> {
    if explanation.locality_basis == Some(LocalityBasis::ObservedLoad) {
        return Some(
            "this cluster is routed by the waiting times of this proxy's own requests, which \
             cannot be predicted",
        );
    }
    match explanation.locality_policy {
        "load_aware_locality" => Some(
            "this cluster is routed by the utilization that hosts report, which cannot be \
             predicted for other hosts",
        ),
        "locality_weighted" | "wrr_locality" => Some(
            "this cluster is routed by weights of the control plane; ask its dashboard instead",
        ),
        _ => None,
    }
}

fn assignment(
    name: &str,
    zones: &[LocalityExplanation],
    endpoints: impl Fn(&LocalityExplanation) -> Vec<LbEndpoint>,
) -> Result<ClusterLoadAssignment, FieldError> {
    let mut zones: Vec<LocalityParts> = zones
        .iter()
        .map(|zone| LocalityParts {
            locality: zone.locality(),
            lb_endpoints: endpoints(zone),
            ..Default::default()
        })
        .filter(|zone| !zone.lb_endpoints.is_empty())
        .collect();
    // The addresses of hosts are arbitrary but must be distinct.
    let all = zones.iter_mut().flat_map(|zone| &mut zone.lb_endpoints);
    for (index, endpoint) in (0_u32..).zip(all) {
        let address = std::net::Ipv4Addr::from(0xF000_0000 | index);
        endpoint.address = (address, 1).into();
    }
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: name.to_owned(),
        endpoints: zones,
        ..Default::default()
    })
}

fn endpoints(zone: &LocalityExplanation) -> Vec<LbEndpoint> {
    hosts(zone.healthy, zone.hosts.saturating_sub(zone.healthy))
}

/// Returns hosts, healthy ones first: a question with fewer hosts keeps the first.
fn hosts(healthy: u64, others: u64) -> Vec<LbEndpoint> {
    let host = |health_status| LbEndpoint {
        health_status,
        ..LbEndpoint::new(([240, 0, 0, 0], 1).into())
    };
    let many = |count: u64, status| {
        std::iter::repeat_n(host(status), usize::try_from(count).unwrap_or(usize::MAX))
    };
    let healthy = many(healthy, HealthStatus::Healthy);
    healthy
        .chain(many(others, HealthStatus::Unhealthy))
        .collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::balancer::Balancer;
    use plimsoll_core::model::locality::Locality;
    use plimsoll_core::time::Instant;
    use plimsoll_xds::yaml::parse_cluster;
    use std::sync::Arc;

    use super::*;

    const RULES: &str = "
name: orders
load_balancing_policy: {policies: [{typed_extension_config: {name: rr, typed_config: {
  '@type': type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin,
  locality_lb_config: {zone_aware_lb_config: {
    locality_basis: LRS_REPORTED_RATE, min_cluster_size: 1}}}}}]}
";

    fn zones(counts: [(u64, Option<u64>); 3]) -> Vec<LocalityParts> {
        let zone = |(index, (count, fraction)): (u64, (u64, Option<u64>))| {
            let address = |host: u64| -> std::net::SocketAddr {
                format!("10.0.{index}.{host}:80").parse().unwrap()
            };
            LocalityParts {
                locality: Locality::zone_only(["a", "b", "c"][usize::try_from(index).unwrap()]),
                lb_endpoints: (0..count)
                    .map(|host| LbEndpoint::new(address(host)))
                    .collect(),
                observed_traffic_fraction: fraction,
                ..Default::default()
            }
        };
        (0..).zip(counts).map(zone).collect()
    }

    fn assigned(counts: [(u64, Option<u64>); 3]) -> ClusterLoadAssignment {
        ClusterLoadAssignment::try_new(AssignmentParts {
            cluster_name: "orders".to_owned(),
            endpoints: zones(counts),
            ..Default::default()
        })
        .unwrap()
    }

    /// Builds the snapshot of a cluster with capacity 3/5/2 and demand 50/35/15 %.
    fn snapshot(rules: &str) -> Arc<RoutingSnapshot> {
        let config = Arc::new(parse_cluster(rules).unwrap());
        let mut balancer = Balancer::new(config, Locality::zone_only("a"), Instant::ORIGIN);
        let fleet = [(2, Some(5000)), (2, Some(3500)), (2, Some(1500))];
        balancer.handle_fleet_assignment(assigned(fleet), Instant::ORIGIN);
        let upstream = assigned([(3, None), (5, None), (2, None)]);
        balancer.handle_assignment(upstream, Instant::ORIGIN);
        balancer.poll_snapshot().unwrap()
    }

    fn ask(rules: &str, question: &WhatIfQuestion) -> Result<WhatIf, FieldError> {
        let snapshot = snapshot(rules);
        answer(&snapshot.explain(), &snapshot, question)
    }

    #[test]
    fn before_is_the_current_state_and_after_the_predicted_one() {
        let six = WhatIfQuestion {
            hosts: [("a".to_owned(), 6)].into(),
            ..WhatIfQuestion::default()
        };
        let answer = ask(RULES, &six).unwrap();
        let real = snapshot(RULES).explain();
        assert_eq!(answer.before, WhatIf::new([&real, &real]).before);
        assert_eq!(answer.before.zones[0].kept_local, 0.6);
        assert_eq!(answer.after.localities[0].hosts, 6);
        let after = &answer.after.zones[0];
        assert!(after.kept_local > 0.9, "{after:?}");
        let moved = WhatIfQuestion {
            demand: [
                ("a".to_owned(), 30.0),
                ("b".to_owned(), 50.0),
                ("c".to_owned(), 20.0),
            ]
            .into(),
            ..WhatIfQuestion::default()
        };
        let answer = ask(RULES, &moved).unwrap();
        assert_eq!(
            answer.after.cross_zone_share, 0.0,
            "demand is distributed like capacity"
        );
    }

    #[test]
    fn unpredictable_policies_are_rejected_with_the_reason() {
        let nothing = WhatIfQuestion::default();
        let typed = "type.googleapis.com/envoy.extensions.load_balancing_policies";
        let child = format!("'@type': {typed}.round_robin.v3.RoundRobin");
        let load_aware = format!(
            "{{name: orders, load_balancing_policy: {{policies: [{{typed_extension_config: {{\
             name: x, typed_config: {{'@type': {typed}.load_aware_locality.v3.LoadAwareLocality, \
             endpoint_picking_policy: {{policies: [{{typed_extension_config: {{name: rr, \
             typed_config: {{{child}}}}}}}]}}}}}}}}]}}}}"
        );
        let error = ask(&load_aware, &nothing).unwrap_err();
        assert!(error.reason().contains("utilization"), "{error}");
        let observed = format!(
            "{{name: orders, load_balancing_policy: {{policies: [{{typed_extension_config: {{\
             name: x, typed_config: {{{child}, locality_lb_config: {{zone_aware_lb_config: \
             {{locality_basis: OBSERVED_LOAD}}}}}}}}}}]}}}}"
        );
        let error = ask(&observed, &nothing).unwrap_err();
        assert!(error.reason().contains("waiting times"), "{error}");
        let weighted = "{name: orders, common_lb_config: {locality_weighted_lb_config: {}}}";
        let error = ask(weighted, &nothing).unwrap_err();
        assert!(error.reason().contains("weights"), "{error}");
        let too_many = WhatIfQuestion {
            hosts: [("a".to_owned(), 200_000)].into(),
            ..nothing
        };
        assert_eq!(ask(RULES, &too_many).unwrap_err().path(), "hosts");
    }
}
