//! [`Session`]: one relayed discovery stream, and its own stream to the other server.
//!
//! Two tasks: the subscriber of plimsoll-xds, which dials again when it must, and the one here,
//! which moves events into a `Merge` and its views to the receiver. Both end when the receiver's
//! end is dropped. What is decided is decided in `merge` and `state`.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_xds::ads::Variant;
use plimsoll_xds::ads::client::{Client, ClientEvent, ClientSettings};
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::view::View;
use plimsoll_xds::driver::ConnectOptions;
use plimsoll_xds::driver::ads_client::{self, AdsClientChannels, AdsClientEvent, AdsCommand};
use plimsoll_xds::wire;
use tokio::sync::{mpsc, watch};

use super::merge::{Merge, MergeEvent, Wanted};
use super::status::Upstreams;
use super::{Overlay, Relayed};
use crate::config::Relay;

/// Events of the other server that may wait. When more come its stream is not read.
const EVENTS: usize = 1024;
/// Commands that may wait for the subscriber.
const COMMANDS: usize = 64;

/// One relayed stream before it runs.
pub(crate) struct Session<F> {
    /// Where the other server is.
    pub(crate) relay: Relay,
    /// Who the receiver is; sent on as it came.
    pub(crate) node: NodeMessage,
    /// What the state wants.
    pub(crate) overlays: watch::Receiver<Arc<Overlay>>,
    /// For people.
    pub(crate) upstreams: Arc<Upstreams>,
    /// Tells the state what was seen.
    pub(crate) tell: F,
}

impl<F, T> Session<F>
where
    F: FnMut(Relayed) -> T + Send + 'static,
    T: Future<Output = ()> + Send,
{
    /// Starts it. It runs until the sender is dropped, which says what the receiver wants. The
    /// `guard` is dropped last.
    pub(crate) fn start(
        self,
        guard: impl Send + 'static,
    ) -> (watch::Receiver<Arc<View>>, watch::Sender<Wanted>) {
        let (views, shown) = watch::channel(Arc::default());
        let (want, wanted) = watch::channel(Wanted::new());
        let (events_in, events) = mpsc::channel(EVENTS);
        let (commands, commands_out) = mpsc::channel(COMMANDS);
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
        let options = ConnectOptions::new(format!("http://{}", self.relay.address));
        let channels = AdsClientChannels {
            events: events_in,
            commands: commands_out,
        };
        // What a resource means is for the receiver to judge.
        tokio::spawn(ads_client::run(
            options,
            client,
            |_: &str, _: &str, _: &_| Ok(()),
            channels,
        ));
        let mut overlays = self.overlays;
        let overlay = Arc::clone(&overlays.borrow_and_update());
        let running = Running {
            merge: Merge::new(overlay),
            wanted,
            overlays,
            events,
            commands,
            queue: VecDeque::new(),
            views,
            line: Line::new(self.upstreams),
        };
        tokio::spawn(async move {
            running.run(self.tell).await;
            drop(guard);
        });
        (shown, want)
    }
}

struct Running {
    merge: Merge,
    wanted: watch::Receiver<Wanted>,
    overlays: watch::Receiver<Arc<Overlay>>,
    events: mpsc::Receiver<AdsClientEvent>,
    commands: mpsc::Sender<AdsCommand>,
    /// Waits for room in the channel of commands.
    queue: VecDeque<AdsCommand>,
    views: watch::Sender<Arc<View>>,
    line: Line,
}

/// What happened.
enum Step {
    Wanted,
    Overlay,
    Event(AdsClientEvent),
    Sent,
    Over,
}

impl Running {
    async fn run<F, T>(mut self, mut tell: F)
    where
        F: FnMut(Relayed) -> T,
        T: Future<Output = ()>,
    {
        loop {
            if let Some(view) = self.merge.poll_view() {
                self.views.send_replace(view);
            }
            while let Some(event) = self.merge.poll_event() {
                match event {
                    MergeEvent::Seen(relayed) => tell(relayed).await,
                    MergeEvent::Unreadable {
                        type_url,
                        name,
                        error,
                    } => self.line.unreadable(type_url, &name, &error.to_string()),
                }
            }
            match self.next().await {
                Step::Over => return,
                Step::Sent => {}
                Step::Wanted => self.ask(),
                Step::Overlay => {
                    let overlay = Arc::clone(&self.overlays.borrow_and_update());
                    self.merge.handle_overlay(overlay);
                    self.ask();
                }
                Step::Event(event) => {
                    self.handle(event);
                    while let Ok(event) = self.events.try_recv() {
                        self.handle(event);
                    }
                }
            }
        }
    }

    async fn next(&mut self) -> Step {
        let or_over = |changed: Result<(), watch::error::RecvError>, step| match changed {
            Ok(()) => step,
            Err(_) => Step::Over,
        };
        tokio::select! {
            // One change after the other: a receiver that changes its mind all the time must not
            // fill the queue.
            changed = self.wanted.changed(), if self.queue.is_empty() => {
                or_over(changed, Step::Wanted)
            }
            changed = self.overlays.changed() => or_over(changed, Step::Overlay),
            room = self.commands.reserve(), if !self.queue.is_empty() => {
                let (Ok(room), Some(command)) = (room, self.queue.pop_front()) else {
                    return Step::Over;
                };
                room.send(command);
                Step::Sent
            }
            event = self.events.recv() => event.map_or(Step::Over, Step::Event),
        }
    }

    fn ask(&mut self) {
        let commands = self.merge.want(&self.wanted.borrow_and_update());
        self.queue.extend(commands);
    }

    fn handle(&mut self, event: AdsClientEvent) {
        match event {
            AdsClientEvent::Connected => self.line.connected(),
            AdsClientEvent::Disconnected { code, message } => self.line.lost(code, &message),
            AdsClientEvent::Resource(event) => {
                if let ClientEvent::Rejected {
                    type_url, reason, ..
                } = &event
                {
                    self.line.refused(type_url, reason);
                }
                self.merge.handle_upstream(event);
            }
        }
    }
}

/// The line to the other server, as people see it.
struct Line {
    upstreams: Arc<Upstreams>,
    connected: bool,
}

impl Line {
    fn new(upstreams: Arc<Upstreams>) -> Self {
        upstreams.update(|status| status.streams += 1);
        Self {
            upstreams,
            connected: false,
        }
    }

    fn connected(&mut self) {
        self.connected = true;
        self.upstreams.update(|status| status.connected += 1);
    }

    fn lost(&mut self, code: i32, message: &str) {
        let was = std::mem::take(&mut self.connected);
        self.upstreams.update(|status| {
            status.connected -= u64::from(was);
            status.failures += 1;
            status.last_error = Some(format!("gRPC status {code}: {message}"));
        });
    }

    fn unreadable(&self, type_url: &str, name: &str, error: &str) {
        tracing::warn!(
            type_url,
            name,
            error,
            "a resource passes without improvement"
        );
        self.upstreams.update(|status| status.unreadable += 1);
    }

    fn refused(&self, type_url: &str, reason: &str) {
        tracing::warn!(
            type_url,
            reason,
            "a response of the relayed server is refused"
        );
        self.upstreams.update(|status| status.refused += 1);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let was = self.connected;
        self.upstreams.update(|status| {
            status.connected -= u64::from(was);
            status.streams -= 1;
        });
    }
}
