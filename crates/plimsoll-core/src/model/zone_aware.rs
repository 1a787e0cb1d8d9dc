//! Configuration of zone-aware routing: `LocalityLbConfig.ZoneAwareLbConfig`, with the extensions
//! of seed `000…` (`LRS_REPORTED_RATE`, `lrs_rate_config`) and Plimsoll's own (decision 0004).
//!
//! This module resolves settings and runtime keys (envoy-semantics §2.2);
//! `locality_picking::zone_aware` applies them. Both the legacy `common_lb_config` form (which
//! carries only the first three fields) and the modern one end in [`ZoneAware`].

use std::time::Duration;

use crate::units::{BASIS_POINTS, BasisPoints, FieldError, Percent};

/// How the shares of localities are computed (`LocalityBasis`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "SCREAMING_SNAKE_CASE")
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum LocalityBasis {
    /// 0: number of healthy hosts, for the fleet and for the upstream cluster.
    #[default]
    HealthyHostsNum,
    /// 1: sum of the weights of healthy hosts, for the fleet and for the upstream cluster.
    HealthyHostsWeight,
    /// 2: measured demand for the fleet, capacity for the upstream cluster.
    LrsReportedRate,
    /// 50001, Plimsoll's own: waiting times of this proxy's own requests (decision 0016).
    ObservedLoad,
}

impl LocalityBasis {
    /// Whether demand is measured, not inferred from hosts as with Envoy's two values.
    pub const fn is_measured(self) -> bool {
        matches!(self, Self::LrsReportedRate | Self::ObservedLoad)
    }

    /// Whether a request whose locality has no host may use the flat list of its availability. Not
    /// with Envoy's two values, nor with the fallback to them when demand is not `measured`.
    pub(crate) const fn leaves_empty_localities(self, measured: bool) -> bool {
        match self {
            Self::HealthyHostsNum | Self::HealthyHostsWeight => false,
            Self::LrsReportedRate => measured,
            Self::ObservedLoad => true,
        }
    }
}

/// Measure of upstream capacity when demand is measured (decision 0004; problem 18 of the seed).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "SCREAMING_SNAKE_CASE")
)]
pub enum CapacityBasis {
    #[default]
    HealthyHostsNum,
    HealthyHostsWeight,
}

/// Where the fleet's assignment carries the fractions (`LrsRateConfig.FractionSource`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "SCREAMING_SNAKE_CASE")
)]
pub enum FractionSource {
    /// 0: in the field `LocalityLbEndpoints.observed_traffic_fraction`.
    #[default]
    EdsField,
    /// 1: `filter_metadata["envoy.lb"].observed_traffic_fraction` of the locality.
    LocalityMetadata,
}

/// The message `force_local_zone`, unchecked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForceLocalZone {
    /// Unset means 1; an explicit 0 keeps all requests local, even without a healthy local host.
    pub min_size: Option<u32>,
}

impl ForceLocalZone {
    /// Keeps requests local while at least `min_size` local hosts are healthy.
    pub const fn new(min_size: u32) -> Self {
        Self {
            min_size: Some(min_size),
        }
    }
}

/// The message `lrs_rate_config`, unchecked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LrsRateConfigParts {
    /// Default 60 s, 5 s to 600 s.
    pub staleness_threshold: Option<Duration>,
    pub fraction_source: FractionSource,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The fields of `ZoneAwareLbConfig`, unchecked. `Default` leaves everything unset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZoneAwareParts {
    /// Percent of requests that are routed by zone; default 100.
    pub routing_enabled: Option<f64>,
    /// Fewer healthy upstream hosts disable zone-aware routing; default 6.
    pub min_cluster_size: Option<u64>,
    pub fail_traffic_on_panic: bool,
    /// Deprecated spelling of `force_local_zone { min_size: 1 }`.
    pub force_locality_direct_routing: bool,
    pub force_local_zone: Option<ForceLocalZone>,
    pub locality_basis: LocalityBasis,
    /// Whether `locality_basis` is configured (or not the default): a control plane keeps it then.
    pub locality_basis_written: bool,
    pub lrs_rate_config: LrsRateConfigParts,
    /// Extension: measure of capacity for LRS_REPORTED_RATE and OBSERVED_LOAD; default host counts.
    pub upstream_locality_basis: CapacityBasis,
    /// Extension: demand above a zone's capacity that stays local, in basis points of that
    /// capacity; not with Envoy's values. Unset is 3 %, but at most 1 % of the whole (decision
    /// 0004).
    pub dead_band_bp: Option<u64>,
    /// Extension: how often `OBSERVED_LOAD` recomputes its shares; default 1 s, 100 ms to 60 s.
    pub observed_load_period: Option<Duration>,
    /// Extension: also route by zone at priorities above 0, unlike Envoy.
    pub all_priorities: bool,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// `ZoneAwareLbConfig`, checked and with defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneAware {
    routing_enabled: u32,
    /// `None` = the default, which differs from an explicit 6.
    min_cluster_size: Option<u64>,
    fail_traffic_on_panic: bool,
    force_local_zone: Option<u32>,
    locality_basis: LocalityBasis,
    locality_basis_written: bool,
    staleness_threshold: Duration,
    fraction_source: FractionSource,
    upstream_locality_basis: CapacityBasis,
    /// `None` = the default, which has a limit that an explicit value has not.
    dead_band: Option<BasisPoints>,
    observed_load_period: Duration,
    all_priorities: bool,
}

/// Default of `min_cluster_size` (Envoy).
pub const DEFAULT_MIN_CLUSTER_SIZE: u64 = 6;
/// Default of `staleness_threshold` (seed `000…`).
pub const DEFAULT_STALENESS_THRESHOLD: Duration = Duration::from_secs(60);
/// Range of `staleness_threshold` (seed `000…`).
pub const STALENESS_THRESHOLD_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(600);
/// Default of `dead_band_bp`, in basis points of a zone's own capacity; with less, the noise of
/// measured demand would flip the state (decision 0004).
pub const DEFAULT_DEAD_BAND_BP: u64 = 300;
/// Limit of the default dead band, in basis points of the whole: a zone that has most of the
/// capacity would otherwise keep several percent of all requests above it.
pub const DEFAULT_DEAD_BAND_LIMIT_BP: u64 = 100;
/// Default of `observed_load_period` (decision 0016).
pub const DEFAULT_OBSERVED_LOAD_PERIOD: Duration = Duration::from_secs(1);
/// Range of `observed_load_period`; a shorter window holds too few requests to be significant.
pub const OBSERVED_LOAD_PERIOD_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

impl Default for ZoneAware {
    fn default() -> Self {
        Self {
            routing_enabled: 100,
            min_cluster_size: None,
            fail_traffic_on_panic: false,
            force_local_zone: None,
            locality_basis: LocalityBasis::default(),
            locality_basis_written: false,
            staleness_threshold: DEFAULT_STALENESS_THRESHOLD,
            fraction_source: FractionSource::default(),
            upstream_locality_basis: CapacityBasis::default(),
            dead_band: None,
            observed_load_period: DEFAULT_OBSERVED_LOAD_PERIOD,
            all_priorities: false,
        }
    }
}

impl ZoneAware {
    /// Checks the fields and applies the defaults.
    pub fn try_new(parts: ZoneAwareParts) -> Result<Self, FieldError> {
        let threshold = parts
            .lrs_rate_config
            .staleness_threshold
            .unwrap_or(DEFAULT_STALENESS_THRESHOLD);
        if !STALENESS_THRESHOLD_RANGE.contains(&threshold) {
            return Err(FieldError::new(
                "lrs_rate_config.staleness_threshold",
                format!("{threshold:?} is outside 5s to 600s"),
            ));
        }
        let period = parts
            .observed_load_period
            .unwrap_or(DEFAULT_OBSERVED_LOAD_PERIOD);
        if !OBSERVED_LOAD_PERIOD_RANGE.contains(&period) {
            return Err(FieldError::new(
                "observed_load_period",
                format!("{period:?} is outside 100ms to 60s"),
            ));
        }
        let routing_enabled = match parts.routing_enabled {
            Some(value) => whole_percent(Percent::new(value, "routing_enabled.value")?),
            None => 100,
        };
        let dead_band = parts
            .dead_band_bp
            .map(|share| BasisPoints::new(share, "dead_band_bp"))
            .transpose()?;
        Ok(Self {
            routing_enabled,
            min_cluster_size: parts.min_cluster_size,
            fail_traffic_on_panic: parts.fail_traffic_on_panic,
            force_local_zone: match parts.force_local_zone {
                Some(force) => Some(force.min_size.unwrap_or(1)),
                None => parts.force_locality_direct_routing.then_some(1),
            },
            locality_basis: parts.locality_basis,
            locality_basis_written: parts.locality_basis_written
                || parts.locality_basis != LocalityBasis::default(),
            staleness_threshold: threshold,
            fraction_source: parts.lrs_rate_config.fraction_source,
            upstream_locality_basis: parts.upstream_locality_basis,
            dead_band,
            observed_load_period: period,
            all_priorities: parts.all_priorities,
        })
    }

    /// Returns settings for routing by measured demand alone: no minimum size, no dead band.
    pub(crate) fn for_measured_demand() -> Self {
        Self {
            min_cluster_size: Some(1),
            locality_basis: LocalityBasis::LrsReportedRate,
            locality_basis_written: true,
            dead_band: Some(BasisPoints::ZERO),
            ..Self::default()
        }
    }

    /// Returns the settings with another `locality_basis`, reading fractions from `source`.
    #[must_use]
    pub const fn with_locality_basis(
        mut self,
        basis: LocalityBasis,
        source: FractionSource,
    ) -> Self {
        self.locality_basis = basis;
        self.locality_basis_written = true;
        self.fraction_source = source;
        self
    }

    /// Returns the settings with another measure of upstream capacity.
    #[must_use]
    pub const fn with_upstream_locality_basis(mut self, capacity: CapacityBasis) -> Self {
        self.upstream_locality_basis = capacity;
        self
    }

    /// Returns the settings with another `min_cluster_size`.
    #[must_use]
    pub const fn with_min_cluster_size(mut self, hosts: u64) -> Self {
        self.min_cluster_size = Some(hosts);
        self
    }

    /// Returns the settings without dead band. For weights, which have no state that could flip: at
    /// the edge of Direct the spill is close to zero and grows continuously from there.
    #[must_use]
    pub const fn without_dead_band(mut self) -> Self {
        self.dead_band = Some(BasisPoints::ZERO);
        self
    }

    /// Applies runtime keys on top of the settings (envoy-semantics §2.2).
    #[must_use]
    pub fn with_runtime(mut self, runtime: &RuntimeOverrides) -> Self {
        if let Some(enabled) = runtime.zone_routing_enabled {
            self.routing_enabled = enabled;
        }
        if let Some(size) = runtime.zone_routing_min_cluster_size {
            self.min_cluster_size = Some(size);
        }
        // Only a positive runtime value overrides; 0 means "not set" for this key.
        if let Some(size @ 1..) = runtime.force_local_zone_min_size {
            self.force_local_zone = Some(size);
        }
        self
    }

    getters! {
        /// Percent of requests routed by zone: 0 never, 100 and above always.
        routing_enabled: u32,
        /// Whether panic (of the upstream or of the fleet) fails requests.
        fail_traffic_on_panic: bool,
        /// Healthy local hosts needed to keep all requests local by force; `None` = not forced.
        force_local_zone: Option<u32>,
        /// What the shares of localities are computed from.
        locality_basis: LocalityBasis,
        /// Age at which fractions expire.
        staleness_threshold: Duration,
        /// Where the fleet's assignment carries the fractions.
        fraction_source: FractionSource,
        /// Measure of upstream capacity for `LRS_REPORTED_RATE` and `OBSERVED_LOAD`.
        upstream_locality_basis: CapacityBasis,
        /// How often `OBSERVED_LOAD` recomputes its shares.
        observed_load_period: Duration,
        /// Whether priorities above 0 are routed by zone too.
        all_priorities: bool,
    }

    /// Returns how far the demand of a zone may exceed its share of the capacity before requests
    /// spill, in the same unit: `capacity` is in parts of `whole`. Unused with Envoy's two values.
    pub fn dead_band_of(&self, capacity: u64, whole: u64) -> u64 {
        let part = |bp: u64, of: u64| {
            let part = u128::from(of) * u128::from(bp) / u128::from(BASIS_POINTS);
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        match self.dead_band {
            Some(share) => part(share.get(), capacity),
            None => {
                let limit = part(DEFAULT_DEAD_BAND_LIMIT_BP, whole);
                part(DEFAULT_DEAD_BAND_BP, capacity).min(limit)
            }
        }
    }

    /// Returns `dead_band_bp` if it is configured explicitly.
    pub fn written_dead_band(&self) -> Option<BasisPoints> {
        self.dead_band
    }

    /// Returns the number of healthy upstream hosts below which zone-aware routing is off.
    pub const fn min_cluster_size(&self) -> u64 {
        match self.min_cluster_size {
            Some(size) => size,
            None => DEFAULT_MIN_CLUSTER_SIZE,
        }
    }

    /// Returns `min_cluster_size` if it is configured explicitly, even if it equals the default.
    pub const fn written_min_cluster_size(&self) -> Option<u64> {
        self.min_cluster_size
    }

    /// Returns `locality_basis` if it is configured explicitly, even if it equals the default.
    pub fn written_locality_basis(&self) -> Option<LocalityBasis> {
        self.locality_basis_written.then_some(self.locality_basis)
    }
}

/// Envoy's runtime keys that affect load balancing. Unset keys change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeOverrides {
    /// The key `upstream.healthy_panic_threshold`, in percent.
    pub healthy_panic_threshold: Option<u32>,
    /// The key `upstream.zone_routing.enabled`, in percent.
    pub zone_routing_enabled: Option<u32>,
    /// The runtime key `upstream.zone_routing.min_cluster_size`.
    pub zone_routing_min_cluster_size: Option<u64>,
    /// `upstream.zone_routing.force_local_zone.min_size`; 0 means not set.
    pub force_local_zone_min_size: Option<u32>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Truncates like Envoy: 29 % becomes 28, 99.9 % becomes 99.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0.0..=100.0"
)]
fn whole_percent(percent: Percent) -> u32 {
    (100.0 * (percent.get() / 100.0)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(parts: ZoneAwareParts) -> ZoneAware {
        ZoneAware::try_new(parts).unwrap()
    }

    #[test]
    fn defaults_are_those_of_envoy_and_the_seed() {
        let config = resolved(ZoneAwareParts::default());
        assert_eq!(config, ZoneAware::default());
        assert_eq!(config.routing_enabled(), 100);
        assert_eq!(config.min_cluster_size(), 6);
        assert_eq!(config.staleness_threshold(), Duration::from_secs(60));
        assert_eq!(config.written_dead_band(), None);
    }

    #[test]
    fn the_dead_band_is_a_share_of_the_zone_and_its_default_is_limited() {
        let band = |written, capacity| {
            let parts = ZoneAwareParts {
                dead_band_bp: written,
                ..Default::default()
            };
            resolved(parts).dead_band_of(capacity, 10_000)
        };
        for (capacity, expected) in [(0, 0), (33, 0), (100, 3), (714, 21), (3333, 99)] {
            assert_eq!(band(None, capacity), expected, "{capacity}");
        }
        assert_eq!(band(None, 3334), 100);
        assert_eq!(band(None, 9000), 100, "at most one percent of the whole");
        assert_eq!(band(Some(300), 9000), 270, "an explicit share has no limit");
        assert_eq!(band(Some(0), 9000), 0);
        assert_eq!(band(Some(10_000), 714), 714);
    }

    #[test]
    fn an_explicit_default_differs_from_an_unset_field() {
        let unset = resolved(ZoneAwareParts::default());
        assert_eq!(unset.written_min_cluster_size(), None);
        assert_eq!(unset.written_locality_basis(), None);
        let written = resolved(ZoneAwareParts {
            min_cluster_size: Some(6),
            locality_basis_written: true,
            ..Default::default()
        });
        assert_eq!(written.written_min_cluster_size(), Some(6));
        let basis = written.written_locality_basis();
        assert_eq!(basis, Some(LocalityBasis::HealthyHostsNum));
        assert_eq!(written.min_cluster_size(), unset.min_cluster_size());
        assert_ne!(written, unset);
        let measured = resolved(ZoneAwareParts {
            locality_basis: LocalityBasis::ObservedLoad,
            ..Default::default()
        });
        let basis = measured.written_locality_basis();
        assert_eq!(basis, Some(LocalityBasis::ObservedLoad));
    }

    #[test]
    fn routing_enabled_truncates_like_envoy() {
        for (percent, whole) in [(29.0, 28), (99.9, 99), (98.0, 98), (100.0, 100), (0.0, 0)] {
            let parts = ZoneAwareParts {
                routing_enabled: Some(percent),
                ..Default::default()
            };
            assert_eq!(resolved(parts).routing_enabled(), whole, "{percent}");
        }
    }

    #[test]
    fn force_local_zone_accepts_both_spellings() {
        let force = |min_size| Some(ForceLocalZone { min_size });
        let deprecated = ZoneAwareParts {
            force_locality_direct_routing: true,
            ..Default::default()
        };
        assert_eq!(resolved(deprecated.clone()).force_local_zone(), Some(1));
        let both = ZoneAwareParts {
            force_local_zone: force(Some(3)),
            ..deprecated
        };
        assert_eq!(resolved(both).force_local_zone(), Some(3));
        for (min_size, expected) in [(None, 1), (Some(0), 0), (Some(4), 4)] {
            let parts = ZoneAwareParts {
                force_local_zone: force(min_size),
                ..Default::default()
            };
            assert_eq!(resolved(parts).force_local_zone(), Some(expected));
        }
    }

    #[test]
    fn runtime_keys_win_except_for_a_zero_force_local_zone() {
        let runtime = RuntimeOverrides {
            zone_routing_enabled: Some(0),
            zone_routing_min_cluster_size: Some(1),
            force_local_zone_min_size: Some(0),
            ..Default::default()
        };
        let config = ZoneAware::default().with_runtime(&runtime);
        assert_eq!(config.routing_enabled(), 0);
        assert_eq!(config.min_cluster_size(), 1);
        assert_eq!(config.force_local_zone(), None);
    }

    #[test]
    fn out_of_range_values_name_their_field() {
        let stale = |seconds| ZoneAwareParts {
            lrs_rate_config: LrsRateConfigParts {
                staleness_threshold: Some(Duration::from_secs(seconds)),
                ..Default::default()
            },
            ..Default::default()
        };
        for seconds in [4, 601] {
            let error = ZoneAware::try_new(stale(seconds)).unwrap_err();
            assert_eq!(error.path(), "lrs_rate_config.staleness_threshold");
        }
        assert!(ZoneAware::try_new(stale(5)).is_ok() && ZoneAware::try_new(stale(600)).is_ok());
        let nan = ZoneAwareParts {
            routing_enabled: Some(f64::NAN),
            ..Default::default()
        };
        assert_eq!(
            ZoneAware::try_new(nan).unwrap_err().path(),
            "routing_enabled.value"
        );
        let band = ZoneAwareParts {
            dead_band_bp: Some(10_001),
            ..Default::default()
        };
        assert_eq!(ZoneAware::try_new(band).unwrap_err().path(), "dead_band_bp");
        let period = |millis| ZoneAwareParts {
            observed_load_period: Some(Duration::from_millis(millis)),
            ..Default::default()
        };
        for millis in [0, 99, 60_001] {
            let error = ZoneAware::try_new(period(millis)).unwrap_err();
            assert_eq!(error.path(), "observed_load_period");
        }
        for millis in [100, 60_000] {
            let checked = resolved(period(millis)).observed_load_period();
            assert_eq!(checked, Duration::from_millis(millis));
        }
    }
}
