//! [`Feed`]: asks the source once a second while somebody looks, and shares what it says.
//!
//! One task, however many viewers; it ends with the last of them. Viewers watch the newest frame:
//! one that is slow skips to it and delays nobody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::sync::watch;

use crate::frame::Frame;
use crate::source::Source;

/// How often viewers hear something.
const PERIOD: Duration = Duration::from_secs(1);

type Latest = Option<Arc<Frame>>;

/// Shares what a source says.
pub(crate) struct Feed {
    source: Arc<dyn Source>,
    /// While somebody looks.
    running: Mutex<Option<watch::Sender<Latest>>>,
}

impl Feed {
    /// A feed that nobody looks at yet.
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            running: Mutex::default(),
        }
    }

    /// Events for one viewer: everything first, then what changed. Ends with the source.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
    ) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + use<> {
        let frames = self.watch();
        stream::unfold((frames, None), |(mut frames, seen)| async move {
            loop {
                let frame = frames.borrow_and_update().clone();
                if let Some(frame) = frame.filter(|frame| Some(frame.sequence()) != seen) {
                    let event = frame.after(seen);
                    return Some((Ok(event), (frames, Some(frame.sequence()))));
                }
                frames.changed().await.ok()?;
            }
        })
    }

    fn watch(self: &Arc<Self>) -> watch::Receiver<Latest> {
        let mut running = self.lock();
        if let Some(frames) = &*running {
            return frames.subscribe();
        }
        let (frames, receiver) = watch::channel(None);
        *running = Some(frames);
        tokio::spawn(Arc::clone(self).run());
        receiver
    }

    async fn run(self: Arc<Self>) {
        tokio::select! {
            () = self.publish() => {}
            // Viewers are let go, and whoever comes later as well.
            () = self.source.closed() => drop(self.lock().take()),
        }
    }

    /// Until nobody looks or the source ends.
    async fn publish(&self) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last: Latest = None;
        loop {
            ticks.tick().await;
            let state = self.source.state().await;
            let frame = state.map(|state| Arc::new(Frame::new(&state, last.as_deref())));
            let mut running = self.lock();
            // Asked under the lock: a viewer that comes now finds either this task or none.
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
        // Nothing in here can be half done.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
