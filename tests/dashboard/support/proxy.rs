//! Synthetic proxy that reports the same load every second, on its own thread.
//!
//! Its load is constant, so a page and an API that are read one after the other show the same
//! numbers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::client::{Client, ClientSettings};
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, Request, Response, Variant};
use plimsoll_xds::driver::{Clock, STREAM_AGGREGATED_RESOURCES, STREAM_LOAD_STATS};
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::lrs::message::LoadStatsRequest;
use plimsoll_xds::node::{NodeInfo, PLIMSOLL_FEATURE};
use plimsoll_xds::wire;

/// Length of the gRPC message prefix: compressed flag and length.
const HEADER: usize = 5;

/// Properties of a synthetic proxy; one that sends no requests NACKs every response.
pub(crate) struct Proxy {
    pub(crate) id: &'static str,
    pub(crate) zone: &'static str,
    /// Requests per second to each zone.
    pub(crate) sent: Vec<(&'static str, u64)>,
    /// Whether it announces support of measured demand; otherwise it is an Envoy.
    pub(crate) plimsoll: bool,
}

/// Starts a proxy that runs until the test process or the control plane exits.
pub(crate) fn start(proxy: Proxy, control: SocketAddr) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            // The control plane may exit first.
            let _ = proxy.run(control).await;
        });
    });
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

impl Proxy {
    async fn run(&self, control: SocketAddr) -> Outcome {
        let socket = tokio::net::TcpStream::connect(control).await?;
        let (requests, connection) = h2::client::handshake(socket).await?;
        tokio::select! {
            ended = connection => Ok(ended?),
            ended = self.discover(requests.clone()) => ended,
            ended = self.report(requests) => ended,
        }
    }

    async fn discover(&self, requests: SendRequest<Bytes>) -> Outcome {
        let mut stream = Stream::open(requests, STREAM_AGGREGATED_RESOURCES).await?;
        let settings = ClientSettings::default();
        let mut client = Client::new(Variant::Sotw, self.node(), wire::resource_name, settings);
        for (type_url, name) in [(CLUSTER, "*"), (CLUSTER_LOAD_ASSIGNMENT, "orders")] {
            client.subscribe(&type_url.into(), &name.into());
        }
        client.handle_connected();
        loop {
            while let Some(request) = client.poll_transmit(Clock::system().now()) {
                if let Request::Sotw(request) = request {
                    stream.send(&wire::encode_discovery_request(&request))?;
                }
            }
            let response = Response::Sotw(wire::decode_discovery_response(stream.next().await?)?);
            let decode = |_: &str, _: &Bytes| {
                if self.sent.is_empty() {
                    Err(DecodeError::new("", "unsupported kind of weights"))
                } else {
                    Ok(())
                }
            };
            client.handle_response(response, decode, Clock::system().now());
            while client.poll_event().is_some() {}
        }
    }

    async fn report(&self, requests: SendRequest<Bytes>) -> Outcome {
        let mut stream = Stream::open(requests, STREAM_LOAD_STATS).await?;
        let encode = |cluster_stats| {
            wire::encode_load_stats_request(&LoadStatsRequest {
                node: Some(self.node().info),
                cluster_stats,
                ..Default::default()
            })
        };
        stream.send(&encode(Vec::new()))?;
        let settings = wire::decode_load_stats_response(&stream.next().await?)?;
        let mut ticks = tokio::time::interval(settings.load_reporting_interval);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                message = stream.next() => {
                    message?;
                    continue;
                }
            }
            if !self.sent.is_empty() {
                stream.send(&encode(vec![self.stats()]))?;
            }
        }
    }

    fn node(&self) -> NodeMessage {
        let info = NodeInfo {
            node: Node {
                id: self.id.into(),
                cluster: "gateway".into(),
                locality: Locality::new("r1", self.zone, ""),
            },
            user_agent_name: "envoy".to_owned(),
            user_agent_version: "1.40.0".to_owned(),
            client_features: if self.plimsoll {
                vec![PLIMSOLL_FEATURE.to_owned()]
            } else {
                Vec::new()
            },
        };
        let raw = wire::encode_node(&info);
        NodeMessage { info, raw }
    }

    fn stats(&self) -> ClusterStats {
        let sent = self.sent.iter().map(|&(zone, requests)| {
            // Not enough for a notice.
            let failed = if zone == "zone-b" { requests / 50 } else { 0 };
            UpstreamLocalityStats {
                locality: Locality::new("r1", zone, ""),
                total_issued_requests: requests,
                total_successful_requests: requests - failed,
                total_error_requests: failed,
                ..Default::default()
            }
        });
        ClusterStats {
            cluster_name: Arc::from("orders"),
            upstream_locality_stats: sent.collect(),
            total_dropped_requests: 0,
            load_report_interval: Duration::from_secs(1),
        }
    }
}

/// Bidirectional gRPC stream over h2.
struct Stream {
    requests: SendStream<Bytes>,
    responses: RecvStream,
    buffer: BytesMut,
}

impl Stream {
    async fn open(
        requests: SendRequest<Bytes>,
        path: &str,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let request = http::Request::post(format!("http://control{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let mut sender = requests.ready().await?;
        let (response, requests) = sender.send_request(request, false)?;
        Ok(Self {
            requests,
            responses: response.await?.into_body(),
            buffer: BytesMut::new(),
        })
    }

    fn send(&mut self, message: &[u8]) -> Result<(), h2::Error> {
        let mut out = BytesMut::with_capacity(message.len() + HEADER);
        out.put_u8(0);
        out.put_u32(u32::try_from(message.len()).unwrap());
        out.extend_from_slice(message);
        self.requests.send_data(out.freeze(), false)
    }

    /// Returns the next message; cancel-safe.
    async fn next(&mut self) -> Result<Bytes, Box<dyn std::error::Error>> {
        loop {
            if let Some(length) = self.buffer.get(1..HEADER) {
                let length = u32::from_be_bytes(length.try_into()?) as usize;
                if self.buffer.len() >= HEADER + length {
                    self.buffer.advance(HEADER);
                    return Ok(self.buffer.split_to(length).freeze());
                }
            }
            let data = self
                .responses
                .data()
                .await
                .ok_or("the stream has ended")??;
            self.responses.flow_control().release_capacity(data.len())?;
            self.buffer.extend_from_slice(&data);
        }
    }
}
