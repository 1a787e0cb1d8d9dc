//! Endpoint policies and their settings, each named after its xDS extension.
//!
//! Ranges are those of the protos (Envoy does not enforce them in typed configs; we do, with the
//! path of the field). What the policies do lives in `endpoint_picking`.

use std::time::Duration;

use super::client_side_weighted_round_robin::ClientSideWeightedRoundRobin;
use crate::units::{FieldError, Percent};

/// How a host is chosen within the list that the locality policy yields.
#[derive(Clone, Debug, PartialEq)]
pub enum EndpointPolicy {
    /// Round robin by weights that follow from load reports.
    ClientSideWeightedRoundRobin(ClientSideWeightedRoundRobin),
    /// Least request: fewest active requests of a few random hosts.
    LeastRequest(LeastRequest),
    /// Maglev consistent hashing.
    Maglev(Maglev),
    /// Uniformly at random.
    Random,
    /// Ring hash (ketama) consistent hashing.
    RingHash(RingHash),
    /// Round robin, weighted when host weights differ.
    RoundRobin(RoundRobin),
}

impl Default for EndpointPolicy {
    fn default() -> Self {
        Self::RoundRobin(RoundRobin::default())
    }
}

impl EndpointPolicy {
    /// Consistent hashing: needs a deterministic choice, hence no zone-aware routing (seed `002…`).
    pub const fn is_hash(&self) -> bool {
        matches!(self, Self::Maglev(_) | Self::RingHash(_))
    }

    /// Key and bound of consistent hashing, where the policy hashes.
    pub const fn consistent_hashing(&self) -> Option<ConsistentHashing> {
        match self {
            Self::Maglev(policy) => Some(policy.consistent_hashing),
            Self::RingHash(policy) => Some(policy.consistent_hashing),
            _ => None,
        }
    }

    /// Settings of slow start, where the policy has it.
    pub const fn slow_start(&self) -> Option<&SlowStart> {
        match self {
            Self::ClientSideWeightedRoundRobin(policy) => policy.slow_start(),
            Self::LeastRequest(policy) => policy.slow_start.as_ref(),
            Self::RoundRobin(policy) => policy.slow_start.as_ref(),
            Self::Maglev(_) | Self::Random | Self::RingHash(_) => None,
        }
    }

    /// Name of the policy, as in `envoy.load_balancing_policies.*`.
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

/// `RoundRobin`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundRobin {
    /// Raise new hosts slowly.
    pub slow_start: Option<SlowStart>,
}

/// `LeastRequest`.
#[derive(Clone, Debug, PartialEq)]
pub struct LeastRequest {
    choice_count: u32,
    active_request_bias: f64,
    selection_method: SelectionMethod,
    slow_start: Option<SlowStart>,
}

/// `LeastRequest.SelectionMethod`.
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
    /// Default N_CHOICES.
    pub selection_method: SelectionMethod,
    /// Raise new hosts slowly.
    pub slow_start: Option<SlowStart>,
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

    /// Hosts compared per pick.
    pub const fn choice_count(&self) -> u32 {
        self.choice_count
    }

    /// Exponent of the active requests when weights differ.
    pub const fn active_request_bias(&self) -> f64 {
        self.active_request_bias
    }

    /// Few random hosts or all of them.
    pub const fn selection_method(&self) -> SelectionMethod {
        self.selection_method
    }
}

/// `SlowStartConfig`, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowStart {
    window: Duration,
    aggression: f64,
    min_weight_percent: f64,
}

impl SlowStart {
    /// `window` zero switches slow start off (`Ok(None)`). `aggression` defaults to 1.0 and must be
    /// positive; `min_weight_percent` defaults to 10.
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

    /// How long a host is in slow start.
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// Shape of the ramp.
    pub const fn aggression(&self) -> f64 {
        self.aggression
    }

    /// Floor of the ramp, percent of the full weight.
    pub const fn min_weight_percent(&self) -> f64 {
        self.min_weight_percent
    }
}

/// Hash function of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashFunction {
    /// xxHash64, seed 0.
    #[default]
    XxHash,
    /// MurmurHash2, 64 bit, the seed of libstdc++.
    MurmurHash2,
}

/// `RingHash`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingHash {
    hash_function: HashFunction,
    minimum_ring_size: u64,
    maximum_ring_size: u64,
    consistent_hashing: ConsistentHashing,
}

/// Largest ring (Envoy's bound and default maximum).
pub const MAXIMUM_RING_SIZE: u64 = 8_388_608;

impl RingHash {
    /// Sizes default to 1024 and 8388608; at most 8388608, minimum not above maximum.
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

    /// The function that places hosts on the ring.
    pub const fn hash_function(&self) -> HashFunction {
        self.hash_function
    }

    /// Entries aimed at.
    pub const fn minimum_ring_size(&self) -> u64 {
        self.minimum_ring_size
    }

    /// Upper bound of the entries; rounding may add one, as in Envoy.
    pub const fn maximum_ring_size(&self) -> u64 {
        self.maximum_ring_size
    }

    /// Key and bound.
    pub const fn consistent_hashing(&self) -> ConsistentHashing {
        self.consistent_hashing
    }
}

/// `Maglev`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maglev {
    table_size: u64,
    consistent_hashing: ConsistentHashing,
}

/// Largest Maglev table (the proto's bound).
pub const MAXIMUM_TABLE_SIZE: u64 = 5_000_011;

impl Maglev {
    /// `table_size` defaults to 65537; a prime of at most 5000011.
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

    /// Entries of the table, a prime.
    pub const fn table_size(&self) -> u64 {
        self.table_size
    }

    /// Key and bound.
    pub const fn consistent_hashing(&self) -> ConsistentHashing {
        self.consistent_hashing
    }
}

/// `ConsistentHashingLbConfig`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsistentHashing {
    use_hostname_for_hashing: bool,
    hash_balance_factor: Option<u32>,
}

impl ConsistentHashing {
    /// `hash_balance_factor`: 0 or unset is off, otherwise at least 100 (percent of the mean).
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

    /// Key hosts by host name instead of address.
    pub const fn use_hostname_for_hashing(self) -> bool {
        self.use_hostname_for_hashing
    }

    /// Bound of a host's active requests, percent of its fair share.
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
