//! One task for all viewers, none for nobody; slow viewers skip. Time is paused: nothing waits.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;

use super::*;
use crate::source::{Ended, Pending};
use crate::state::DashboardState;

/// Counts how often it is asked.
#[derive(Default)]
struct Counting {
    asked: AtomicU64,
    /// Ends after as many answers.
    last: Option<u64>,
}

impl Source for Arc<Counting> {
    fn state(&self) -> Pending<'_, Result<Arc<DashboardState>, Ended>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let state = DashboardState {
            taken_unix_ms: asked,
            ..Default::default()
        };
        let answer = match self.last {
            Some(last) if asked > last => Err(Ended),
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
async fn the_whole_comes_first_and_then_what_changed() {
    let (_, feed) = feed(None);
    let mut events = pin!(feed.subscribe());
    assert_eq!(name(&events.next().await.unwrap()), "full");
    assert_eq!(name(&events.next().await.unwrap()), "patch");
    assert_eq!(name(&events.next().await.unwrap()), "patch");
}

#[tokio::test(start_paused = true)]
async fn the_source_is_asked_once_for_all_and_not_for_nobody() {
    let (source, feed) = feed(None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(source.asked.load(Ordering::Relaxed), 0);
    {
        let mut first = pin!(feed.subscribe());
        let mut second = pin!(feed.subscribe());
        for _ in 0..3 {
            first.next().await.unwrap().unwrap();
            second.next().await.unwrap().unwrap();
        }
        assert_eq!(source.asked.load(Ordering::Relaxed), 3);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = source.asked.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(source.asked.load(Ordering::Relaxed), after, "nobody looks");
    let mut third = pin!(feed.subscribe());
    assert_eq!(name(&third.next().await.unwrap()), "full", "it begins anew");
}

#[tokio::test(start_paused = true)]
async fn who_is_slow_skips_to_the_newest() {
    let (_, feed) = feed(None);
    let mut slow = pin!(feed.subscribe());
    assert_eq!(name(&slow.next().await.unwrap()), "full");
    let mut quick = pin!(feed.subscribe());
    for _ in 0..5 {
        quick.next().await.unwrap().unwrap();
    }
    let event = slow.next().await.unwrap();
    assert_eq!(name(&event), "full", "what it missed cannot be patched");
    assert!(String::from_utf8_lossy(&event.unwrap()).contains("\"taken_unix_ms\":5"));
}

#[tokio::test(start_paused = true)]
async fn viewers_are_let_go_when_the_source_ends() {
    let (_, feed) = feed(Some(2));
    let mut events = pin!(feed.subscribe());
    assert!(events.next().await.is_some());
    assert!(events.next().await.is_some());
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn viewers_are_let_go_when_the_host_closes() {
    let (sender, receiver) = watch::channel(Arc::new(DashboardState::default()));
    let feed = Arc::new(Feed::new(Arc::new(receiver)));
    let mut events = pin!(feed.subscribe());
    assert!(events.next().await.is_some());
    drop(sender);
    assert!(events.next().await.is_none());
    let mut late = pin!(feed.subscribe());
    assert!(late.next().await.is_none());
}
