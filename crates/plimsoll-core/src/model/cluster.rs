//! [`ClusterConfig`]: everything a balancer is told about a cluster besides its endpoints.
//!
//! Defaults live once, here and beside the policies, each with the clause it comes from. Files and
//! xDS end in the same checked type.

use std::sync::Arc;
use std::time::Duration;

use super::endpoint_policy::EndpointPolicy;
use super::load_aware_locality::{LoadAwareLocality, SpillController};
use super::orca::MetricName;
use super::subset::LbSubsetConfig;
use super::zone_aware::{DEFAULT_STALENESS_THRESHOLD, LocalityBasis, RuntimeOverrides, ZoneAware};
use crate::units::{FieldError, Percent};

/// How a locality is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum LocalityPolicy {
    /// No locality policy: hosts of all localities in one list. What hash policies use by default.
    Flat,
    /// `load_aware_locality`: by the utilization that hosts report, as the parent of another
    /// policy.
    LoadAwareLocality(LoadAwareLocality),
    /// `locality_weighted_lb_config`: by the weights of the assignment (envoy-semantics §3.1).
    /// Where the weights yield nothing, zone-aware routing with defaults applies, as in Envoy.
    LocalityWeighted,
    /// `wrr_locality`: the same choice of locality, as the parent of another policy (§3.3).
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
    /// Name of the policy, for explanations and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::LoadAwareLocality(_) => "load_aware_locality",
            Self::LocalityWeighted => "locality_weighted",
            Self::WrrLocality => "wrr_locality",
            Self::ZoneAware(_) => "zone_aware",
        }
    }

    /// How it takes its shares unless somebody says otherwise: as Envoy does, where Envoy has such
    /// a policy. `CONVERGENT`, `LRS_REPORTED_RATE` and `OBSERVED_LOAD` are ours and judged by how
    /// level zones are (docs/decisions/0012).
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

/// How draws are turned into localities (decisions D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalitySampling {
    /// Independent draws, as Envoy takes them.
    #[default]
    Random,
    /// The same shares taken evenly: a golden-ratio sequence with a random start per worker.
    LowDiscrepancy,
}

/// Settings of health that change what lists a host is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthChecking {
    /// Active checks are configured: a new host counts as failed until its first check passes.
    pub active: bool,
    /// `ignore_new_hosts_until_first_hc`: such a host does not count in the denominators either.
    pub ignore_new_hosts_until_first_hc: bool,
}

/// The settings of a cluster, unchecked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterConfigParts {
    /// Name of the cluster.
    pub name: String,
    /// `common_lb_config.healthy_panic_threshold`, percent; default 50.
    pub healthy_panic_threshold: Option<f64>,
    /// How a locality is chosen.
    pub locality_policy: LocalityPolicy,
    /// How a host is chosen within it.
    pub endpoint_policy: EndpointPolicy,
    /// How draws are turned into localities; default: as the policy wants it.
    pub locality_sampling: Option<LocalitySampling>,
    /// Health settings.
    pub health_checking: HealthChecking,
    /// Runtime keys in force.
    pub runtime: RuntimeOverrides,
    /// Metrics of backends that load reports sum up (gRFC A85); names nobody knows are ignored.
    pub lrs_report_endpoint_metrics: Vec<String>,
    /// How hosts are divided into subsets; `None` = they are not.
    pub lb_subset_config: Option<LbSubsetConfig>,
}

/// The settings of a cluster, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    name: Arc<str>,
    panic_threshold: u32,
    locality_policy: LocalityPolicy,
    zone_aware: Option<ZoneAware>,
    endpoint_policy: EndpointPolicy,
    /// `None` = as the policy wants it, whichever it is exchanged for.
    locality_sampling: Option<LocalitySampling>,
    health_checking: HealthChecking,
    lrs_report_endpoint_metrics: Vec<MetricName>,
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
            lb_subset_config: parts.lb_subset_config.map(Arc::new),
        })
    }

    /// The same cluster for somebody who does not probe, or probes otherwise.
    #[must_use]
    pub fn with_health_checking(&self, health_checking: HealthChecking) -> Self {
        Self {
            health_checking,
            ..self.clone()
        }
    }

    /// The same cluster with the subsets of another one.
    #[must_use]
    pub fn with_subsets_of(&self, other: &Self) -> Self {
        Self {
            lb_subset_config: other.lb_subset_config.clone(),
            ..self.clone()
        }
    }

    /// The same cluster with another way to choose a host within a locality. Zone-aware routing
    /// cannot be combined with hash policies.
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

    /// The same cluster with zone-aware routing of these settings. Hash policies cannot have it and
    /// stay what they are.
    #[must_use]
    pub fn with_zone_aware(&self, zone_aware: ZoneAware) -> Self {
        let mut changed = self.clone();
        if !self.endpoint_policy.is_hash() {
            changed.locality_policy = LocalityPolicy::ZoneAware(zone_aware.clone());
            changed.zone_aware = Some(zone_aware);
        }
        changed
    }

    /// The same cluster routed by the weights of its localities. Hash policies cannot have it and
    /// stay what they are.
    #[must_use]
    pub fn with_locality_weights(&self) -> Self {
        let mut changed = self.clone();
        if !self.endpoint_policy.is_hash() {
            changed.locality_policy = LocalityPolicy::LocalityWeighted;
            // Settings of its own it has none; runtime keys were applied to those it had.
            changed.zone_aware = Some(ZoneAware::default());
        }
        changed
    }

    /// The same cluster, whose load_aware_locality goes by reports of hosts alone. Other policies
    /// stay what they are.
    #[must_use]
    pub fn without_demand_feed_forward(&self) -> Self {
        let mut changed = self.clone();
        if let LocalityPolicy::LoadAwareLocality(settings) = &self.locality_policy {
            let settings = settings.clone().without_demand_feed_forward();
            changed.locality_policy = LocalityPolicy::LoadAwareLocality(settings);
        }
        changed
    }

    /// Whether the fleet's assignment can change where requests go: by zone-aware routing, which is
    /// also what locality weights fall back to, or by measured demand that leads
    /// load_aware_locality.
    pub const fn uses_fleet(&self) -> bool {
        self.zone_aware.is_some() || self.uses_demand_feed_forward()
    }

    /// Whether load_aware_locality is led by measured demand.
    pub const fn uses_demand_feed_forward(&self) -> bool {
        match &self.locality_policy {
            LocalityPolicy::LoadAwareLocality(settings) => settings.demand_feed_forward(),
            _ => false,
        }
    }

    /// Age at which measured fractions stop counting; `None` for a cluster that does not use them,
    /// to which their age means nothing.
    pub fn staleness_threshold(&self) -> Option<Duration> {
        if self.uses_demand_feed_forward() {
            return Some(DEFAULT_STALENESS_THRESHOLD);
        }
        let config = self.zone_aware()?;
        (config.locality_basis() == LocalityBasis::LrsReportedRate)
            .then(|| config.staleness_threshold())
    }

    /// The settings that hold within a subset: those of the cluster, but locality weights count
    /// only with `locality_weight_aware`.
    #[must_use]
    pub fn within_subsets(self: &Arc<Self>) -> Arc<Self> {
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

    /// Name of the cluster.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Panic below this percentage of usable hosts; 0 = never.
    pub const fn panic_threshold(&self) -> u32 {
        self.panic_threshold
    }

    /// The locality policy.
    pub const fn locality_policy(&self) -> &LocalityPolicy {
        &self.locality_policy
    }

    /// Settings of load_aware_locality, if that is the locality policy.
    pub const fn load_aware_locality(&self) -> Option<&LoadAwareLocality> {
        match &self.locality_policy {
            LocalityPolicy::LoadAwareLocality(settings) => Some(settings),
            _ => None,
        }
    }

    /// Whether localities are chosen by the weights of the assignment first.
    pub const fn locality_weighted(&self) -> bool {
        matches!(
            self.locality_policy,
            LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality
        )
    }

    /// Zone-aware settings in force, after runtime keys; `None` for hash policies and flat lists.
    pub const fn zone_aware(&self) -> Option<&ZoneAware> {
        self.zone_aware.as_ref()
    }

    /// Whether anybody goes by response times: then requests must say when their headers arrive
    /// ([`ActiveRequest::answered`](crate::host::ActiveRequest::answered)).
    pub fn observes_response_times(&self) -> bool {
        let basis = self.zone_aware().map(ZoneAware::locality_basis);
        basis == Some(LocalityBasis::ObservedLoad)
    }

    /// The endpoint policy.
    pub const fn endpoint_policy(&self) -> &EndpointPolicy {
        &self.endpoint_policy
    }

    /// How draws are turned into localities.
    pub const fn locality_sampling(&self) -> LocalitySampling {
        match self.locality_sampling {
            Some(sampling) => sampling,
            None => self.locality_policy.default_sampling(),
        }
    }

    /// The same where somebody wrote it down, be it the policy's default.
    pub const fn written_locality_sampling(&self) -> Option<LocalitySampling> {
        self.locality_sampling
    }

    /// Health settings.
    pub const fn health_checking(&self) -> HealthChecking {
        self.health_checking
    }

    /// How hosts are divided into subsets, if they are. The other policies work within each subset.
    pub const fn lb_subset_config(&self) -> Option<&Arc<LbSubsetConfig>> {
        self.lb_subset_config.as_ref()
    }

    /// Metrics of backends that load reports sum up.
    pub fn lrs_report_endpoint_metrics(&self) -> &[MetricName] {
        &self.lrs_report_endpoint_metrics
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
    fn another_endpoint_policy_keeps_the_rest() {
        let config = ClusterConfig::try_new(parts()).unwrap();
        let random = config.with_endpoint_policy(EndpointPolicy::Random).unwrap();
        assert_eq!(random.endpoint_policy(), &EndpointPolicy::Random);
        assert_eq!(random.zone_aware(), config.zone_aware());
        let maglev = Maglev::try_new(None, ConsistentHashing::default()).unwrap();
        let maglev = EndpointPolicy::Maglev(maglev);
        let error = config.with_endpoint_policy(maglev.clone()).unwrap_err();
        assert_eq!(error.path(), "zone_aware_lb_config");
        // Locality weights go with both, and zone-aware routing behind them with one.
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
    fn measured_demand_takes_its_shares_evenly_unless_told_otherwise() {
        let measured = ZoneAware::default()
            .on_basis(LocalityBasis::LrsReportedRate, FractionSource::default());
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
    fn who_can_use_the_fleet_and_how_long_fractions_count() {
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
        let measured =
            ZoneAware::default().on_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField);
        let minute = Some(DEFAULT_STALENESS_THRESHOLD);
        for (config, fleet, threshold) in [
            (of(LocalityPolicy::default()), true, None),
            (of(LocalityPolicy::ZoneAware(measured)), true, minute),
            (of(LocalityPolicy::LocalityWeighted), true, None),
            (of(LocalityPolicy::WrrLocality), true, None),
            (of(LocalityPolicy::Flat), false, None),
            (load_aware(SpillController::Headroom), false, None),
            (convergent.clone(), true, minute),
            (convergent.without_demand_feed_forward(), false, None),
        ] {
            assert_eq!(config.uses_fleet(), fleet, "{config:?}");
            assert_eq!(config.staleness_threshold(), threshold, "{config:?}");
        }
    }

    #[test]
    fn a_cluster_has_a_name() {
        let error = ClusterConfig::try_new(ClusterConfigParts::default()).unwrap_err();
        assert_eq!(error.to_string(), "name: must not be empty");
    }
}
