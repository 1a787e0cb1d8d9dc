//! [`Policy`]: load-balancing policies as code, and the builders of the policies that choose a
//! locality. Those that choose a host within it are in `endpoint_policy`.

use std::time::Duration;

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::load_aware_locality::{
    ColdStart, LoadAwareLocality, LoadAwareLocalityParts, RemoteMean, SpillController,
};
use plimsoll_core::model::orca::UtilizationPrecedence;
use plimsoll_core::model::zone_aware::{
    CapacityBasis, ForceLocalZone, FractionSource, LocalityBasis, ZoneAware, ZoneAwareParts,
};
use plimsoll_core::units::FieldError;

use super::endpoint_policy::{
    ClientSideWeightedRoundRobinPolicy, LeastRequestPolicy, MaglevPolicy, RandomPolicy,
    RingHashPolicy, RoundRobinPolicy,
};

/// Load-balancing policy of a [`Cluster`](crate::Cluster): how zone and host of a request are
/// chosen. The functions return a builder each; all settings have Envoy's names and defaults.
///
/// ```
/// use plimsoll_client::Policy;
///
/// // By measured demand; within a zone the host with fewer requests of two.
/// let demand = Policy::zone_aware().measured().min_cluster_size(1).over(Policy::least_request());
/// // By the load that hosts report, converging to even load across zones.
/// let load = Policy::load_aware().convergent();
/// # let _: [Policy; 2] = [demand.into(), load.into()];
/// ```
///
/// `round_robin`, `least_request`, `random` and `client_side_weighted_round_robin` alone include
/// zone-aware routing with Envoy's defaults, as in Envoy: it takes effect if the fleet is known,
/// through demand or a management server.
#[derive(Clone, Debug)]
pub struct Policy {
    endpoint: Result<EndpointPolicy, FieldError>,
    /// `None` = Envoy's default: zone-aware, except for hash policies.
    locality: Result<Option<LocalityPolicy>, FieldError>,
}

impl Policy {
    /// Keeps requests in their zone as far as its capacity allows (`zone_aware_lb_config`).
    pub fn zone_aware() -> ZoneAwarePolicy {
        ZoneAwarePolicy::default()
    }

    /// Chooses zones by the utilization that hosts report with ORCA (`load_aware_locality`).
    pub fn load_aware() -> LoadAwarePolicy {
        LoadAwarePolicy::default()
    }

    /// Chooses zones by their weights (`locality_weighted_lb_config`); see
    /// [`Cluster::locality_weight`](crate::Cluster::locality_weight).
    pub fn locality_weighted() -> LocalityWeightedPolicy {
        LocalityWeightedPolicy::default()
    }

    /// Chooses zones by their weights, as the parent of any endpoint policy (`wrr_locality`).
    pub fn wrr_locality() -> WrrLocalityPolicy {
        WrrLocalityPolicy::default()
    }

    /// Chooses one host after the other, by weight.
    pub fn round_robin() -> RoundRobinPolicy {
        RoundRobinPolicy::default()
    }

    /// Chooses the host with the fewest active requests of a few.
    pub fn least_request() -> LeastRequestPolicy {
        LeastRequestPolicy::default()
    }

    /// Chooses hosts at random, by weight.
    pub fn random() -> RandomPolicy {
        RandomPolicy
    }

    /// Chooses hosts by the hash of the request, on a ketama ring.
    pub fn ring_hash() -> RingHashPolicy {
        RingHashPolicy::default()
    }

    /// Chooses hosts by the hash of the request, with a Maglev table.
    pub fn maglev() -> MaglevPolicy {
        MaglevPolicy::default()
    }

    /// Chooses hosts by weights computed from the load they report (gRFC A58).
    pub fn client_side_weighted_round_robin() -> ClientSideWeightedRoundRobinPolicy {
        ClientSideWeightedRoundRobinPolicy::default()
    }

    /// Returns the checked policies: endpoint policy, and locality policy if it is not the default.
    pub(super) fn checked(self) -> Result<(EndpointPolicy, Option<LocalityPolicy>), FieldError> {
        let locality = self.locality?;
        Ok((self.endpoint?, locality))
    }

    fn over(
        locality: Result<LocalityPolicy, FieldError>,
        endpoint: Option<Result<EndpointPolicy, FieldError>>,
    ) -> Self {
        Self {
            endpoint: endpoint.unwrap_or_else(|| Ok(EndpointPolicy::default())),
            locality: locality.map(Some),
        }
    }
}

macro_rules! endpoint_policies {
    ($($builder:ty: $field:literal),+) => {
        $(impl From<$builder> for Policy {
            fn from(builder: $builder) -> Self {
                let checked = EndpointPolicy::try_from(builder);
                Self {
                    endpoint: checked.map_err(|error| error.under($field)),
                    locality: Ok(None),
                }
            }
        })+
    };
}

endpoint_policies! {
    RoundRobinPolicy: "round_robin",
    LeastRequestPolicy: "least_request",
    RandomPolicy: "random",
    RingHashPolicy: "ring_hash",
    MaglevPolicy: "maglev",
    ClientSideWeightedRoundRobinPolicy: "client_side_weighted_round_robin"
}

/// Declares the method that chooses the endpoint policy beneath a locality policy.
macro_rules! over {
    () => {
        /// Sets the policy that chooses a host within the locality; round robin by default.
        #[must_use]
        pub fn over<P>(mut self, endpoint_policy: P) -> Self
        where
            P: TryInto<EndpointPolicy, Error = FieldError>,
        {
            let checked = endpoint_policy.try_into();
            self.endpoint = Some(checked.map_err(|error| error.under("endpoint_picking_policy")));
            self
        }
    };
}

/// Zone-aware routing; from [`Policy::zone_aware`].
///
/// A zone keeps its requests while its share of the demand is at most its share of the hosts, and
/// spills the rest to zones with spare capacity. Demand is what arrives at the processes of the
/// fleet, by default in proportion to their number, as in Envoy; [`Self::measured`] uses measured
/// or stated demand instead, and [`Self::observed_load`] the response times of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZoneAwarePolicy {
    parts: ZoneAwareParts,
    endpoint: Option<Result<EndpointPolicy, FieldError>>,
}

impl ZoneAwarePolicy {
    setters! {
        /// Uses measured demand, `LRS_REPORTED_RATE`: of a management server, or as stated by
        /// [`ClientBuilder::demand`](crate::ClientBuilder::demand).
        measured() => parts.locality_basis = LocalityBasis::LrsReportedRate;
        /// Uses waiting times of this process's own requests, `OBSERVED_LOAD`. Needs neither a
        /// fleet nor a management server.
        observed_load() => parts.locality_basis = LocalityBasis::ObservedLoad;
        /// Uses the weights of hosts instead of their number, `HEALTHY_HOSTS_WEIGHT`.
        by_host_weight() => parts.locality_basis = LocalityBasis::HealthyHostsWeight;
        /// Sets the number of healthy hosts below which localities are ignored; 6 by default.
        min_cluster_size(hosts: u64) => parts.min_cluster_size = Some(hosts);
        /// Keeps all requests local while the own zone has at least `min_size` healthy hosts.
        force_local_zone(min_size: u32) =>
            parts.force_local_zone = Some(ForceLocalZone::new(min_size));
        /// Sets the percentage of requests that are routed by zone; 100 by default.
        routing_enabled(percent: f64) => parts.routing_enabled = Some(percent);
        /// Fails requests instead of using unhealthy hosts in panic mode.
        fail_traffic_on_panic() => parts.fail_traffic_on_panic = true;
        /// Sets the demand above capacity that stays local, in basis points of the zone's
        /// capacity; by default 300, but at most 100 of the whole. For measured demand only.
        dead_band_bp(basis_points: u64) => parts.dead_band_bp = Some(basis_points);
        /// Sets the age at which measured demand expires; 60 s by default, 5 s to 600 s. Stated
        /// demand never expires.
        staleness_threshold(age: Duration) => parts.lrs_rate_config.staleness_threshold = Some(age);
        /// Reads measured demand from the metadata of the fleet's localities.
        fractions_from_metadata() =>
            parts.lrs_rate_config.fraction_source = FractionSource::LocalityMetadata;
        /// Sets the measure of capacity that measured demand is compared with; host counts by
        /// default.
        upstream_locality_basis(basis: CapacityBasis) => parts.upstream_locality_basis = basis;
        /// Sets how often `observed_load` recomputes its shares; 1 s by default.
        observed_load_period(period: Duration) => parts.observed_load_period = Some(period);
        /// Routes by zone at all priorities, unlike Envoy, which does at priority 0 only.
        all_priorities() => parts.all_priorities = true;
    }
    over!();
}

impl From<ZoneAwarePolicy> for Policy {
    fn from(policy: ZoneAwarePolicy) -> Self {
        let checked = ZoneAware::try_new(policy.parts)
            .map(LocalityPolicy::ZoneAware)
            .map_err(|error| error.under("zone_aware_lb_config"));
        Self::over(checked, policy.endpoint)
    }
}

/// Routing by reported load; from [`Policy::load_aware`].
///
/// Hosts report their utilization with ORCA, in responses or out of band. By default requests stay
/// local within a threshold and spill by headroom beyond it; [`Self::convergent`] steers to even
/// load across zones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadAwarePolicy {
    parts: LoadAwareLocalityParts,
    endpoint: Option<Result<EndpointPolicy, FieldError>>,
}

impl LoadAwarePolicy {
    setters! {
        /// Uses Plimsoll's controller `CONVERGENT`, which settles on steady shares.
        convergent() => parts.spill_controller = SpillController::Convergent;
        /// Makes `CONVERGENT` follow reports alone, even if demand is measured or stated.
        without_demand_feed_forward() => parts.demand_feed_forward = Some(false);
        /// Sets how often weights are recomputed; 1 s by default.
        weight_update_period(period: Duration) => parts.weight_update_period = Some(period);
        /// Sets how far the local utilization may exceed the remote mean; 0.1 by default.
        utilization_variance_threshold(threshold: f64) =>
            parts.utilization_variance_threshold = Some(threshold);
        /// Sets the time constant that utilization is smoothed with; 5 s by default.
        smoothing_time_constant(time: Duration) => parts.smoothing_time_constant = Some(time);
        /// Sets the minimum share of requests to other zones; 0.03 by default.
        remote_probe_fraction(share: f64) => parts.remote_probe_fraction = Some(share);
        /// Sets the minimum share of requests that stays local; `CONVERGENT` keeps at least 0.03.
        local_probe_fraction(share: f64) => parts.local_probe_fraction = Some(share);
        /// Sets the age at which a report expires; 3 minutes by default, zero is never.
        weight_expiration_period(period: Duration) => parts.weight_expiration_period = Some(period);
        /// Sets the order in which metrics are considered.
        utilization_precedence(precedence: UtilizationPrecedence) =>
            parts.utilization_precedence = precedence;
        /// Sets the routing before the first report; local by default.
        cold_start(cold_start: ColdStart) => parts.cold_start = cold_start;
        /// Sets which remote zones count in the mean; all by default.
        remote_mean(remote_mean: RemoteMean) => parts.remote_mean = remote_mean;
        /// Sets the port of out-of-band reports, if it is not the port of requests.
        oob_port(port: u16) => parts.oob_reporting_config.port_value = u32::from(port);
    }
    over!();

    /// Sets the metrics that utilization is computed from, such as `named_metrics.queue`; the
    /// utilization in the report by default.
    #[must_use]
    pub fn metric_names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.parts.metric_names_for_computing_utilization =
            names.into_iter().map(Into::into).collect();
        self
    }

    /// Receives reports on a stream per host, at this interval, instead of with responses.
    #[must_use]
    pub fn out_of_band(mut self, period: Duration) -> Self {
        self.parts.enable_oob_load_report = true;
        self.parts.oob_reporting_period = Some(period);
        self
    }
}

impl From<LoadAwarePolicy> for Policy {
    fn from(policy: LoadAwarePolicy) -> Self {
        let checked = LoadAwareLocality::try_new(policy.parts)
            .map(LocalityPolicy::LoadAwareLocality)
            .map_err(|error| error.under("load_aware_locality"));
        Self::over(checked, policy.endpoint)
    }
}

/// Routing by locality weights; from [`Policy::locality_weighted`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityWeightedPolicy {
    endpoint: Option<Result<EndpointPolicy, FieldError>>,
}

impl LocalityWeightedPolicy {
    over!();
}

impl From<LocalityWeightedPolicy> for Policy {
    fn from(policy: LocalityWeightedPolicy) -> Self {
        Self::over(Ok(LocalityPolicy::LocalityWeighted), policy.endpoint)
    }
}

/// Routing by locality weights as a parent policy; from [`Policy::wrr_locality`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrrLocalityPolicy {
    endpoint: Option<Result<EndpointPolicy, FieldError>>,
}

impl WrrLocalityPolicy {
    over!();
}

impl From<WrrLocalityPolicy> for Policy {
    fn from(policy: WrrLocalityPolicy) -> Self {
        Self::over(Ok(LocalityPolicy::WrrLocality), policy.endpoint)
    }
}
