//! Computing the weight of a report allocates nothing, and neither does an update of weights once
//! its lists have grown to the size of the priority. Allocations are counted per thread.

use std::hint::black_box;
use std::sync::atomic::AtomicU32;

use allocation_counter::measure;
use plimsoll_core::endpoint_picking::client_side_weighted_round_robin::{
    OrcaWeightSlot, WeightUpdater,
};
use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts,
};
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::time::Instant;

fn settings() -> ClientSideWeightedRoundRobin {
    let names = ["named_metrics.queue", "utilization.*", "unknown"];
    let parts = ClientSideWeightedRoundRobinParts {
        error_utilization_penalty: Some(1.0),
        metric_names_for_computing_utilization: names.map(str::to_owned).to_vec(),
        ..Default::default()
    };
    ClientSideWeightedRoundRobin::try_new(parts).unwrap()
}

fn report(rps_fractional: f64) -> OrcaLoadReport {
    OrcaLoadReport {
        rps_fractional,
        eps: 1.0,
        named_metrics: [("queue", 0.4), ("other", 0.9)].into_iter().collect(),
        utilization: [("disk", 0.6)].into_iter().collect(),
        ..Default::default()
    }
}

#[test]
fn a_report_allocates_nothing() {
    let (slot, settings) = (OrcaWeightSlot::default(), settings());
    let (good, bad) = (report(100.0), report(0.0));
    let info = measure(|| {
        for second in 1..100 {
            let now = Instant::from_secs(second);
            assert!(black_box(slot.observe(&good, &settings, now)).is_ok());
            assert!(black_box(slot.observe(&bad, &settings, now)).is_err());
        }
    });
    assert_eq!(info.count_total, 0);
}

#[test]
fn an_update_allocates_only_until_its_lists_have_grown() {
    let settings = settings();
    let hosts: Vec<_> = (0..1000)
        .map(|_| (OrcaWeightSlot::default(), AtomicU32::new(1)))
        .collect();
    for (slot, _) in hosts.iter().step_by(2) {
        slot.observe(&report(100.0), &settings, Instant::ORIGIN)
            .unwrap();
    }
    let mut updater = WeightUpdater::default();
    let mut tick = |second| {
        let all = hosts.iter().map(|(slot, weight)| (slot, weight));
        measure(|| {
            black_box(updater.update(all, &settings, Instant::from_secs(second)));
        })
    };
    assert!(tick(20).count_total > 0, "allocations are counted");
    for second in 21..300 {
        assert_eq!(tick(second).count_total, 0, "{second}");
    }
}
