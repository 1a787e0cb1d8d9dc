//! [`steered`]: the settings of a cluster that measured demand steers, as a control plane sends
//! them.
//!
//! A service states how it is balanced; the control plane adds where demand comes from (decision
//! 0028). The control plane decides which [`DemandInput`] a node gets; the simulator uses the same
//! settings without a control plane.

use crate::model::cluster::ClusterConfig;
use crate::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};

/// How a data plane learns the demand of its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DemandInput {
    /// It does not: its cluster is as written, and only a written basis of measured demand is
    /// replaced by host counts.
    AsWritten,
    /// As fractions on the fleet's assignment.
    Fractions(FractionSource),
    /// As fractions in responses to its load reports.
    LrsResponse,
    /// As endpoint weights on the fleet's assignment, for stock Envoys.
    FleetWeights,
    /// It does not while requests to a zone fail, and routes by host counts, by the rules that
    /// demand would steer by.
    ZoneFails,
    /// As fractions that lead the load reports of hosts (decision 0027), with this percentage of
    /// their influence.
    FeedForward(u32),
}

/// Returns the settings of the `written` cluster for a data plane that gets demand by `input`.
pub fn steered(written: &ClusterConfig, input: DemandInput) -> ClusterConfig {
    let rules = || written.zone_aware().cloned().unwrap_or_default();
    let (basis, source) = match input {
        DemandInput::AsWritten => return without_demand(written),
        DemandInput::FeedForward(percent) => return written.with_demand_feed_forward(percent),
        DemandInput::ZoneFails => (LocalityBasis::HealthyHostsNum, rules().fraction_source()),
        DemandInput::Fractions(source) => (LocalityBasis::LrsReportedRate, source),
        // Fractions in the LRS response are used whatever `fraction_source` is.
        DemandInput::LrsResponse => (LocalityBasis::LrsReportedRate, rules().fraction_source()),
        DemandInput::FleetWeights => (LocalityBasis::HealthyHostsWeight, FractionSource::EdsField),
    };
    written.with_zone_aware(steered_rules(written).with_locality_basis(basis, source))
}

/// Returns the cluster without anything that follows measured demand: the fleet's assignment has
/// demand for other services, which must not influence this one.
fn without_demand(written: &ClusterConfig) -> ClusterConfig {
    match written.zone_aware() {
        Some(rules) if rules.locality_basis() == LocalityBasis::LrsReportedRate => {
            let source = rules.fraction_source();
            let rules = rules.clone();
            written
                .with_zone_aware(rules.with_locality_basis(LocalityBasis::HealthyHostsNum, source))
        }
        _ => written.with_demand_feed_forward(0),
    }
}

/// Returns the zone-aware rules of a cluster that is steered. Envoy's default minimum of 6 upstream
/// hosts protects against estimates from host counts; with measured demand small services can be
/// routed by zone as well, so the minimum only applies if it is explicit.
pub fn steered_rules(written: &ClusterConfig) -> ZoneAware {
    let rules = written.zone_aware().cloned().unwrap_or_default();
    match rules.written_min_cluster_size() {
        None => rules.with_min_cluster_size(1),
        Some(_) => rules,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::{ClusterConfigParts, LocalityPolicy};
    use crate::model::load_aware_locality::{
        LoadAwareLocality, LoadAwareLocalityParts, SpillController,
    };
    use crate::model::zone_aware::ZoneAwareParts;

    fn cluster(locality_policy: LocalityPolicy) -> ClusterConfig {
        ClusterConfig::try_new(ClusterConfigParts {
            name: "orders".into(),
            locality_policy,
            ..Default::default()
        })
        .unwrap()
    }

    #[test]
    fn envoys_minimum_of_hosts_only_applies_if_written_or_without_demand() {
        let written = |min_cluster_size| {
            let rules = ZoneAware::try_new(ZoneAwareParts {
                min_cluster_size,
                ..Default::default()
            });
            cluster(LocalityPolicy::ZoneAware(rules.unwrap()))
        };
        let metadata = FractionSource::LocalityMetadata;
        for (input, basis, source, minimum) in [
            (DemandInput::AsWritten, "HealthyHostsNum", "EdsField", 6),
            (
                DemandInput::Fractions(metadata),
                "LrsReportedRate",
                "LocalityMetadata",
                1,
            ),
            (DemandInput::LrsResponse, "LrsReportedRate", "EdsField", 1),
            (DemandInput::ZoneFails, "HealthyHostsNum", "EdsField", 1),
            (
                DemandInput::FleetWeights,
                "HealthyHostsWeight",
                "EdsField",
                1,
            ),
        ] {
            let config = steered(&written(None), input);
            let rules = config.zone_aware().unwrap();
            assert_eq!(format!("{:?}", rules.locality_basis()), basis);
            assert_eq!(format!("{:?}", rules.fraction_source()), source);
            assert_eq!(rules.min_cluster_size(), minimum, "{input:?}");
            let config = steered(&written(Some(4)), input);
            assert_eq!(config.zone_aware().unwrap().min_cluster_size(), 4);
        }
    }

    #[test]
    fn without_demand_a_cluster_is_as_written_apart_from_a_measured_basis() {
        let measured = ZoneAware::default()
            .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField);
        for (policy, stays) in [
            (LocalityPolicy::LocalityWeighted, true),
            (LocalityPolicy::WrrLocality, true),
            (LocalityPolicy::ZoneAware(ZoneAware::default()), true),
            (LocalityPolicy::ZoneAware(measured), false),
        ] {
            let written = cluster(policy);
            let sent = steered(&written, DemandInput::AsWritten);
            assert_eq!(sent == written, stays, "{written:?}");
            let basis = sent.zone_aware().map(ZoneAware::locality_basis);
            assert_ne!(basis, Some(LocalityBasis::LrsReportedRate));
        }
    }

    #[test]
    fn load_reports_of_hosts_are_led_by_demand_only_if_asked() {
        let policy = LoadAwareLocality::try_new(LoadAwareLocalityParts {
            spill_controller: SpillController::Convergent,
            ..Default::default()
        });
        let written = cluster(LocalityPolicy::LoadAwareLocality(policy.unwrap()));
        assert_eq!(steered(&written, DemandInput::FeedForward(100)), written);
        let alone = steered(&written, DemandInput::AsWritten);
        assert!(written.uses_demand_feed_forward() && !alone.uses_demand_feed_forward());
    }
}
