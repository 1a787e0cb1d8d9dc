//! Messages of synthetic proxies: nodes and load reports of the size that real Envoys send.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::lrs::message::LoadStatsRequest;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::wire;

/// Service that all proxies call.
pub(crate) const SERVICE: &str = "orders";
/// Fleet of the proxies.
pub(crate) const FLEET: &str = "gateway";
/// Name of the local cluster.
pub(crate) const FLEET_CLUSTER: &str = "local_cluster";
/// Zones of proxies and hosts.
pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Number of extensions that an Envoy lists in its node message, which makes it 61 KB.
const EXTENSIONS: usize = 516;
/// Length of an extension's name that gives this size.
const EXTENSION_SIZE: usize = 114;
const EXTENSIONS_FIELD: u8 = 9 << 3 | 2;
const FIRST_FIELD: u8 = 1 << 3 | 2;
/// Request rate of a proxy, per second.
const RATE: f64 = 100.0;

/// Returns the zone of a proxy.
pub(crate) fn zone(index: usize) -> &'static str {
    ZONES[index % ZONES.len()]
}

/// Returns the node message of a proxy, with extensions.
pub(crate) fn node(index: usize) -> NodeMessage {
    let info = NodeInfo {
        node: Node {
            id: format!("gateway-{index}").into(),
            cluster: FLEET.into(),
            locality: Locality::new("r1", zone(index), ""),
        },
        user_agent_name: "envoy".to_owned(),
        user_agent_version: "1.40.0".to_owned(),
        client_features: vec!["envoy.lrs.supports_send_all_clusters".to_owned()],
    };
    let mut raw = BytesMut::from(&wire::encode_node(&info)[..]);
    raw.extend_from_slice(extensions());
    NodeMessage {
        info,
        raw: raw.freeze(),
    }
}

/// Returns the encoded extensions, which are the same for all proxies.
fn extensions() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let mut bytes = BytesMut::new();
        for extension in 0..EXTENSIONS {
            let mut name = format!("envoy.synthetic.extension.{extension}.").into_bytes();
            name.resize(EXTENSION_SIZE, b'x');
            bytes.put_u8(EXTENSIONS_FIELD);
            put_length(&mut bytes, name.len() + 2);
            bytes.put_u8(FIRST_FIELD);
            put_length(&mut bytes, name.len());
            bytes.extend_from_slice(&name);
        }
        bytes.to_vec()
    })
}

/// Encodes a load report as a gRPC message; the first one of a stream has no statistics.
pub(crate) fn report(node: &NodeMessage, stats: Option<ClusterStats>) -> Bytes {
    let counts = wire::encode_load_stats_request(&LoadStatsRequest {
        node: None,
        cluster_stats: stats.into_iter().collect(),
        ..Default::default()
    });
    let mut out = BytesMut::with_capacity(node.raw.len() + counts.len() + 16);
    out.put_u8(FIRST_FIELD);
    put_length(&mut out, node.raw.len());
    out.extend_from_slice(&node.raw);
    out.extend_from_slice(&counts);
    framed(&out)
}

/// Returns the statistics of one interval: `factor` times the usual rate, evenly to all zones.
pub(crate) fn stats(interval: Duration, factor: f64) -> ClusterStats {
    let requests = interval.as_secs_f64() * RATE * factor / 3.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "requests of one interval"
    )]
    let requests = requests.round() as u64;
    let localities = ZONES.iter().map(|zone| UpstreamLocalityStats {
        locality: Locality::new("r1", zone, ""),
        total_issued_requests: requests,
        total_successful_requests: requests,
        ..Default::default()
    });
    ClusterStats {
        cluster_name: Arc::from(SERVICE),
        upstream_locality_stats: localities.collect(),
        total_dropped_requests: 0,
        load_report_interval: interval,
    }
}

/// Adds the gRPC prefix: no compression, length.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 5);
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(message);
    out.freeze()
}

/// Appends a length as a protobuf varint.
fn put_length(out: &mut BytesMut, mut length: usize) {
    while length >= 0x80 {
        out.put_u8(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    out.put_u8(u8::try_from(length).unwrap_or_default());
}
