//! [`Session`]: one relayed discovery stream with its own stream to the relayed server.
//!
//! A session has two tasks: the ADS client of plimsoll-xds, which reconnects as needed, and the
//! task in this file, which passes events to a `Merge` and its views to the receiver. Both end when
//! the sender of subscriptions is dropped. Decisions are made in `merge` and `state`.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_core::log_line;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::ads::client::{Client, ClientEvent, ClientSettings};
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::view::View;
use plimsoll_xds::driver::ads_client::{self, AdsClientChannels, AdsClientEvent, AdsCommand};
use plimsoll_xds::driver::{ConnectOptions, Connector};
use plimsoll_xds::wire;
use tokio::sync::{mpsc, watch};

use super::merge::{Merge, MergeEvent, ResourceSubscriptions};
use super::status::RelayUpstreams;
use super::{Patch, RelayedResource};
use crate::config::Relay;
use crate::log_lines;

/// Capacity of the queue of events from the relayed server. While it is full, that stream stalls.
const EVENT_QUEUE: usize = 1024;
const COMMAND_QUEUE: usize = 64;

/// A relayed discovery stream whose tasks have not started.
pub(crate) struct Session<F> {
    pub(crate) relay: Relay,
    /// Node of the receiver, forwarded to the relayed server unchanged.
    pub(crate) node: NodeMessage,
    pub(crate) patches: watch::Receiver<Arc<Patch>>,
    pub(crate) upstream: StreamStatus,
    pub(crate) on_resource: F,
}

impl<F, T> Session<F>
where
    F: FnMut(RelayedResource) -> T + Send + 'static,
    T: Future<Output = ()> + Send,
{
    /// Starts the session. It runs until the returned sender, which carries the subscriptions of
    /// the receiver, is dropped. The `guard` is dropped last.
    pub(crate) fn start(
        self,
        guard: impl Send + 'static,
    ) -> (
        watch::Receiver<Arc<View>>,
        watch::Sender<ResourceSubscriptions>,
    ) {
        let (views, shown) = watch::channel(Arc::default());
        let (sender, subscriptions) = watch::channel(ResourceSubscriptions::new());
        let (events_in, events) = mpsc::channel(EVENT_QUEUE);
        let (commands, commands_out) = mpsc::channel(COMMAND_QUEUE);
        let variant = if self.relay.delta {
            Variant::Delta
        } else {
            Variant::Sotw
        };
        let client = Client::new(
            variant,
            self.node,
            wire::resource_name,
            ClientSettings::default(),
        );
        let mut options = ConnectOptions::new(format!("http://{}", self.relay.address));
        if self.relay.tls.is_some() {
            let connector = self.upstream.upstreams.connector();
            options.connector = connector.map(|connector| connector as Arc<dyn Connector>);
        }
        let channels = AdsClientChannels {
            events: events_in,
            commands: commands_out,
        };
        tokio::spawn(ads_client::run(
            options,
            client,
            ads_client::pass_through,
            channels,
        ));
        let mut patches = self.patches;
        let patch = Arc::clone(&patches.borrow_and_update());
        let task = SessionTask {
            merge: Merge::new(patch),
            subscriptions,
            patches,
            events,
            commands,
            queue: VecDeque::new(),
            views,
            status: self.upstream,
        };
        tokio::spawn(async move {
            task.run(self.on_resource).await;
            drop(guard);
        });
        (shown, sender)
    }
}

struct SessionTask {
    merge: Merge,
    subscriptions: watch::Receiver<ResourceSubscriptions>,
    patches: watch::Receiver<Arc<Patch>>,
    events: mpsc::Receiver<AdsClientEvent>,
    commands: mpsc::Sender<AdsCommand>,
    /// Commands for the relayed server that wait for capacity in `commands`.
    queue: VecDeque<AdsCommand>,
    views: watch::Sender<Arc<View>>,
    status: StreamStatus,
}

enum Input {
    Subscriptions,
    Patch,
    Event(AdsClientEvent),
    CommandSent,
    Closed,
}

impl SessionTask {
    async fn run<F, T>(mut self, mut on_resource: F)
    where
        F: FnMut(RelayedResource) -> T,
        T: Future<Output = ()>,
    {
        loop {
            if let Some(view) = self.merge.poll_view() {
                self.views.send_replace(view);
            }
            while let Some(event) = self.merge.poll_event() {
                match event {
                    MergeEvent::Learned(relayed) => on_resource(relayed).await,
                    MergeEvent::Unreadable {
                        type_url,
                        name,
                        error,
                    } => self.status.unreadable(type_url, &name, &error.to_string()),
                }
            }
            match self.next().await {
                Input::Closed => return,
                Input::CommandSent => {}
                Input::Subscriptions => self.update_subscriptions(),
                Input::Patch => {
                    let patch = Arc::clone(&self.patches.borrow_and_update());
                    self.merge.handle_patch(patch);
                    self.update_subscriptions();
                }
                Input::Event(event) => {
                    self.handle(event);
                    while let Ok(event) = self.events.try_recv() {
                        self.handle(event);
                    }
                }
            }
        }
    }

    async fn next(&mut self) -> Input {
        let or_closed = |changed: Result<(), watch::error::RecvError>, step| match changed {
            Ok(()) => step,
            Err(_) => Input::Closed,
        };
        tokio::select! {
            // One change of subscriptions at a time: a receiver must not be able to fill the queue.
            changed = self.subscriptions.changed(), if self.queue.is_empty() => {
                or_closed(changed, Input::Subscriptions)
            }
            changed = self.patches.changed() => or_closed(changed, Input::Patch),
            permit = self.commands.reserve(), if !self.queue.is_empty() => {
                let (Ok(permit), Some(command)) = (permit, self.queue.pop_front()) else {
                    return Input::Closed;
                };
                permit.send(command);
                Input::CommandSent
            }
            event = self.events.recv() => event.map_or(Input::Closed, Input::Event),
        }
    }

    fn update_subscriptions(&mut self) {
        let commands = self
            .merge
            .subscribe(&self.subscriptions.borrow_and_update());
        self.queue.extend(commands);
    }

    fn handle(&mut self, event: AdsClientEvent) {
        match event {
            AdsClientEvent::Connected => self.status.connected(),
            AdsClientEvent::Disconnected { code, message } => {
                self.status.disconnected(code, &message);
            }
            AdsClientEvent::Resource(event) => {
                if let ClientEvent::Rejected {
                    type_url, reason, ..
                } = &event
                {
                    self.status.refused(type_url, reason);
                }
                self.merge.handle_upstream(event);
            }
        }
    }
}

/// Status of one stream to the relayed server; counted until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamStatus {
    upstreams: Arc<RelayUpstreams>,
    connected: bool,
}

impl StreamStatus {
    /// `upstreams` has counted the stream.
    pub(super) const fn new(upstreams: Arc<RelayUpstreams>) -> Self {
        Self {
            upstreams,
            connected: false,
        }
    }

    fn connected(&mut self) {
        self.connected = true;
        self.upstreams.update(|status| status.connected += 1);
    }

    fn disconnected(&mut self, code: i32, message: &str) {
        let was = std::mem::take(&mut self.connected);
        self.upstreams.update(|status| {
            status.connected -= u64::from(was);
            status.failures += 1;
            status.last_error = Some(format!("gRPC status {code}: {message}"));
        });
    }

    fn unreadable(&self, type_url: &str, name: &str, error: &str) {
        log_line!(log_lines::RESOURCE_RELAYED_UNCHANGED, type_url, name, error);
        self.upstreams.update(|status| status.unreadable += 1);
    }

    fn refused(&self, type_url: &str, reason: &str) {
        log_line!(log_lines::RELAYED_RESPONSE_REJECTED, type_url, reason);
        self.upstreams.update(|status| status.refused += 1);
    }
}

impl Drop for StreamStatus {
    fn drop(&mut self) {
        let was = self.connected;
        self.upstreams.update(|status| {
            status.connected -= u64::from(was);
            status.streams -= 1;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::RelayStatus;
    use super::*;

    #[test]
    fn the_status_of_streams_is_counted_until_they_close() {
        let upstreams = Arc::new(RelayUpstreams::default());
        let mut first = upstreams.open(2).unwrap();
        let mut second = upstreams.open(2).unwrap();
        assert!(upstreams.open(2).is_none());
        first.connected();
        second.connected();
        first.disconnected(14, "connection refused");
        first.disconnected(13, "again");
        for _ in 0..2 {
            second.unreadable("type", "orders", "why");
        }
        for _ in 0..3 {
            second.refused("type", "why");
        }
        let open = RelayStatus {
            streams: 2,
            connected: 1,
            failures: 2,
            last_error: Some("gRPC status 13: again".to_owned()),
            unreadable: 2,
            refused: 3,
        };
        assert_eq!(upstreams.status(), open);
        drop(first);
        assert_eq!(
            (upstreams.status().streams, upstreams.status().connected),
            (1, 1)
        );
        drop(second);
        let closed = RelayStatus {
            streams: 0,
            connected: 0,
            ..open
        };
        assert_eq!(upstreams.status(), closed);
    }
}
