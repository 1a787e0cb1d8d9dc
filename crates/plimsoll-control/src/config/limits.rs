//! [`Limits`]: what proxies, and the namespaces of a Kubernetes cluster, can make the control plane
//! keep or compute.
//!
//! Fleet names, node ids, zones and reports come from the network; Services and their endpoints
//! from every tenant of the cluster. docs/control.md has a table of
//! all limits; each counts in `plimsoll_control_limit_exceeded_total`.

use std::ops::RangeInclusive;
use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_kubernetes::budget::NamespaceLimits;
use plimsoll_xds::driver::RequestLimits;
use plimsoll_xds::yaml::proto_json::{ProtoDuration, Uint};
use serde::Deserialize;

use super::security::IncomingLimits;
use crate::fleet::FleetLimits;

/// Largest value of a limit that counts things: enough for any fleet, and far from overflow.
const MAX_COUNT: u64 = 10_000_000;

/// Twice `nodes_per_peer`: a node has a stream of ADS and one of LRS.
const DEFAULT_STREAMS_PER_PEER: usize = 20_000;

/// Limits of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub fleets: FleetLimits,
    /// Limits of one message of a proxy.
    pub requests: RequestLimits,
    /// Bytes of load reports that wait for the writer; more slow down the reporting streams.
    pub queue_bytes: usize,
    /// Open streams of ADS and LRS.
    pub streams: usize,
    /// Those of one IPv4 address or IPv6 network of 64 bits; unset means that and at most a quarter
    /// of all.
    pub streams_per_peer: usize,
    /// Bytes of requests that have arrived in part, over all streams.
    pub unfinished_bytes: usize,
    /// Memory of subscribed names that are no resources, over all streams.
    pub subscription_bytes: usize,
    /// Time from the first byte of a request to its last.
    pub message_timeout: Duration,
    /// Zones in `hosts`, and in `demand`, of a what-if question.
    pub what_if_zones: usize,
    /// Limits of connections to ADS and LRS.
    pub incoming: IncomingLimits,
    /// Limits of the Services of one namespace of Kubernetes.
    pub namespaces: NamespaceLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fleets: FleetLimits::default(),
            requests: RequestLimits::default(),
            queue_bytes: 32 << 20,
            streams: 100_000,
            streams_per_peer: DEFAULT_STREAMS_PER_PEER,
            unfinished_bytes: 64 << 20,
            subscription_bytes: 128 << 20,
            message_timeout: Duration::from_secs(30),
            what_if_zones: 256,
            incoming: IncomingLimits::default(),
            namespaces: NamespaceLimits::default(),
        }
    }
}

impl Limits {
    /// Returns the limits of the Services of one namespace. The names of zones have the limit of
    /// those that nodes send.
    pub fn namespaces(&self) -> NamespaceLimits {
        NamespaceLimits {
            zone_bytes: self.requests.node_string_bytes,
            ..self.namespaces
        }
    }
}

/// Limits of what proxies can make the control plane keep or compute.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsYaml {
    /// Nodes of all fleets, at least 1. Default 50000.
    nodes: Option<Uint<u64>>,
    /// Fleets, at least 1. Default 1000.
    fleets: Option<Uint<u64>>,
    /// Zones of one fleet beside those with endpoints of a service and `fleets.zones`, at least 1.
    /// Default 64.
    zones_per_fleet: Option<Uint<u64>>,
    /// Nodes that were first seen from one IPv4 address or IPv6 network of 64 bits, at least 1;
    /// loopback is exempt. Default 10000.
    nodes_per_peer: Option<Uint<u64>>,
    /// Fleets that were first seen from one IPv4 address or IPv6 network of 64 bits, at least 1;
    /// loopback is exempt. Default 200.
    fleets_per_peer: Option<Uint<u64>>,
    /// Open streams of one node and one kind (ADS, LRS, LRS of the module in an Envoy), at least 1.
    /// A gRPC client has one of ADS for each of its targets. Default 256.
    streams_per_node: Option<Uint<u64>>,
    /// Bytes of each string of a node and of each part of a locality, 16 to 4096. Default 256.
    node_string_bytes: Option<Uint<u64>>,
    /// Entries of `node.client_features`, at least 1. Default 64.
    client_features: Option<Uint<u64>>,
    /// Bytes of a resource name, cluster name, type URL, version or nonce, 64 to 65536. Default
    /// 1024.
    name_bytes: Option<Uint<u64>>,
    /// Resource names of a discovery request, and of a type on a stream, at least 1. Default 32768.
    names: Option<Uint<u64>>,
    /// Clusters of a load report, and clusters of a fleet whose demand is kept apart, 1 to 1000000.
    /// Default 4096.
    clusters_per_report: Option<Uint<u64>>,
    /// Upstream localities of one cluster of a load report, at least 1. Default 1000.
    localities_per_cluster: Option<Uint<u64>>,
    /// Upstream localities of a load report, at least 1. Default 16384.
    localities_per_report: Option<Uint<u64>>,
    /// Bytes of the text of a NACK that are kept, 64 to 65536; the rest is cut. Default 1024.
    text_bytes: Option<Uint<u64>>,
    /// Bytes of load reports that wait to be processed, 65536 to 1073741824. Default 33554432.
    queue_bytes: Option<Uint<u64>>,
    /// Open streams of ADS and LRS, at least 1. Default 100000.
    streams: Option<Uint<u64>>,
    /// Open streams of one IPv4 address or IPv6 network of 64 bits, at least 1. Loopback may have
    /// three quarters of `streams`. Default 20000, at most a quarter of `streams`.
    streams_per_peer: Option<Uint<u64>>,
    /// Bytes of requests that have arrived in part, over all streams, 4194304 to 4294967296. If
    /// there are more, the stream with the largest one ends, of the client whose streams hold most.
    /// Default 67108864.
    unfinished_bytes: Option<Uint<u64>>,
    /// Bytes of subscribed names that are no resources, over all streams, 1048576 to 4294967296;
    /// names of resources do not count. If there are more, the stream with most ends, of the client
    /// whose streams have most. One stream may have 16777216. Default 134217728.
    subscription_bytes: Option<Uint<u64>>,
    /// Time from the first byte of a request to its last, 0.1s to 3600s. Default `30s`.
    message_timeout: Option<ProtoDuration>,
    /// Zones in `hosts`, and in `demand`, of a what-if question, 1 to 4096. Default 256.
    what_if_zones: Option<Uint<u64>>,
    /// Open connections to ADS and LRS, at least 1. Default 20000, or less if the process may open
    /// fewer files.
    connections: Option<Uint<u32>>,
    /// Open connections of one IPv4 address or IPv6 network of 64 bits, at least 1; loopback is
    /// exempt. Default 1000.
    connections_per_peer: Option<Uint<u32>>,
    /// Time from accepting a connection to its first request, 0.1s to 3600s. Default `10s`.
    handshake_timeout: Option<ProtoDuration>,
    /// Age at which a connection to ADS and LRS ends, with up to a tenth more or less, so that
    /// clients do not come back together; 1s to 604800s, or `0s` for no limit. A connection also
    /// ends when its client certificate expires. Default `1800s`.
    connection_age: Option<ProtoDuration>,
    /// TCP ports of a Service of Kubernetes, each of which is a cluster, 1 to 65535. Default 64.
    ports_per_service: Option<Uint<u64>>,
    /// Endpoints of a Service of Kubernetes, counted once for each port, at least 1. Default
    /// 10000.
    endpoints_per_service: Option<Uint<u64>>,
    /// TCP ports of all Services of a namespace, at least 1. Default 2000.
    ports_per_namespace: Option<Uint<u64>>,
    /// Endpoints of all Services of a namespace, counted once for each port, at least 1. Default
    /// 20000.
    endpoints_per_namespace: Option<Uint<u64>>,
    /// Zones of the endpoints of a namespace, at least 1. Default 64.
    zones_per_namespace: Option<Uint<u64>>,
}

/// A field of the file: its name, the written value, the limit that it sets, and its range.
type Field<'a> = (
    &'static str,
    Option<Uint<u64>>,
    &'a mut usize,
    RangeInclusive<u64>,
);

impl LimitsYaml {
    pub(super) fn validate(&self) -> Result<Limits, FieldError> {
        let mut limits = Limits::default();
        for (field, written, limit, range) in self.fields(&mut limits) {
            let Some(Uint(written)) = written else {
                continue;
            };
            let (low, high) = (range.start(), range.end());
            let outside =
                || FieldError::new(field, format!("{written} is outside {low} to {high}"));
            if !range.contains(&written) {
                return Err(outside());
            }
            *limit = usize::try_from(written).map_err(|_| outside())?;
        }
        if self.streams_per_peer.is_none() {
            let share = limits.streams.div_ceil(4);
            limits.streams_per_peer = limits.streams_per_peer.min(share);
        }
        if let Some(ProtoDuration(timeout)) = self.message_timeout {
            limits.message_timeout = timeout_within("message_timeout", timeout)?;
        }
        limits.incoming = IncomingLimits::validate(
            self.connections,
            self.connections_per_peer,
            self.handshake_timeout,
            self.connection_age,
        )?;
        Ok(limits)
    }

    #[rustfmt::skip]
    fn fields<'a>(&self, limits: &'a mut Limits) -> [Field<'a>; 25] {
        const COUNT: RangeInclusive<u64> = 1..=MAX_COUNT;
        let Limits {
            fleets, requests, queue_bytes, streams, streams_per_peer, unfinished_bytes,
            subscription_bytes, what_if_zones, namespaces, ..
        } = limits;
        [
            ("nodes", self.nodes, &mut fleets.nodes, COUNT),
            ("fleets", self.fleets, &mut fleets.fleets, COUNT),
            ("zones_per_fleet", self.zones_per_fleet, &mut fleets.zones_per_fleet, COUNT),
            ("nodes_per_peer", self.nodes_per_peer, &mut fleets.nodes_per_peer, COUNT),
            ("fleets_per_peer", self.fleets_per_peer, &mut fleets.fleets_per_peer, COUNT),
            ("streams_per_node", self.streams_per_node, &mut fleets.streams_per_node, COUNT),
            ("node_string_bytes", self.node_string_bytes, &mut requests.node_string_bytes,
                16..=4096),
            ("client_features", self.client_features, &mut requests.client_features, COUNT),
            ("name_bytes", self.name_bytes, &mut requests.name_bytes, 64..=65_536),
            ("names", self.names, &mut requests.names, COUNT),
            ("clusters_per_report", self.clusters_per_report, &mut requests.clusters_per_report,
                1..=1_000_000),
            ("localities_per_cluster", self.localities_per_cluster,
                &mut requests.localities_per_cluster, COUNT),
            ("localities_per_report", self.localities_per_report,
                &mut requests.localities_per_report, COUNT),
            ("text_bytes", self.text_bytes, &mut requests.text_bytes, 64..=65_536),
            ("queue_bytes", self.queue_bytes, queue_bytes, 65_536..=1 << 30),
            ("streams", self.streams, streams, COUNT),
            ("streams_per_peer", self.streams_per_peer, streams_per_peer, COUNT),
            ("unfinished_bytes", self.unfinished_bytes, unfinished_bytes, 4 << 20..=4 << 30),
            ("subscription_bytes", self.subscription_bytes, subscription_bytes, 1 << 20..=4 << 30),
            ("what_if_zones", self.what_if_zones, what_if_zones, 1..=4096),
            ("ports_per_service", self.ports_per_service, &mut namespaces.ports_per_service,
                1..=65_535),
            ("endpoints_per_service", self.endpoints_per_service,
                &mut namespaces.endpoints_per_service, COUNT),
            ("ports_per_namespace", self.ports_per_namespace, &mut namespaces.ports_per_namespace,
                COUNT),
            ("endpoints_per_namespace", self.endpoints_per_namespace,
                &mut namespaces.endpoints_per_namespace, COUNT),
            ("zones_per_namespace", self.zones_per_namespace, &mut namespaces.zones_per_namespace,
                COUNT),
        ]
    }
}

/// Checks a time limit of a peer.
pub(super) fn timeout_within(
    field: &'static str,
    timeout: Duration,
) -> Result<Duration, FieldError> {
    if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&timeout) {
        let reason = format!("{timeout:?} is outside 100 ms to 1 h");
        return Err(FieldError::new(field, reason));
    }
    Ok(timeout)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Names of the fields of `limits`.
    #[cfg(feature = "schema")]
    pub(crate) fn limit_fields() -> Vec<String> {
        let schema = schemars::schema_for!(LimitsYaml);
        let fields = schema
            .get("properties")
            .and_then(|fields| fields.as_object());
        fields.unwrap().keys().cloned().collect()
    }

    const FIELDS: [(&str, u64, u64, u64); 25] = [
        ("nodes", 50_000, 1, MAX_COUNT),
        ("fleets", 1000, 1, MAX_COUNT),
        ("zones_per_fleet", 64, 1, MAX_COUNT),
        ("nodes_per_peer", 10_000, 1, MAX_COUNT),
        ("fleets_per_peer", 200, 1, MAX_COUNT),
        ("streams_per_node", 256, 1, MAX_COUNT),
        ("node_string_bytes", 256, 16, 4096),
        ("client_features", 64, 1, MAX_COUNT),
        ("name_bytes", 1024, 64, 65_536),
        ("names", 32_768, 1, MAX_COUNT),
        ("clusters_per_report", 4096, 1, 1_000_000),
        ("localities_per_cluster", 1000, 1, MAX_COUNT),
        ("localities_per_report", 16_384, 1, MAX_COUNT),
        ("text_bytes", 1024, 64, 65_536),
        ("queue_bytes", 32 << 20, 65_536, 1 << 30),
        ("streams", 100_000, 1, MAX_COUNT),
        ("streams_per_peer", 20_000, 1, MAX_COUNT),
        ("unfinished_bytes", 64 << 20, 4 << 20, 4 << 30),
        ("subscription_bytes", 128 << 20, 1 << 20, 4 << 30),
        ("what_if_zones", 256, 1, 4096),
        ("ports_per_service", 64, 1, 65_535),
        ("endpoints_per_service", 10_000, 1, MAX_COUNT),
        ("ports_per_namespace", 2000, 1, MAX_COUNT),
        ("endpoints_per_namespace", 20_000, 1, MAX_COUNT),
        ("zones_per_namespace", 64, 1, MAX_COUNT),
    ];

    fn parse(field: &str, value: u64) -> Result<Limits, FieldError> {
        let yaml: LimitsYaml = serde_json::from_value(serde_json::json!({ field: value })).unwrap();
        yaml.validate()
    }

    /// Values of all limits, in the order of `FIELDS`.
    fn values(limits: &Limits) -> [usize; 25] {
        let Limits {
            fleets, requests, ..
        } = limits;
        [
            fleets.nodes,
            fleets.fleets,
            fleets.zones_per_fleet,
            fleets.nodes_per_peer,
            fleets.fleets_per_peer,
            fleets.streams_per_node,
            requests.node_string_bytes,
            requests.client_features,
            requests.name_bytes,
            requests.names,
            requests.clusters_per_report,
            requests.localities_per_cluster,
            requests.localities_per_report,
            requests.text_bytes,
            limits.queue_bytes,
            limits.streams,
            limits.streams_per_peer,
            limits.unfinished_bytes,
            limits.subscription_bytes,
            limits.what_if_zones,
            limits.namespaces.ports_per_service,
            limits.namespaces.endpoints_per_service,
            limits.namespaces.ports_per_namespace,
            limits.namespaces.endpoints_per_namespace,
            limits.namespaces.zones_per_namespace,
        ]
    }

    #[test]
    fn defaults_apply_to_what_is_not_written() {
        let defaults = values(&LimitsYaml::default().validate().unwrap());
        assert_eq!(
            defaults.map(|value| value as u64),
            FIELDS.map(|field| field.1)
        );
    }

    #[test]
    fn a_peer_has_a_quarter_of_few_streams_unless_it_is_written() {
        let parse = |limits: serde_json::Value| {
            let yaml: LimitsYaml = serde_json::from_value(limits).unwrap();
            yaml.validate().unwrap().streams_per_peer
        };
        assert_eq!(parse(serde_json::json!({"streams": 1000})), 250);
        assert_eq!(parse(serde_json::json!({"streams": 1})), 1);
        assert_eq!(parse(serde_json::json!({"streams": 1_000_000})), 20_000);
        let written = serde_json::json!({"streams": 1000, "streams_per_peer": 900});
        assert_eq!(parse(written), 900);
    }

    #[test]
    fn the_time_of_a_message_is_limited() {
        let parse = |time: &str| {
            let yaml = serde_json::json!({ "message_timeout": time });
            serde_json::from_value::<LimitsYaml>(yaml)
                .unwrap()
                .validate()
        };
        let default = LimitsYaml::default().validate().unwrap();
        assert_eq!(default.message_timeout, Duration::from_secs(30));
        for (time, millis) in [("0.1s", 100), ("3600s", 3_600_000)] {
            let limits = parse(time).unwrap();
            assert_eq!(limits.message_timeout, Duration::from_millis(millis));
        }
        for time in ["0.099s", "3601s"] {
            let error = parse(time).unwrap_err();
            assert_eq!(error.path(), "message_timeout");
        }
    }

    #[test]
    fn every_limit_is_set_alone_within_its_range() {
        for (index, (field, _, low, high)) in FIELDS.into_iter().enumerate() {
            for value in [low, high] {
                let mut expected = FIELDS.map(|field| field.1);
                expected[index] = value;
                if field == "streams" {
                    let place = FIELDS.iter().position(|it| it.0 == "streams_per_peer");
                    let of_peer = &mut expected[place.unwrap()];
                    *of_peer = (*of_peer).min(value.div_ceil(4));
                }
                let limits = parse(field, value).unwrap();
                assert_eq!(
                    values(&limits).map(|value| value as u64),
                    expected,
                    "{field}"
                );
            }
            for value in [low - 1, high + 1] {
                let error = parse(field, value).unwrap_err();
                let text = format!("{field}: {value} is outside {low} to {high}");
                assert_eq!(error.to_string(), text);
            }
        }
    }
}
