//! Endpoint policies and their settings, each named after its xDS extension.
//!
//! Ranges are those of the protos (Envoy does not enforce them in typed configs; Plimsoll does,
//! with the path of the field). `endpoint_picking` implements the policies.

use std::time::Duration;

use super::client_side_weighted_round_robin::ClientSideWeightedRoundRobin;
use crate::units::{FieldError, Percent};

/// Policy that chooses a host from the list that the locality policy yields.
#[derive(Clone, Debug, PartialEq)]
pub enum EndpointPolicy {
    ClientSideWeightedRoundRobin(ClientSideWeightedRoundRobin),
    /// Fewest active requests among a few random hosts.
    LeastRequest(LeastRequest),
    Maglev(Maglev),
    Random,
    /// Consistent hashing on a ketama ring.
    RingHash(RingHash),
    RoundRobin(RoundRobin),
}

impl Default for EndpointPolicy {
    fn default() -> Self {
        Self::RoundRobin(RoundRobin::default())
    }
}

impl EndpointPolicy {
    /// Whether this is consistent hashing: it needs a deterministic choice, hence no zone-aware
    /// routing (seed `002…`).
    pub const fn is_hash(&self) -> bool {
        matches!(self, Self::Maglev(_) | Self::RingHash(_))
    }

    /// Returns the settings of consistent hashing, if the policy hashes.
    pub const fn consistent_hashing(&self) -> Option<ConsistentHashing> {
        match self {
            Self::Maglev(policy) => Some(policy.consistent_hashing),
            Self::RingHash(policy) => Some(policy.consistent_hashing),
            _ => None,
        }
    }

    /// Returns the settings of slow start, if the policy has them.
    pub const fn slow_start(&self) -> Option<&SlowStart> {
        match self {
            Self::ClientSideWeightedRoundRobin(policy) => policy.slow_start(),
            Self::LeastRequest(policy) => policy.slow_start.as_ref(),
            Self::RoundRobin(policy) => policy.slow_start.as_ref(),
            Self::Maglev(_) | Self::Random | Self::RingHash(_) => None,
        }
    }

    /// Returns the name of the policy, as in `envoy.load_balancing_policies.*`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ClientSideWeightedRoundRobin(_) => "client_side_weighted_round_robin",
            Self::LeastRequest(_) => "least_request",
            Self::Maglev(_) => "maglev",
            Self::Random => "random",
            Self::RingHash(_) => "ring_hash",
            Self::RoundRobin(_) => "round_robin",
        }
    }
}

/// Settings of the policy `RoundRobin`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundRobin {
    pub slow_start: Option<SlowStart>,
}

impl RoundRobin {
    /// Creates the settings; `None` is without slow start.
    pub const fn new(slow_start: Option<SlowStart>) -> Self {
        Self { slow_start }
    }
}

/// Settings of the policy `LeastRequest`, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct LeastRequest {
    choice_count: u32,
    active_request_bias: f64,
    selection_method: SelectionMethod,
    slow_start: Option<SlowStart>,
}

/// How least request samples hosts (`LeastRequest.SelectionMethod`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelectionMethod {
    /// 0: the best of `choice_count` random hosts.
    #[default]
    NChoices,
    /// 1: the best of all hosts.
    FullScan,
}

/// The fields of `LeastRequest`, unchecked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeastRequestParts {
    /// Default 2, at least 2.
    pub choice_count: Option<u32>,
    /// Default 1.0, at least 0.
    pub active_request_bias: Option<f64>,
    pub selection_method: SelectionMethod,
    pub slow_start: Option<SlowStart>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl LeastRequest {
    /// Checks the fields and applies the defaults.
    pub fn try_new(parts: LeastRequestParts) -> Result<Self, FieldError> {
        let choice_count = parts.choice_count.unwrap_or(2);
        if choice_count < 2 {
            let reason = format!("{choice_count} is less than 2: there would be nothing to choose");
            return Err(FieldError::new("choice_count", reason));
        }
        let active_request_bias = parts.active_request_bias.unwrap_or(1.0);
        if !(active_request_bias.is_finite() && active_request_bias >= 0.0) {
            return Err(FieldError::new(
                "active_request_bias",
                format!("{active_request_bias} is not a finite number of at least 0"),
            ));
        }
        Ok(Self {
            choice_count,
            active_request_bias,
            selection_method: parts.selection_method,
            slow_start: parts.slow_start,
        })
    }

    getters! {
        /// Number of hosts compared per pick.
        choice_count: u32,
        /// Exponent of the active requests when weights differ.
        active_request_bias: f64,
        /// Whether a few random hosts or all of them are compared.
        selection_method: SelectionMethod,
    }
}

/// The message `SlowStartConfig`, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowStart {
    window: Duration,
    aggression: f64,
    min_weight_percent: f64,
}

impl SlowStart {
    /// Checks the fields; a zero `window` disables slow start (`Ok(None)`). `aggression` defaults
    /// to 1.0 and must be positive; `min_weight_percent` defaults to 10.
    pub fn try_new(
        window: Duration,
        aggression: Option<f64>,
        min_weight_percent: Option<f64>,
    ) -> Result<Option<Self>, FieldError> {
        let aggression = aggression.unwrap_or(1.0);
        if !(aggression.is_finite() && aggression > 0.0) {
            let reason = format!("{aggression} is not a finite number above 0");
            return Err(FieldError::new("aggression", reason));
        }
        let min = Percent::new(
            min_weight_percent.unwrap_or(10.0),
            "min_weight_percent.value",
        )?
        .get();
        if window.is_zero() {
            return Ok(None);
        }
        Ok(Some(Self {
            window,
            aggression,
            min_weight_percent: min,
        }))
    }

    getters! {
        /// How long a host stays in slow start.
        window: Duration,
        /// Exponent of the ramp.
        aggression: f64,
        /// Minimum of the ramp, percent of the full weight.
        min_weight_percent: f64,
    }
}

/// Hash function of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashFunction {
    #[default]
    XxHash,
    /// MurmurHash2, 64 bit, the seed of libstdc++.
    MurmurHash2,
}

/// Settings of the policy `RingHash`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingHash {
    hash_function: HashFunction,
    minimum_ring_size: u64,
    maximum_ring_size: u64,
    consistent_hashing: ConsistentHashing,
}

/// Largest ring (Envoy's limit and default maximum).
pub const MAXIMUM_RING_SIZE: u64 = 8_388_608;

impl RingHash {
    /// Checks the sizes. They default to 1024 and 8388608; at most 8388608, minimum not above
    /// maximum.
    pub fn try_new(
        hash_function: HashFunction,
        minimum_ring_size: Option<u64>,
        maximum_ring_size: Option<u64>,
        consistent_hashing: ConsistentHashing,
    ) -> Result<Self, FieldError> {
        let (minimum, maximum) = (
            minimum_ring_size.unwrap_or(1024),
            maximum_ring_size.unwrap_or(MAXIMUM_RING_SIZE),
        );
        for (field, size) in [
            ("minimum_ring_size", minimum),
            ("maximum_ring_size", maximum),
        ] {
            if size > MAXIMUM_RING_SIZE {
                return Err(FieldError::new(
                    field,
                    format!("{size} is above {MAXIMUM_RING_SIZE}"),
                ));
            }
        }
        if minimum == 0 {
            let reason = "0 makes an empty ring: no request would find a host";
            return Err(FieldError::new("minimum_ring_size", reason));
        }
        if minimum > maximum {
            let reason = format!("{minimum} is above maximum_ring_size {maximum}");
            return Err(FieldError::new("minimum_ring_size", reason));
        }
        Ok(Self {
            hash_function,
            minimum_ring_size: minimum,
            maximum_ring_size: maximum,
            consistent_hashing,
        })
    }

    getters! {
        /// Hash function that places hosts on the ring.
        hash_function: HashFunction,
        /// Desired number of entries.
        minimum_ring_size: u64,
        /// Upper bound of the entries; rounding may add one, as in Envoy.
        maximum_ring_size: u64,
        /// Hash key and load bound.
        consistent_hashing: ConsistentHashing,
    }
}

/// Settings of the policy `Maglev`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maglev {
    table_size: u64,
    consistent_hashing: ConsistentHashing,
}

/// Largest Maglev table (the proto's limit).
pub const MAXIMUM_TABLE_SIZE: u64 = 5_000_011;

impl Maglev {
    /// Checks the size of the table: a prime of at most 5000011, default 65537.
    pub fn try_new(
        table_size: Option<u64>,
        consistent_hashing: ConsistentHashing,
    ) -> Result<Self, FieldError> {
        let table_size = table_size.unwrap_or(65_537);
        if table_size > MAXIMUM_TABLE_SIZE {
            let reason = format!("{table_size} is above {MAXIMUM_TABLE_SIZE}");
            return Err(FieldError::new("table_size", reason));
        }
        if !is_prime(table_size) {
            return Err(FieldError::new(
                "table_size",
                format!("{table_size} is not a prime"),
            ));
        }
        Ok(Self {
            table_size,
            consistent_hashing,
        })
    }

    /// Returns the number of table entries, a prime.
    pub const fn table_size(&self) -> u64 {
        self.table_size
    }

    /// Returns the hash key and load bound.
    pub const fn consistent_hashing(&self) -> ConsistentHashing {
        self.consistent_hashing
    }
}

/// The message `ConsistentHashingLbConfig`, checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsistentHashing {
    use_hostname_for_hashing: bool,
    hash_balance_factor: Option<u32>,
}

impl ConsistentHashing {
    /// Checks the factor: 0 or unset is off, otherwise at least 100 (percent of the mean).
    pub fn try_new(
        use_hostname_for_hashing: bool,
        hash_balance_factor: Option<u32>,
    ) -> Result<Self, FieldError> {
        let hash_balance_factor = hash_balance_factor.filter(|&factor| factor != 0);
        if let Some(factor @ ..100) = hash_balance_factor {
            let reason = format!("{factor} is below 100: no host could take its fair share");
            return Err(FieldError::new("hash_balance_factor", reason));
        }
        Ok(Self {
            use_hostname_for_hashing,
            hash_balance_factor,
        })
    }

    /// Whether hosts are hashed by host name instead of address.
    pub const fn use_hostname_for_hashing(self) -> bool {
        self.use_hostname_for_hashing
    }

    /// Returns the bound of a host's active requests, in percent of its fair share.
    pub const fn hash_balance_factor(self) -> Option<u32> {
        self.hash_balance_factor
    }
}

fn is_prime(n: u64) -> bool {
    n >= 2
        && (2..)
            .take_while(|d| d * d <= n)
            .all(|d| !n.is_multiple_of(d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_request_checks_its_numbers() {
        let policy = LeastRequest::try_new(LeastRequestParts::default()).unwrap();
        assert_eq!(policy.choice_count(), 2);
        let one = LeastRequestParts {
            choice_count: Some(1),
            ..Default::default()
        };
        assert_eq!(
            LeastRequest::try_new(one).unwrap_err().path(),
            "choice_count"
        );
        for bias in [f64::NAN, f64::INFINITY, -1.0] {
            let parts = LeastRequestParts {
                active_request_bias: Some(bias),
                ..Default::default()
            };
            assert_eq!(
                LeastRequest::try_new(parts).unwrap_err().path(),
                "active_request_bias"
            );
        }
    }

    #[test]
    fn slow_start_checks_its_numbers() {
        let window = Duration::from_secs(60);
        assert_eq!(
            SlowStart::try_new(Duration::ZERO, None, None).unwrap(),
            None
        );
        let slow_start = SlowStart::try_new(window, None, None).unwrap().unwrap();
        assert_eq!(
            (slow_start.aggression(), slow_start.min_weight_percent()),
            (1.0, 10.0)
        );
        for aggression in [0.0, -1.0, f64::NAN] {
            let error = SlowStart::try_new(window, Some(aggression), None).unwrap_err();
            assert_eq!(error.path(), "aggression");
        }
        let error = SlowStart::try_new(window, None, Some(101.0)).unwrap_err();
        assert_eq!(error.path(), "min_weight_percent.value");
    }

    #[test]
    fn hash_policies_check_sizes_and_bounds() {
        let none = ConsistentHashing::default();
        assert!(Maglev::try_new(None, none).is_ok());
        assert_eq!(
            Maglev::try_new(Some(65_536), none).unwrap_err().path(),
            "table_size"
        );
        assert!(
            Maglev::try_new(Some(5_000_111), none).is_err(),
            "prime, but too large"
        );
        for size in [0, 1] {
            assert!(Maglev::try_new(Some(size), none).is_err());
        }
        let ring = |min, max| RingHash::try_new(HashFunction::XxHash, min, max, none);
        assert!(ring(Some(10), Some(10)).is_ok());
        assert_eq!(
            ring(Some(11), Some(10)).unwrap_err().path(),
            "minimum_ring_size"
        );
        assert_eq!(
            ring(None, Some(8_388_609)).unwrap_err().path(),
            "maximum_ring_size"
        );
        assert_eq!(ConsistentHashing::try_new(false, Some(0)).unwrap(), none);
        let error = ConsistentHashing::try_new(false, Some(99)).unwrap_err();
        assert_eq!(error.path(), "hash_balance_factor");
    }
}
