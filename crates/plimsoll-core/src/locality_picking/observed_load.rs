//! Load estimates from a proxy's own requests: the signal of `OBSERVED_LOAD` (decision 0016).
//!
//! A proxy does not see what other proxies send. It sees their effect, because its own requests
//! have to wait: the time from issuing a request until the headers of its response. By Little's law
//! that is also *requests in flight ÷ issue rate*, so in-flight, rate and latency are three views
//! of one number, and each has a use:
//!
//! * The **latency** of answered requests is the precise one: every answer counts.
//! * Requests **in flight** tell of those that are *not* answered. A locality whose hosts hang
//!   shows no latency at all, but its requests pile up; the backlog ÷ the issue rate is how long
//!   they take at least. A backlog counts when it is more than chance.
//! * The **issue rate** tells how old a mean over many requests is, which the controller
//!   must know (see `convergent`).
//!
//! Counting in-flight requests as such would compare what this proxy *sends* to each locality and
//! spread its traffic over all of them (the mistake that decision 0022 avoids).
//!
//! Streams whose headers come with their first message wait for a long time without anything being
//! slow. As latency they weigh little, because times are averaged as logarithms; in flight they
//! form a constant floor, and only requests above the floor count.
//!
//! A locality that answers nothing while nothing waits gets no requests: the proxy is idle. Its
//! estimate then ages and the controller holds its share; it is not forgotten at once, because no
//! requests follow it.

use crate::host::Window;

/// Window of a mean: at least this many requests, because fewer are mostly noise, and at least the
/// requests of this many seconds, because a busy proxy would follow noise that it could average.
const MEMORY_REQUESTS: f64 = 1_000.0;
const MEMORY_SECONDS: f64 = 10.0;
/// Responses needed before a locality has an estimate.
const KNOWN_REQUESTS: f64 = 100.0;
/// After this time without responses, the mean of the earlier ones counts as few: what it says is
/// history, and new responses soon outweigh it.
const FORGOTTEN_SECONDS: f64 = 60.0;
/// Time constant with which the floor of requests in flight follows long-lived requests.
const FLOOR_SECONDS: f64 = 60.0;
const RATE_SECONDS: f64 = 5.0;
/// A backlog counts if it is at least this many standard deviations above zero.
const DEVIATIONS: f64 = 3.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    /// Mean of log2 of the nanoseconds until response headers.
    mean: f64,
    /// Number of responses that `mean` is based on, at most those of the window.
    seen: f64,
    /// Mean age of the responses that `mean` is based on, in seconds.
    age: f64,
    /// Seconds since the last response.
    quiet: f64,
    /// Requests issued per second; `None` before the first window.
    rate: Option<f64>,
    /// Number of requests that wait for response headers all the time, such as streams.
    floor: f64,
    /// Lower bound of the time that requests in flight take, log2 of nanoseconds.
    backlog: f64,
}

impl Estimate {
    #[expect(clippy::cast_precision_loss, reason = "requests of a window")]
    pub(crate) fn observe(&mut self, window: &Window, seconds: f64) {
        self.observe_in_flight(window, seconds);
        if window.answered == 0 {
            self.age += seconds;
            self.quiet += seconds;
            return;
        }
        if self.quiet > FORGOTTEN_SECONDS {
            self.seen = self.seen.min(KNOWN_REQUESTS);
        }
        self.quiet = 0.0;
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
        // The first window has nothing to compare with: requests in flight may be long-lived.
        let floor = self.rate.map_or(waiting, |_| self.floor);
        self.floor = waiting.min(floor + part(FLOOR_SECONDS) * (waiting - floor).max(0.0));
        self.rate = Some(rate);
        let above = waiting - self.floor;
        let certain = above - DEVIATIONS * above.sqrt();
        self.backlog = if certain > 0.0 && rate > 0.0 {
            (certain / rate * 1e9).max(1.0).log2()
        } else {
            0.0
        };
    }

    /// log2 of the nanoseconds that a request takes; `None` until there are enough responses.
    pub(crate) fn response_time(&self) -> Option<f64> {
        (self.seen >= KNOWN_REQUESTS).then(|| self.mean.max(self.backlog))
    }

    /// Returns the mean age of the response time, in seconds; 0 if it comes from the backlog.
    pub(crate) const fn age(&self) -> f64 {
        if self.backlog > self.mean {
            0.0
        } else {
            self.age
        }
    }

    /// Returns the seconds without news; a backlog is news at any time.
    pub(crate) const fn quiet(&self) -> f64 {
        if self.backlog > self.mean {
            0.0
        } else {
            self.quiet
        }
    }
}

/// Returns the loads of localities relative to the fastest, which has load 1; `None` for localities
/// without an estimate. Each doubling of the response time adds one. Thus, near balance, where
/// small differences are significant, load changes more than the response time does, and far from
/// balance, where queues grow without bound, much less: the controller corrects in proportion and
/// would overshoot there.
pub(crate) fn relative_loads(estimates: &[Estimate]) -> Vec<Option<f64>> {
    let times = || estimates.iter().map(Estimate::response_time);
    let least = times().flatten().reduce(f64::min).unwrap_or(0.0);
    let load = |time: f64| 1.0 + (time - least);
    times().map(|time| time.map(load)).collect()
}

#[cfg(test)]
mod tests;
