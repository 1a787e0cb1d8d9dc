//! Texts of reasons and preconditions, for operators.
//!
//! The numbers in the texts come from the routing decision itself.

use crate::counts::HostSetCounts;
use crate::locality_picking::zone_aware::{Observed, Precondition, Reason, ZoneRouting, ZoneState};
use crate::model::locality::Locality;
use crate::model::zone_aware::{LocalityBasis, ZoneAware};
use crate::units::BASIS_POINTS;

/// Why requests go where they go; `measured` = demand is known, not estimated from proxies.
pub(super) fn reason(
    code: Option<Reason>,
    zone: &ZoneRouting,
    config: Option<&ZoneAware>,
    measured: bool,
) -> String {
    if let Some(code) = code {
        let failed = zone
            .preconditions
            .iter()
            .find(|test| test.reason == code && !test.passed);
        return failed.map_or_else(|| off(code).to_owned(), precondition);
    }
    if !zone.failing.is_empty() {
        let localities: Vec<String> = zone.failing.iter().map(Locality::to_string).collect();
        return format!(
            "host counts decide instead of response times: requests to {} fail",
            localities.join(", ")
        );
    }
    let basis = config.map(ZoneAware::locality_basis);
    let demand = if basis == Some(LocalityBasis::LrsReportedRate) && measured {
        "issues"
    } else {
        "is assumed to issue"
    };
    match &zone.state {
        ZoneState::NoLocalityRouting(reason) => off(*reason).to_owned(),
        ZoneState::LocalityDirect if zone.observed == Observed::Decides => {
            "no other locality has a healthy host: everything stays local".to_owned()
        }
        ZoneState::LocalityDirect => direct(zone, config, demand),
        ZoneState::LocalityResidual(residual) if zone.observed == Observed::Learning => format!(
            "host counts decide until this proxy knows the response times of all localities: {} \
             stays local, the rest goes where capacity is spare or probes other localities",
            percent(residual.local_percent_to_route)
        ),
        ZoneState::LocalityResidual(residual) if zone.observed == Observed::Decides => format!(
            "response times of this proxy's own requests decide: {} stays local, the rest probes \
             other localities or goes where requests wait less",
            percent(residual.local_percent_to_route)
        ),
        ZoneState::LocalityResidual(residual) => {
            let kept = percent(residual.local_percent_to_route);
            match zone.percentages.first() {
                Some(own) if residual.local_percent_to_route > 0 => format!(
                    "this locality {demand} {} of the demand but has {} of the capacity: {kept} \
                     stays local, the rest goes where capacity is spare",
                    percent(own.local),
                    percent(own.upstream)
                ),
                _ => "this locality has no healthy upstream host: everything goes to other \
                      localities"
                    .to_owned(),
            }
        }
    }
}

fn direct(zone: &ZoneRouting, config: Option<&ZoneAware>, demand: &str) -> String {
    let Some(own) = zone.percentages.first() else {
        return "everything stays local".to_owned();
    };
    let (local, upstream) = (percent(own.local), percent(own.upstream));
    let shares =
        format!("this locality {demand} {local} of the demand and has {upstream} of the capacity");
    if own.upstream > 0 && own.upstream >= own.local {
        return format!("{shares}: everything stays local");
    }
    let forced = config.and_then(ZoneAware::force_local_zone);
    let band = config.map_or(0, |config| config.dead_band_of(own.upstream, BASIS_POINTS));
    match forced {
        Some(min_size) if own.upstream + band < own.local || own.upstream == 0 => format!(
            "force_local_zone keeps everything local (needs {} there), although {shares}",
            counted(u64::from(min_size), "healthy host", "healthy hosts")
        ),
        _ => format!(
            "{shares}: the difference is within the dead band of {}, everything stays local",
            config.map_or_else(String::new, |config| dead_band(config, own.upstream))
        ),
    }
}

/// Formats the dead band of a zone with the given share of the capacity, in basis points.
pub(super) fn dead_band(config: &ZoneAware, upstream_bp: u64) -> String {
    // Finer than basis points, of which a small zone has too few for a share.
    const PARTS: u64 = 100_000;
    let upstream = upstream_bp.max(1) * PARTS;
    let band = config.dead_band_of(upstream, BASIS_POINTS * PARTS);
    format!(
        "{} of that capacity",
        percent(band * BASIS_POINTS / upstream)
    )
}

pub(super) fn precondition(test: &Precondition) -> String {
    let Precondition {
        actual, required, ..
    } = *test;
    let localities = |count| counted(count, "locality", "localities");
    match test.reason {
        Reason::UpstreamFewerThan2Localities => {
            format!(
                "the upstream cluster is in {}, {required} are needed",
                localities(actual)
            )
        }
        Reason::LocalFewerThan2Localities if required == 0 => format!(
            "the fleet is in {} (force_local_zone lifts the minimum of 2)",
            localities(actual)
        ),
        Reason::LocalFewerThan2Localities => {
            format!(
                "the fleet is in {}, {required} are needed",
                localities(actual)
            )
        }
        Reason::LocalClusterHasNoHostInOwnLocality => format!(
            "the fleet has {} in this locality, {required} is needed",
            counted(actual, "host", "hosts")
        ),
        Reason::UpstreamTooSmall => format!(
            "the upstream cluster has {}, min_cluster_size is {required}",
            counted(actual, "healthy host", "healthy hosts")
        ),
        Reason::UpstreamInPanic => {
            format!(
                "{actual} % of the upstream hosts are usable, the panic threshold is {required} %"
            )
        }
        Reason::RoutingNotEnabled => format!("routing_enabled is {actual} %"),
        Reason::LocalClusterInPanic => {
            format!("{actual} % of the fleet is usable, the panic threshold is {required} %")
        }
        other => off(other).to_owned(),
    }
}

const fn off(reason: Reason) -> &'static str {
    match reason {
        Reason::NotConfigured => "the policy does not choose by zone",
        Reason::NoLocalCluster => "no fleet (originating cluster) is known",
        Reason::PriorityNotZero => "zone-aware routing covers priority 0 only",
        Reason::UpstreamFewerThan2Localities => {
            "the upstream cluster is in fewer than 2 localities"
        }
        Reason::LocalFewerThan2Localities => "the fleet is in fewer than 2 localities",
        Reason::LocalClusterHasNoHostInOwnLocality => "the fleet has no host in this locality",
        Reason::UpstreamTooSmall => "the upstream cluster has fewer hosts than min_cluster_size",
        Reason::UpstreamInPanic => {
            "the upstream cluster is in panic: too few of its hosts are usable"
        }
        Reason::LocalityWeights => "the weights of the assignment choose the locality",
        Reason::RoutingNotEnabled => "routing_enabled is 0 %: localities are ignored",
        Reason::LocalClusterInPanic => "the fleet itself is in panic: too few proxies are usable",
        Reason::LoadAwareLocality => "localities are chosen by the utilization that hosts report",
    }
}

/// Warns if `own` is missing in `counts` although a locality there is probably meant: one that
/// differs by region alone, or by a few letters. Localities match by the exact triple, so that such
/// a host does not count as local.
pub(super) fn other_region(
    own: Option<&Locality>,
    of: &str,
    counts: &HostSetCounts,
) -> Option<String> {
    let own = own?;
    let localities = counts.localities.iter().map(|slot| &slot.locality);
    if localities.clone().any(|locality| locality == own) {
        return None;
    }
    let named = |locality: &Locality| match locality.region() {
        "" => format!("{locality} (no region)"),
        _ => locality.to_string(),
    };
    let Some(other) = localities
        .clone()
        .find(|locality| locality.differs_by_region(own))
    else {
        let other = own.nearest(localities)?;
        return Some(format!(
            "this process is in {own}, where {of} has nothing; did you mean {other}?"
        ));
    };
    Some(format!(
        "this process is in {}, {of} in {}: the regions differ, so that nothing there is local; \
         did you mean {other}?",
        named(own),
        named(other)
    ))
}

/// Formats a count with its noun: `1 host`, `2 hosts`.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Formats basis points as a percentage without trailing zeros.
pub(super) fn percent(basis_points: u64) -> String {
    let (whole, rest) = (basis_points / 100, basis_points % 100);
    match rest {
        0 => format!("{whole} %"),
        rest if rest % 10 == 0 => format!("{whole}.{} %", rest / 10),
        rest => format!("{whole}.{rest:02} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locality_picking::zone_aware::{Percentages, Residual};

    #[test]
    fn percentages_have_no_trailing_zeros() {
        let printed = [0, 5, 50, 6000, 6250, 6666, 10_000].map(percent);
        assert_eq!(
            printed,
            [
                "0 %", "0.05 %", "0.5 %", "60 %", "62.5 %", "66.66 %", "100 %"
            ]
        );
    }

    #[test]
    fn a_zone_that_keeps_nothing_has_no_host() {
        let text = |local_percent_to_route| {
            let routing = ZoneRouting {
                state: ZoneState::LocalityResidual(Residual {
                    local_percent_to_route,
                    capacity: Vec::new(),
                    no_capacity: None,
                }),
                preconditions: Vec::new(),
                percentages: vec![Percentages {
                    local: 5000,
                    upstream: 3000,
                }],
                observed: Observed::Unused,
                failing: Vec::new(),
            };
            reason(None, &routing, None, true)
        };
        assert!(text(6000).contains("60 % stays local"), "{}", text(6000));
        assert!(text(1).contains("0.01 % stays local"), "{}", text(1));
        assert!(text(0).contains("no healthy upstream host"), "{}", text(0));
    }

    #[test]
    fn every_reason_has_a_text() {
        for reason in [
            Reason::NotConfigured,
            Reason::NoLocalCluster,
            Reason::PriorityNotZero,
            Reason::UpstreamFewerThan2Localities,
            Reason::LocalFewerThan2Localities,
            Reason::LocalClusterHasNoHostInOwnLocality,
            Reason::UpstreamTooSmall,
            Reason::UpstreamInPanic,
            Reason::LocalityWeights,
            Reason::RoutingNotEnabled,
            Reason::LocalClusterInPanic,
            Reason::LoadAwareLocality,
        ] {
            let words = super::reason(Some(reason), &ZoneRouting::off(reason), None, false);
            assert!(words.len() > 20, "{reason:?}: {words}");
            let test = Precondition {
                reason,
                passed: false,
                actual: 1,
                required: 2,
            };
            assert!(precondition(&test).len() > 15, "{reason:?}");
        }
    }
}
