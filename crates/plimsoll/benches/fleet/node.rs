//! Synthetic Envoy, cheap enough to run thousands next to the measured process.
//!
//! It has one connection with a discovery stream and a load reporting stream. Discovery uses the
//! client state machine of plimsoll-xds, so updates are decoded and ACKed; HTTP/2 is used directly,
//! without the layers of a real client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use h2::client::SendRequest;
use plimsoll_xds::ads::client::{Client, ClientSettings};
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, Request, Response, Variant};
use plimsoll_xds::driver::{
    Clock, DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES, STREAM_LOAD_STATS,
};
use plimsoll_xds::wire;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::messages::{FLEET_CLUSTER, SERVICE, ZONES, framed, node, report, stats, zone};
use crate::measure::Shared;
use crate::stream::Stream;
use crate::tls::{Dialer, Socket};

/// Number of streams with a response before a proxy counts as ready.
const STREAMS: u8 = 2;

/// State of one synthetic Envoy.
pub(crate) struct Node {
    index: usize,
    shared: Arc<Shared>,
    answered: AtomicU8,
    opening: Arc<Semaphore>,
    dialer: Option<Dialer>,
}

impl Node {
    /// Creates the proxy with this index; it holds a permit of `opening` until it is ready.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        opening: Arc<Semaphore>,
        dialer: Option<Dialer>,
    ) -> Self {
        Self {
            index,
            shared,
            answered: AtomicU8::new(0),
            opening,
            dialer,
        }
    }

    /// Runs both streams; returns only on an error.
    pub(crate) async fn run(&self, address: SocketAddr) -> anyhow::Result<()> {
        self.opening.acquire().await?.forget();
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let socket: Box<dyn Socket> = match &self.dialer {
            Some(dialer) => dialer.handshake(socket).await?,
            None => Box::new(socket),
        };
        let (requests, connection) = h2::client::handshake(socket).await?;
        tokio::select! {
            ended = connection => ended.context("connection"),
            ended = self.discover(requests.clone()) => ended.context("discovery"),
            ended = self.report(requests) => ended.context("load reporting"),
        }
    }

    async fn discover(&self, requests: SendRequest<Bytes>) -> anyhow::Result<()> {
        let variant = self.shared.plan.variant;
        let path = match variant {
            Variant::Sotw => STREAM_AGGREGATED_RESOURCES,
            Variant::Delta => DELTA_AGGREGATED_RESOURCES,
        };
        let mut stream = Stream::open(requests, path).await?;
        let mut client = self.client(variant);
        client.handle_connected();
        loop {
            while let Some(request) = client.poll_transmit(Clock::system().now()) {
                stream.send(self.encode(request))?;
            }
            let fleet = client
                .resources(CLUSTER_LOAD_ASSIGNMENT)
                .find(|resource| &*resource.name == FLEET_CLUSTER)
                .map(|resource| Arc::clone(&resource.version));
            if let Some(version) = fleet
                && self
                    .shared
                    .spread
                    .received(self.index, &version, Instant::now())
            {
                self.answered();
            }
            let response = decode(variant, stream.next().await?)?;
            self.shared.responses.fetch_add(1, Ordering::Relaxed);
            client.handle_response(response, |_, _| Ok(()), Clock::system().now());
            while client.poll_event().is_some() {}
        }
    }

    async fn report(&self, requests: SendRequest<Bytes>) -> anyhow::Result<()> {
        let mut stream = Stream::open(requests, STREAM_LOAD_STATS).await?;
        stream.send(report(&node(self.index), None))?;
        let settings = wire::decode_load_stats_response(&stream.next().await?)?;
        self.answered();
        let interval = settings.load_reporting_interval;
        let mut ticks = tokio::time::interval_at(self.first_report(interval), interval);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                message = stream.next() => {
                    message?;
                    continue;
                }
            }
            let stepped = self.shared.stepped.load(Ordering::Relaxed);
            let doubled = stepped && zone(self.index) == ZONES[0];
            let factor = if doubled { 2.0 } else { 1.0 };
            let stats = stats(interval, factor);
            stream.send(report(&node(self.index), Some(stats)))?;
            self.shared.reports.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the time of the first report; reports are spread evenly, as in a fleet that did not
    /// start at once.
    fn first_report(&self, interval: Duration) -> tokio::time::Instant {
        let share = (self.index as f64 * 0.618_033_988_75).fract();
        tokio::time::Instant::now() + interval.mul_f64(share)
    }

    fn client(&self, variant: Variant) -> Client<()> {
        // The 61 KB of extensions are added when sending, to save memory.
        let node = NodeMessage {
            raw: Bytes::new(),
            ..node(self.index)
        };
        let settings = ClientSettings::default();
        let mut client = Client::new(variant, node, wire::resource_name, settings);
        for (type_url, name) in [
            (CLUSTER, "*"),
            (CLUSTER_LOAD_ASSIGNMENT, SERVICE),
            (CLUSTER_LOAD_ASSIGNMENT, FLEET_CLUSTER),
            (LISTENER, "*"),
        ] {
            client.subscribe(&type_url.into(), &name.into());
        }
        client
    }

    fn encode(&self, request: Request) -> Bytes {
        let whole = |part: Option<NodeMessage>| part.map(|_| node(self.index));
        let bytes = match request {
            Request::Sotw(mut request) => {
                request.node = whole(request.node);
                wire::encode_discovery_request(&request)
            }
            Request::Delta(mut request) => {
                request.node = whole(request.node);
                wire::encode_delta_discovery_request(&request)
            }
        };
        framed(&bytes)
    }

    /// Counts the first response of a stream.
    fn answered(&self) {
        if self.answered.fetch_add(1, Ordering::Relaxed) + 1 == STREAMS {
            self.shared.ready.fetch_add(1, Ordering::Relaxed);
            self.opening.add_permits(1);
        }
    }
}

fn decode(variant: Variant, bytes: Bytes) -> anyhow::Result<Response> {
    Ok(match variant {
        Variant::Sotw => Response::Sotw(wire::decode_discovery_response(bytes)?),
        Variant::Delta => Response::Delta(wire::decode_delta_discovery_response(bytes)?),
    })
}
