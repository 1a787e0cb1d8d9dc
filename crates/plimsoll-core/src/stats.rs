//! Counters, with Envoy's names.
//!
//! [`PickerStats`] are bumped by one worker and read by anybody: each counter has a single writer,
//! so it is a plain load and store, never a locked instruction. [`BalancerStats`] belong to the
//! writer of a cluster. Exporting them is the driver's business.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer and any number of readers.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only the owner may call this; two writers would lose counts (never memory safety).
    #[inline]
    pub fn increment(&self) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($(#[$doc:meta])* $type:ident { $($(#[doc = $about:literal])+ $field:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $type {
            $($(#[doc = $about])+ pub $field: Counter,)+
        }

        impl $type {
            /// Name of every counter and what it counts, in the same order.
            pub const DESCRIPTIONS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($about),+).trim_ascii())),+];

            /// Name and value of every counter, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field.get())),+].into_iter()
            }
        }
    };
}

counters! {
    /// Per-request counters of one worker.
    PickerStats {
        /// Picks from all hosts because the priority is in panic, and picks refused in panic.
        lb_healthy_panic,
        /// Picks without zone-aware routing because the fleet itself is in panic.
        lb_local_cluster_not_ok,
        /// Spilled picks when no zone had spare capacity.
        lb_zone_no_capacity_left,
        /// Picks kept local because everything is (`LocalityDirect`).
        lb_zone_routing_all_directly,
        /// Picks that spill (`LocalityResidual`).
        lb_zone_routing_cross_zone,
        /// Picks kept local by the split (`LocalityResidual`).
        lb_zone_routing_sampled,
        /// Picks for which a subset matched, even if it then gave no host.
        lb_subsets_selected,
        /// Picks that the fallback policy of the cluster served, for want of a subset.
        lb_subsets_fallback,
        /// Picks that `panic_mode_any` served, because the fallback had no host.
        lb_subsets_fallback_panic,
        /// Requests dropped by order of the assignment.
        drop_overload,
        /// Picks that found no host.
        upstream_cx_none_healthy,
    }
}

counters! {
    /// Counters of a cluster's writer.
    BalancerStats {
        /// Regenerations of zone-aware routing.
        lb_recalculate_zone_structures,
        /// Regenerations that found no fleet host in the own locality.
        lb_local_cluster_not_ok,
        /// Regenerations that found fewer healthy hosts than `min_cluster_size`.
        lb_zone_cluster_too_small,
        /// Times measured fractions became too old.
        lrs_fractions_stale,
        /// Updates that carried measured fractions.
        lrs_fractions_received,
        /// Regenerations in which a zone of the fleet had no fraction.
        lrs_fractions_partial,
        /// Regenerations in which all fractions were 0, which is no data.
        lrs_fractions_all_zero,
        /// Subsets that got their first host.
        lb_subsets_created,
        /// Subsets that lost their last host.
        lb_subsets_removed,
        /// Routing snapshots built.
        snapshots_built,
    }
}

counters! {
    /// Counters of load_aware_locality, under `load_aware_locality.`.
    LoadAwareStats {
        /// Ticks.
        recompute_total,
        /// Ticks in which no locality had headroom.
        all_overloaded_total,
        /// Ticks in which the own locality was within the threshold.
        local_preferred_total,
        /// Ticks in which the probe floor took effect.
        probe_active_total,
        /// Ticks in which the own locality spilled.
        spill_active_total,
        /// Localities, per tick, whose reports were all too old.
        stale_locality_total,
    }
}

counters! {
    /// Counters of outlier detection, under `outlier_detection.`.
    OutlierStats {
        /// Hosts taken out.
        ejections_enforced_total,
        /// Outliers left in because of `max_ejection_percent`.
        ejections_overflow,
        /// Outliers by success rate, taken out or not.
        ejections_detected_success_rate,
        /// Hosts taken out for their success rate.
        ejections_enforced_success_rate,
        /// Outliers by failure percentage, taken out or not.
        ejections_detected_failure_percentage,
        /// Hosts taken out for their failure percentage.
        ejections_enforced_failure_percentage,
        /// Outliers by errors in a row, taken out or not.
        ejections_detected_consecutive_5xx,
        /// Hosts taken out for errors in a row.
        ejections_enforced_consecutive_5xx,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_listed_by_envoys_names() {
        let stats = PickerStats::default();
        stats.lb_zone_routing_sampled.increment();
        stats.lb_zone_routing_sampled.increment();
        let listed: Vec<_> = stats.iter().filter(|&(_, value)| value > 0).collect();
        assert_eq!(listed, [("lb_zone_routing_sampled", 2)]);
        assert_eq!(BalancerStats::default().iter().count(), 10);
    }
}
