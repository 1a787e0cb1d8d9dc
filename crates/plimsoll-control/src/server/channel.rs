//! [`Channel`]: carries the outputs with one key to the streams that they are for.
//!
//! Thousands of streams watch a channel, so that each form has its own type: a stream gets views
//! without a task between.

use std::sync::Arc;

use plimsoll_xds::ads::view::View;
use tokio::sync::watch;

use crate::config::Relay;
use crate::output::Output;
use crate::relay::Patch;

#[derive(Debug)]
pub(super) enum Channel {
    Complete(watch::Sender<Arc<View>>),
    /// With the server that the streams relay.
    Patch(watch::Sender<Arc<Patch>>, Relay),
}

/// What a stream watches.
#[derive(Debug)]
pub(crate) enum Subscribed {
    Complete(watch::Receiver<Arc<View>>),
    Patch(watch::Receiver<Arc<Patch>>, Relay),
}

impl Channel {
    /// Creates a channel in the form that the configuration asks for.
    pub(super) fn new(output: Option<Output>, relay: Option<&Relay>) -> Self {
        let output = output.as_ref();
        if let Some(relay) = relay {
            let patch = output.and_then(Output::patch).cloned();
            return Self::Patch(watch::Sender::new(patch.unwrap_or_default()), relay.clone());
        }
        let view = output.and_then(Output::complete).cloned();
        Self::Complete(watch::Sender::new(view.unwrap_or_default()))
    }

    /// Replaces what the streams are sent. A channel is closed before its form changes.
    pub(super) fn send(&self, output: Output) {
        match (self, output) {
            (Self::Complete(views), Output::Complete(view)) => drop(views.send_replace(view)),
            (Self::Patch(patches, _), Output::Patch(patch)) => drop(patches.send_replace(patch)),
            (Self::Complete(_), Output::Patch(_)) | (Self::Patch(..), Output::Complete(_)) => {
                debug_assert!(false, "the channels of another relay are closed");
            }
        }
    }

    pub(super) fn subscribe(&self) -> Subscribed {
        match self {
            Self::Complete(views) => Subscribed::Complete(views.subscribe()),
            Self::Patch(patches, relay) => Subscribed::Patch(patches.subscribe(), relay.clone()),
        }
    }

    pub(super) fn receiver_count(&self) -> usize {
        match self {
            Self::Complete(views) => views.receiver_count(),
            Self::Patch(patches, _) => patches.receiver_count(),
        }
    }
}
