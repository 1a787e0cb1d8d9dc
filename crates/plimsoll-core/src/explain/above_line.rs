//! [`AboveLine`]: why a locality serves more than its share of the capacity.
//!
//! Every rule that may hold a locality above its load line has a code, in the order in which
//! `build` asks for them: a rule that overrides zone-aware routing explains more than the band of
//! the zone itself.

use super::words;
use crate::locality_picking::zone_aware::{
    Percentages, Reason, ZoneRouting, ZoneState, is_forced_local, seen_from,
};
use crate::model::locality::Locality;
use crate::model::zone_aware::ZoneAware;
use crate::snapshot::RoutingSnapshot;
use crate::units::BASIS_POINTS;

/// Load factor above which a reason is given. Less is rounding that nobody acts on.
pub(super) const NOTICED: f64 = 1.005;

/// Why a locality serves more than its share of the capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AboveLine {
    pub code: AboveLineCode,
    /// The rule with its numbers, for people.
    pub text: String,
}

/// Rule that holds a locality above its load line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum AboveLineCode {
    /// Zone-aware routing is off: too few hosts (`min_cluster_size`), panic, not configured.
    ZonesIgnored,
    /// `routing_enabled` is below 100 %.
    RoutingEnabled,
    /// The weights of the assignment choose the locality.
    LocalityWeights,
    /// Hosts of the locality report more than the mean utilization.
    ReportedUtilization,
    /// `force_local_zone` keeps all requests local.
    ForceLocalZone,
    /// Routing uses another demand than the one that arrives, such as host counts.
    AssumedDemand,
    /// Demand exceeds capacity by less than the dead band.
    DeadBand,
    /// No locality has spare capacity for the requests that spill.
    NoSpareCapacity,
    /// Shares are whole basis points, and one is a noticeable part of the locality's capacity.
    Rounding,
    /// Requests of other localities spill here.
    Spill,
    /// The objective of the service lets the locality be fuller than others.
    Objective,
}

impl AboveLineCode {
    /// Returns the stable identifier, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ZonesIgnored => "zones_ignored",
            Self::RoutingEnabled => "routing_enabled",
            Self::LocalityWeights => "locality_weights",
            Self::ReportedUtilization => "reported_utilization",
            Self::ForceLocalZone => "force_local_zone",
            Self::AssumedDemand => "assumed_demand",
            Self::DeadBand => "dead_band",
            Self::NoSpareCapacity => "no_spare_capacity",
            Self::Rounding => "rounding",
            Self::Spill => "spill",
            Self::Objective => "objective",
        }
    }
}

/// A locality above its line: its shares, and the routing of the proxies there.
pub(super) struct Loaded<'a> {
    pub(super) snapshot: &'a RoutingSnapshot,
    pub(super) locality: &'a Locality,
    pub(super) routing: &'a ZoneRouting,
    /// What overrides zone-aware routing or switches it off.
    pub(super) off: Option<Reason>,
    /// Share of the demand that arrives, whether routing knows it or not.
    pub(super) demand: f64,
    /// Share of the capacity.
    pub(super) capacity: f64,
}

impl Loaded<'_> {
    pub(super) fn above_line(&self) -> AboveLine {
        let (code, text) = self
            .overridden()
            .or_else(|| self.kept())
            .unwrap_or_else(|| self.received());
        AboveLine { code, text }
    }

    /// Rules by which requests do not follow zone-aware routing.
    fn overridden(&self) -> Option<(AboveLineCode, String)> {
        let config = self.snapshot.config.zone_aware();
        match self.off {
            Some(Reason::LoadAwareLocality) => Some((
                AboveLineCode::ReportedUtilization,
                "its hosts report more than the mean utilization".to_owned(),
            )),
            Some(Reason::LocalityWeights) => Some((
                AboveLineCode::LocalityWeights,
                "the weights of the assignment choose the locality".to_owned(),
            )),
            Some(reason) => {
                let why = words::reason(Some(reason), self.routing, config, false);
                Some((
                    AboveLineCode::ZonesIgnored,
                    format!("zones are ignored: {why}"),
                ))
            }
            None => match config.map(ZoneAware::routing_enabled) {
                Some(percent @ 0..=99) => Some((
                    AboveLineCode::RoutingEnabled,
                    format!("routing_enabled is {percent} %: the other requests ignore zones"),
                )),
                _ => None,
            },
        }
    }

    /// Rules by which the locality keeps more of its own requests than it has capacity for.
    fn kept(&self) -> Option<(AboveLineCode, String)> {
        let config = self.snapshot.config.zone_aware()?;
        let own = self.routing.percentages.first()?;
        let is_own = self.snapshot.counts(0)?;
        let upstream = seen_from(self.locality, is_own);
        let arrives = basis_points(self.demand);
        // One basis point is the rounding of a fraction.
        if upstream.has_local_locality && arrives > own.local + 1 && self.demand > self.capacity {
            return Some((
                AboveLineCode::AssumedDemand,
                format!(
                    "routing assumes {} of the demand here, but {} arrives",
                    words::percent(own.local),
                    words::percent(arrives)
                ),
            ));
        }
        if self.routing.state != ZoneState::LocalityDirect || self.demand <= self.capacity {
            return None;
        }
        if !within_band(config, *own) && is_forced_local(config, &upstream) {
            return Some((
                AboveLineCode::ForceLocalZone,
                "force_local_zone keeps all requests of the zone".to_owned(),
            ));
        }
        let excess = basis_points(self.demand / self.capacity - 1.0);
        let measured = self.snapshot.zone.demand.is_measured();
        measured.then(|| {
            (
                AboveLineCode::DeadBand,
                format!(
                    "demand is {} above the capacity of the zone, within the dead band of {}",
                    words::percent(excess),
                    words::dead_band(config, own.upstream)
                ),
            )
        })
    }

    /// Reasons of requests that arrive from other localities, or that only rounding explains.
    fn received(&self) -> (AboveLineCode, String) {
        if let ZoneState::LocalityResidual(residual) = &self.routing.state
            && residual.capacity.last() == Some(&0)
        {
            let text = "no zone has spare capacity for the requests that spill";
            return (AboveLineCode::NoSpareCapacity, text.to_owned());
        }
        let point = basis_points(1.0 / (self.capacity * 1e4).max(1.0));
        if point >= COARSE_BP {
            let text = format!(
                "shares are whole basis points, each of which is {} of the zone's capacity",
                words::percent(point)
            );
            return (AboveLineCode::Rounding, text);
        }
        let text = "requests of other zones spill here";
        (AboveLineCode::Spill, text.to_owned())
    }
}

/// Part of a zone's capacity, in basis points, from which the rounding of shares is worth a word.
const COARSE_BP: u64 = 50;

fn within_band(config: &ZoneAware, own: Percentages) -> bool {
    let band = config.dead_band_of(own.upstream, BASIS_POINTS);
    own.upstream > 0 && own.upstream + band >= own.local
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share, saturating"
)]
fn basis_points(share: f64) -> u64 {
    (share * BASIS_POINTS as f64).round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::balancer::Balancer;
    use crate::locality_picking::zone_aware::Residual;
    use crate::model::cluster::{ClusterConfig, ClusterConfigParts};
    use crate::time::Instant;

    #[test]
    fn requests_spill_by_chance_if_no_zone_has_spare_capacity() {
        let config = ClusterConfig::try_new(ClusterConfigParts {
            name: "orders".into(),
            ..ClusterConfigParts::default()
        });
        let here = Locality::zone_only("a");
        let balancer = Balancer::new(Arc::new(config.unwrap()), here.clone(), Instant::ORIGIN);
        let snapshot = balancer.initial_snapshot(Instant::ORIGIN);
        let code_at = |capacity, state| {
            let routing = ZoneRouting {
                state,
                ..ZoneRouting::off(Reason::NotConfigured)
            };
            let loaded = Loaded {
                snapshot: &snapshot,
                locality: &here,
                routing: &routing,
                off: None,
                demand: 0.5,
                capacity,
            };
            loaded.received().0
        };
        let code = |state| code_at(0.4, state);
        let spare = |capacity: &[u64]| {
            code(ZoneState::LocalityResidual(Residual {
                local_percent_to_route: 6000,
                capacity: capacity.to_vec(),
                no_capacity: None,
            }))
        };
        assert_eq!(spare(&[0, 0]), AboveLineCode::NoSpareCapacity);
        assert_eq!(spare(&[0, 1500]), AboveLineCode::Spill);
        assert_eq!(code(ZoneState::LocalityDirect), AboveLineCode::Spill);
        // A basis point is half a percent of 0.02.
        for (capacity, expected) in [
            (0.02, AboveLineCode::Rounding),
            (0.0204, AboveLineCode::Spill),
        ] {
            assert_eq!(code_at(capacity, ZoneState::LocalityDirect), expected);
        }
    }
}
