//! Time as an argument.
//!
//! An [`Instant`] counts nanoseconds since an origin that the driver chooses. The core has no
//! clock: drivers (tokio's clock, Envoy's, the simulator's virtual one) read theirs and pass the
//! time as the last argument of every `handle_*` call.

use std::time::Duration;

/// A point in time, in nanoseconds since the driver's origin.
///
/// Unlike the standard library's, it can be written into a test vector and compared across
/// processes that share an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the driver's clock.
    pub const ORIGIN: Self = Self(0);

    /// Returns the instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the instant `millis` milliseconds after the origin (saturating).
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns the instant `secs` seconds after the origin (saturating).
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns `self + duration`, or `None` on overflow (after 584 years).
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let nanos = u64::try_from(duration.as_nanos()).ok()?;
        self.0.checked_add(nanos).map(Self)
    }

    /// Returns `self + duration`, saturating. A deadline that far away never fires.
    pub fn saturating_add(self, duration: Duration) -> Self {
        self.checked_add(duration).unwrap_or(Self(u64::MAX))
    }

    /// Returns the time since `earlier`; zero if `earlier` is later, so that a clock that steps
    /// back does no harm.
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let end = Instant::from_nanos(u64::MAX);
        assert_eq!(end.checked_add(Duration::from_nanos(1)), None);
        assert_eq!(end.saturating_add(Duration::from_secs(1)), end);
        assert_eq!(
            Instant::ORIGIN.saturating_duration_since(end),
            Duration::ZERO
        );
        assert_eq!(Instant::from_secs(u64::MAX), end);
    }

    #[test]
    fn units_agree() {
        assert_eq!(Instant::from_secs(2), Instant::from_millis(2000));
        assert_eq!(Instant::from_millis(3), Instant::from_nanos(3_000_000));
        let later = Instant::from_secs(5);
        assert_eq!(
            later.saturating_duration_since(Instant::from_secs(3)),
            Duration::from_secs(2)
        );
    }
}
