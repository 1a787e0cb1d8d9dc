//! [`Feed`]: polls a [`Source`] once a second while pages are open, and broadcasts the result.
//! Readers of one document share it for a second, so that they cannot make the host build more.
//!
//! One task serves all viewers (open pages) and ends with the last of them. Viewers watch the
//! newest frame: a slow viewer skips frames and does not delay others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::frame::Frame;
use crate::source::{ShuttingDown, Source};
use crate::state::DashboardState;

/// Viewers at a time. Each holds a connection of the admin listener, which must have some left for
/// probes and operators.
const MAX_VIEWERS: usize = 64;
/// Interval between updates of viewers, and how long a document is the current one.
const PERIOD: Duration = Duration::from_secs(1);

type Latest = Option<Arc<Frame>>;

/// Broadcasts the JSON documents of a [`Source`] to viewers.
pub(crate) struct Feed {
    source: Arc<dyn Source>,
    /// `Some` while the publishing task is running.
    running: Mutex<Option<watch::Sender<Latest>>>,
    /// Newest document and when it was built. The lock is held while one is built, so that readers
    /// wait for it instead of building their own.
    document: tokio::sync::Mutex<Option<(Instant, Arc<DashboardState>)>>,
}

impl Feed {
    /// Creates a feed without viewers.
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            running: Mutex::default(),
            document: tokio::sync::Mutex::default(),
        }
    }

    /// Returns a document that is at most as old as those of viewers.
    pub(crate) async fn document(&self) -> Result<Arc<DashboardState>, ShuttingDown> {
        self.document_within(PERIOD).await
    }

    /// Lets the next reader get a document that is built from then on, as after an action.
    pub(crate) async fn forget(&self) {
        *self.document.lock().await = None;
    }

    async fn document_within(&self, age: Duration) -> Result<Arc<DashboardState>, ShuttingDown> {
        let mut newest = self.document.lock().await;
        if let Some((built_at, state)) = &*newest
            && built_at.elapsed() < age
        {
            return Ok(Arc::clone(state));
        }
        let built_at = Instant::now();
        let state = self.source.state().await?;
        *newest = Some((built_at, Arc::clone(&state)));
        Ok(state)
    }

    /// Streams events to one viewer: the full document, then changes. Ends with the source. `None`
    /// if there are too many viewers.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
    ) -> Option<impl Stream<Item = Result<Bytes, std::convert::Infallible>> + use<>> {
        let frames = self.watch()?;
        Some(stream::unfold(
            (frames, None),
            |(mut frames, seen)| async move {
                loop {
                    let frame = frames.borrow_and_update().clone();
                    if let Some(frame) = frame.filter(|frame| Some(frame.sequence()) != seen) {
                        let event = frame.event_since(seen);
                        return Some((Ok(event), (frames, Some(frame.sequence()))));
                    }
                    frames.changed().await.ok()?;
                }
            },
        ))
    }

    fn watch(self: &Arc<Self>) -> Option<watch::Receiver<Latest>> {
        let mut running = self.lock();
        if let Some(frames) = &*running {
            let has_room = frames.receiver_count() < MAX_VIEWERS;
            return has_room.then(|| frames.subscribe());
        }
        let (frames, receiver) = watch::channel(None);
        *running = Some(frames);
        tokio::spawn(Arc::clone(self).run());
        Some(receiver)
    }

    async fn run(self: Arc<Self>) {
        tokio::select! {
            () = self.publish() => {}
            // Dropping the sender ends the streams of all viewers.
            () = self.source.closed() => drop(self.lock().take()),
        }
    }

    /// Publishes frames until there are no viewers or the source shuts down.
    async fn publish(&self) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last: Latest = None;
        loop {
            ticks.tick().await;
            let state = self.document_within(Duration::ZERO).await;
            let frame = state.map(|state| Arc::new(Frame::new(&state, last.as_deref())));
            let mut running = self.lock();
            // Checked under the lock: a new viewer either joins this task or starts another one.
            let frames = running.as_ref();
            match (frames.filter(|frames| frames.receiver_count() > 0), frame) {
                (Some(frames), Ok(frame)) => {
                    frames.send_replace(Some(Arc::clone(&frame)));
                    last = Some(frame);
                }
                _ => return drop(running.take()),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<watch::Sender<Latest>>> {
        // The value is always valid, even if a holder of the lock panicked.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
