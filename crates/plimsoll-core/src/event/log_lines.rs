//! Log lines of [`Event`](super::Event)s, for all data planes, and
//! [`log_event!`](crate::log_event), with which they write them.
//!
//! Events that degrade routing (stale traffic fractions, a priority in panic mode) are warnings.

crate::log_lines! { pub:
    /// Measured fractions passed `staleness_threshold`. Host counts split traffic between zones,
    /// unless another origin has fresh fractions.
    FRACTIONS_STALE = Warn, "traffic fractions are stale; falling back to host counts \
        unless another origin is fresh",
        "Check the connection to the control plane and that proxies send load reports to it.";
    /// New fractions of demand arrived; the previous ones had passed `staleness_threshold`.
    FRACTIONS_RECOVERED = Info, "traffic fractions are fresh again", "";
    /// The endpoints of a cluster changed.
    MEMBERSHIP_CHANGED = Debug, "hosts changed", "";
    /// Fewer hosts of a priority are healthy than `healthy_panic_threshold` asks for. Requests go
    /// to all its hosts.
    PANIC_ENTERED = Warn, "priority entered panic mode; host health is ignored",
        "Find out why hosts fail their health checks or are ejected.";
    /// Enough hosts of a priority are healthy again.
    PANIC_LEFT = Info, "priority left panic mode", "";
    /// Subsets gained their first host or lost their last.
    SUBSETS_CHANGED = Debug, "subsets changed", "";
    /// Endpoint metadata makes more subsets than `max_subsets`. Requests for a subset that was
    /// left out use the fallback policy.
    SUBSET_LIMIT_REACHED = Warn,
        "subset limit reached; requests for further subsets use the fallback",
        "Raise `max_subsets`, or select by metadata with fewer values.";
    /// Zone-aware routing of a priority changed its state, for the `reason` given.
    ZONE_ROUTING_CHANGED = Info, "zone-aware routing changed state",
        "If it became inactive unexpectedly, look up `reason` in docs/explain.md.";
    /// Reports of a locality expired before newer ones arrived, so load_aware_locality weighs it by
    /// host count, or by measured demand if that is fed forward. Logged once per cluster.
    LOAD_REPORTS_EXPIRED = Warn, "load reports of a locality expired; weighing it by host count",
        "Check that the hosts still report. If they do, raise `remote_probe_fraction` or \
         `weight_expiration_period`, or set `enable_oob_load_report`.";
}

/// Writes the log line of an event of a cluster. The core logs nothing itself: the macro uses the
/// `tracing` crate of its caller.
#[macro_export]
macro_rules! log_event {
    ($cluster:expr, $event:expr) => {{
        use $crate::event::{Event, log_lines};
        let cluster: &str = $cluster;
        match $event {
            Event::FractionsStale {
                origin,
                age,
                threshold,
            } => {
                let (age_s, threshold_s) = (age.as_secs_f64(), threshold.as_secs_f64());
                $crate::log_line!(
                    log_lines::FRACTIONS_STALE,
                    cluster,
                    ?origin,
                    age_s,
                    threshold_s
                );
            }
            Event::FractionsRecovered { origin } => {
                $crate::log_line!(log_lines::FRACTIONS_RECOVERED, cluster, ?origin);
            }
            Event::MembershipChanged {
                added,
                removed,
                total,
            } => $crate::log_line!(
                log_lines::MEMBERSHIP_CHANGED,
                cluster,
                added,
                removed,
                total
            ),
            Event::PanicChanged {
                priority,
                panic: true,
            } => $crate::log_line!(log_lines::PANIC_ENTERED, cluster, priority),
            Event::PanicChanged {
                priority,
                panic: false,
            } => $crate::log_line!(log_lines::PANIC_LEFT, cluster, priority),
            Event::SubsetsChanged {
                created,
                removed,
                active,
            } => $crate::log_line!(
                log_lines::SUBSETS_CHANGED,
                cluster,
                created,
                removed,
                active
            ),
            Event::SubsetLimitReached { limit, left_out } => {
                $crate::log_line!(log_lines::SUBSET_LIMIT_REACHED, cluster, limit, left_out);
            }
            Event::ZoneRoutingChanged {
                priority,
                state,
                reason,
                ..
            } => match reason {
                Some(reason) => $crate::log_line!(
                    log_lines::ZONE_ROUTING_CHANGED,
                    cluster,
                    priority,
                    ?state,
                    ?reason
                ),
                None => {
                    $crate::log_line!(log_lines::ZONE_ROUTING_CHANGED, cluster, priority, ?state)
                }
            },
            event => debug_assert!(false, "no log line for {event:?}"),
        }
    }};
}

/// Warns that load reports (ORCA) of a locality expired before newer ones arrived, for the settings
/// of a cluster and its number of localities.
///
/// Without out-of-band reports, a host of another locality is probed every (remote hosts) /
/// (requests per second x probe fraction) seconds. If that exceeds `weight_expiration_period`, the
/// locality is weighed by host count.
#[macro_export]
macro_rules! log_expired_reports {
    ($cluster:expr, $settings:expr, $localities:expr) => {{
        let settings: &$crate::model::load_aware_locality::LoadAwareLocality = $settings;
        let (cluster, localities): (&str, usize) = ($cluster, $localities);
        let expiration = settings.weight_expiration_period().unwrap_or_default();
        let weight_expiration_period_s = expiration.as_secs_f64();
        let remote_probe_fraction = settings.remote_probe_fraction();
        let out_of_band = settings.oob_reporting().is_some();
        $crate::log_line!(
            $crate::event::log_lines::LOAD_REPORTS_EXPIRED,
            cluster,
            localities,
            out_of_band,
            remote_probe_fraction,
            weight_expiration_period_s
        );
    }};
}
