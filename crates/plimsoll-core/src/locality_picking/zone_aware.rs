//! Zone-aware routing: preconditions, shares, state, and the choice of a locality (envoy-semantics
//! §2.3–2.5, decision 0004).
//!
//! [`regenerate`] runs when the upstream cluster, the fleet or the measured demand changed and
//! returns an immutable [`ZoneRouting`], from which [`ZoneRouting::pick`] answers requests.
//! `demand` and `fractions` supply the demand; panic and the choice of priority are elsewhere. For
//! HEALTHY_HOSTS_NUM and HEALTHY_HOSTS_WEIGHT use Envoy's numbers, rounding and draws.

use super::demand::{Demand, share};
use super::sampling::{LocalitySampler, remainder, scale};
use crate::counts::{HostSetCounts, LocalityCounts};
use crate::explain::StateName;
use crate::model::locality::Locality;
use crate::model::zone_aware::{CapacityBasis, LocalityBasis, ZoneAware};
use crate::rng::Rng;
use crate::stats::PickerStats;
use crate::units::BASIS_POINTS;

/// Reason why zone-aware routing is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The policy has no zone-aware routing (consistent hashing, flat lists).
    NotConfigured,
    /// The fleet (Envoy's local cluster) is not known yet.
    NoLocalCluster,
    /// Zone-aware routing covers priority 0 only, unless `all_priorities` is set.
    PriorityNotZero,
    /// The upstream cluster has hosts in fewer than two localities.
    UpstreamFewerThan2Localities,
    /// The fleet has hosts in fewer than two localities (and `force_local_zone` is off).
    LocalFewerThan2Localities,
    LocalClusterHasNoHostInOwnLocality,
    UpstreamTooSmall,
    /// Per request: the priority is in panic.
    UpstreamInPanic,
    /// Per request: the locality weights of the assignment decide.
    LocalityWeights,
    /// Per request: `routing_enabled` is 0.
    RoutingNotEnabled,
    /// Per request: the fleet itself is in panic.
    LocalClusterInPanic,
    /// load_aware_locality decides, by reported utilization.
    LoadAwareLocality,
}

/// One precondition of zone-aware routing, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precondition {
    pub reason: Reason,
    pub passed: bool,
    pub actual: u64,
    pub required: u64,
}

/// A locality's share of the fleet's demand and of the upstream capacity, in basis points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentages {
    /// Share of the fleet's demand.
    pub local: u64,
    /// Share of the upstream cluster's capacity.
    pub upstream: u64,
}

/// State of zone-aware routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneState {
    NoLocalityRouting(Reason),
    LocalityDirect,
    /// Part of the requests stay in slot 0, the rest spills.
    LocalityResidual(Residual),
}

impl ZoneState {
    /// Returns the name of the state, as Envoy spells it.
    pub const fn name(&self) -> StateName {
        match self {
            Self::NoLocalityRouting(_) => StateName::NoLocalityRouting,
            Self::LocalityDirect => StateName::LocalityDirect,
            Self::LocalityResidual(_) => StateName::LocalityResidual,
        }
    }

    /// Returns why zone-aware routing is off; `None` if it is on.
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::NoLocalityRouting(reason) => Some(*reason),
            Self::LocalityDirect | Self::LocalityResidual(_) => None,
        }
    }
}

/// Split between slot 0 and the others in the residual state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residual {
    /// Share kept local, in basis points. Above 10000, everything stays.
    pub local_percent_to_route: u64,
    /// Spare capacity per slot, cumulative: in basis points with Envoy's bases, finer with others.
    pub capacity: Vec<u64>,
    /// Distribution if no slot has spare capacity: `None` = any slot with equal probability, even
    /// an empty one (Envoy); `Some` = cumulative upstream shares (measured demand, OBSERVED_LOAD).
    pub no_capacity: Option<Vec<u64>>,
}

/// Resolution of shares where Envoy's rounding need not be reproduced. Among a hundred zones a
/// basis point is a percent of a zone: shares of capacity that are rounded down leave spare
/// capacity in few zones, which would get all the requests that spill.
const FINE_PARTS: u64 = 1_000_000_000;

/// What `OBSERVED_LOAD` has to do with a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Another policy splits: response times are not considered.
    Unused,
    /// Host counts decide, and probes show how fast the other localities respond.
    Learning,
    /// The shares follow the response times of localities.
    Decides,
}

/// Result of one regeneration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneRouting {
    pub state: ZoneState,
    /// Preconditions in evaluation order. Empty if none was evaluated.
    pub preconditions: Vec<Precondition>,
    /// Shares per upstream slot. Empty if a precondition failed.
    pub percentages: Vec<Percentages>,
    /// Whether the split comes from `OBSERVED_LOAD` instead of the percentages.
    pub observed: Observed,
    /// Localities whose requests fail, because of which host counts take the place of
    /// `OBSERVED_LOAD` (decision 0038).
    pub failing: Vec<Locality>,
}

impl ZoneRouting {
    /// Switches zone-aware routing off, for a reason other than the preconditions.
    pub const fn off(reason: Reason) -> Self {
        Self {
            state: ZoneState::NoLocalityRouting(reason),
            preconditions: Vec::new(),
            percentages: Vec::new(),
            observed: Observed::Unused,
            failing: Vec::new(),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "shares are 0.0 to 1.0"
    )]
    /// Replaces the split by the shares of a controller: the first is kept in slot 0, and the rest
    /// is distributed in proportion. No effect while zone-aware routing is off.
    #[must_use]
    pub fn with_shares(
        mut self,
        shares: &[f64],
        has_local_locality: bool,
        observed: Observed,
    ) -> Self {
        if !self.is_active() || shares.len() != self.percentages.len() {
            return self;
        }
        self.observed = observed;
        let kept = shares
            .first()
            .filter(|_| has_local_locality)
            .copied()
            .unwrap_or(0.0);
        if kept >= 1.0 - 1.0 / BASIS_POINTS as f64 {
            self.state = ZoneState::LocalityDirect;
            return self;
        }
        let scaled = |share: f64| (share * FINE_PARTS as f64).max(0.0) as u64;
        let skipped = usize::from(has_local_locality);
        let mut upto = 0;
        let capacity = shares.iter().enumerate().map(|(slot, &share)| {
            upto += if slot < skipped { 0 } else { scaled(share) };
            upto
        });
        self.state = ZoneState::LocalityResidual(Residual {
            local_percent_to_route: (kept * BASIS_POINTS as f64) as u64,
            capacity: capacity.collect(),
            no_capacity: None,
        });
        self
    }

    /// Whether zone-aware routing is on.
    pub const fn is_active(&self) -> bool {
        !matches!(self.state, ZoneState::NoLocalityRouting(_))
    }

    /// Picks the slot for one request (§2.5); `None` if zone-aware routing is off.
    #[inline(always)]
    pub fn pick(
        &self,
        sampler: &mut LocalitySampler,
        rng: &mut impl Rng,
        stats: &PickerStats,
    ) -> Option<usize> {
        match &self.state {
            ZoneState::NoLocalityRouting(_) => None,
            ZoneState::LocalityDirect => {
                stats.lb_zone_routing_all_directly.increment();
                Some(0)
            }
            ZoneState::LocalityResidual(residual) => Some(residual.pick(sampler, rng, stats)),
        }
    }

    /// Returns the expected share of requests per slot, 0.0 to 1.0; `None` if zone-aware routing is
    /// off.
    #[expect(clippy::cast_precision_loss, reason = "basis points")]
    pub fn expected_shares(&self) -> Option<Vec<f64>> {
        let slots = self.percentages.len();
        let mut shares = vec![0.0; slots];
        match &self.state {
            ZoneState::NoLocalityRouting(_) => return None,
            ZoneState::LocalityDirect => shares.first_mut().into_iter().for_each(|s| *s = 1.0),
            ZoneState::LocalityResidual(residual) => {
                let kept = residual.local_percent_to_route.min(BASIS_POINTS);
                let spilled = (BASIS_POINTS - kept) as f64 / BASIS_POINTS as f64;
                let uniform: Vec<u64> = (1..=slots as u64).collect();
                let table = match (residual.total(), &residual.no_capacity) {
                    (1.., _) => &residual.capacity,
                    (0, Some(proportional)) => proportional,
                    (0, None) => &uniform,
                };
                let total = table.last().copied().unwrap_or(0).max(1) as f64;
                let mut before = 0;
                for (share, &upto) in shares.iter_mut().zip(table) {
                    *share = spilled * (upto - before) as f64 / total;
                    before = upto;
                }
                if let Some(local) = shares.first_mut() {
                    *local += kept as f64 / BASIS_POINTS as f64;
                }
            }
        }
        Some(shares)
    }
}

impl Residual {
    fn total(&self) -> u64 {
        self.capacity.last().copied().unwrap_or(0)
    }

    #[inline(always)]
    fn pick(
        &self,
        sampler: &mut LocalitySampler,
        rng: &mut impl Rng,
        stats: &PickerStats,
    ) -> usize {
        // The even sampler uses one position for both decisions; Envoy draws for each.
        let even = match sampler {
            LocalitySampler::Random => None,
            LocalitySampler::LowDiscrepancy { position } => {
                Some(LocalitySampler::advance(position))
            }
        };
        let local_draw = match even {
            None => rng.next_u64() % BASIS_POINTS,
            Some(fraction) => scale(fraction, BASIS_POINTS),
        };
        if local_draw < self.local_percent_to_route {
            stats.lb_zone_routing_sampled.increment();
            return 0;
        }
        stats.lb_zone_routing_cross_zone.increment();
        let (table, range) = match self.total() {
            0 => {
                stats.lb_zone_no_capacity_left.increment();
                match self.no_capacity.as_deref() {
                    Some(shares @ [.., total]) if *total > 0 => (shares, *total),
                    _ => (&[][..], self.capacity.len() as u64),
                }
            }
            total => (&*self.capacity, total),
        };
        let draw = match even {
            None => rng.next_u64() % range,
            Some(fraction) => {
                let left = remainder(fraction, self.local_percent_to_route, BASIS_POINTS);
                scale(left, range)
            }
        };
        if table.is_empty() {
            return usize::try_from(draw).unwrap_or(0);
        }
        table.partition_point(|&upto| upto <= draw)
    }
}

/// Recomputes the routing of one upstream priority (§2.3).
pub fn regenerate(
    config: &ZoneAware,
    upstream: &HostSetCounts,
    fleet: &HostSetCounts,
    demand: &Demand,
) -> ZoneRouting {
    let preconditions = preconditions(config, upstream, fleet).to_vec();
    if let Some(failed) = preconditions.iter().find(|test| !test.passed) {
        let state = ZoneState::NoLocalityRouting(failed.reason);
        return ZoneRouting {
            state,
            preconditions,
            percentages: Vec::new(),
            observed: Observed::Unused,
            failing: Vec::new(),
        };
    }
    let whole = if demand.is_measured() {
        FINE_PARTS
    } else {
        BASIS_POINTS
    };
    let shares = shares(config, upstream, demand, whole);
    let state = state(config, upstream, demand.is_measured(), &shares);
    let basis_points = |shares: &Percentages| Percentages {
        local: shares.local / (whole / BASIS_POINTS),
        upstream: shares.upstream / (whole / BASIS_POINTS),
    };
    ZoneRouting {
        state,
        preconditions,
        percentages: shares.iter().map(basis_points).collect(),
        observed: Observed::Unused,
        failing: Vec::new(),
    }
}

/// The four preconditions in Envoy's order. Empty slots and unhealthy hosts of the fleet count.
fn preconditions(
    config: &ZoneAware,
    upstream: &HostSetCounts,
    fleet: &HostSetCounts,
) -> [Precondition; 4] {
    let test = |reason, actual, required| Precondition {
        reason,
        passed: actual >= required,
        actual,
        required,
    };
    let forced = config.force_local_zone().is_some();
    let own_hosts = fleet.local().map_or(0, |own| own.all);
    [
        test(
            Reason::UpstreamFewerThan2Localities,
            upstream.localities.len() as u64,
            2,
        ),
        test(
            Reason::LocalFewerThan2Localities,
            fleet.localities.len() as u64,
            if forced { 0 } else { 2 },
        ),
        test(Reason::LocalClusterHasNoHostInOwnLocality, own_hosts, 1),
        test(
            Reason::UpstreamTooSmall,
            upstream.flat.healthy,
            config.min_cluster_size(),
        ),
    ]
}

/// Returns demand and capacity of every upstream slot in parts of `whole`; both are 0 without
/// healthy hosts.
fn shares(
    config: &ZoneAware,
    upstream: &HostSetCounts,
    demand: &Demand,
    whole: u64,
) -> Vec<Percentages> {
    let by_weight = capacity_by_weight(config, demand.is_measured());
    let weight = |slot: &LocalityCounts| {
        if by_weight {
            slot.healthy_weight
        } else {
            slot.healthy
        }
    };
    let total: u128 = upstream
        .localities
        .iter()
        .map(|slot| u128::from(weight(slot)))
        .sum();
    let mut demand = demand.lookup();
    let slot_shares = |slot: &LocalityCounts| match slot.healthy {
        0 => Percentages::default(),
        _ => Percentages {
            local: demand.share_of(&slot.locality, whole),
            upstream: share(weight(slot), total, whole),
        },
    };
    upstream.localities.iter().map(slot_shares).collect()
}

/// Whether capacity is the weight of healthy hosts instead of their number.
pub(crate) fn capacity_by_weight(config: &ZoneAware, measured: bool) -> bool {
    let chosen = config.upstream_locality_basis() == CapacityBasis::HealthyHostsWeight;
    match config.locality_basis() {
        LocalityBasis::HealthyHostsNum => false,
        LocalityBasis::HealthyHostsWeight => true,
        // Without measured demand all shares are by host count, as in Envoy (decision 0024).
        LocalityBasis::LrsReportedRate => measured && chosen,
        LocalityBasis::ObservedLoad => chosen,
    }
}

pub(crate) fn is_forced_local(config: &ZoneAware, upstream: &HostSetCounts) -> bool {
    let own = upstream.local().map(|slot| slot.healthy);
    let needed = config.force_local_zone().map(u64::from);
    own.zip(needed).is_some_and(|(own, needed)| own >= needed)
}

/// `LocalityDirect` if the local locality can take all its demand or must, else the split.
fn state(
    config: &ZoneAware,
    upstream: &HostSetCounts,
    measured: bool,
    shares: &[Percentages],
) -> ZoneState {
    let own = upstream.local().zip(shares.first());
    if let Some((_, shares)) = own {
        let band = if measured {
            config.dead_band_of(shares.upstream, FINE_PARTS)
        } else {
            0
        };
        let fits = shares.upstream > 0 && shares.upstream + band >= shares.local;
        if fits || is_forced_local(config, upstream) {
            return ZoneState::LocalityDirect;
        }
    }
    let local_percent_to_route = match own {
        Some((_, shares)) if shares.local > 0 => shares.upstream * BASIS_POINTS / shares.local,
        _ => 0,
    };
    let mut spare = 0;
    let cumulative_spare = |(index, shares): (usize, &Percentages)| {
        if index > 0 || own.is_none() {
            spare += shares.upstream.saturating_sub(shares.local);
        }
        spare
    };
    let capacity = shares.iter().enumerate().map(cumulative_spare).collect();
    // No demand is measured before the first observation; draws need not match Envoy's.
    let observed = config.locality_basis() == LocalityBasis::ObservedLoad;
    let no_capacity = (measured || observed).then(|| {
        let mut upto = 0;
        let shares = shares.iter().map(|shares| {
            upto += shares.upstream;
            upto
        });
        shares.collect()
    });
    ZoneState::LocalityResidual(Residual {
        local_percent_to_route,
        capacity,
        no_capacity,
    })
}

/// Returns the counts as a proxy in `own` holds them, with its own slot first, to plan and explain
/// routing in other zones.
pub fn seen_from(own: &Locality, counts: &HostSetCounts) -> HostSetCounts {
    let mut seen = counts.clone();
    seen.has_local_locality =
        HostSetCounts::order(&mut seen.localities, Some(own), |slot| &slot.locality);
    seen
}

impl Reason {
    /// Returns the stable identifier of the reason, as spelled in the conformance vectors.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotConfigured => "not_configured",
            Self::NoLocalCluster => "no_local_cluster",
            Self::PriorityNotZero => "priority_not_zero",
            Self::UpstreamFewerThan2Localities => "upstream_fewer_than_2_localities",
            Self::LocalFewerThan2Localities => "local_fewer_than_2_localities",
            Self::LocalClusterHasNoHostInOwnLocality => "local_cluster_has_no_host_in_own_locality",
            Self::UpstreamTooSmall => "upstream_too_small",
            Self::UpstreamInPanic => "upstream_in_panic",
            Self::LocalityWeights => "locality_weights",
            Self::RoutingNotEnabled => "routing_not_enabled",
            Self::LocalClusterInPanic => "local_cluster_in_panic",
            Self::LoadAwareLocality => "load_aware_locality",
        }
    }

    /// Returns the counter that a regeneration increments for this reason (§2.3); Envoy has none
    /// for the others.
    pub const fn counter(self) -> Option<&'static str> {
        match self {
            Self::LocalClusterHasNoHostInOwnLocality => Some("lb_local_cluster_not_ok"),
            Self::UpstreamTooSmall => Some("lb_zone_cluster_too_small"),
            _ => None,
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for Reason {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Reason".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "Why zone-aware routing is off.",
        })
    }
}

#[cfg(test)]
mod tests;
