//! [`ClusterConfig`]: the load-balancing settings of a cluster, without its endpoints.
//!
//! Each default is defined once, with its source. Files and xDS both end in this checked type.

use std::sync::Arc;
use std::time::Duration;

use super::client_side_weighted_round_robin::OobReporting;
use super::endpoint_policy::EndpointPolicy;
use super::load_aware_locality::{LoadAwareLocality, SpillController};
use super::orca::{EndpointLoadMetricsFormat, MetricName};
use super::subset::LbSubsetConfig;
use super::zone_aware::{DEFAULT_STALENESS_THRESHOLD, LocalityBasis, RuntimeOverrides, ZoneAware};
use crate::units::{FieldError, Percent};

/// Policy that chooses a locality.
#[derive(Clone, Debug, PartialEq)]
pub enum LocalityPolicy {
    /// No locality policy: hosts of all localities in one list. The default of hash policies.
    Flat,
    /// `load_aware_locality`: by utilization that hosts report, as the parent of another policy.
    LoadAwareLocality(LoadAwareLocality),
    /// `locality_weighted_lb_config`: by the weights of the assignment (envoy-semantics §3.1). If
    /// no locality has a weight, zone-aware routing with defaults applies, as in Envoy.
    LocalityWeighted,
    /// `wrr_locality`: chooses like `LocalityWeighted`, as the parent of another policy (§3.3).
    WrrLocality,
    /// `zone_aware_lb_config`, also the default of round robin, least request and random.
    ZoneAware(ZoneAware),
}

impl Default for LocalityPolicy {
    fn default() -> Self {
        Self::ZoneAware(ZoneAware::default())
    }
}

impl LocalityPolicy {
    /// Returns the name of the policy for explanations and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::LoadAwareLocality(_) => "load_aware_locality",
            Self::LocalityWeighted => "locality_weighted",
            Self::WrrLocality => "wrr_locality",
            Self::ZoneAware(_) => "zone_aware",
        }
    }

    /// Returns the sampling used unless configured otherwise: Envoy's, where Envoy has the policy.
    /// `CONVERGENT`, `LRS_REPORTED_RATE` and `OBSERVED_LOAD` are Plimsoll's own and aim at even
    /// load across zones (docs/decisions/0012).
    pub const fn default_sampling(&self) -> LocalitySampling {
        match self {
            Self::LoadAwareLocality(settings)
                if matches!(settings.spill_controller(), SpillController::Convergent) =>
            {
                LocalitySampling::LowDiscrepancy
            }
            Self::ZoneAware(settings)
                if matches!(
                    settings.locality_basis(),
                    LocalityBasis::LrsReportedRate | LocalityBasis::ObservedLoad
                ) =>
            {
                LocalitySampling::LowDiscrepancy
            }
            _ => LocalitySampling::Random,
        }
    }
}

/// How random draws are mapped to localities (decision 0012).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalitySampling {
    #[default]
    Random,
    /// Evenly spaced draws of the same shares: a golden-ratio sequence per worker.
    LowDiscrepancy,
}

/// Health-check settings that decide which host lists a host belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthChecking {
    /// Active checks are configured: a new host counts as failed until its first check passes.
    pub active: bool,
    /// A host without a first check is also excluded from the denominators.
    pub ignore_new_hosts_until_first_hc: bool,
}

/// The settings of a cluster, unchecked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterConfigParts {
    pub name: String,
    /// `common_lb_config.healthy_panic_threshold`, percent; default 50.
    pub healthy_panic_threshold: Option<f64>,
    pub locality_policy: LocalityPolicy,
    pub endpoint_policy: EndpointPolicy,
    /// `None` = the default of the policy.
    pub locality_sampling: Option<LocalitySampling>,
    pub health_checking: HealthChecking,
    pub runtime: RuntimeOverrides,
    /// Backend metrics that load reports aggregate (gRFC A85); unknown names are ignored.
    pub lrs_report_endpoint_metrics: Vec<String>,
    /// Format in which requests ask hosts for load reports; `None` does not ask.
    pub endpoint_load_metrics_format: Option<EndpointLoadMetricsFormat>,
    pub lb_subset_config: Option<LbSubsetConfig>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl ClusterConfigParts {
    /// Creates settings with this name and Envoy's defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }
}

/// The settings of a cluster, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    name: Arc<str>,
    panic_threshold: u32,
    locality_policy: LocalityPolicy,
    zone_aware: Option<ZoneAware>,
    endpoint_policy: EndpointPolicy,
    /// `None` = the default of the policy, even if the policy is replaced later.
    locality_sampling: Option<LocalitySampling>,
    health_checking: HealthChecking,
    lrs_report_endpoint_metrics: Vec<MetricName>,
    endpoint_load_metrics_format: Option<EndpointLoadMetricsFormat>,
    lb_subset_config: Option<Arc<LbSubsetConfig>>,
}

/// Default of `healthy_panic_threshold` (Envoy).
pub const DEFAULT_PANIC_THRESHOLD: u32 = 50;

impl ClusterConfig {
    /// Checks the settings and applies defaults and runtime keys.
    pub fn try_new(parts: ClusterConfigParts) -> Result<Self, FieldError> {
        if parts.name.is_empty() {
            return Err(FieldError::new("name", "must not be empty"));
        }
        let configured = match parts.healthy_panic_threshold {
            Some(value) => {
                Percent::new(value, "common_lb_config.healthy_panic_threshold.value")?.truncated()
            }
            None => DEFAULT_PANIC_THRESHOLD,
        };
        let hash = parts.endpoint_policy.is_hash();
        let zone_aware = match &parts.locality_policy {
            LocalityPolicy::ZoneAware(_) if hash => {
                let reason = format!(
                    "zone-aware routing cannot be combined with {}: consistent hashing needs a \
                     deterministic choice; use locality weights instead",
                    parts.endpoint_policy.name()
                );
                return Err(FieldError::new("zone_aware_lb_config", reason));
            }
            LocalityPolicy::ZoneAware(zone_aware) => Some(zone_aware.clone()),
            LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality if !hash => {
                Some(ZoneAware::default())
            }
            _ => None,
        };
        Ok(Self {
            name: parts.name.into(),
            panic_threshold: parts
                .runtime
                .healthy_panic_threshold
                .unwrap_or(configured)
                .min(100),
            zone_aware: zone_aware.map(|zone_aware| zone_aware.with_runtime(&parts.runtime)),
            locality_policy: parts.locality_policy,
            endpoint_policy: parts.endpoint_policy,
            locality_sampling: parts.locality_sampling,
            health_checking: parts.health_checking,
            lrs_report_endpoint_metrics: parts
                .lrs_report_endpoint_metrics
                .iter()
                .map(|name| MetricName::new(name))
                .collect(),
            endpoint_load_metrics_format: parts.endpoint_load_metrics_format,
            lb_subset_config: parts.lb_subset_config.map(Arc::new),
        })
    }

    /// Returns the settings unchecked, to change them and check them again. Runtime keys are not
    /// among them: they are applied already, except to the settings of the locality policy.
    pub fn into_parts(self) -> ClusterConfigParts {
        let names = self.lrs_report_endpoint_metrics.iter();
        ClusterConfigParts {
            lrs_report_endpoint_metrics: names.map(|name| name.as_str().to_owned()).collect(),
            endpoint_load_metrics_format: self.endpoint_load_metrics_format,
            name: self.name.as_ref().to_owned(),
            healthy_panic_threshold: Some(f64::from(self.panic_threshold)),
            locality_policy: self.locality_policy,
            endpoint_policy: self.endpoint_policy,
            locality_sampling: self.locality_sampling,
            health_checking: self.health_checking,
            runtime: RuntimeOverrides::default(),
            lb_subset_config: self.lb_subset_config.map(Arc::unwrap_or_clone),
            _non_exhaustive: (),
        }
    }

    /// Returns the same cluster with other health-check settings.
    #[must_use]
    pub fn with_health_checking(&self, health_checking: HealthChecking) -> Self {
        Self {
            health_checking,
            ..self.clone()
        }
    }

    /// Returns the same cluster with the subsets of another one.
    #[must_use]
    pub fn with_subsets_of(&self, other: &Self) -> Self {
        Self {
            lb_subset_config: other.lb_subset_config.clone(),
            ..self.clone()
        }
    }

    /// Returns the same cluster with the panic threshold of another one.
    #[must_use]
    pub fn with_panic_threshold_of(&self, other: &Self) -> Self {
        Self {
            panic_threshold: other.panic_threshold,
            ..self.clone()
        }
    }

    /// Returns the same cluster with the settings of another one that Envoy does not have
    /// (`plimsoll`), as far as they are written there.
    #[must_use]
    pub fn with_extensions_of(&self, other: &Self) -> Self {
        Self {
            locality_sampling: other.locality_sampling.or(self.locality_sampling),
            endpoint_load_metrics_format: other
                .endpoint_load_metrics_format
                .or(self.endpoint_load_metrics_format),
            ..self.clone()
        }
    }

    /// Returns the same cluster with another endpoint policy. Fails if zone-aware routing is
    /// combined with a hash policy.
    pub fn with_endpoint_policy(
        &self,
        endpoint_policy: EndpointPolicy,
    ) -> Result<Self, FieldError> {
        let hash = endpoint_policy.is_hash();
        let zone_aware = match &self.locality_policy {
            LocalityPolicy::ZoneAware(_) if hash => {
                let reason = format!("cannot be combined with {}", endpoint_policy.name());
                return Err(FieldError::new("zone_aware_lb_config", reason));
            }
            LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality if !hash => {
                Some(self.zone_aware.clone().unwrap_or_default())
            }
            LocalityPolicy::ZoneAware(_) => self.zone_aware.clone(),
            _ => None,
        };
        Ok(Self {
            endpoint_policy,
            zone_aware,
            ..self.clone()
        })
    }

    /// Returns the same cluster with zone-aware routing. Clusters with hash policies, which cannot
    /// use it, are returned unchanged.
    #[must_use]
    pub fn with_zone_aware(&self, zone_aware: ZoneAware) -> Self {
        let mut changed = self.clone();
        if !self.endpoint_policy.is_hash() {
            changed.locality_policy = LocalityPolicy::ZoneAware(zone_aware.clone());
            changed.zone_aware = Some(zone_aware);
        }
        changed
    }

    /// Returns the same cluster routed by locality weights. Clusters with hash policies are
    /// returned unchanged.
    #[must_use]
    pub fn with_locality_weights(&self) -> Self {
        let mut changed = self.clone();
        if !self.endpoint_policy.is_hash() {
            changed.locality_policy = LocalityPolicy::LocalityWeighted;
            // `LocalityWeighted` has no zone-aware settings; the old ones include runtime keys.
            changed.zone_aware = Some(ZoneAware::default());
        }
        changed
    }

    /// Returns the same cluster with measured demand leading `load_aware_locality` with at most
    /// `percent` of its influence; at 0, host reports alone decide. Other policies are returned
    /// unchanged.
    #[must_use]
    pub fn with_demand_feed_forward(&self, percent: u32) -> Self {
        let mut changed = self.clone();
        if let LocalityPolicy::LoadAwareLocality(settings) = &self.locality_policy {
            let settings = settings.clone().with_demand_feed_forward(percent);
            changed.locality_policy = LocalityPolicy::LoadAwareLocality(settings);
        }
        changed
    }

    /// Whether the fleet's assignment can change where requests go: through zone-aware routing,
    /// which locality weights also fall back to, or through measured demand that feeds
    /// `load_aware_locality`.
    pub const fn uses_fleet(&self) -> bool {
        self.zone_aware.is_some() || self.uses_demand_feed_forward()
    }

    /// Whether measured demand is fed forward into `load_aware_locality`.
    pub const fn uses_demand_feed_forward(&self) -> bool {
        match &self.locality_policy {
            LocalityPolicy::LoadAwareLocality(settings) => settings.demand_feed_forward(),
            _ => false,
        }
    }

    /// Returns the age at which measured fractions expire; `None` if the cluster does not use them.
    pub fn staleness_threshold(&self) -> Option<Duration> {
        if self.uses_demand_feed_forward() {
            return Some(DEFAULT_STALENESS_THRESHOLD);
        }
        let config = self.zone_aware()?;
        (config.locality_basis() == LocalityBasis::LrsReportedRate)
            .then(|| config.staleness_threshold())
    }

    /// Returns the settings within a subset: those of the cluster, except that locality weights
    /// count only with `locality_weight_aware`.
    #[must_use]
    pub fn for_subsets(self: &Arc<Self>) -> Arc<Self> {
        let unaware = |subsets: &Arc<LbSubsetConfig>| !subsets.locality_weight_aware();
        if !self.locality_weighted() || !self.lb_subset_config.as_ref().is_some_and(unaware) {
            return Arc::clone(self);
        }
        let mut changed = (**self).clone();
        changed.locality_policy = match &self.zone_aware {
            Some(zone_aware) => LocalityPolicy::ZoneAware(zone_aware.clone()),
            None => LocalityPolicy::Flat,
        };
        Arc::new(changed)
    }

    getters! {
        /// Name of the cluster.
        name: &Arc<str>,
        /// Percentage of usable hosts below which the cluster panics; 0 = never.
        panic_threshold: u32,
        /// Policy that chooses a locality.
        locality_policy: &LocalityPolicy,
        /// Zone-aware settings in force, after runtime keys; `None` for hash policies and flat
        /// lists.
        zone_aware: Option<&ZoneAware>,
        /// Policy that chooses a host within the locality.
        endpoint_policy: &EndpointPolicy,
        /// Health-check settings of the cluster.
        health_checking: HealthChecking,
        /// How hosts are divided into subsets, if at all. The other policies work within each
        /// subset.
        lb_subset_config: Option<&Arc<LbSubsetConfig>>,
        /// Backend metrics that load reports aggregate.
        lrs_report_endpoint_metrics: &[MetricName],
        /// Format in which requests ask hosts for load reports; `None` does not ask.
        endpoint_load_metrics_format: Option<EndpointLoadMetricsFormat>,
    }

    /// Returns the settings of out-of-band load reports, merged from the locality policy and the
    /// endpoint policy; `None` if neither enables them.
    pub fn oob_reporting(&self) -> Option<OobReporting> {
        let weights = match self.endpoint_policy() {
            EndpointPolicy::ClientSideWeightedRoundRobin(settings) => settings.oob_reporting(),
            _ => None,
        };
        let locality = self
            .load_aware_locality()
            .and_then(LoadAwareLocality::oob_reporting);
        match (weights, locality) {
            (Some(weights), Some(locality)) => Some(weights.merge(locality)),
            (weights, locality) => weights.or(locality).cloned(),
        }
    }

    /// Returns the settings of `load_aware_locality`, if that is the locality policy.
    pub const fn load_aware_locality(&self) -> Option<&LoadAwareLocality> {
        match &self.locality_policy {
            LocalityPolicy::LoadAwareLocality(settings) => Some(settings),
            _ => None,
        }
    }

    /// Whether localities are first chosen by the weights of the assignment.
    pub const fn locality_weighted(&self) -> bool {
        matches!(
            self.locality_policy,
            LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality
        )
    }

    /// Whether routing depends on response times. If so, requests must report when their response
    /// headers arrive
    /// ([`ActiveRequest::response_started`](crate::host::ActiveRequest::response_started)).
    pub fn observes_response_times(&self) -> bool {
        let basis = self.zone_aware().map(ZoneAware::locality_basis);
        basis == Some(LocalityBasis::ObservedLoad)
    }

    /// Returns how random draws are mapped to localities.
    pub const fn locality_sampling(&self) -> LocalitySampling {
        match self.locality_sampling {
            Some(sampling) => sampling,
            None => self.locality_policy.default_sampling(),
        }
    }

    /// Returns the sampling if it is configured explicitly, even if it equals the default.
    pub const fn written_locality_sampling(&self) -> Option<LocalitySampling> {
        self.locality_sampling
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::endpoint_policy::{ConsistentHashing, Maglev};
    use crate::model::load_aware_locality::LoadAwareLocalityParts;
    use crate::model::zone_aware::FractionSource;

    fn parts() -> ClusterConfigParts {
        ClusterConfigParts {
            name: "orders".into(),
            ..Default::default()
        }
    }

    #[test]
    fn zone_aware_routing_is_on_by_default() {
        let config = ClusterConfig::try_new(parts()).unwrap();
        assert_eq!(config.zone_aware(), Some(&ZoneAware::default()));
        assert_eq!(config.panic_threshold(), 50);
        assert!(!config.locality_weighted());
    }

    #[test]
    fn changing_the_endpoint_policy_keeps_the_other_settings() {
        let config = ClusterConfig::try_new(parts()).unwrap();
        let random = config.with_endpoint_policy(EndpointPolicy::Random).unwrap();
        assert_eq!(random.endpoint_policy(), &EndpointPolicy::Random);
        assert_eq!(random.zone_aware(), config.zone_aware());
        let maglev = Maglev::try_new(None, ConsistentHashing::default()).unwrap();
        let maglev = EndpointPolicy::Maglev(maglev);
        let error = config.with_endpoint_policy(maglev.clone()).unwrap_err();
        assert_eq!(error.path(), "zone_aware_lb_config");
        // Locality weights work with both policies, their zone-aware fallback not with Maglev.
        let weighted = ClusterConfigParts {
            locality_policy: LocalityPolicy::LocalityWeighted,
            endpoint_policy: maglev,
            ..parts()
        };
        let hashed = ClusterConfig::try_new(weighted).unwrap();
        let robin = hashed.with_endpoint_policy(EndpointPolicy::default());
        let weighted = config.with_locality_weights();
        assert_eq!(robin.unwrap(), weighted);
    }

    #[test]
    fn measured_demand_defaults_to_low_discrepancy_sampling() {
        let measured = ZoneAware::default()
            .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::default());
        let unset = ClusterConfig::try_new(parts()).unwrap();
        assert_eq!(unset.locality_sampling(), LocalitySampling::Random);
        let steered = unset.with_zone_aware(measured.clone());
        assert_eq!(
            steered.locality_sampling(),
            LocalitySampling::LowDiscrepancy
        );
        let back = steered.with_zone_aware(ZoneAware::default());
        assert_eq!(back.locality_sampling(), LocalitySampling::Random);
        let written = ClusterConfigParts {
            locality_sampling: Some(LocalitySampling::Random),
            ..parts()
        };
        let written = ClusterConfig::try_new(written).unwrap();
        let steered = written.with_zone_aware(measured);
        assert_eq!(steered.locality_sampling(), LocalitySampling::Random);
        assert_ne!(written, unset, "RANDOM is not the same as unset");
    }

    #[test]
    fn hash_policies_refuse_zone_aware_routing_but_take_locality_weights() {
        let maglev = Maglev::try_new(None, ConsistentHashing::default()).unwrap();
        let hashed = ClusterConfigParts {
            endpoint_policy: EndpointPolicy::Maglev(maglev),
            ..parts()
        };
        let error = ClusterConfig::try_new(hashed.clone()).unwrap_err();
        assert!(error.to_string().contains("maglev"), "{error}");
        for locality_policy in [LocalityPolicy::Flat, LocalityPolicy::LocalityWeighted] {
            let parts = ClusterConfigParts {
                locality_policy,
                ..hashed.clone()
            };
            assert_eq!(ClusterConfig::try_new(parts).unwrap().zone_aware(), None);
        }
    }

    #[test]
    fn settings_beside_the_policy_are_taken_from_another_cluster() {
        let sampled = |healthy_panic_threshold, locality_sampling| {
            let parts = ClusterConfigParts {
                healthy_panic_threshold,
                locality_sampling,
                ..parts()
            };
            ClusterConfig::try_new(parts).unwrap()
        };
        let low = Some(LocalitySampling::LowDiscrepancy);
        let (plain, other) = (sampled(None, None), sampled(Some(20.0), low));
        assert_eq!(plain.with_panic_threshold_of(&other).panic_threshold(), 20);
        assert_eq!(
            plain.with_panic_threshold_of(&other).locality_sampling,
            None
        );
        assert_eq!(plain.with_extensions_of(&other).locality_sampling, low);
        assert_eq!(plain.with_extensions_of(&other).panic_threshold(), 50);
        assert_eq!(
            other.with_extensions_of(&plain),
            other,
            "nothing is written"
        );
    }

    #[test]
    fn the_panic_threshold_truncates_and_runtime_caps_at_100() {
        let config = ClusterConfigParts {
            healthy_panic_threshold: Some(33.9),
            ..parts()
        };
        assert_eq!(
            ClusterConfig::try_new(config).unwrap().panic_threshold(),
            33
        );
        let runtime = RuntimeOverrides {
            healthy_panic_threshold: Some(250),
            ..Default::default()
        };
        let config = ClusterConfigParts { runtime, ..parts() };
        assert_eq!(
            ClusterConfig::try_new(config).unwrap().panic_threshold(),
            100
        );
        let nan = ClusterConfigParts {
            healthy_panic_threshold: Some(f64::NAN),
            ..parts()
        };
        let error = ClusterConfig::try_new(nan).unwrap_err();
        assert_eq!(
            error.path(),
            "common_lb_config.healthy_panic_threshold.value"
        );
    }

    #[test]
    fn fleet_use_and_staleness_follow_from_the_policy() {
        let of = |locality_policy| {
            let parts = ClusterConfigParts {
                locality_policy,
                ..parts()
            };
            ClusterConfig::try_new(parts).unwrap()
        };
        let load_aware = |spill_controller| {
            let parts = LoadAwareLocalityParts {
                spill_controller,
                ..Default::default()
            };
            let settings = LoadAwareLocality::try_new(parts).unwrap();
            of(LocalityPolicy::LoadAwareLocality(settings))
        };
        let convergent = load_aware(SpillController::Convergent);
        let measured = ZoneAware::default()
            .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField);
        let minute = Some(DEFAULT_STALENESS_THRESHOLD);
        for (config, fleet, threshold) in [
            (of(LocalityPolicy::default()), true, None),
            (of(LocalityPolicy::ZoneAware(measured)), true, minute),
            (of(LocalityPolicy::LocalityWeighted), true, None),
            (of(LocalityPolicy::WrrLocality), true, None),
            (of(LocalityPolicy::Flat), false, None),
            (load_aware(SpillController::Headroom), false, None),
            (convergent.clone(), true, minute),
            (convergent.with_demand_feed_forward(0), false, None),
        ] {
            assert_eq!(config.uses_fleet(), fleet, "{config:?}");
            assert_eq!(config.staleness_threshold(), threshold, "{config:?}");
        }
    }

    #[test]
    fn a_cluster_without_a_name_is_rejected() {
        let error = ClusterConfig::try_new(ClusterConfigParts::default()).unwrap_err();
        assert_eq!(error.to_string(), "name: must not be empty");
    }
}
