//! Property tests: invariants that hold after any sequence of inputs.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Report {
        node: usize,
        zone: usize,
        cluster: usize,
        requests: u64,
        interval_ms: u64,
    },
    /// A report to [`ORDERS`] with issued, successful and failed requests, and those in progress,
    /// that need not match.
    Lie {
        node: usize,
        zone: usize,
        counters: [u64; 4],
        interval_ms: u64,
    },
    Disconnect(usize),
    Endpoints(usize, [u8; 3]),
    Wait(u64),
    ClockBack(u64),
}

const ZONES: [&str; 4] = ["a", "b", "c", ""];
const CLUSTERS: [&str; 3] = [ORDERS, "users", FLEET];

fn step() -> impl Strategy<Value = Step> {
    let requests = prop_oneof![Just(0), 1_u64..5000, Just(u64::MAX)];
    let counters = prop::array::uniform4(requests.clone());
    let interval_ms = prop_oneof![Just(0), Just(10_000), 1_u64..60_000];
    let any_interval_ms = prop_oneof![interval_ms.clone(), Just(u64::MAX)];
    prop_oneof![
        3 => (0_usize..6, 0_usize..4, counters, any_interval_ms).prop_map(
            |(node, zone, counters, interval_ms)| Step::Lie { node, zone, counters, interval_ms }
        ),
        6 => (0_usize..6, 0_usize..4, 0_usize..2, requests, interval_ms).prop_map(
            |(node, zone, cluster, requests, interval_ms)| Step::Report {
                node, zone, cluster, requests, interval_ms
            }
        ),
        1 => (0_usize..6).prop_map(Step::Disconnect),
        1 => (0_usize..3, prop::array::uniform3(0_u8..5)).prop_map(|(c, n)| Step::Endpoints(c, n)),
        4 => (0_u64..40_000).prop_map(Step::Wait),
        1 => (0_u64..100_000).prop_map(Step::ClockBack),
    ]
}

/// Applies every step; returns the harness and the time.
fn take(steps: &[Step]) -> (Harness, u64) {
    let mut harness = Harness::new();
    let mut now_ms = 500_000;
    for step in steps {
        let now = Instant::from_millis(now_ms);
        match *step {
            Step::Report {
                node: id,
                zone: index,
                cluster,
                requests,
                interval_ms,
            } => {
                let interval = Duration::from_millis(interval_ms);
                let stats = stats(CLUSTERS[cluster], requests, interval, "a");
                harness.report_stats(&node(&format!("n{id}"), ZONES[index]), &stats, now);
            }
            Step::Lie {
                node: id,
                zone: index,
                counters: [issued, successful, error, in_progress],
                interval_ms,
            } => {
                let interval = Duration::from_millis(interval_ms);
                let mut stats = stats(ORDERS, issued, interval, "a");
                let entry = &mut stats.upstream_locality_stats[0];
                entry.total_successful_requests = successful;
                entry.total_error_requests = error;
                entry.total_requests_in_progress = in_progress;
                harness.report_stats(&node(&format!("n{id}"), ZONES[index]), &stats, now);
            }
            Step::Disconnect(id) => {
                harness
                    .planner
                    .handle_disconnect(&format!("n{id}"), FLEET, now);
            }
            Step::Endpoints(cluster, counts) => {
                let zones: Vec<_> = ZONES.into_iter().zip(counts).collect();
                let assignment = assignment(CLUSTERS[cluster], &zones);
                harness.planner.handle_endpoints(&assignment, now);
            }
            Step::Wait(ms) => {
                now_ms += ms;
                wait(&mut harness, now_ms);
            }
            Step::ClockBack(ms) => now_ms -= ms.min(now_ms),
        }
        harness.drain(Instant::from_millis(now_ms));
        let scopes = harness
            .planner
            .fleets
            .values()
            .map(|fleet| fleet.scope_keys().count());
        let timers = scopes.sum::<usize>() + 6;
        assert!(harness.planner.timers.len() <= timers);
        for fleet in harness.planner.fleets.values() {
            assert!(fleet.reports.outcomes_are_sums(), "after {step:?}");
        }
    }
    (harness, now_ms)
}

fn wait(harness: &mut Harness, until_ms: u64) {
    while let Some(deadline) = harness.planner.poll_timeout()
        && deadline <= Instant::from_millis(until_ms)
    {
        harness.planner.handle_timeout(deadline);
        harness.drain(deadline);
        let next = harness.planner.poll_timeout();
        assert!(
            next.is_none_or(|next| next > deadline),
            "no progress at {deadline:?}"
        );
    }
    harness
        .planner
        .handle_timeout(Instant::from_millis(until_ms));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn plans_keep_their_invariants_and_silence_expires_everything(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let (mut harness, now_ms) = take(&steps);
        let generations: Vec<_> = harness.updates.iter().map(|(_, plan)| plan.generation).collect();
        prop_assert!(generations.is_sorted_by(|one, other| one < other));
        // All streams close and no node returns: all state expires and plans are withdrawn.
        for id in 0..6 {
            let now = Instant::from_millis(now_ms);
            harness.planner.handle_disconnect(&format!("n{id}"), FLEET, now);
        }
        wait(&mut harness, now_ms + 100_000_000);
        prop_assert!(harness.planner.fleets.is_empty());
        prop_assert_eq!(harness.planner.timers.len(), 0);
        prop_assert!(harness.updates.last().is_none_or(|(_, plan)| !plan.has_data()));
    }

    #[test]
    fn the_same_steps_give_the_same_plans(steps in prop::collection::vec(step(), 1..40)) {
        let (one, other) = (take(&steps).0, take(&steps).0);
        prop_assert_eq!(one.updates, other.updates);
        prop_assert_eq!(one.events, other.events);
    }
}
