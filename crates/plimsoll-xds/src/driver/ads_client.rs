//! ADS client over gRPC.
//!
//! `ads::Client` decides what to request, ACK and NACK. Resources go to their owner, which holds
//! the other ends of the channels: a data plane, or the relay of the control plane.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::log_line;
use tokio::sync::mpsc;
use tonic::Status;

use super::connect::{FailoverStream, Loss, Requests, TransportEvent, wait_for_capacity};
use super::outage::{Outage, Recovery};
use super::servers::Servers;
use super::{DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES};
use crate::ads::client::{Client, ClientEvent};
use crate::ads::message::Any;
use crate::ads::{Request, Response, Variant};
use crate::clock::Clock;
use crate::log_lines;
use crate::wire;
use plimsoll_schema::error::DecodeError;

/// Subscription change that the owner of the resources requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdsCommand {
    Subscribe { type_url: Arc<str>, name: Arc<str> },
    Unsubscribe { type_url: Arc<str>, name: Arc<str> },
}

/// Event of an ADS client, for the owner of the resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdsClientEvent<T = Bytes> {
    Connected,
    /// The stream ended or could not be opened. Cached resources stay valid; the client reconnects.
    Disconnected {
        code: i32,
        message: String,
    },
    Resource(ClientEvent<T>),
}

/// Channels between the client and the owner of the resources.
#[derive(Debug)]
pub struct AdsClientChannels<T = Bytes> {
    /// While this channel is full, no response is read, which also slows down the server.
    pub events: mpsc::Sender<AdsClientEvent<T>>,
    pub commands: mpsc::Receiver<AdsCommand>,
}

/// Decodes a resource from its type URL, name and body.
pub trait Decode<T>: FnMut(&str, &str, &Bytes) -> Result<T, DecodeError> + Send {}

impl<T, F: FnMut(&str, &str, &Bytes) -> Result<T, DecodeError> + Send> Decode<T> for F {}

/// Decoder of a relay, which passes encoded resources through.
pub fn pass_through(_: &str, _: &str, body: &Bytes) -> Result<Bytes, DecodeError> {
    Ok(body.clone())
}

/// Runs the client until the owner drops its ends of the channels. Lost servers are dialed again;
/// if a resource is missing and a server is lost before it responded, the next server is tried
/// (gRFC A71). Resources that `decode` rejects are NACKed with the error of `decode`.
pub async fn run<T: Clone>(
    servers: impl Into<Servers>,
    client: Client<T>,
    mut decode: impl Decode<T>,
    channels: AdsClientChannels<T>,
) {
    let path = match client.variant() {
        Variant::Sotw => STREAM_AGGREGATED_RESOURCES,
        Variant::Delta => DELTA_AGGREGATED_RESOURCES,
    };
    let mut driver = Driver {
        client,
        clock: Clock::system(),
        requests: None,
        request: None,
        event: None,
        outage: Outage::default(),
    };
    let AdsClientChannels {
        events,
        mut commands,
    } = channels;
    let mut stream = FailoverStream::new(servers.into(), path, encode);
    loop {
        driver.prepare();
        tokio::select! {
            permit = events.reserve(), if driver.event.is_some() => {
                let Ok(permit) = permit else {
                    return;
                };
                if let Some(event) = driver.event.take() {
                    permit.send(event);
                }
            }
            command = commands.recv() => match command {
                None => return,
                Some(command) => driver.handle_command(&command),
            },
            () = wait_for_capacity(driver.requests.as_ref()), if driver.request.is_some() => {
                driver.transmit();
            }
            // Backpressure: no reading while an event waits for its channel.
            event = stream.next(), if driver.event.is_none() => {
                let server = stream.server();
                if let Err(status) = driver.handle_transport_event(event, &mut decode, server) {
                    driver.handle_lost(&stream.abandon(status));
                }
                stream.fall_back(|| driver.client.has_unresolved_subscriptions());
            }
            // The pending request must leave first: the timeout may produce the next one.
            () = driver.clock.sleep_until(driver.client.poll_timeout()),
                if driver.request.is_none() =>
            {
                let now = driver.clock.now();
                driver.client.handle_timeout(now);
            }
        }
    }
}

struct Driver<T> {
    client: Client<T>,
    clock: Clock,
    requests: Option<Requests<Request>>,
    request: Option<Request>,
    event: Option<AdsClientEvent<T>>,
    outage: Outage,
}

impl<T: Clone> Driver<T> {
    /// Polls the next event and request from the state machine, if none is waiting.
    fn prepare(&mut self) {
        if self.event.is_none() {
            self.event = self.client.poll_event().map(AdsClientEvent::Resource);
        }
        if self.request.is_none() {
            self.request = self.client.poll_transmit(self.clock.now());
        }
    }

    fn handle_command(&mut self, command: &AdsCommand) {
        match command {
            AdsCommand::Subscribe { type_url, name } => self.client.subscribe(type_url, name),
            AdsCommand::Unsubscribe { type_url, name } => self.client.unsubscribe(type_url, name),
        }
    }

    /// Handles a transport event while no client event is waiting. An error ends the stream.
    fn handle_transport_event(
        &mut self,
        event: TransportEvent<Request>,
        decode: &mut impl Decode<T>,
        server: &str,
    ) -> Result<(), Status> {
        match event {
            TransportEvent::Connected {
                requests,
                server_changed,
            } => {
                self.requests = Some(requests);
                if server_changed {
                    self.client.handle_server_change();
                }
                self.client.handle_connected();
                self.event = Some(AdsClientEvent::Connected);
            }
            TransportEvent::Message(bytes) => {
                let response = decode_response(self.client.variant(), bytes)
                    .map_err(|error| Status::internal(error.to_string()))?;
                let type_url = Arc::clone(response.type_url());
                let decode = |name: &str, body: &Bytes| decode(&type_url, name, body);
                self.client
                    .handle_response(response, decode, self.clock.now());
                if let Some(Recovery { outage, failures }) = self.outage.handle_message() {
                    let outage_s = outage.as_secs_f64();
                    log_line!(log_lines::ADS_STREAM_RESTORED, server, outage_s, failures);
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
        let error = status.message();
        if self.outage.handle_lost(loss) {
            let retry_in_ms = retry_in.unwrap_or_default().as_millis();
            let code = status.code();
            log_line!(
                log_lines::ADS_STREAM_CLOSED,
                server,
                error,
                ?code,
                retry_in_ms
            );
        }
        // Requests are rebuilt from the subscriptions, so a pending one is dropped.
        self.requests = None;
        self.request = None;
        self.client.handle_disconnected();
        self.event = Some(AdsClientEvent::Disconnected {
            code: status.code().into(),
            message: error.to_owned(),
        });
    }

    fn transmit(&mut self) {
        if let Some(requests) = &mut self.requests {
            self.request = self
                .request
                .take()
                .and_then(|request| requests.send(request));
        }
    }
}

fn encode(request: &Request) -> Bytes {
    match request {
        Request::Sotw(request) => wire::encode_discovery_request(request).into(),
        Request::Delta(request) => wire::encode_delta_discovery_request(request).into(),
    }
}

fn decode_response(variant: Variant, bytes: Bytes) -> Result<Response, DecodeError> {
    match variant {
        Variant::Sotw => wire::decode_discovery_response(bytes).map(|mut response| {
            // Unwrap to the declared type. An empty wrapper is a heartbeat and is dropped.
            response.resources = unwrapped(&response.resources);
            Response::Sotw(response)
        }),
        Variant::Delta => wire::decode_delta_discovery_response(bytes).map(Response::Delta),
    }
}

fn unwrapped(resources: &[Any]) -> Vec<Any> {
    resources.iter().filter_map(wire::unwrap_resource).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_resources_are_unwrapped_and_empty_wrappers_left_out() {
        let any = |type_url: &str, value: &'static [u8]| Any {
            type_url: type_url.into(),
            value: Bytes::from_static(value),
        };
        let wrapper = "type.googleapis.com/envoy.service.discovery.v3.Resource";
        let plain = any("t", b"\x0a\x01a");
        // resource (2): {type_url (1): "t", value (2): the plain one}, name (3): "a".
        let wrapped = any(wrapper, b"\x12\x08\x0a\x01t\x12\x03\x0a\x01a\x1a\x01a");
        let heartbeat = any(wrapper, b"\x1a\x01a");
        let all = unwrapped(&[plain.clone(), wrapped, heartbeat]);
        assert_eq!(all, [plain.clone(), plain]);
    }
}
