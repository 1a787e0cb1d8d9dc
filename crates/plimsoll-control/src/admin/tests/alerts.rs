//! The drill of the alert about the queue of the writer. `tests/attacks` has those of all others.

use plimsoll_testing::Drill;

use super::*;

#[tokio::test]
async fn a_writer_that_cannot_keep_up() {
    let control = Control::new();
    let (_, before) = control.request(Method::GET, "/metrics", "").await;
    // Each has a message in the queue, or sends the next.
    let ask = |handle: Handle| async move { while handle.inspect(|_, _| ()).await.is_ok() {} };
    let most = control.handle.queue_capacity();
    let asking: Vec<_> = (0..most * 7 / 8)
        .map(|_| tokio::spawn(ask(control.handle.clone())))
        .collect();
    wait_until("a full queue", async || {
        control.handle.queued() > most * 3 / 4
    })
    .await;
    let (_, page) = control.request(Method::GET, "/metrics", "").await;
    asking.iter().for_each(tokio::task::JoinHandle::abort);
    let drill = Drill {
        before: Some(before),
        during: vec![page],
    };
    drill.fires("PlimsollWriterBehind");
}
