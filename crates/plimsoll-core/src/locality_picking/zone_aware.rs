//! Zone-aware routing: preconditions, shares, state, and the pick of a locality (envoy-semantics
//! §2.3–2.5, decisions D4).
//!
//! [`regenerate`] runs when the upstream cluster, the fleet or the measured demand changed and
//! yields an immutable [`ZoneRouting`]; [`ZoneRouting::pick`] answers requests from it. Where
//! demand comes from lives in `demand` and `fractions`; panic and the choice of priority live
//! outside. For the two classic bases every number, floor and draw is Envoy's.

use super::demand::{Demand, share_bp};
use super::sampling::{LocalitySampler, remainder, scale};
use crate::counts::{HostSetCounts, LocalityCounts};
use crate::explain::StateName;
use crate::model::locality::Locality;
use crate::model::zone_aware::{CapacityBasis, LocalityBasis, ZoneAware};
use crate::rng::Rng;
use crate::stats::PickerStats;
use crate::units::BASIS_POINTS;

/// Why localities play no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The policy has no zone-aware routing (consistent hashing, flat lists).
    NotConfigured,
    /// No own (originating) cluster is known yet.
    NoLocalCluster,
    /// Zone-aware routing covers priority 0 only, unless `all_priorities` is set.
    PriorityNotZero,
    /// The upstream cluster has hosts in fewer than two localities.
    UpstreamFewerThan2Localities,
    /// The fleet has hosts in fewer than two localities (and `force_local_zone` is off).
    LocalFewerThan2Localities,
    /// The fleet has no host in the own locality.
    LocalClusterHasNoHostInOwnLocality,
    /// Fewer healthy upstream hosts than `min_cluster_size`.
    UpstreamTooSmall,
    /// Per request: the priority is in panic.
    UpstreamInPanic,
    /// Per request: the weights of the assignment choose the locality.
    LocalityWeights,
    /// Per request: `routing_enabled` is 0.
    RoutingNotEnabled,
    /// Per request: the fleet itself is in panic.
    LocalClusterInPanic,
    /// load_aware_locality chooses by the utilization that hosts report.
    LoadAwareLocality,
}

/// One test that must hold before localities matter, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precondition {
    /// What follows when it fails.
    pub reason: Reason,
    /// Whether it held.
    pub passed: bool,
    /// The number found.
    pub actual: u64,
    /// The number needed.
    pub required: u64,
}

/// Shares of one upstream locality in basis points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentages {
    /// Share of the fleet's demand.
    pub local: u64,
    /// Share of the upstream cluster's capacity.
    pub upstream: u64,
}

/// What happens to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Localities play no part.
    NoLocalityRouting(Reason),
    /// Everything stays in slot 0.
    LocalityDirect,
    /// Part stays, the rest spills.
    LocalityResidual(Residual),
}

impl ZoneState {
    /// Name of the state, as Envoy spells it.
    pub const fn name(&self) -> StateName {
        match self {
            Self::NoLocalityRouting(_) => StateName::NoLocalityRouting,
            Self::LocalityDirect => StateName::LocalityDirect,
            Self::LocalityResidual(_) => StateName::LocalityResidual,
        }
    }

    /// Why localities play no part; `None` when they do.
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::NoLocalityRouting(reason) => Some(*reason),
            Self::LocalityDirect | Self::LocalityResidual(_) => None,
        }
    }
}

/// The split of the residual state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residual {
    /// Share kept local, basis points (may exceed 10000 only by misuse; then all stays).
    pub local_percent_to_route: u64,
    /// Spare capacity per slot, cumulative.
    pub capacity: Vec<u64>,
    /// Where to go when no slot has spare capacity: `None` = any slot with equal chance, empty ones
    /// included (Envoy); `Some` = cumulative upstream shares (measured bases).
    pub no_capacity: Option<Vec<u64>>,
}

/// The outcome of one regeneration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneRouting {
    /// What happens to requests.
    pub state: ZoneState,
    /// The tests, in the order in which they are made. Empty when none was made.
    pub preconditions: Vec<Precondition>,
    /// Shares per upstream slot. Empty when a precondition failed.
    pub percentages: Vec<Percentages>,
    /// The split is that of `OBSERVED_LOAD`, not of the percentages.
    pub observed: bool,
}

impl ZoneRouting {
    /// Localities play no part, for a reason outside the preconditions.
    pub const fn off(reason: Reason) -> Self {
        Self {
            state: ZoneState::NoLocalityRouting(reason),
            preconditions: Vec::new(),
            percentages: Vec::new(),
            observed: false,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "shares are 0.0 to 1.0"
    )]
    /// The same routing with shares decided elsewhere (a controller): what is kept in slot 0, and
    /// the rest in proportion. Nothing changes while localities play no part.
    #[must_use]
    pub fn with_shares(mut self, shares: &[f64], has_local_locality: bool) -> Self {
        if !self.is_active() || shares.len() != self.percentages.len() {
            return self;
        }
        self.observed = true;
        let kept = shares
            .first()
            .filter(|_| has_local_locality)
            .copied()
            .unwrap_or(0.0);
        if kept >= 1.0 - 1.0 / BASIS_POINTS as f64 {
            self.state = ZoneState::LocalityDirect;
            return self;
        }
        let scaled = |share: f64| (share * Self::SHARE_SCALE).max(0.0) as u64;
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

    /// Resolution of shares that are not basis points.
    const SHARE_SCALE: f64 = 1e9;

    /// Whether a locality is chosen at all.
    pub const fn is_active(&self) -> bool {
        !matches!(self.state, ZoneState::NoLocalityRouting(_))
    }

    /// The slot for one request (§2.5), or `None` when localities play no part.
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

    /// Share of requests per slot, 0.0 to 1.0; `None` when localities play no part.
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
        // The even sampler spends one position on both questions; Envoy draws for each.
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
                    // Any slot: no table to look up.
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
            observed: false,
        };
    }
    let percentages = percentages(config, upstream, demand);
    let state = state(config, upstream, demand.is_measured(), &percentages);
    ZoneRouting {
        state,
        preconditions,
        percentages,
        observed: false,
    }
}

/// The four tests in Envoy's order. Slots count even when empty; the fleet counts all its hosts.
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

/// Both shares of every upstream slot; a slot without healthy hosts has neither.
fn percentages(config: &ZoneAware, upstream: &HostSetCounts, demand: &Demand) -> Vec<Percentages> {
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
    let shares = |slot: &LocalityCounts| match slot.healthy {
        0 => Percentages::default(),
        _ => Percentages {
            local: demand.basis_points(&slot.locality),
            upstream: share_bp(weight(slot), total),
        },
    };
    upstream.localities.iter().map(shares).collect()
}

/// Whether capacity is the weight of healthy hosts instead of their number.
pub(crate) fn capacity_by_weight(config: &ZoneAware, measured: bool) -> bool {
    let chosen = config.upstream_locality_basis() == CapacityBasis::HealthyHostsWeight;
    match config.locality_basis() {
        LocalityBasis::HealthyHostsNum => false,
        LocalityBasis::HealthyHostsWeight => true,
        // Without measured demand the classic basis by count applies whole (decisions D3).
        LocalityBasis::LrsReportedRate => measured && chosen,
        LocalityBasis::ObservedLoad => chosen,
    }
}

/// Whether `force_local_zone` keeps everything local.
pub(crate) fn is_forced_local(config: &ZoneAware, upstream: &HostSetCounts) -> bool {
    let own = upstream.local().map(|slot| slot.healthy);
    let needed = config.force_local_zone().map(u64::from);
    own.zip(needed).is_some_and(|(own, needed)| own >= needed)
}

/// Direct when the own locality can take all its demand (or is forced to), else the split.
fn state(
    config: &ZoneAware,
    upstream: &HostSetCounts,
    measured: bool,
    percentages: &[Percentages],
) -> ZoneState {
    let own = upstream.local().zip(percentages.first());
    let band = if measured {
        config.dead_band().get()
    } else {
        0
    };
    if let Some((_, shares)) = own {
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
    let capacity = percentages.iter().enumerate().map(|(index, shares)| {
        if index > 0 || own.is_none() {
            spare += shares.upstream.saturating_sub(shares.local);
        }
        spare
    });
    let capacity: Vec<u64> = capacity.collect();
    // Before anything was observed there is no measured demand, but nobody waits for Envoy's draws.
    let observed = config.locality_basis() == LocalityBasis::ObservedLoad;
    let no_capacity = (measured || observed).then(|| {
        let mut upto = 0;
        let shares = percentages.iter().map(|shares| {
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

/// The same counts as a proxy in `own` would hold them: its own slot first. For planning and
/// explaining what proxies of other zones do.
pub fn seen_from(own: &Locality, counts: &HostSetCounts) -> HostSetCounts {
    let mut seen = counts.clone();
    seen.has_local_locality =
        HostSetCounts::order(&mut seen.localities, Some(own), |slot| &slot.locality);
    seen
}

impl Reason {
    /// The reason for programs: stable, and spelled as the vectors spell it.
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

    /// The counter that a regeneration bumps when it ends for this reason (§2.3); Envoy has none
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

#[cfg(test)]
mod tests;
