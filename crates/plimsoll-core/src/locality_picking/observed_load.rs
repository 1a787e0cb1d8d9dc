//! What a proxy's own requests tell about the load of a locality: the signal of `OBSERVED_LOAD`
//! (decision 0016).
//!
//! A proxy does not see what others send. What it sees of their requests is that its own have to
//! wait: the time from issuing a request until the headers of its response. By Little's law that
//! is also *requests in flight ÷ issue rate*, so in-flight, rate and latency are three views of
//! one number, and each has a use:
//!
//! * The **latency** of answered requests is the precise one: every answer counts.
//! * Requests **in flight** tell of those that are *not* answered. A locality whose hosts hang
//!   shows no latency at all, but its requests pile up; the pile ÷ the issue rate is how long they
//!   take at least. It counts when it is more than chance.
//! * The **issue rate** says how old a mean is that needs so many requests, which the controller
//!   must know (see `convergent`).
//!
//! Counting in-flight requests as such would compare what this proxy *sends* to each locality and
//! spread its traffic over all of them (decisions D1 in another dress).
//!
//! Streams whose headers come with their first message wait for long without anything being slow.
//! As latency they weigh little, because times are averaged as logarithms; in flight they are a
//! floor that does not move, and only what stands above the floor counts.

use crate::host::Window;

/// The memory of a mean: at least so many requests, or it is mostly chance; and at least those of
/// so many seconds, or a busy proxy follows noise that it could have averaged.
const MEMORY_REQUESTS: f64 = 1_000.0;
const MEMORY_SECONDS: f64 = 10.0;
/// Requests that must have been answered before a locality is spoken of.
const KNOWN_REQUESTS: f64 = 100.0;
/// How fast the floor of requests in flight follows those that stay.
const FLOOR_SECONDS: f64 = 60.0;
/// How fast the issue rate follows.
const RATE_SECONDS: f64 = 5.0;
/// A pile counts when it is so many standard deviations above nothing.
const DEVIATIONS: f64 = 3.0;

/// What is known of one locality.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    /// Mean of log2 of the nanoseconds until response headers.
    mean: f64,
    /// Answers behind it, as far as they are remembered.
    seen: f64,
    /// Mean age of what it is made of, seconds.
    age: f64,
    /// Requests issued per second; `None` before the first window.
    rate: Option<f64>,
    /// Requests that wait for headers all the time.
    floor: f64,
    /// How long requests in flight have been taking at least, log2 of nanoseconds.
    pile: f64,
}

impl Estimate {
    /// The next window, of so many seconds.
    #[expect(clippy::cast_precision_loss, reason = "requests of a window")]
    pub(crate) fn observe(&mut self, window: &Window, seconds: f64) {
        self.observe_in_flight(window, seconds);
        if window.answered == 0 {
            self.age += seconds;
            return;
        }
        let answered = window.answered as f64;
        let memory = (answered * MEMORY_SECONDS / seconds).max(MEMORY_REQUESTS);
        let alpha = answered / (answered + self.seen.min(memory));
        self.mean += alpha * (window.log_sum / answered - self.mean);
        self.age = (1.0 - alpha) * (self.age + seconds) + alpha * seconds / 2.0;
        self.seen = (self.seen + answered).min(memory);
    }

    #[expect(clippy::cast_precision_loss, reason = "requests of a window")]
    fn observe_in_flight(&mut self, window: &Window, seconds: f64) {
        let (waiting, now) = (window.waiting as f64, window.issued as f64 / seconds);
        let part = |time_constant: f64| 1.0 - (-seconds / time_constant).exp();
        let rate = self.rate.unwrap_or(now);
        let rate = rate + part(RATE_SECONDS) * (now - rate);
        // The first window has nothing to compare with: whatever waits may have waited for long.
        let floor = self.rate.map_or(waiting, |_| self.floor);
        self.floor = waiting.min(floor + part(FLOOR_SECONDS) * (waiting - floor).max(0.0));
        self.rate = Some(rate);
        let above = waiting - self.floor;
        let certain = above - DEVIATIONS * above.sqrt();
        self.pile = if certain > 0.0 && rate > 0.0 {
            (certain / rate * 1e9).max(1.0).log2()
        } else {
            0.0
        };
    }

    /// log2 of the nanoseconds that a request takes; `None` until enough have been answered.
    pub(crate) fn response_time(&self) -> Option<f64> {
        (self.seen >= KNOWN_REQUESTS).then(|| self.mean.max(self.pile))
    }

    /// Mean age of the response time, seconds. A pile is of now.
    pub(crate) const fn age(&self) -> f64 {
        if self.pile > self.mean { 0.0 } else { self.age }
    }
}

/// Loads of localities, relative to that of the quickest, which is 1; `None` of one of which too
/// little is known. A response time twice as long is one more: next to level, where a small
/// difference says much, load moves more than the response time does, and far from it, where queues
/// grow without bound, much less. The controller corrects in proportion and would overshoot there.
pub(crate) fn relative_loads(estimates: &[Estimate]) -> Vec<Option<f64>> {
    let times = || estimates.iter().map(Estimate::response_time);
    let least = times().flatten().reduce(f64::min).unwrap_or(0.0);
    let load = |time: f64| 1.0 + (time - least);
    times().map(|time| time.map(load)).collect()
}

#[cfg(test)]
mod tests;
