//! Load reporting client over gRPC.
//!
//! `lrs::Client` decides when to report; the owner at the other ends of the channels counts.

use bytes::Bytes;
use plimsoll_core::log_line;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::STREAM_LOAD_STATS;
use super::connect::{FailoverStream, Loss, Requests, TransportEvent, wait_for_capacity};
use super::outage::{Outage, Recovery};
use super::pending::or_pending;
use super::servers::Servers;
use crate::clock::Clock;
use crate::log_lines;
use crate::lrs::message::{ClusterLoadStats, LoadReport};
use crate::lrs::{Client, ClientEvent};
use crate::wire;

/// Channels between the client and the owner of the counters.
#[derive(Debug)]
pub struct LrsClientChannels {
    /// Instructions for the owner. While this channel is full, no response is read.
    pub events: mpsc::Sender<ClientEvent>,
    /// Drained counters, one message for each [`ClientEvent::Collect`].
    pub stats: mpsc::Receiver<Vec<ClusterLoadStats>>,
    /// Asks for a last report, after which the stream and the client end.
    pub end: Option<oneshot::Receiver<()>>,
}

/// Reports load until the owner drops its ends of the channels. Lost servers are dialed again; the
/// ADS client selects the server.
pub async fn run(servers: impl Into<Servers>, client: Client, channels: LrsClientChannels) {
    let encode = |report: &LoadReport| Bytes::from(wire::encode_load_report(report));
    let mut driver = Driver {
        client,
        clock: Clock::system(),
        requests: None,
        outage: Outage::default(),
    };
    let LrsClientChannels {
        events,
        mut stats,
        mut end,
    } = channels;
    let mut stream = FailoverStream::following(servers.into(), STREAM_LOAD_STATS, encode);
    let mut event = None;
    while !driver.client.has_ended() {
        if event.is_none() {
            event = driver.client.poll_event();
        }
        tokio::select! {
            permit = events.reserve(), if event.is_some() => {
                let Ok(permit) = permit else {
                    return;
                };
                if let Some(event) = event.take() {
                    permit.send(event);
                }
            }
            drained = stats.recv() => match drained {
                None => return,
                Some(drained) => driver.client.handle_stats(drained),
            },
            () = wait_for_capacity(driver.requests.as_ref()), if driver.client.has_transmit() => {
                driver.transmit();
            }
            // Backpressure: no reading while an event waits for its channel.
            event = stream.next(), if event.is_none() => {
                if let Err(status) = driver.handle_transport_event(event, stream.server()) {
                    driver.handle_lost(&stream.abandon(status));
                }
            }
            () = driver.clock.sleep_until(driver.client.poll_timeout()) => {
                let now = driver.clock.now();
                driver.client.handle_timeout(now);
            }
            asked = or_pending(end.as_mut()) => {
                end = None;
                // An owner that dropped its end asks for nothing.
                if asked.is_ok() {
                    driver.client.handle_end(driver.clock.now());
                }
            }
        }
    }
    driver.close(&mut stream).await;
}

struct Driver {
    client: Client,
    clock: Clock,
    requests: Option<Requests<LoadReport>>,
    outage: Outage,
}

impl Driver {
    /// Handles a transport event. An error ends the stream.
    fn handle_transport_event(
        &mut self,
        event: TransportEvent<LoadReport>,
        server: &str,
    ) -> Result<(), Status> {
        let now = self.clock.now();
        match event {
            TransportEvent::Connected { requests, .. } => {
                self.requests = Some(requests);
                self.client.handle_connected(now);
            }
            TransportEvent::Message(bytes) => {
                let response = wire::decode_load_stats_response(&bytes)
                    .map_err(|error| Status::internal(error.to_string()))?;
                self.client.handle_response(response, now);
                if let Some(Recovery { outage, failures }) = self.outage.handle_message() {
                    let outage_s = outage.as_secs_f64();
                    log_line!(log_lines::LRS_STREAM_RESTORED, server, outage_s, failures);
                }
            }
            TransportEvent::Lost(loss) => self.handle_lost(&loss),
        }
        Ok(())
    }

    fn handle_lost(&mut self, loss: &Loss) {
        let Loss {
            server,
            status,
            retry_in,
        } = loss;
        if self.outage.handle_lost(loss) {
            let retry_in_ms = retry_in.unwrap_or_default().as_millis();
            let (error, code) = (status.message(), status.code());
            log_line!(
                log_lines::LRS_STREAM_CLOSED,
                server,
                error,
                ?code,
                retry_in_ms
            );
        }
        let unsent = self.requests.take().and_then(Requests::unsent);
        if let Some(report) = unsent {
            self.client.handle_unsent(report);
        }
        let clean = status.code() == tonic::Code::Ok;
        self.client.handle_disconnected(clean);
    }

    /// Ends the stream, and waits until the server has read everything and ends it, too.
    async fn close(&mut self, stream: &mut FailoverStream<LoadReport>) {
        if self.requests.take().is_none() {
            return;
        }
        while let TransportEvent::Message(_) = stream.next().await {}
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
