//! Drills of the alerts about the queue of the writer, and about plans and learned capacity.
//! `tests/attacks` has those of all others.

use plimsoll_testing::Drill;
use plimsoll_testing::tasks::wait_for;

use super::*;

const DEPTH: &str = "plimsoll_control_writer_queue_depth ";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_writer_that_cannot_keep_up() {
    let control = Control::new();
    let (_, before) = control.request(Method::GET, "/metrics", "").await;
    // Each has a message in the queue, or sends the next, while the writer is slow with others.
    let slow = Duration::from_micros(100);
    let ask = |handle: Handle| async move {
        while handle
            .inspect(move |_, _| std::thread::sleep(slow))
            .await
            .is_ok()
        {}
    };
    let most = control.handle.queue_capacity();
    let asking: Vec<_> = (0..most * 7 / 8)
        .map(|_| tokio::spawn(ask(control.handle.clone())))
        .collect();
    let page = wait_for("a page with a full queue", async || {
        let (_, page) = control.request(Method::GET, "/metrics", "").await;
        let mut values = page.lines().filter_map(|line| line.strip_prefix(DEPTH));
        let depth: usize = values.next()?.parse().ok()?;
        (depth > most / 2).then_some(page)
    })
    .await;
    asking.iter().for_each(tokio::task::JoinHandle::abort);
    let drill = Drill {
        before: Some(before),
        during: vec![page],
    };
    drill.fires("PlimsollWriterBehind");
}

#[tokio::test]
async fn a_plan_that_fills_zones_beyond_the_target() {
    // 400 requests per second are more than six hosts serve.
    let objective = "{name: orders}
  objective: {waterfall: {target_utilization: 0.5}}
  capacity: {requests_per_second: 50}";
    let control = Control::with(&CONFIG.replace("{name: orders}", objective));
    let (_, before) = control.request(Method::GET, "/metrics", "").await;
    let (busy, _open) = with_demand_at(control).await;
    let (_, page) = busy.request(Method::GET, "/metrics", "").await;
    let drill = Drill {
        before: Some(before),
        during: vec![page],
    };
    drill.fires("PlimsollZoneAboveTarget");
}

#[tokio::test]
async fn hosts_that_report_no_utilization() {
    let learned = "{name: orders}\n  capacity: {learned: {}}";
    let control = Control::with(&CONFIG.replace("{name: orders}", learned));
    let info = node("1", "a");
    let _stream = discover(&control, info.clone()).await;
    let mut session = report_to(&control, &info).await;
    let report = async || {
        let reported = vec![stats("orders", 90)];
        session.reporter.report(&info.node, reported).await;
        control.request(Method::GET, "/metrics", "").await.1
    };
    let frozen = "plimsoll_control_capacity_frozen{cluster=\"orders\"} 1";
    let page = wait_to_see("nothing is learned", report, |page| page.contains(frozen)).await;
    let drill = Drill {
        before: None,
        during: vec![page],
    };
    drill.fires("PlimsollCapacityFrozen");
}
