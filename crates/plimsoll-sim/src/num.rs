//! Conversions between counts, durations and floating-point numbers. All conversions saturate.
//! Scenarios are checked before they run, so that the limits are never reached.

use std::time::Duration;

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) const fn seconds(nanos: u64) -> f64 {
    nanos as f64 / SECOND as f64
}

/// Converts seconds to nanoseconds; negative values and NaN become 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float saturates, and NaN becomes 0"
)]
pub(crate) const fn from_seconds(seconds: f64) -> u64 {
    (seconds * SECOND as f64) as u64
}

/// Rounds to the nearest count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float saturates, and NaN becomes 0"
)]
pub(crate) fn round(value: f64) -> u64 {
    value.round() as u64
}

/// Returns a count times a factor, rounded.
pub(crate) fn scaled(count: u64, factor: f64) -> u64 {
    round(count as f64 * factor)
}

/// Returns the index of the interval of `width` that contains `at`.
pub(crate) fn slot(at: u64, width: u64) -> usize {
    usize::try_from(at / width.max(1)).unwrap_or(usize::MAX)
}

/// Converts an index to 32 bits; checked scenarios have far fewer hosts and requests.
pub(crate) fn index(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Returns `part ÷ whole`, or 0 if `whole` is 0.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_and_rounded() {
        assert_eq!((scaled(7, 1.0), scaled(7, 0.5), scaled(0, 1e9)), (7, 4, 0));
    }

    #[test]
    fn seconds_round_trip() {
        assert_eq!(from_seconds(1.5), 1_500_000_000);
        assert_eq!(seconds(250_000_000), 0.25);
        assert_eq!(nanos(Duration::from_millis(3)), 3_000_000);
    }

    #[test]
    fn out_of_range_values_saturate() {
        assert_eq!(from_seconds(f64::NAN), 0);
        assert_eq!(from_seconds(-1.0), 0);
        assert_eq!(from_seconds(f64::INFINITY), u64::MAX);
        assert_eq!((round(2.5), round(-3.0), round(f64::NAN)), (3, 0, 0));
        assert_eq!((ratio(1.0, 0.0), ratio(1.0, 4.0)), (0.0, 0.25));
        assert_eq!(index(usize::MAX), u32::MAX);
        assert_eq!((slot(99, 50), slot(100, 50), slot(7, 0)), (1, 2, 7));
    }
}
