//! The running control plane: one task owns the [`State`], streams talk to it over channels.
//!
//! Streams open sessions here and get a watch on what they see; reports arrive over a bounded
//! queue, so that an overloaded writer slows reporters down instead of growing. The admin API asks
//! the writer to look at the state for it ([`Handle::inspect`]). Sockets are plimsoll-xds' drivers
//! and `admin`; deciding happens in `state`.

mod handlers;
mod recent;
mod record;
mod writer;

use std::sync::Arc;

use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::view::View;
use plimsoll_xds::driver::LrsInstructions;
use plimsoll_xds::node::NodeInfo;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::{ControlConfig, Relay};
use crate::counters::Counters;
use crate::fleet::StreamKind;
use crate::relay::{Overlay, Relayed, Upstreams};
use crate::state::{State, ViewKey};

pub use handlers::{Discovery, LoadReporting};
pub use recent::{Attention, Happening, Recent};
pub use record::{Records, StreamRecord, Totals};
pub use writer::{Writer, start};

/// Messages that may wait for the writer. Each is small: a report about a few clusters.
const QUEUE: usize = 4096;

/// A way to the writer. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Handle {
    messages: mpsc::Sender<Message>,
    records: Arc<Records>,
    recent: Arc<Recent>,
    upstreams: Arc<Upstreams>,
    counters: Counters,
}

/// A look at the state between two messages.
type Look = Box<dyn FnOnce(&State, Instant) + Send>;

/// What the writer is told.
pub(crate) enum Message {
    OpenAds {
        node: Arc<NodeInfo>,
        returning: bool,
        reply: oneshot::Sender<Opened>,
    },
    OpenLrs {
        node: Arc<NodeInfo>,
        reply: oneshot::Sender<(watch::Receiver<LrsInstructions>, Ticket)>,
    },
    Report {
        node: Arc<NodeInfo>,
        stats: Vec<ClusterStats>,
    },
    Relayed(Relayed),
    Config(Arc<ControlConfig>),
    Inspect(Look),
}

/// What a discovery stream gets.
pub(crate) enum Opened {
    View(watch::Receiver<Arc<View>>, Ticket),
    Relay(watch::Receiver<Arc<Overlay>>, Relay, Ticket),
}

/// A stream is over.
#[derive(Debug)]
pub(crate) struct Close {
    node: Arc<NodeInfo>,
    kind: StreamKind,
    key: Option<ViewKey>,
}

/// An open stream as the writer counts it. It travels with the answer: whatever happens to the
/// answer or to the stream, the writer hears of the end once.
#[derive(Debug)]
pub(crate) struct Ticket {
    closes: mpsc::UnboundedSender<Close>,
    node: Arc<NodeInfo>,
    kind: StreamKind,
    key: Option<ViewKey>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Without a writer there is nothing left to close.
        let _ = self.closes.send(Close {
            node: Arc::clone(&self.node),
            kind: self.kind,
            key: self.key.take(),
        });
    }
}

/// The writer is gone: the process is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the control plane is shutting down")
    }
}

impl std::error::Error for Stopped {}

impl Handle {
    /// Puts new settings into force.
    pub async fn apply(&self, config: Arc<ControlConfig>) -> Result<(), Stopped> {
        self.send(Message::Config(config)).await
    }

    /// Lets `look` see the state between two messages. It must be quick: everybody waits for it.
    pub async fn inspect<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State, Instant) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        let look = move |state: &State, now| {
            // Who asked may have gone.
            let _ = reply.send(look(state, now));
        };
        self.send(Message::Inspect(Box::new(look))).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// What is known of every discovery stream.
    pub const fn records(&self) -> &Arc<Records> {
        &self.records
    }

    /// The last things that happened.
    pub const fn recent(&self) -> &Arc<Recent> {
        &self.recent
    }

    /// How the streams to the relayed server are doing.
    pub const fn upstreams(&self) -> &Arc<Upstreams> {
        &self.upstreams
    }

    /// What happened so far.
    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Messages that wait for the writer.
    pub(crate) fn queued(&self) -> usize {
        let free = self.messages.capacity();
        self.queue_capacity().saturating_sub(free)
    }

    /// Messages that may wait for the writer.
    pub(crate) fn queue_capacity(&self) -> usize {
        self.messages.max_capacity()
    }

    async fn send(&self, message: Message) -> Result<(), Stopped> {
        self.messages.send(message).await.map_err(|_| Stopped)
    }
}

#[cfg(test)]
mod tests;
