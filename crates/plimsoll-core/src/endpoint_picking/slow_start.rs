//! Slow start: the share of its weight that a new host gets (envoy-semantics §8.2).
//!
//! Only the formula is here. The balancer evaluates it on a tick and stores the factor in the host,
//! so that a pick reads no clock (docs/decisions/0006).

use std::time::Duration;

/// Returns the factor for a host that has been healthy for `elapsed`; 1 from the end of the window
/// on. An aggression that is not positive counts as 1.
pub fn factor(
    elapsed: Duration,
    window: Duration,
    aggression: f64,
    min_weight_percent: f64,
) -> f64 {
    if elapsed >= window {
        return 1.0;
    }
    let aggression = if aggression > 0.0 { aggression } else { 1.0 };
    // At least a millisecond, so that a new host has some weight even without a minimum.
    let elapsed = elapsed.max(Duration::from_millis(1));
    let progress = millis(elapsed) / millis(window);
    let ramp = if aggression == 1.0 {
        progress
    } else {
        progress.powf(1.0 / aggression)
    };
    ramp.max(min_weight_percent / 100.0).min(1.0)
}

/// Returns whole milliseconds, as Envoy measures.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of a window")]
fn millis(duration: Duration) -> f64 {
    duration.as_millis().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    #[test]
    fn the_ramp_is_linear_by_default_and_ends_with_the_window() {
        assert_eq!(factor(Duration::from_secs(12), WINDOW, 1.0, 10.0), 0.2);
        assert_eq!(factor(WINDOW, WINDOW, 1.0, 10.0), 1.0);
        assert_eq!(factor(Duration::from_secs(99), WINDOW, 1.0, 10.0), 1.0);
    }

    #[test]
    fn the_floor_and_the_first_millisecond_hold() {
        assert_eq!(factor(Duration::ZERO, WINDOW, 1.0, 10.0), 0.1);
        assert_eq!(factor(Duration::ZERO, WINDOW, 1.0, 0.0), 1.0 / 60_000.0);
        assert_eq!(
            factor(Duration::from_nanos(1), Duration::from_micros(5), 1.0, 0.0),
            1.0
        );
    }

    #[test]
    fn aggression_bends_the_ramp() {
        let bent = factor(Duration::from_secs(6), WINDOW, 2.0, 10.0);
        assert!((bent - 0.1_f64.sqrt()).abs() < 1e-12);
        for nonsense in [0.0, -3.0, f64::NAN] {
            assert_eq!(factor(Duration::from_secs(30), WINDOW, nonsense, 10.0), 0.5);
        }
    }
}
