//! Priority load: which share of the traffic each priority gets, which priorities are in panic, and
//! which one a draw selects (envoy-semantics §1.3–1.5).
//!
//! Integer arithmetic exactly as in Envoy. State is kept between updates because Envoy keeps it: if
//! nothing at all is available, the loads stay as they were.

use crate::counts::HostSetCounts;

/// Class of hosts that a priority was chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    Healthy,
    Degraded,
}

/// Settings of the assignment that determine the health of a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityHealthPolicy {
    /// The assignment's overprovisioning factor in percent, above 0.
    pub overprovisioning_factor: u32,
    pub weighted_priority_health: bool,
}

/// Loads and panic flags, one entry per priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityLoads {
    health: Vec<u32>,
    degraded_availability: Vec<u32>,
    healthy_load: Vec<u32>,
    degraded_load: Vec<u32>,
    panic: Vec<bool>,
}

impl PriorityLoads {
    /// Sets the health of `priority` from its host set. [`Self::recalculate`] must follow, once for
    /// all priorities of an update (Envoy batches the same way).
    pub fn set_health(
        &mut self,
        priority: usize,
        set: &HostSetCounts,
        policy: PriorityHealthPolicy,
    ) {
        if self.health.len() <= priority {
            self.resize(priority + 1);
        }
        let (health, degraded) = score(set, policy);
        self.health[priority] = health;
        self.degraded_availability[priority] = degraded;
    }

    /// Recomputes loads and panic flags; `sets` are the host sets of all priorities.
    pub fn recalculate<'a>(
        &mut self,
        sets: impl ExactSizeIterator<Item = &'a HostSetCounts> + Clone,
        panic_threshold: u32,
    ) {
        self.resize(sets.len().max(self.health.len()));
        let scores = self.health.iter().chain(&self.degraded_availability);
        let available = scores.sum::<u32>().min(100);
        if available > 0 {
            self.distribute(available);
        }
        self.recalculate_panic(sets, panic_threshold, available);
    }

    /// Selects priority and availability for `hash` (§1.5).
    #[inline]
    pub fn choose(&self, hash: u64) -> (usize, Availability) {
        choose_priority(hash, &self.healthy_load, &self.degraded_load)
    }

    getters! {
        /// Returns the percentage of traffic to the healthy hosts of each priority.
        healthy_load: &[u32],
        /// Returns the percentage of traffic to the degraded hosts of each priority.
        degraded_load: &[u32],
        /// Returns which priorities are in panic.
        panic: &[bool],
        /// Returns the health score of each priority, 0 to 100.
        health: &[u32],
        /// Returns the degraded score of each priority, 0 to 100.
        degraded_availability: &[u32],
    }

    fn resize(&mut self, len: usize) {
        for loads in [
            &mut self.health,
            &mut self.degraded_availability,
            &mut self.healthy_load,
            &mut self.degraded_load,
        ] {
            loads.resize(len, 0);
        }
        self.panic.resize(len, false);
    }

    /// Distributes 100 percent: healthy load of every priority first, then degraded load, and the
    /// whole rounding remainder to the first priority that has any health.
    fn distribute(&mut self, available: u32) {
        let mut left = 100;
        let shares = [
            (&self.health, &mut self.healthy_load),
            (&self.degraded_availability, &mut self.degraded_load),
        ];
        for (scores, loads) in shares {
            for (score, load) in scores.iter().zip(loads) {
                *load = left.min(score * 100 / available);
                left -= *load;
            }
        }
        if let Some(first) = self.health.iter().position(|&health| health > 0) {
            self.healthy_load[first] += left;
        } else if let Some(first) = self.degraded_availability.iter().position(|&d| d > 0) {
            self.degraded_load[first] += left;
        }
        let total: u32 = self.healthy_load.iter().chain(&self.degraded_load).sum();
        assert_eq!(
            total, 100,
            "priority loads sum to 100: otherwise traffic would be misrouted"
        );
    }

    fn recalculate_panic<'a>(
        &mut self,
        sets: impl Iterator<Item = &'a HostSetCounts> + Clone,
        threshold: u32,
        available: u32,
    ) {
        if threshold == 0 && available == 0 {
            if let Some(first) = self.healthy_load.first_mut() {
                *first = 100;
            }
            return;
        }
        let mut total_hosts = 0;
        for (panic, set) in self.panic.iter_mut().zip(sets.clone()) {
            *panic = available < 100 && set.flat.in_panic(threshold);
            total_hosts += set.flat.all;
        }
        if self.panic.iter().all(|&panic| panic) {
            self.spread_by_host_count(sets, total_hosts);
        }
    }

    /// Total panic: loads every priority in proportion to all its hosts.
    fn spread_by_host_count<'a>(
        &mut self,
        sets: impl Iterator<Item = &'a HostSetCounts>,
        total_hosts: u64,
    ) {
        if total_hosts == 0 {
            if let Some(first) = self.healthy_load.first_mut() {
                *first = 100;
            }
            return;
        }
        let mut left = 100;
        let mut first_non_empty = None;
        for (priority, set) in sets.enumerate() {
            let load = u32::try_from(100 * set.flat.all / total_hosts).unwrap_or(100);
            self.healthy_load[priority] = load;
            self.degraded_load[priority] = 0;
            left -= load;
            if first_non_empty.is_none() && set.flat.all > 0 {
                first_non_empty = Some(priority);
            }
        }
        if let Some(first) = first_non_empty {
            self.healthy_load[first] += left;
        }
    }
}

/// Selects a priority for `hash` from two lists of percentages (§1.5).
#[inline]
pub fn choose_priority(
    hash: u64,
    healthy_load: &[u32],
    degraded_load: &[u32],
) -> (usize, Availability) {
    let draw = (hash % 100) as u32 + 1;
    let mut accumulated = 0;
    for (loads, availability) in [
        (healthy_load, Availability::Healthy),
        (degraded_load, Availability::Degraded),
    ] {
        for (priority, load) in loads.iter().enumerate() {
            accumulated += load;
            if draw <= accumulated {
                return (priority, availability);
            }
        }
    }
    (0, Availability::Healthy)
}

/// Returns the health and degraded scores of one host set, 0 to 100.
fn score(set: &HostSetCounts, policy: PriorityHealthPolicy) -> (u32, u32) {
    if set.flat.considered() == 0 {
        return (0, 0);
    }
    let counts = if policy.weighted_priority_health {
        &set.weights
    } else {
        &set.flat
    };
    let total = counts.considered();
    if total == 0 {
        return (0, 0);
    }
    let scaled = |count: u64| {
        let score =
            u128::from(policy.overprovisioning_factor) * u128::from(count) / u128::from(total);
        u32::try_from(score).map_or(100, |score| score.min(100))
    };
    (scaled(counts.healthy), scaled(counts.degraded))
}

#[cfg(test)]
mod tests;
