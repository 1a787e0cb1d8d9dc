//! Discovery as a subscriber, over sockets: [`run`].
//!
//! What to ask, accept and refuse is decided by `ads::Client`; resources belong to whoever holds
//! the other ends of the channels: the relay of the control plane, and data planes.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tonic::Status;

use super::clock::Clock;
use super::connect::{Link, LinkEvent, Requests, room};
use super::servers::Servers;
use super::{DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES};
use crate::ads::client::{Client, ClientEvent};
use crate::ads::message::Any;
use crate::ads::{Request, Response, Variant};
use crate::error::DecodeError;
use crate::wire;

/// A change of what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdsCommand {
    /// Wants a resource, or with `*` all of a type.
    Watch {
        /// Its type.
        type_url: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// Does not want it any more.
    Unwatch {
        /// Its type.
        type_url: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
}

/// What a subscriber is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdsClientEvent {
    /// A stream is open.
    Connected,
    /// The stream, or the attempt to open one, is over. What was good stays so; another attempt
    /// follows.
    Disconnected {
        /// gRPC status.
        code: i32,
        /// In words.
        message: String,
    },
    /// Something became of a resource.
    Resource(ClientEvent),
}

/// The ends that the subscriber does not hold.
#[derive(Debug)]
pub struct AdsClientChannels {
    /// What happens. A full channel holds up reading, and with it the server.
    pub events: mpsc::Sender<AdsClientEvent>,
    /// What is wanted.
    pub commands: mpsc::Receiver<AdsCommand>,
}

/// Says what is wrong with a resource, given its type, its name and its body.
pub trait Check: FnMut(&str, &str, &Bytes) -> Result<(), String> + Send {}

impl<F: FnMut(&str, &str, &Bytes) -> Result<(), String> + Send> Check for F {}

/// Subscribes until the owner drops its ends of the channels. Lost servers are dialled again; if
/// something is missing and a server is lost without a word, the next one is tried (gRFC A71).
/// Resources that `check` refuses are refused to the server, with its words.
pub async fn run(
    servers: impl Into<Servers>,
    client: Client,
    mut check: impl Check,
    channels: AdsClientChannels,
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
    };
    let AdsClientChannels {
        events,
        mut commands,
    } = channels;
    let mut link = Link::new(servers.into(), path, encode);
    loop {
        driver.prepare();
        tokio::select! {
            room = events.reserve(), if driver.event.is_some() => {
                let Ok(room) = room else {
                    return;
                };
                if let Some(event) = driver.event.take() {
                    room.send(event);
                }
            }
            command = commands.recv() => match command {
                None => return,
                Some(command) => driver.handle_command(&command),
            },
            () = room(driver.requests.as_ref()), if driver.request.is_some() => driver.transmit(),
            // A full channel of events holds up reading.
            news = link.next(), if driver.event.is_none() => {
                if let Err(status) = driver.handle_news(news, &mut check) {
                    driver.handle_lost(&link.abandon(status));
                }
                link.fall_back(|| driver.client.lacks());
            }
            // What is due may be the request after the one that waits: no timer until that left.
            () = driver.clock.sleep_until(driver.client.poll_timeout()),
                if driver.request.is_none() =>
            {
                let now = driver.clock.now();
                driver.client.handle_timeout(now);
            }
        }
    }
}

struct Driver {
    client: Client,
    clock: Clock,
    requests: Option<Requests<Request>>,
    /// Waits for room on the stream.
    request: Option<Request>,
    /// Waits for room in the channel.
    event: Option<AdsClientEvent>,
}

impl Driver {
    /// Takes the next event and request out of the machine, if the last ones are gone.
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
            AdsCommand::Watch { type_url, name } => self.client.watch(type_url, name),
            AdsCommand::Unwatch { type_url, name } => self.client.unwatch(type_url, name),
        }
    }

    /// Called with no event waiting. An error means that the stream must be given up.
    fn handle_news(
        &mut self,
        news: LinkEvent<Request>,
        check: &mut impl Check,
    ) -> Result<(), Status> {
        match news {
            LinkEvent::Connected { requests, other } => {
                self.requests = Some(requests);
                if other {
                    self.client.handle_other_server();
                }
                self.client.handle_connected();
                self.event = Some(AdsClientEvent::Connected);
            }
            LinkEvent::Message(bytes) => {
                let response = decode(self.client.variant(), bytes);
                let unreadable = |error: DecodeError| Status::internal(error.to_string());
                let response = response.map_err(unreadable)?;
                let type_url = Arc::clone(response.type_url());
                let check = |name: &str, body: &Bytes| check(&type_url, name, body);
                self.client
                    .handle_response(response, check, self.clock.now());
            }
            LinkEvent::Lost(status) => self.handle_lost(&status),
        }
        Ok(())
    }

    fn handle_lost(&mut self, status: &Status) {
        tracing::warn!(error = %status.message(), code = ?status.code(), "discovery lost");
        // Requests are made anew from what is wanted; none is worth keeping.
        self.requests = None;
        self.request = None;
        self.client.handle_disconnected();
        self.event = Some(AdsClientEvent::Disconnected {
            code: status.code().into(),
            message: status.message().to_owned(),
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

fn decode(variant: Variant, bytes: Bytes) -> Result<Response, DecodeError> {
    match variant {
        Variant::Sotw => wire::decode_discovery_response(bytes).map(|mut response| {
            // Bodies are what the type says, whoever wrapped them on the way. An empty wrapper only
            // says that its resource lives on.
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
