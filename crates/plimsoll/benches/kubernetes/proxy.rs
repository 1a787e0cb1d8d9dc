//! [`Proxy`]: subscribes to the assignments of all Services and notes when changes arrive.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::client::{Client, ClientSettings};
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, Request, Response, Variant};
use plimsoll_xds::driver::{Clock, DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES};
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::wire;
use tokio::net::TcpStream;

use crate::stream::Stream;

/// A synthetic Envoy that wants all Services, as a gateway does.
pub(crate) struct Proxy {
    pub(crate) index: usize,
    pub(crate) zone: &'static str,
    pub(crate) names: Vec<String>,
    pub(crate) variant: Variant,
    pub(crate) arrivals: Arc<Arrivals>,
}

/// Changes that were made, and when each proxy had them.
pub(crate) struct Arrivals {
    state: Mutex<State>,
    proxies: usize,
}

#[derive(Default)]
struct State {
    /// Change that each Service had last, and when.
    sent: BTreeMap<String, (u32, Instant)>,
    /// Change that each proxy has of each Service.
    seen: BTreeMap<(usize, String), u32>,
    latencies: Vec<Duration>,
}

impl Arrivals {
    pub(crate) fn new(proxies: usize) -> Self {
        Self {
            state: Mutex::default(),
            proxies,
        }
    }

    /// Notes a change that is about to be made.
    pub(crate) fn sent(&self, name: &str, change: u32) {
        let mut state = self.state.lock().unwrap();
        state.sent.insert(name.to_owned(), (change, Instant::now()));
    }

    fn received(&self, proxy: usize, name: &str, change: u32) {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap();
        let key = (proxy, name.to_owned());
        let before = state.seen.insert(key, change);
        if before.is_some_and(|before| before < change)
            && let Some(&(latest, at)) = state.sent.get(name)
            && latest == change
        {
            state.latencies.push(now - at);
        }
    }

    /// Number of assignments that all proxies have together.
    pub(crate) fn known(&self) -> usize {
        self.state.lock().unwrap().seen.len()
    }

    /// Number of proxies and Services whose last change has not arrived.
    pub(crate) fn missing(&self) -> usize {
        let state = self.state.lock().unwrap();
        let sent = state.sent.iter();
        sent.flat_map(|(name, (change, _))| {
            (0..self.proxies).map(move |proxy| ((proxy, name.clone()), change))
        })
        .filter(|(key, change)| state.seen.get(key) != Some(change))
        .count()
    }

    /// Times from a change to its arrival at a proxy, sorted.
    pub(crate) fn latencies(&self) -> Vec<Duration> {
        let mut latencies = self.state.lock().unwrap().latencies.clone();
        latencies.sort_unstable();
        latencies
    }
}

impl Proxy {
    /// Runs until the stream ends, with the control plane.
    pub(crate) async fn run(self, address: SocketAddr) -> anyhow::Result<()> {
        // Proxies are refused until the Services have been listed.
        loop {
            let _ = self.discover(address).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn discover(&self, address: SocketAddr) -> anyhow::Result<()> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let (requests, connection) = h2::client::Builder::new()
            .initial_window_size(4 << 20)
            .initial_connection_window_size(16 << 20)
            .handshake(socket)
            .await?;
        let connection = tokio::spawn(connection);
        let path = match self.variant {
            Variant::Sotw => STREAM_AGGREGATED_RESOURCES,
            Variant::Delta => DELTA_AGGREGATED_RESOURCES,
        };
        let mut stream = Stream::open(requests, path).await?;
        let mut client = self.client();
        client.handle_connected();
        let ended = loop {
            while let Some(request) = client.poll_transmit(Clock::system().now()) {
                stream.send(framed(&encode(request)))?;
            }
            let bytes = match stream.next().await {
                Ok(bytes) => bytes,
                Err(error) => break error,
            };
            let response = match self.variant {
                Variant::Sotw => Response::Sotw(wire::decode_discovery_response(bytes)?),
                Variant::Delta => Response::Delta(wire::decode_delta_discovery_response(bytes)?),
            };
            let is_assignment = **response.type_url() == *CLUSTER_LOAD_ASSIGNMENT;
            let decode = |name: &str, body: &Bytes| {
                if is_assignment && let Some(change) = change_of(body) {
                    self.arrivals.received(self.index, name, change);
                }
                Ok(())
            };
            client.handle_response(response, decode, Clock::system().now());
            while client.poll_event().is_some() {}
        };
        connection.abort();
        Err(ended)
    }

    fn client(&self) -> Client<()> {
        let info = NodeInfo {
            node: Node {
                id: format!("gateway-{}", self.index).into(),
                cluster: "gateway".into(),
                locality: Locality::new("r1", self.zone, ""),
            },
            user_agent_name: "envoy".to_owned(),
            user_agent_version: "1.40.0".to_owned(),
            client_features: Vec::new(),
        };
        let raw = wire::encode_node(&info);
        let node = NodeMessage { info, raw };
        let settings = ClientSettings::default();
        let mut client = Client::new(self.variant, node, wire::resource_name, settings);
        client.subscribe(&CLUSTER.into(), &"*".into());
        for name in &self.names {
            let name = name.as_str().into();
            client.subscribe(&CLUSTER_LOAD_ASSIGNMENT.into(), &name);
        }
        client
    }
}

/// Number of the change in the address of the first endpoint.
fn change_of(body: &Bytes) -> Option<u32> {
    let assignment = wire::decode_assignment(body).ok()?;
    let endpoints = assignment.endpoints().iter();
    let mut addresses = endpoints.flat_map(|entry| entry.lb_endpoints.iter());
    addresses.find_map(|endpoint| match endpoint.address.ip() {
        IpAddr::V4(ip) if ip.octets()[0] == 11 => {
            let [_, high, mid, low] = ip.octets();
            Some(u32::from_be_bytes([0, high, mid, low]))
        }
        _ => None,
    })
}

fn encode(request: Request) -> Vec<u8> {
    match request {
        Request::Sotw(request) => wire::encode_discovery_request(&request),
        Request::Delta(request) => wire::encode_delta_discovery_request(&request),
    }
}

fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(message);
    framed.freeze()
}
