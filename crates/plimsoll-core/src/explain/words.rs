//! Reasons and preconditions in words an operator understands at 3 a.m.
//!
//! Sentences only; the numbers come from the decision itself.

use crate::locality_picking::zone_aware::{Precondition, Reason, ZoneRouting, ZoneState};
use crate::model::zone_aware::ZoneAware;

/// Why the routing is what it is.
pub(super) fn reason(zone: &ZoneRouting, config: Option<&ZoneAware>) -> String {
    match &zone.state {
        ZoneState::NoLocalityRouting(reason) => {
            let failed = zone.preconditions.iter().find(|test| !test.passed);
            failed.map_or_else(|| off(*reason).to_owned(), precondition)
        }
        ZoneState::LocalityDirect => direct(zone, config),
        ZoneState::LocalityResidual(residual) => {
            let kept = percent(residual.local_percent_to_route);
            match zone.percentages.first() {
                Some(own) if residual.local_percent_to_route > 0 => format!(
                    "the own locality issues {} of the demand but has {} of the capacity: {kept} \
                     stays local, the rest goes where capacity is spare",
                    percent(own.local),
                    percent(own.upstream)
                ),
                _ => "the own locality has no healthy upstream host: everything goes to other \
                      localities"
                    .to_owned(),
            }
        }
    }
}

fn direct(zone: &ZoneRouting, config: Option<&ZoneAware>) -> String {
    let Some(own) = zone.percentages.first() else { return "everything stays local".to_owned() };
    let (local, upstream) = (percent(own.local), percent(own.upstream));
    if own.upstream > 0 && own.upstream >= own.local {
        return format!(
            "the own locality issues {local} of the demand and has {upstream} of the capacity: \
             everything stays local"
        );
    }
    let forced = config.and_then(ZoneAware::force_local_zone);
    let band = config.map_or(0, |config| config.dead_band().get());
    match forced {
        Some(min_size) if own.upstream + band < own.local || own.upstream == 0 => format!(
            "force_local_zone keeps everything local (needs {min_size} healthy local hosts), although \
             the own locality issues {local} of the demand and has {upstream} of the capacity"
        ),
        _ => format!(
            "the own locality issues {local} of the demand and has {upstream} of the capacity: \
             within the dead band of {}, everything stays local",
            percent(band)
        ),
    }
}

/// A precondition and its numbers.
pub(super) fn precondition(test: &Precondition) -> String {
    let Precondition { actual, required, .. } = test;
    match test.reason {
        Reason::UpstreamFewerThan2Localities => {
            format!("the upstream cluster is in {actual} localities, {required} are needed")
        }
        Reason::LocalFewerThan2Localities if *required == 0 => {
            format!("the fleet is in {actual} localities (force_local_zone lifts the minimum of 2)")
        }
        Reason::LocalFewerThan2Localities => {
            format!("the fleet is in {actual} localities, {required} are needed")
        }
        Reason::LocalClusterHasNoHostInOwnLocality => {
            format!("the fleet has {actual} hosts in the own locality, {required} is needed")
        }
        Reason::UpstreamTooSmall => format!(
            "the upstream cluster has {actual} healthy hosts, min_cluster_size is {required}"
        ),
        other => off(other).to_owned(),
    }
}

const fn off(reason: Reason) -> &'static str {
    match reason {
        Reason::NotConfigured => "the policy does not choose by zone",
        Reason::NoLocalCluster => "no fleet (originating cluster) is known",
        Reason::PriorityNotZero => "zone-aware routing covers priority 0 only",
        Reason::UpstreamFewerThan2Localities => "the upstream cluster is in fewer than 2 localities",
        Reason::LocalFewerThan2Localities => "the fleet is in fewer than 2 localities",
        Reason::LocalClusterHasNoHostInOwnLocality => "the fleet has no host in the own locality",
        Reason::UpstreamTooSmall => "the upstream cluster has fewer hosts than min_cluster_size",
    }
}

/// Basis points as a percentage without needless digits.
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

    #[test]
    fn percentages_have_no_needless_digits() {
        let printed = [0, 5, 50, 6000, 6250, 6666, 10_000].map(percent);
        assert_eq!(printed, ["0 %", "0.05 %", "0.5 %", "60 %", "62.5 %", "66.66 %", "100 %"]);
    }

    #[test]
    fn every_reason_has_words() {
        for reason in [
            Reason::NotConfigured,
            Reason::NoLocalCluster,
            Reason::PriorityNotZero,
            Reason::UpstreamFewerThan2Localities,
            Reason::LocalFewerThan2Localities,
            Reason::LocalClusterHasNoHostInOwnLocality,
            Reason::UpstreamTooSmall,
        ] {
            let words = super::reason(&ZoneRouting::off(reason), None);
            assert!(words.len() > 20, "{reason:?}: {words}");
            let test = Precondition { reason, passed: false, actual: 1, required: 2 };
            assert!(precondition(&test).len() > 20, "{reason:?}");
        }
    }
}
