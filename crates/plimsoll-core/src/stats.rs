//! Counters with Envoy's names, and their export.
//!
//! [`PickerStats`] are incremented by one worker and read by any thread: each counter has a single
//! writer, so an increment is a plain load and store, never a locked instruction. [`BalancerStats`]
//! belong to the writer of a cluster. Drivers declare their own with the
//! [`counters!`](crate::counters) macro, gather everything in [`Families`] and export that.

mod families;
mod metric;

pub use families::{Families, Family, Series, TextFormat, Value};
pub use metric::{Counter, Metric, MetricKind, MetricValue, Sample, SharedCounter, add_samples};

use crate::counters;

counters! {
    /// Per-request counters of one worker.
    pub struct PickerStats("", ["cluster"]): Counter {
        /// Picks from all hosts because the priority is in panic, and picks refused in panic.
        lb_healthy_panic,
        /// Picks without zone-aware routing because the fleet itself is in panic.
        lb_local_cluster_not_ok,
        /// Spilled picks when no zone had spare capacity.
        lb_zone_no_capacity_left,
        /// Picks kept local because all traffic is (`LocalityDirect`).
        lb_zone_routing_all_directly,
        /// Picks that spill to another zone (`LocalityResidual`).
        lb_zone_routing_cross_zone,
        /// Picks kept local by the split (`LocalityResidual`).
        lb_zone_routing_sampled,
        /// Picks for which a subset matched, even if it then gave no host.
        lb_subsets_selected,
        /// Picks served by the fallback policy of the cluster because no subset matched.
        lb_subsets_fallback,
        /// Picks served by `panic_mode_any` because the fallback had no host.
        lb_subsets_fallback_panic,
        /// Requests dropped by `drop_overloads` of the assignment.
        drop_overload,
        /// Picks that found no host.
        upstream_cx_none_healthy,
    }
}

counters! {
    /// Counters of a cluster's balancer.
    pub struct BalancerStats("", ["cluster"]): Counter {
        /// Regenerations of zone-aware routing.
        lb_recalculate_zone_structures,
        /// Regenerations that found no fleet host in the local locality.
        lb_local_cluster_not_ok,
        /// Regenerations that found fewer healthy hosts than `min_cluster_size`.
        lb_zone_cluster_too_small,
        /// Times that measured fractions became stale.
        lrs_fractions_stale,
        /// Updates that carried measured fractions.
        lrs_fractions_received,
        /// Regenerations in which a zone of the fleet had no fraction.
        lrs_fractions_partial,
        /// Regenerations in which all fractions were 0, which counts as no data.
        lrs_fractions_all_zero,
        /// Subsets that got their first host.
        lb_subsets_created,
        /// Subsets that lost their last host.
        lb_subsets_removed,
        /// Number of routing snapshots built.
        snapshots_built,
    }
}

counters! {
    /// Counters of the load_aware_locality policy.
    pub struct LoadAwareStats("load_aware_locality.", ["cluster"]): Counter {
        /// Recomputations of locality weights.
        recompute_total,
        /// Recomputations in which no locality had headroom.
        all_overloaded_total,
        /// Recomputations that preferred the own locality: its load was within the threshold or,
        /// with `CONVERGENT`, nothing spilled.
        local_preferred_total,
        /// Recomputations in which the probe floor took effect.
        probe_active_total,
        /// Recomputations in which the local locality spilled.
        spill_active_total,
        /// Localities, per recomputation, whose reports had all expired.
        stale_locality_total,
    }
}

counters! {
    /// Counters of outlier detection.
    pub struct OutlierStats("outlier_detection.", ["cluster"]): Counter {
        /// Hosts ejected for any reason.
        ejections_enforced_total,
        /// Outliers not ejected because of `max_ejection_percent`.
        ejections_overflow,
        /// Outliers by success rate, ejected or not.
        ejections_detected_success_rate,
        /// Hosts ejected for their success rate.
        ejections_enforced_success_rate,
        /// Outliers by failure percentage, ejected or not.
        ejections_detected_failure_percentage,
        /// Hosts ejected for their failure percentage.
        ejections_enforced_failure_percentage,
        /// Outliers by consecutive errors, ejected or not.
        ejections_detected_consecutive_5xx,
        /// Hosts ejected for consecutive errors.
        ejections_enforced_consecutive_5xx,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_envoys_names() {
        let stats = PickerStats::default();
        stats.lb_zone_routing_sampled.increment();
        stats.lb_zone_routing_sampled.increment();
        let listed: Vec<_> = stats.iter().filter(|&(_, value)| value > 0).collect();
        assert_eq!(listed, [("lb_zone_routing_sampled", 2)]);
        assert_eq!(BalancerStats::default().iter().count(), 10);
    }
}
