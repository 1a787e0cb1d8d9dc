//! [`Series`]: values of one zone or cluster during an hour, in a fixed number of bytes.
//!
//! Two rings of slots: 5 s each for the last quarter of an hour, 30 s each for the last hour. A
//! slot is found from the time, so that series need no timestamps and can be compared by index.
//! Values of the same slot are averaged. Fractions are stored as 16-bit integers, rates as `f32`:
//! 16 bytes for a slot instead of 64.

/// Time that the history reaches back.
pub(super) const HORIZON_MS: u64 = 3_600_000;
/// Width of the slots of the last quarter of an hour.
pub(super) const FINE_STEP_MS: u64 = 5_000;
/// Time that the fine slots reach back.
pub(super) const FINE_HORIZON_MS: u64 = 900_000;
/// Width of the slots of the last hour.
pub(super) const COARSE_STEP_MS: u64 = 30_000;

/// Slots of a ring: one more than its horizon has, because the newest one is incomplete.
#[expect(clippy::cast_possible_truncation, reason = "small constants")]
const fn slots(horizon_ms: u64, step_ms: u64) -> usize {
    (horizon_ms / step_ms) as usize + 1
}

/// Marks an unknown fraction or number.
const UNKNOWN: u16 = u16::MAX;
/// Loads are kept as thousandths, up to 65 times the load line.
const LOAD_UNIT: f64 = 1_000.0;
/// Shares from 0 to 1 are kept as ten-thousandths.
const SHARE_UNIT: f64 = 10_000.0;

/// Values of one zone or cluster at one time; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    /// Load relative to the load line; of a cluster, that of its busiest zone.
    pub(super) load: Option<f64>,
    pub(super) kept_local: Option<f64>,
    pub(super) healthy_hosts: Option<u64>,
    pub(super) hosts: Option<u64>,
    /// Requests per second that arrive.
    pub(super) demand: Option<f64>,
    /// Requests per second that a zone serves, or that a cluster sends between zones.
    pub(super) traffic: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    load: u16,
    kept_local: u16,
    healthy_hosts: u16,
    hosts: u16,
    demand: f32,
    traffic: f32,
}

const EMPTY: Slot = Slot {
    load: UNKNOWN,
    kept_local: UNKNOWN,
    healthy_hosts: UNKNOWN,
    hosts: UNKNOWN,
    demand: f32::NAN,
    traffic: f32::NAN,
};

/// Values of one zone or cluster.
#[derive(Debug)]
pub(super) struct Series {
    fine: Ring,
    coarse: Ring,
    last_unix_ms: u64,
}

#[derive(Debug)]
struct Ring {
    step_ms: u64,
    /// Number of the newest slot since 1970.
    newest: u64,
    /// Points in the newest slot.
    points: u32,
    slots: Box<[Slot]>,
}

impl Series {
    /// Memory of a series, with an allowance for its place in maps and its names.
    pub(super) const BYTES: usize = (slots(FINE_HORIZON_MS, FINE_STEP_MS)
        + slots(HORIZON_MS, COARSE_STEP_MS))
        * size_of::<Slot>()
        + size_of::<Self>()
        + 256;

    pub(super) fn new() -> Self {
        Self {
            fine: Ring::new(FINE_STEP_MS, slots(FINE_HORIZON_MS, FINE_STEP_MS)),
            coarse: Ring::new(COARSE_STEP_MS, slots(HORIZON_MS, COARSE_STEP_MS)),
            last_unix_ms: 0,
        }
    }

    pub(super) const fn last_unix_ms(&self) -> u64 {
        self.last_unix_ms
    }

    /// Adds the values of a time, which must not be before those already added.
    pub(super) fn put(&mut self, unix_ms: u64, point: Point) {
        self.last_unix_ms = unix_ms;
        self.fine.put(unix_ms, point);
        self.coarse.put(unix_ms, point);
    }

    /// Returns the mean of the values from a time on, during `width_ms`. Uses the fine slots if
    /// they reach back that far from the time `now`.
    pub(super) fn mean(&self, from_unix_ms: u64, width_ms: u64, now: u64) -> Point {
        let ring = if from_unix_ms + FINE_HORIZON_MS >= now {
            &self.fine
        } else {
            &self.coarse
        };
        ring.mean(from_unix_ms, width_ms)
    }
}

impl Ring {
    fn new(step_ms: u64, slots: usize) -> Self {
        Self {
            step_ms,
            newest: 0,
            points: 0,
            slots: vec![EMPTY; slots].into_boxed_slice(),
        }
    }

    fn put(&mut self, unix_ms: u64, point: Point) {
        let number = unix_ms / self.step_ms;
        if number < self.newest {
            return;
        }
        let len = self.slots.len() as u64;
        if number > self.newest {
            // Slots between the last point and this one have no values.
            for skipped in (self.newest + 1).max(number.saturating_sub(len - 1))..=number {
                let at = self.at(skipped);
                self.slots[at] = EMPTY;
            }
            self.newest = number;
            self.points = 0;
        }
        self.points = self.points.saturating_add(1);
        let at = self.at(number);
        let before = self.slots[at].decode();
        self.slots[at] = Slot::encode(before.towards(point, self.points));
    }

    fn mean(&self, from_unix_ms: u64, width_ms: u64) -> Point {
        let first = from_unix_ms / self.step_ms;
        let last = (from_unix_ms + width_ms - 1) / self.step_ms;
        let oldest = (self.newest + 1).saturating_sub(self.slots.len() as u64);
        let mut mean = Point::default();
        let mut points = 0;
        for number in first.max(oldest)..=last.min(self.newest) {
            points += 1;
            mean = mean.towards(self.slots[self.at(number)].decode(), points);
        }
        mean
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than the length")]
    fn at(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }
}

impl Point {
    /// Returns the mean of this point, the mean of `points - 1` values, and another one. Unknown
    /// values do not count.
    fn towards(self, other: Self, points: u32) -> Self {
        let mean = |before: Option<f64>, value: Option<f64>| match (before, value) {
            (Some(before), Some(value)) => Some(before + (value - before) / f64::from(points)),
            (before, value) => value.or(before),
        };
        Self {
            load: mean(self.load, other.load),
            kept_local: mean(self.kept_local, other.kept_local),
            // Hosts do not have a mean: the newest number counts.
            healthy_hosts: other.healthy_hosts.or(self.healthy_hosts),
            hosts: other.hosts.or(self.hosts),
            demand: mean(self.demand, other.demand),
            traffic: mean(self.traffic, other.traffic),
        }
    }
}

impl Slot {
    #[expect(clippy::cast_possible_truncation, reason = "precision of a picture")]
    fn encode(point: Point) -> Self {
        let whole = |number: Option<u64>| {
            number.map_or(UNKNOWN, |number| {
                u16::try_from(number).unwrap_or(UNKNOWN).min(UNKNOWN - 1)
            })
        };
        let rate = |rate: Option<f64>| rate.map_or(f32::NAN, |rate| rate as f32);
        Self {
            load: scaled(point.load, LOAD_UNIT),
            kept_local: scaled(point.kept_local, SHARE_UNIT),
            healthy_hosts: whole(point.healthy_hosts),
            hosts: whole(point.hosts),
            demand: rate(point.demand),
            traffic: rate(point.traffic),
        }
    }

    fn decode(self) -> Point {
        let known = |number: u16| Some(number).filter(|number| *number != UNKNOWN);
        let fraction = |number, unit: f64| known(number).map(|number| f64::from(number) / unit);
        let rate = |rate: f32| Some(f64::from(rate)).filter(|rate| !rate.is_nan());
        Point {
            load: fraction(self.load, LOAD_UNIT),
            kept_local: fraction(self.kept_local, SHARE_UNIT),
            healthy_hosts: known(self.healthy_hosts).map(u64::from),
            hosts: known(self.hosts).map(u64::from),
            demand: rate(self.demand),
            traffic: rate(self.traffic),
        }
    }
}

/// Returns a fraction as a whole number of units, limited to what 16 bits hold.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limited before"
)]
fn scaled(fraction: Option<f64>, unit: f64) -> u16 {
    let limit = f64::from(UNKNOWN - 1);
    fraction
        .filter(|fraction| fraction.is_finite())
        .map_or(UNKNOWN, |fraction| {
            (fraction * unit).round().clamp(0.0, limit) as u16
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(load: f64) -> Point {
        Point {
            load: Some(load),
            ..Point::default()
        }
    }

    /// A time that is a multiple of both steps.
    const START: u64 = 1_800_000_000_000 / COARSE_STEP_MS * COARSE_STEP_MS;

    #[test]
    fn a_point_survives_encoding() {
        let point = Point {
            load: Some(1.234),
            kept_local: Some(0.9876),
            healthy_hosts: Some(7),
            hosts: Some(100_000),
            demand: Some(12.5),
            traffic: None,
        };
        let read = Slot::encode(point).decode();
        let hosts = Some(u64::from(UNKNOWN - 1));
        assert_eq!(read, Point { hosts, ..point });
        assert_eq!(Slot::encode(Point::default()).decode(), Point::default());
        assert_eq!(Slot::encode(load(1e9)).decode().load, Some(65.534));
        assert_eq!(Slot::encode(load(f64::NAN)).decode().load, None);
        assert_eq!(size_of::<Slot>(), 16);
    }

    #[test]
    fn points_of_a_slot_are_averaged() {
        let mut series = Series::new();
        for (ms, value) in [(0, 1.0), (1000, 2.0), (4999, 3.0), (5000, 8.0)] {
            series.put(START + ms, load(value));
        }
        let now = START + 5000;
        assert_eq!(series.mean(START, 5000, now).load, Some(2.0));
        assert_eq!(series.mean(START + 5000, 5000, now).load, Some(8.0));
        assert_eq!(series.mean(START, 10_000, now).load, Some(5.0));
        assert_eq!(series.mean(START + 10_000, 5000, now), Point::default());
        assert_eq!(series.mean(START - 5000, 5000, now), Point::default());
    }

    #[test]
    fn fine_slots_reach_back_a_quarter_and_coarse_ones_an_hour() {
        let mut series = Series::new();
        let count = 2 * HORIZON_MS / FINE_STEP_MS;
        for index in 0..count {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            series.put(START + index * FINE_STEP_MS, load(index as f64 / 100.0));
        }
        let now = START + (count - 1) * FINE_STEP_MS;
        let at = |ms: u64, width: u64| series.mean(now - ms, width, now).load;
        // The last of 1,440 points has 14.39.
        assert_eq!(at(0, FINE_STEP_MS), Some(14.39));
        assert_eq!(at(FINE_HORIZON_MS, FINE_STEP_MS), Some(12.59));
        let hour = (now - HORIZON_MS).next_multiple_of(COARSE_STEP_MS);
        let mean = series.mean(hour, COARSE_STEP_MS, now).load;
        assert!(
            mean.is_some_and(|mean| (7.1..7.3).contains(&mean)),
            "{mean:?}"
        );
        assert_eq!(at(HORIZON_MS + 2 * COARSE_STEP_MS, COARSE_STEP_MS), None);
    }

    #[test]
    fn a_gap_stays_empty() {
        let mut series = Series::new();
        series.put(START, load(1.0));
        series.put(START + 2 * HORIZON_MS, load(2.0));
        let now = START + 2 * HORIZON_MS;
        let middle = now - FINE_HORIZON_MS / 2;
        assert_eq!(series.mean(middle, FINE_STEP_MS, now), Point::default());
        assert_eq!(series.mean(now, FINE_STEP_MS, now).load, Some(2.0));
    }
}
