//! Feed tests with paused time: one task for all viewers, and slow viewers skip frames.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;

use super::*;
use crate::source::{BoxFuture, ShuttingDown};
use crate::state::DashboardState;

/// A source that counts calls of `state`.
#[derive(Default)]
struct Counting {
    calls: AtomicU64,
    /// The source shuts down after this number of calls.
    last: Option<u64>,
}

impl Source for Arc<Counting> {
    fn state(&self) -> BoxFuture<'_, Result<Arc<DashboardState>, ShuttingDown>> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let state = DashboardState {
            taken_unix_ms: calls,
            ..Default::default()
        };
        let answer = match self.last {
            Some(last) if calls > last => Err(ShuttingDown),
            _ => Ok(Arc::new(state)),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn feed(last: Option<u64>) -> (Arc<Counting>, Arc<Feed>) {
    let source = Arc::new(Counting {
        last,
        ..Default::default()
    });
    let feed = Feed::new(Arc::new(Arc::clone(&source)));
    (source, Arc::new(feed))
}

fn name(event: &Result<Bytes, std::convert::Infallible>) -> String {
    let text = String::from_utf8_lossy(event.as_ref().unwrap());
    text.lines()
        .next()
        .unwrap_or_default()
        .replace("event: ", "")
}

#[tokio::test(start_paused = true)]
async fn the_first_event_is_full_and_later_ones_are_patches() {
    let (_, feed) = feed(None);
    let mut events = pin!(feed.subscribe().unwrap());
    assert_eq!(name(&events.next().await.unwrap()), "full");
    assert_eq!(name(&events.next().await.unwrap()), "patch");
    assert_eq!(name(&events.next().await.unwrap()), "patch");
}

#[tokio::test(start_paused = true)]
async fn the_source_is_polled_once_for_all_viewers_and_not_without_viewers() {
    let (source, feed) = feed(None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(source.calls.load(Ordering::Relaxed), 0);
    {
        let mut first = pin!(feed.subscribe().unwrap());
        let mut second = pin!(feed.subscribe().unwrap());
        for _ in 0..3 {
            first.next().await.unwrap().unwrap();
            second.next().await.unwrap().unwrap();
        }
        assert_eq!(source.calls.load(Ordering::Relaxed), 3);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = source.calls.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(source.calls.load(Ordering::Relaxed), after, "no viewers");
    let mut third = pin!(feed.subscribe().unwrap());
    assert_eq!(name(&third.next().await.unwrap()), "full", "it restarts");
}

#[tokio::test(start_paused = true)]
async fn a_slow_viewer_skips_to_the_newest_frame() {
    let (_, feed) = feed(None);
    let mut slow = pin!(feed.subscribe().unwrap());
    assert_eq!(name(&slow.next().await.unwrap()), "full");
    let mut quick = pin!(feed.subscribe().unwrap());
    for _ in 0..5 {
        quick.next().await.unwrap().unwrap();
    }
    let event = slow.next().await.unwrap();
    assert_eq!(name(&event), "full", "patches were missed");
    assert!(String::from_utf8_lossy(&event.unwrap()).contains("\"taken_unix_ms\":5"));
}

#[tokio::test(start_paused = true)]
async fn streams_end_when_the_source_shuts_down() {
    let (_, feed) = feed(Some(2));
    let mut events = pin!(feed.subscribe().unwrap());
    assert!(events.next().await.is_some());
    assert!(events.next().await.is_some());
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn streams_end_when_the_host_drops_the_sender() {
    let (sender, receiver) = watch::channel(Arc::new(DashboardState::default()));
    let feed = Arc::new(Feed::new(Arc::new(receiver)));
    let mut events = pin!(feed.subscribe().unwrap());
    assert!(events.next().await.is_some());
    drop(sender);
    assert!(events.next().await.is_none());
    let mut late = pin!(feed.subscribe().unwrap());
    assert!(late.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn readers_share_a_document_for_a_second() {
    let (source, feed) = feed(None);
    let calls = || source.calls.load(Ordering::Relaxed);
    for _ in 0..100 {
        assert_eq!(feed.document().await.unwrap().taken_unix_ms, 1);
    }
    tokio::time::advance(PERIOD).await;
    assert_eq!(feed.document().await.unwrap().taken_unix_ms, 2);
    feed.forget().await;
    assert_eq!(feed.document().await.unwrap().taken_unix_ms, 3);
    assert_eq!(calls(), 3);
    // Readers get the documents of viewers.
    let mut events = pin!(feed.subscribe().unwrap());
    for _ in 0..2 {
        assert!(events.next().await.is_some());
    }
    assert_eq!(feed.document().await.unwrap().taken_unix_ms, calls());
}
