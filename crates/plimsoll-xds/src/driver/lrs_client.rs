//! Load reporting of a data plane, over sockets: [`run`].
//!
//! When to report what is decided by `lrs::Client`; counters belong to whoever holds the other ends
//! of the channels.

use bytes::Bytes;
use tokio::sync::mpsc;
use tonic::Status;

use super::STREAM_LOAD_STATS;
use super::clock::Clock;
use super::connect::{Link, LinkEvent, Requests, room};
use super::servers::Servers;
use crate::error::DecodeError;
use crate::lrs::message::{ClusterStatsMessage, LoadReport};
use crate::lrs::{Client, ClientEvent};
use crate::wire;

/// The ends that the owner of the counters does not hold.
#[derive(Debug)]
pub struct LrsClientChannels {
    /// What the owner has to do. A full channel holds up reading, never the owner.
    pub events: mpsc::Sender<ClientEvent>,
    /// What the owner drained, one for each [`ClientEvent::Collect`].
    pub stats: mpsc::Receiver<Vec<ClusterStatsMessage>>,
}

/// Reports until the owner drops its ends of the channels. Lost servers are dialled again; which of
/// several is used, discovery chooses.
pub async fn run(servers: impl Into<Servers>, client: Client, channels: LrsClientChannels) {
    let encode = |report: &LoadReport| Bytes::from(wire::encode_load_report(report));
    let mut driver = Driver {
        client,
        clock: Clock::system(),
        requests: None,
    };
    let LrsClientChannels { events, mut stats } = channels;
    let mut link = Link::following(servers.into(), STREAM_LOAD_STATS, encode);
    let mut event = None;
    loop {
        if event.is_none() {
            event = driver.client.poll_event();
        }
        tokio::select! {
            room = events.reserve(), if event.is_some() => {
                let Ok(room) = room else {
                    return;
                };
                if let Some(event) = event.take() {
                    room.send(event);
                }
            }
            drained = stats.recv() => match drained {
                None => return,
                Some(drained) => driver.client.handle_stats(drained),
            },
            () = room(driver.requests.as_ref()), if driver.client.has_transmit() => {
                driver.transmit();
            }
            // A full channel of events holds up reading.
            news = link.next(), if event.is_none() => {
                if let Err(status) = driver.handle_news(news) {
                    driver.handle_lost(&link.abandon(status));
                }
            }
            () = driver.clock.sleep_until(driver.client.poll_timeout()) => {
                let now = driver.clock.now();
                driver.client.handle_timeout(now);
            }
        }
    }
}

struct Driver {
    client: Client,
    clock: Clock,
    requests: Option<Requests<LoadReport>>,
}

impl Driver {
    /// An error means that the stream must be given up.
    fn handle_news(&mut self, news: LinkEvent<LoadReport>) -> Result<(), Status> {
        let now = self.clock.now();
        match news {
            LinkEvent::Connected { requests, .. } => {
                self.requests = Some(requests);
                self.client.handle_connected(now);
            }
            LinkEvent::Message(bytes) => {
                let response = wire::decode_load_stats_response(&bytes);
                let unreadable = |error: DecodeError| Status::internal(error.to_string());
                self.client
                    .handle_response(response.map_err(unreadable)?, now);
            }
            LinkEvent::Lost(status) => self.handle_lost(&status),
        }
        Ok(())
    }

    fn handle_lost(&mut self, status: &Status) {
        tracing::warn!(error = %status.message(), code = ?status.code(), "load reporting lost");
        let unsent = self.requests.take().and_then(Requests::unsent);
        if let Some(report) = unsent {
            self.client.handle_unsent(report);
        }
        let clean = status.code() == tonic::Code::Ok;
        self.client.handle_disconnected(clean);
    }

    fn transmit(&mut self) {
        let Some(requests) = &mut self.requests else {
            return;
        };
        let report = self.client.poll_transmit();
        if let Some(report) = report.and_then(|report| requests.send(report)) {
            self.client.handle_unsent(report);
        }
    }
}
