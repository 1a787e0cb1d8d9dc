//! Checked numbers and the error of checked constructors.
//!
//! [`BasisPoints`] and [`Percent`] are validated when they are constructed. Every checked
//! constructor of the crate returns a [`FieldError`]: the path of the field and the reason.
//! Decoders of wire formats and files prefix the path with the location of the value.

use std::fmt;

/// Basis points that make one whole.
pub const BASIS_POINTS: u64 = 10_000;

/// A rejected input: which field, and why.
///
/// `Display` gives the text of a NACK or of a configuration error:
/// `endpoints[2].lb_endpoints[0].load_balancing_weight: must be at least 1`.
///
/// ```
/// use plimsoll_core::units::BasisPoints;
///
/// let error = BasisPoints::new(20_000, "fraction").unwrap_err().under("endpoints[2]");
/// assert_eq!(error.to_string(), "endpoints[2].fraction: 20000 is above 10000 basis points");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    path: String,
    reason: String,
}

impl FieldError {
    /// Creates an error at `path` with a reason.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            reason: reason.into(),
        }
    }

    /// Prefixes the path, as seen from one level further out: `prefix.path`.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("{prefix}{dot}{}", self.path);
        self
    }

    /// Returns the path of the field, as the specification spells it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns what is wrong with the field.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.reason);
        }
        write!(f, "{}: {}", self.path, self.reason)
    }
}

impl std::error::Error for FieldError {}

/// A share in basis points, 0 to 10000 inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct BasisPoints(u16);

impl BasisPoints {
    /// A share of nothing.
    pub const ZERO: Self = Self(0);

    /// Checks the range. More than 10000 is rejected (decision 0023): a share above the whole means
    /// that the sender computes something other than a share.
    pub fn new(value: u64, path: &str) -> Result<Self, FieldError> {
        match u16::try_from(value) {
            Ok(bp) if u64::from(bp) <= BASIS_POINTS => Ok(Self(bp)),
            _ => Err(FieldError::new(
                path,
                format!("{value} is above 10000 basis points"),
            )),
        }
    }

    /// Returns the value, 0 to 10000.
    pub const fn get(self) -> u64 {
        self.0 as u64
    }
}

/// A percentage, finite and 0 to 100 inclusive (`envoy.type.v3.Percent`).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Percent(f64);

impl Percent {
    /// Checks the range; NaN and infinities are rejected.
    pub fn new(value: f64, path: &str) -> Result<Self, FieldError> {
        if (0.0..=100.0).contains(&value) {
            return Ok(Self(value));
        }
        Err(FieldError::new(
            path,
            format!("{value} is not a percentage between 0 and 100"),
        ))
    }

    /// Returns the value, 0.0 to 100.0.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Returns whole percent, truncated, as Envoy reads `healthy_panic_threshold`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0.0..=100.0"
    )]
    pub const fn truncated(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basis_points_end_at_ten_thousand() {
        assert_eq!(BasisPoints::new(10_000, "f").unwrap().get(), 10_000);
        let error = BasisPoints::new(10_001, "endpoints[0].observed_traffic_fraction").unwrap_err();
        assert_eq!(
            error.to_string(),
            "endpoints[0].observed_traffic_fraction: 10001 is above 10000 basis points"
        );
        assert!(BasisPoints::new(u64::MAX, "f").is_err());
    }

    #[test]
    fn percent_refuses_what_is_not_a_percentage() {
        for bad in [f64::NAN, f64::INFINITY, -0.1, 100.1] {
            assert!(Percent::new(bad, "p").is_err(), "{bad}");
        }
        assert_eq!(Percent::new(99.9, "p").unwrap().truncated(), 99);
    }

    #[test]
    fn paths_nest() {
        let error = FieldError::new("[3].weight", "no")
            .under("endpoints")
            .under("cluster");
        assert_eq!(error.to_string(), "cluster.endpoints[3].weight: no");
        assert_eq!(FieldError::new("", "empty").under("a").path(), "a");
        assert_eq!(FieldError::new("", "alone").to_string(), "alone");
    }
}
