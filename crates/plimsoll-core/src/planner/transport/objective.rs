//! [`Objective`]: how full zones may get before their requests go elsewhere.

use crate::units::FieldError;

/// Parts of utilization 1.
const WHOLE: u32 = 1_000_000;

/// What a service wants: zones that are equally full, or requests that stay in their zone until it
/// is full. The default is [`Objective::LEVEL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Objective {
    /// Target utilization in millionths.
    target: u32,
}

impl Objective {
    /// All zones are equally full: a target of 0.
    pub const LEVEL: Self = Self { target: 0 };

    /// Requests stay in their zone while its utilization is at most `target_utilization`, which is
    /// above 0 and at most 1. It is rounded to millionths.
    pub fn waterfall(target_utilization: f64) -> Result<Self, FieldError> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked below, and `as` saturates"
        )]
        let target = (target_utilization * f64::from(WHOLE)).round() as u32;
        if target_utilization <= 1.0 && target > 0 {
            return Ok(Self { target });
        }
        Err(FieldError::new(
            "target_utilization",
            format!("{target_utilization} is not above 0 and at most 1"),
        ))
    }

    /// Whether all zones shall be equally full.
    pub const fn is_level(self) -> bool {
        self.target == 0
    }

    /// Returns the target utilization, 0.0 to 1.0.
    pub fn target_utilization(self) -> f64 {
        f64::from(self.target) / f64::from(WHOLE)
    }

    /// Returns the least capacity that is at the target with this demand; `None` for
    /// [`Objective::LEVEL`].
    pub(in crate::planner) fn capacity_for(self, demand: u64) -> Option<u64> {
        if self.is_level() {
            return None;
        }
        let needed = (u128::from(demand) * u128::from(WHOLE)).div_ceil(u128::from(self.target));
        Some(u64::try_from(needed).unwrap_or(u64::MAX))
    }

    /// Returns the target utilization of a capacity, rounded down.
    pub(super) fn of(self, capacity: u64) -> u64 {
        let part = u128::from(capacity) * u128::from(self.target) / u128::from(WHOLE);
        u64::try_from(part).unwrap_or(capacity)
    }
}
