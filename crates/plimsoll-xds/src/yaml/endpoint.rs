//! How a host is chosen: the messages of the endpoint policies, typed and legacy.
//!
//! Typed messages may carry the choice of locality as well; [`Typed`] is both together. Which
//! message is meant is found in `policy` (by `@type`) and `legacy` (by `lb_policy`).

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, LeastRequestParts, Maglev,
    RingHash, RoundRobin, SelectionMethod, SlowStart,
};
use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::locality::LocalityLbConfig;
use super::proto_json::{
    Empty, Ignored, Named, Percent, ProtoDuration, ProtoEnum, RuntimeDouble, Uint,
};

/// What a typed policy says: the host, and the locality if it says anything about it.
pub(super) type Typed = (EndpointPolicy, Option<LocalityPolicy>);

/// `round_robin.v3.RoundRobin`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RoundRobinMessage {
    /// Raise new hosts slowly.
    slow_start_config: Option<SlowStartConfig>,
    /// How a locality is chosen. Default zone-aware routing.
    locality_lb_config: Option<LocalityLbConfig>,
}

impl RoundRobinMessage {
    pub(super) fn checked(self) -> Result<Typed, FieldError> {
        let slow_start = slow_start(self.slow_start_config)?;
        let policy = EndpointPolicy::RoundRobin(RoundRobin { slow_start });
        Ok((policy, locality(self.locality_lb_config)?))
    }
}

/// `least_request.v3.LeastRequest`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LeastRequestMessage {
    /// Hosts that are compared, at least 2. Default 2.
    choice_count: Option<Uint<u32>>,
    /// How much requests in flight lower a host's weight, at least 0. Default 1.
    active_request_bias: Option<RuntimeDouble>,
    /// Raise new hosts slowly.
    slow_start_config: Option<SlowStartConfig>,
    /// How a locality is chosen. Default zone-aware routing.
    locality_lb_config: Option<LocalityLbConfig>,
    /// Refused: Envoy ignores it; use `selection_method: FULL_SCAN`.
    enable_full_scan: Option<Ignored>,
    /// Whether some hosts are compared or all. Default `N_CHOICES`.
    selection_method: Named<SelectionMethod>,
}

impl LeastRequestMessage {
    pub(super) fn checked(self) -> Result<Typed, FieldError> {
        if self.enable_full_scan.is_some() {
            let reason = "does nothing in Envoy; use selection_method: FULL_SCAN";
            return Err(FieldError::new("enable_full_scan", reason));
        }
        let policy = least_request(LeastRequestParts {
            choice_count: self.choice_count.map(|count| count.0),
            active_request_bias: self.active_request_bias.map(|bias| bias.default_value.0),
            selection_method: self.selection_method.0,
            slow_start: slow_start(self.slow_start_config)?,
        })?;
        Ok((policy, locality(self.locality_lb_config)?))
    }
}

/// `random.v3.Random`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RandomMessage {
    /// How a locality is chosen. Default zone-aware routing.
    locality_lb_config: Option<LocalityLbConfig>,
}

impl RandomMessage {
    pub(super) fn checked(self) -> Result<Typed, FieldError> {
        Ok((EndpointPolicy::Random, locality(self.locality_lb_config)?))
    }
}

/// `ring_hash.v3.RingHash`. Fields 4 and 5 are the deprecated spelling of
/// `consistent_hashing_lb_config`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RingHashMessage {
    /// Hash of hosts on the ring. Default `XX_HASH`, which `DEFAULT_HASH` means too.
    hash_function: Named<TypedHashFunction>,
    /// Entries of the ring at least. Default 1024.
    minimum_ring_size: Option<Uint<u64>>,
    /// Entries of the ring at most, up to 8388608. Default 8388608.
    maximum_ring_size: Option<Uint<u64>>,
    /// Deprecated: see `consistent_hashing_lb_config`.
    use_hostname_for_hashing: Option<bool>,
    /// Deprecated: see `consistent_hashing_lb_config`.
    hash_balance_factor: Option<Uint<u32>>,
    /// What is hashed, and how full a host may be.
    consistent_hashing_lb_config: Option<ConsistentHashingLbConfig>,
    /// Localities are chosen by their weights.
    locality_weighted_lb_config: Option<Empty>,
}

impl RingHashMessage {
    pub(super) fn checked(self) -> Result<Typed, FieldError> {
        let old = [
            (
                "use_hostname_for_hashing",
                self.use_hostname_for_hashing.is_some(),
            ),
            ("hash_balance_factor", self.hash_balance_factor.is_some()),
        ];
        if self.consistent_hashing_lb_config.is_some()
            && let Some((field, _)) = old.into_iter().find(|&(_, set)| set)
        {
            let reason = "cannot be combined with consistent_hashing_lb_config, which replaces it";
            return Err(FieldError::new(field, reason));
        }
        let consistent_hashing = match self.consistent_hashing_lb_config {
            Some(config) => config.checked()?,
            None => ConsistentHashing::try_new(
                self.use_hostname_for_hashing.unwrap_or(false),
                self.hash_balance_factor.map(|factor| factor.0),
            )?,
        };
        let ring_hash = RingHash::try_new(
            self.hash_function.0.into(),
            self.minimum_ring_size.map(|size| size.0),
            self.maximum_ring_size.map(|size| size.0),
            consistent_hashing,
        )?;
        let locality = self.locality_weighted_lb_config;
        Ok((EndpointPolicy::RingHash(ring_hash), weighted(locality)))
    }
}

/// `maglev.v3.Maglev`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct MaglevMessage {
    /// Entries of the table, a prime up to 5000011. Default 65537.
    table_size: Option<Uint<u64>>,
    /// What is hashed, and how full a host may be.
    consistent_hashing_lb_config: Option<ConsistentHashingLbConfig>,
    /// Localities are chosen by their weights.
    locality_weighted_lb_config: Option<Empty>,
}

impl MaglevMessage {
    pub(super) fn checked(self) -> Result<Typed, FieldError> {
        let consistent_hashing = self.consistent_hashing_lb_config.unwrap_or_default();
        let maglev = Maglev::try_new(
            self.table_size.map(|size| size.0),
            consistent_hashing.checked()?,
        )?;
        let locality = self.locality_weighted_lb_config;
        Ok((EndpointPolicy::Maglev(maglev), weighted(locality)))
    }
}

/// `Cluster.RoundRobinLbConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RoundRobinLbConfig {
    /// Raise new hosts slowly.
    slow_start_config: Option<SlowStartConfig>,
}

impl RoundRobinLbConfig {
    pub(super) fn checked(self) -> Result<EndpointPolicy, FieldError> {
        let slow_start = slow_start(self.slow_start_config)?;
        Ok(EndpointPolicy::RoundRobin(RoundRobin { slow_start }))
    }
}

/// `Cluster.LeastRequestLbConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LeastRequestLbConfig {
    /// Hosts that are compared, at least 2. Default 2.
    choice_count: Option<Uint<u32>>,
    /// How much requests in flight lower a host's weight, at least 0. Default 1.
    active_request_bias: Option<RuntimeDouble>,
    /// Raise new hosts slowly.
    slow_start_config: Option<SlowStartConfig>,
}

impl LeastRequestLbConfig {
    pub(super) fn checked(self) -> Result<EndpointPolicy, FieldError> {
        least_request(LeastRequestParts {
            choice_count: self.choice_count.map(|count| count.0),
            active_request_bias: self.active_request_bias.map(|bias| bias.default_value.0),
            slow_start: slow_start(self.slow_start_config)?,
            ..Default::default()
        })
    }
}

/// `Cluster.RingHashLbConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RingHashLbConfig {
    /// Entries of the ring at least. Default 1024.
    minimum_ring_size: Option<Uint<u64>>,
    /// Entries of the ring at most, up to 8388608. Default 8388608.
    maximum_ring_size: Option<Uint<u64>>,
    /// Hash of hosts on the ring. Default `XX_HASH`.
    hash_function: Named<HashFunction>,
}

impl RingHashLbConfig {
    pub(super) fn checked(self, key: ConsistentHashing) -> Result<EndpointPolicy, FieldError> {
        let ring_hash = RingHash::try_new(
            self.hash_function.0,
            self.minimum_ring_size.map(|size| size.0),
            self.maximum_ring_size.map(|size| size.0),
            key,
        )?;
        Ok(EndpointPolicy::RingHash(ring_hash))
    }
}

/// `Cluster.MaglevLbConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct MaglevLbConfig {
    /// Entries of the table, a prime up to 5000011. Default 65537.
    table_size: Option<Uint<u64>>,
}

impl MaglevLbConfig {
    pub(super) fn checked(self, key: ConsistentHashing) -> Result<EndpointPolicy, FieldError> {
        let maglev = Maglev::try_new(self.table_size.map(|size| size.0), key)?;
        Ok(EndpointPolicy::Maglev(maglev))
    }
}

/// `ConsistentHashingLbConfig`, typed and legacy alike.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ConsistentHashingLbConfig {
    /// Hash host names instead of addresses.
    use_hostname_for_hashing: bool,
    /// Percent of the mean load that a host may have, at least 100; without it there is no bound.
    hash_balance_factor: Option<Uint<u32>>,
}

impl ConsistentHashingLbConfig {
    /// The path of an error includes the name of this message.
    pub(super) fn checked(self) -> Result<ConsistentHashing, FieldError> {
        ConsistentHashing::try_new(
            self.use_hostname_for_hashing,
            self.hash_balance_factor.map(|factor| factor.0),
        )
        .map_err(|error| error.under("consistent_hashing_lb_config"))
    }
}

/// `SlowStartConfig`, typed and legacy alike.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct SlowStartConfig {
    /// How long a new host is raised.
    slow_start_window: Option<ProtoDuration>,
    /// How the weight grows: 1 is a line, above 1 it grows fast at first; above 0. Default 1.
    aggression: Option<RuntimeDouble>,
    /// Percent of its weight that a host begins with. Default 10.
    min_weight_percent: Option<Percent>,
}

pub(super) fn slow_start(config: Option<SlowStartConfig>) -> Result<Option<SlowStart>, FieldError> {
    let Some(config) = config else {
        return Ok(None);
    };
    SlowStart::try_new(
        config.slow_start_window.unwrap_or_default().0,
        config
            .aggression
            .map(|aggression| aggression.default_value.0),
        config.min_weight_percent.map(|percent| percent.value.0),
    )
    .map_err(|error| inside("aggression", error).under("slow_start_config"))
}

fn least_request(parts: LeastRequestParts) -> Result<EndpointPolicy, FieldError> {
    LeastRequest::try_new(parts)
        .map(EndpointPolicy::LeastRequest)
        .map_err(|error| inside("active_request_bias", error))
}

/// The core knows a number where the proto has a `RuntimeDouble`.
fn inside(field: &str, error: FieldError) -> FieldError {
    if error.path() == field {
        return FieldError::new("default_value", error.reason()).under(field);
    }
    error
}

/// What a policy says about localities; the path of an error includes the name of the field.
pub(super) fn locality(
    config: Option<LocalityLbConfig>,
) -> Result<Option<LocalityPolicy>, FieldError> {
    let policy = config.map(LocalityLbConfig::policy).transpose();
    policy.map_err(|error| error.under("locality_lb_config"))
}

fn weighted(config: Option<Empty>) -> Option<LocalityPolicy> {
    config.map(|Empty {}| LocalityPolicy::LocalityWeighted)
}

/// `RingHash.HashFunction` of the typed policy, which has a default of its own.
#[derive(Clone, Copy, Debug, Default)]
enum TypedHashFunction {
    #[default]
    DefaultHash,
    XxHash,
    MurmurHash2,
}

impl From<TypedHashFunction> for HashFunction {
    fn from(function: TypedHashFunction) -> Self {
        match function {
            TypedHashFunction::DefaultHash => Self::default(),
            TypedHashFunction::XxHash => Self::XxHash,
            TypedHashFunction::MurmurHash2 => Self::MurmurHash2,
        }
    }
}

impl ProtoEnum for TypedHashFunction {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("DEFAULT_HASH", 0, Self::DefaultHash),
        ("XX_HASH", 1, Self::XxHash),
        ("MURMUR_HASH_2", 2, Self::MurmurHash2),
    ];
}

impl ProtoEnum for HashFunction {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("XX_HASH", 0, Self::XxHash),
        ("MURMUR_HASH_2", 1, Self::MurmurHash2),
    ];
}

impl ProtoEnum for SelectionMethod {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("N_CHOICES", 0, Self::NChoices),
        ("FULL_SCAN", 1, Self::FullScan),
    ];
}
