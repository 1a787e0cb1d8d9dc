//! Checked numbers and the error of checked constructors.
//!
//! [`BasisPoints`] and [`Percent`] are validated when they are constructed. Every checked
//! constructor of the crate returns a [`FieldError`]: the path of the field and the reason.
//! Decoders of wire formats and files prefix the path with the location of the value.

use std::fmt;
use std::time::Duration;

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

/// Longest duration that is read: that of `google.protobuf.Duration`, about 10,000 years.
const MAX_SECONDS: u64 = 315_576_000_000;

/// Reads a duration as people write it: a number and one of the units `ns`, `us`, `ms`, `s`, `m` or
/// `min`, `h` and `d`, for example `1.5s`, `250ms` or `2m`. Exact to the nanosecond.
///
/// The error is a sentence without the name of the field.
///
/// ```
/// use plimsoll_core::units::parse_duration;
/// use std::time::Duration;
///
/// assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
/// assert_eq!(parse_duration("0.25s"), Ok(Duration::from_millis(250)));
/// assert!(parse_duration("5").unwrap_err().contains("has no unit"));
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let examples = "write for example \"250ms\", \"1.5s\", \"2m\" or \"1h\"";
    let end = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && decimals.is_empty()) || decimals.contains('.') {
        return Err(format!("{text:?} is not a duration; {examples}"));
    }
    let nanos_per_unit: u128 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        "" => return Err(format!("{text:?} has no unit; {examples}")),
        _ => return Err(format!("{text:?} has no unit of time; {examples}")),
    };
    let too_long = || format!("{text:?} is longer than {MAX_SECONDS} s");
    let digits = |part: &str| match part {
        "" => Some(0),
        part => part.parse::<u128>().ok(),
    };
    // More decimals than nanoseconds of the largest unit have no effect.
    let decimals = &decimals[..decimals.len().min(18)];
    let scale = 10_u128.pow(u32::try_from(decimals.len()).unwrap_or(18));
    let whole = digits(whole).and_then(|whole| whole.checked_mul(nanos_per_unit));
    let part = digits(decimals).unwrap_or(0) * nanos_per_unit / scale;
    let nanos = whole.and_then(|whole| whole.checked_add(part));
    let nanos = nanos.ok_or_else(too_long)?;
    let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| too_long())?;
    let rest = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
    if seconds > MAX_SECONDS {
        return Err(too_long());
    }
    Ok(Duration::new(seconds, rest))
}

/// Reads a percentage as people write it, `60%` or `60 %`, and returns it in percent: 60.
///
/// Returns `None` if the text does not end with a percent sign: the unit of a bare number depends
/// on the field.
pub fn parse_percent(text: &str) -> Option<Result<f64, String>> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let percent = number.parse::<f64>().ok().filter(|value| value.is_finite());
    Some(percent.ok_or_else(|| format!("{text:?} is not a percentage such as \"60%\"")))
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
    fn durations_are_read_with_every_unit() {
        for (text, nanos) in [
            ("1ns", 1),
            ("5us", 5_000),
            ("1ms", 1_000_000),
            ("250 ms", 250_000_000),
            ("0.5s", 500_000_000),
            (".5s", 500_000_000),
            ("90s", 90_000_000_000),
            ("2m", 120_000_000_000),
            ("2 min", 120_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("1d", 86_400_000_000_000),
            ("0.123456789s", 123_456_789),
            ("0s", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_nanos(nanos)),
                "{text}"
            );
        }
        assert!(parse_duration("315576000000s").is_ok());
        for (text, reason) in [
            ("", "is not a duration"),
            ("s", "is not a duration"),
            ("-1s", "is not a duration"),
            ("1.2.3s", "is not a duration"),
            ("5", "has no unit;"),
            ("5 parsecs", "has no unit of time"),
            ("1e3s", "has no unit of time"),
            ("315576000001s", "is longer than"),
            ("99999999999999999999999999999999999999h", "is longer than"),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn percentages_need_their_sign() {
        assert_eq!(parse_percent("55%"), Some(Ok(55.0)));
        assert_eq!(parse_percent(" 0.5 % "), Some(Ok(0.5)));
        assert_eq!(parse_percent("55"), None);
        for text in ["%", "x%", "NaN%", "inf %"] {
            let error = parse_percent(text).unwrap().unwrap_err();
            assert!(error.contains("is not a percentage"), "{text}: {error}");
        }
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
