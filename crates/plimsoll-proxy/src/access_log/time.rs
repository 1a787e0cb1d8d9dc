//! Timestamps in RFC 3339 format, UTC with milliseconds.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Displays a time such as `2026-11-15T12:00:00.000Z`.
pub(crate) struct Rfc3339(pub(crate) SystemTime);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let millis = since.subsec_millis();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
        )
    }
}

/// Converts days since 1970 to a date. Years start in March, so that leap days come last.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let era = days / DAYS_IN_400_YEARS;
    let in_era = days % DAYS_IN_400_YEARS;
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * in_year + 2) / 153;
    let day = in_year - (153 * shifted + 2) / 5 + 1;
    let (month, next) = match shifted {
        0..=9 => (shifted + 3, 0),
        _ => (shifted - 9, 1),
    };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn known_times() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (1_709_251_199, "2024-02-29T23:59:59.007Z"),
            (1_767_225_599, "2025-12-31T23:59:59.007Z"),
            (1_709_296_496, "2024-03-01T12:34:56.007Z"),
            (4_102_444_800, "2100-01-01T00:00:00.007Z"),
        ] {
            let time = UNIX_EPOCH + Duration::new(seconds, 7_000_000);
            assert_eq!(Rfc3339(time).to_string(), expected);
        }
    }

    /// Counts days up from 1970, through all leap years of the calendar's cycle of 400 years.
    #[test]
    fn every_day_follows_the_day_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..DAYS_UNTIL_2405 {
            assert_eq!(date(days), (year, month, day), "{days}");
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (month, day) if day == last => (year, month + 1, 1),
                (month, day) => (year, month, day + 1),
            };
        }
        assert_eq!(year, 2405);
    }

    const DAYS_UNTIL_2405: u64 = 158_881;
}
