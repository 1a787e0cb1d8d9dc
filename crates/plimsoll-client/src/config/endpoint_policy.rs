//! Endpoint policies as code: how a host is chosen within a locality. One builder per policy.

use std::time::Duration;

use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts,
};
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, LeastRequestParts, Maglev,
    RingHash, RoundRobin, SelectionMethod, SlowStart,
};
use plimsoll_core::model::orca::UtilizationPrecedence;
use plimsoll_core::units::FieldError;

/// Settings of slow start, unchecked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SlowStartSettings {
    window: Option<Duration>,
    aggression: Option<f64>,
    min_weight_percent: Option<f64>,
}

impl SlowStartSettings {
    fn checked(self) -> Result<Option<SlowStart>, FieldError> {
        let window = self.window.unwrap_or_default();
        let checked = SlowStart::try_new(window, self.aggression, self.min_weight_percent);
        checked.map_err(|error| error.under("slow_start_config"))
    }
}

/// Declares the setters of slow start, which three policies have.
macro_rules! slow_start_setters {
    ($($place:ident).+) => {
        setters! {
            /// Ramps the weight of a new host up over `window`. Off by default.
            slow_start(window: Duration) => $($place).+.window = Some(window);
            /// Sets the exponent of the ramp; 1.0 (linear) by default.
            slow_start_aggression(aggression: f64) => $($place).+.aggression = Some(aggression);
            /// Sets the weight that the ramp starts at, in percent; 10 by default.
            slow_start_min_weight_percent(percent: f64) =>
                $($place).+.min_weight_percent = Some(percent);
        }
    };
}

/// One host after the other, by weight; from [`Policy::round_robin`](crate::Policy::round_robin).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundRobinPolicy {
    slow_start: SlowStartSettings,
}

impl RoundRobinPolicy {
    slow_start_setters!(slow_start);
}

impl TryFrom<RoundRobinPolicy> for EndpointPolicy {
    type Error = FieldError;

    fn try_from(policy: RoundRobinPolicy) -> Result<Self, FieldError> {
        let slow_start = policy.slow_start.checked()?;
        Ok(Self::RoundRobin(RoundRobin::new(slow_start)))
    }
}

/// Fewest active requests among a few hosts; from
/// [`Policy::least_request`](crate::Policy::least_request).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeastRequestPolicy {
    parts: LeastRequestParts,
    slow_start: SlowStartSettings,
}

impl LeastRequestPolicy {
    setters! {
        /// Sets how many random hosts are compared; 2 by default.
        choice_count(hosts: u32) => parts.choice_count = Some(hosts);
        /// Sets the exponent of active requests when weights differ; 1.0 by default.
        active_request_bias(bias: f64) => parts.active_request_bias = Some(bias);
        /// Compares all hosts instead of a few random ones.
        full_scan() => parts.selection_method = SelectionMethod::FullScan;
    }
    slow_start_setters!(slow_start);
}

impl TryFrom<LeastRequestPolicy> for EndpointPolicy {
    type Error = FieldError;

    fn try_from(policy: LeastRequestPolicy) -> Result<Self, FieldError> {
        let mut parts = policy.parts;
        parts.slow_start = policy.slow_start.checked()?;
        Ok(Self::LeastRequest(LeastRequest::try_new(parts)?))
    }
}

/// Random hosts; from [`Policy::random`](crate::Policy::random).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RandomPolicy;

impl TryFrom<RandomPolicy> for EndpointPolicy {
    type Error = FieldError;

    fn try_from(_: RandomPolicy) -> Result<Self, FieldError> {
        Ok(Self::Random)
    }
}

/// Consistent hashing on a ring; from [`Policy::ring_hash`](crate::Policy::ring_hash).
///
/// Requests carry their hash in [`RequestOptions::hash`](crate::RequestOptions::hash).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingHashPolicy {
    hash_function: HashFunction,
    minimum_ring_size: Option<u64>,
    maximum_ring_size: Option<u64>,
    by_hostname: bool,
    balance_factor: Option<u32>,
}

impl RingHashPolicy {
    setters! {
        /// Sets the hash function that places hosts on the ring; xxHash by default.
        hash_function(function: HashFunction) => hash_function = function;
        /// Sets the desired number of ring entries; 1,024 by default.
        minimum_ring_size(entries: u64) => minimum_ring_size = Some(entries);
        /// Sets the upper bound of ring entries; 8,388,608 by default.
        maximum_ring_size(entries: u64) => maximum_ring_size = Some(entries);
        /// Hashes hosts by host name instead of address.
        by_hostname() => by_hostname = true;
        /// Bounds the active requests of a host, in percent of its fair share; at least 100.
        hash_balance_factor(percent: u32) => balance_factor = Some(percent);
    }
}

impl TryFrom<RingHashPolicy> for EndpointPolicy {
    type Error = FieldError;

    fn try_from(policy: RingHashPolicy) -> Result<Self, FieldError> {
        let hashing = ConsistentHashing::try_new(policy.by_hostname, policy.balance_factor)?;
        let (minimum, maximum) = (policy.minimum_ring_size, policy.maximum_ring_size);
        let ring = RingHash::try_new(policy.hash_function, minimum, maximum, hashing)?;
        Ok(Self::RingHash(ring))
    }
}

/// Consistent hashing with a Maglev table; from [`Policy::maglev`](crate::Policy::maglev).
///
/// Requests carry their hash in [`RequestOptions::hash`](crate::RequestOptions::hash).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaglevPolicy {
    table_size: Option<u64>,
    by_hostname: bool,
    balance_factor: Option<u32>,
}

impl MaglevPolicy {
    setters! {
        /// Sets the size of the table, a prime; 65,537 by default.
        table_size(entries: u64) => table_size = Some(entries);
        /// Hashes hosts by host name instead of address.
        by_hostname() => by_hostname = true;
        /// Bounds the active requests of a host, in percent of its fair share; at least 100.
        hash_balance_factor(percent: u32) => balance_factor = Some(percent);
    }
}

impl TryFrom<MaglevPolicy> for EndpointPolicy {
    type Error = FieldError;

    fn try_from(policy: MaglevPolicy) -> Result<Self, FieldError> {
        let hashing = ConsistentHashing::try_new(policy.by_hostname, policy.balance_factor)?;
        Ok(Self::Maglev(Maglev::try_new(policy.table_size, hashing)?))
    }
}

/// Hosts weighted by the load they report with ORCA (gRFC A58); from
/// [`Policy::client_side_weighted_round_robin`](crate::Policy::client_side_weighted_round_robin).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientSideWeightedRoundRobinPolicy {
    parts: ClientSideWeightedRoundRobinParts,
    slow_start: SlowStartSettings,
}

impl ClientSideWeightedRoundRobinPolicy {
    setters! {
        /// Sets how long a host must have reported before its weight is used; 10 s by default.
        blackout_period(period: Duration) => parts.blackout_period = Some(period);
        /// Sets the age at which a weight expires; 3 minutes by default.
        weight_expiration_period(period: Duration) => parts.weight_expiration_period = Some(period);
        /// Sets how often weights are recomputed; 1 s by default.
        weight_update_period(period: Duration) => parts.weight_update_period = Some(period);
        /// Sets the utilization added per unit of error rate; 0 by default, as in Envoy.
        error_utilization_penalty(penalty: f64) => parts.error_utilization_penalty = Some(penalty);
        /// Sets the order in which metrics are considered.
        utilization_precedence(precedence: UtilizationPrecedence) =>
            parts.utilization_precedence = precedence;
        /// Sets the port of out-of-band reports, if it is not the port of requests.
        oob_port(port: u16) => parts.oob_reporting_config.port_value = u32::from(port);
    }
    slow_start_setters!(slow_start);

    /// Sets the metrics of which the largest is the utilization (gRFC A114), such as
    /// `named_metrics.queue`.
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

impl TryFrom<ClientSideWeightedRoundRobinPolicy> for EndpointPolicy {
    type Error = FieldError;

    fn try_from(policy: ClientSideWeightedRoundRobinPolicy) -> Result<Self, FieldError> {
        let mut parts = policy.parts;
        parts.slow_start = policy.slow_start.checked()?;
        let checked = ClientSideWeightedRoundRobin::try_new(parts)?;
        Ok(Self::ClientSideWeightedRoundRobin(checked))
    }
}
