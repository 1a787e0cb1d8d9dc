//! Encoding of the policy of Plimsoll's module inside Envoy (`plimsoll-envoy`).
//!
//! The module reads the load balancing settings of a cluster from a `google.protobuf.Struct` with
//! the names of a configuration file. The identity of the Envoy and its control plane are not in
//! it: clusters are the same for all nodes, and the module has both from the policy of the local
//! cluster in the bootstrap.

use bytes::BytesMut;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use prost::Message;
use serde_json::Value;

use super::HTTP_PROTOCOL_OPTIONS;
use super::encode_policy::{self, LocalityDelivery, PREFIX};
use plimsoll_schema::field::{RawField, put_field, put_string, raw_fields};
use plimsoll_schema::pb::cluster::{ClusterMessage, CommonLbConfigMessage};
use plimsoll_schema::pb::metadata::{KindMessage, ListMessage, StructMessage, ValueMessage};
use plimsoll_schema::pb::policy::{PolicyMessage, TypedExtensionConfigMessage};
use plimsoll_schema::pb::{AnyMessage, PercentMessage};
use plimsoll_schema::{Described as _, json};

/// Name of the module: its library is `libplimsoll_envoy.so`.
const MODULE: &str = "plimsoll_envoy";
/// `lb_policy_name` of the policy in the module.
const POLICY: &str = "plimsoll";
/// `filter_name` of the HTTP filter in the module that sees responses.
const ORCA_FILTER: &str = "plimsoll.orca";
/// Field number of `http_filters` in the protocol options of a cluster.
const HTTP_FILTERS: u32 = 6;
/// Field numbers of the deprecated protocol options of a cluster.
const HTTP1_OPTIONS: u32 = 13;
const HTTP2_OPTIONS: u32 = 14;
const PROTOCOL_SELECTION: u32 = 26;
const COMMON_HTTP_OPTIONS: u32 = 29;
const UPSTREAM_HTTP_OPTIONS: u32 = 46;

/// Returns the policy that lets the module balance with the full configuration.
pub(super) fn policy(config: &ClusterConfig) -> PolicyMessage {
    let mut settings = ClusterMessage {
        common_lb_config: Some(CommonLbConfigMessage {
            healthy_panic_threshold: Some(PercentMessage {
                value: f64::from(config.panic_threshold()),
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    encode_policy::put(&mut settings, config, LocalityDelivery::AsConfigured);
    let name = "dynamic_modules.v3.DynamicModulesLoadBalancerConfig";
    PolicyMessage {
        typed_extension_config: Some(TypedExtensionConfigMessage {
            name: "envoy.load_balancing_policies.dynamic_modules".to_owned(),
            typed_config: Some(any(&format!("{PREFIX}{name}"), module_policy(&settings))),
        }),
    }
}

/// Encodes a `DynamicModulesLoadBalancerConfig` by hand: no client of ours reads one, so that it is
/// not declared.
fn module_policy(settings: &ClusterMessage) -> BytesMut {
    let mut out = module(POLICY);
    let config = AnyMessage::pack("google.protobuf.Struct", &lb_policy_config(settings));
    put_field(&mut out, 3, &config.encode_to_vec());
    out
}

/// Encodes the first two fields that a policy and a filter have in common: the module, and the name
/// of the extension in it.
fn module(extension: &str) -> BytesMut {
    let mut name = BytesMut::new();
    put_string(&mut name, 1, MODULE);
    let mut out = BytesMut::new();
    put_field(&mut out, 1, &name);
    put_string(&mut out, 2, extension);
    out
}

fn lb_policy_config(settings: &ClusterMessage) -> StructMessage {
    let printed = json::message(&settings.encode_to_vec(), ClusterMessage::DESCRIPTOR);
    // The message has only types that are declared, so it can be printed.
    let cluster = value(printed.unwrap_or_default());
    StructMessage {
        fields: [("cluster".to_owned(), cluster)].into(),
    }
}

fn value(json: Value) -> ValueMessage {
    let kind = match json {
        Value::Null => KindMessage::Null(0),
        Value::Bool(flag) => KindMessage::Bool(flag),
        Value::Number(number) => KindMessage::Number(number.as_f64().unwrap_or_default()),
        Value::String(text) => KindMessage::String(text),
        Value::Array(values) => KindMessage::List(ListMessage {
            values: values.into_iter().map(value).collect(),
        }),
        Value::Object(fields) => KindMessage::Struct(StructMessage {
            fields: fields
                .into_iter()
                .map(|(key, inner)| (key, value(inner)))
                .collect(),
        }),
    };
    kind.into()
}

/// Whether the policy uses load reports of backends, latencies or requests in flight, which Envoy
/// does not pass to the policy of a module, or requests ask for load reports.
pub(super) fn needs_filter(config: &ClusterConfig) -> bool {
    let policy = config.endpoint_policy();
    let basis = config.zone_aware().map(ZoneAware::locality_basis);
    let hashing = policy.consistent_hashing();
    config.load_aware_locality().is_some()
        || config.endpoint_load_metrics_format().is_some()
        || matches!(policy, EndpointPolicy::ClientSideWeightedRoundRobin(_))
        || basis == Some(LocalityBasis::ObservedLoad)
        || hashing.is_some_and(|hashing| hashing.hash_balance_factor().is_some())
}

/// Adds the filter that sees responses to the upstream filters of the cluster, if its policy needs
/// that. `original` is the encoded cluster, whose deprecated protocol options may be unknown here.
pub(super) fn put_orca_filter(
    cluster: &mut ClusterMessage,
    config: &ClusterConfig,
    original: &[u8],
) {
    if !needs_filter(config) {
        return;
    }
    let options = cluster
        .typed_extension_protocol_options
        .entry(HTTP_PROTOCOL_OPTIONS.to_owned())
        .or_insert_with(|| any(HTTP_PROTOCOL_OPTIONS, deprecated_options(original)));
    // Options that cannot be read are left to Envoy, which rejects the cluster.
    let Ok(fields) = raw_fields(&options.value).collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let is_filter = |field: &RawField<'_>| field.number == HTTP_FILTERS;
    let mut filters = fields.iter().filter(|field| is_filter(field));
    if filters.any(|filter| is_orca_filter(filter.value)) {
        return;
    }
    // The last filter sends the request, and Envoy requires it to be the last one. The filters of a
    // relayed server before it keep their order.
    let last = fields.iter().rposition(is_filter);
    let end = last.unwrap_or(fields.len());
    let mut out = BytesMut::with_capacity(options.value.len() + 256);
    fields[..end]
        .iter()
        .for_each(|field| out.extend_from_slice(field.raw));
    put_filters(&mut out, last.is_none());
    fields[end..]
        .iter()
        .for_each(|field| out.extend_from_slice(field.raw));
    options.value = out.freeze();
}

/// Encodes the filter of the module, and after it the filter that sends requests if the cluster has
/// none.
fn put_filters(out: &mut BytesMut, with_codec: bool) {
    let filters = "envoy.extensions.filters.http";
    let orca = format!("{filters}.dynamic_modules.v3.DynamicModuleFilter");
    put_filter(out, ORCA_FILTER, any(&orca, module(ORCA_FILTER)));
    if with_codec {
        let codec = format!("{filters}.upstream_codec.v3.UpstreamCodec");
        let name = "envoy.filters.http.upstream_codec";
        put_filter(out, name, any(&codec, BytesMut::new()));
    }
}

fn is_orca_filter(filter: &[u8]) -> bool {
    let mut fields = raw_fields(filter).flatten();
    fields.any(|field| field.number == 1 && field.value == ORCA_FILTER.as_bytes())
}

/// Encodes the `HttpProtocolOptions` that mean the same as the deprecated fields of a cluster,
/// which Envoy ignores beside it: without any of them, HTTP/1.1.
fn deprecated_options(cluster: &[u8]) -> BytesMut {
    let fields: Vec<_> = raw_fields(cluster).flatten().collect();
    let last = |number: u32| fields.iter().rfind(|field| field.number == number);
    let value = |number: u32| last(number).map(|field| field.value);
    let mut versions = BytesMut::new();
    // USE_DOWNSTREAM_PROTOCOL.
    let follows_downstream =
        last(PROTOCOL_SELECTION).is_some_and(|field| field.raw.ends_with(&[1]));
    let http2 = value(HTTP2_OPTIONS);
    if follows_downstream || http2.is_none() {
        put_field(&mut versions, 1, value(HTTP1_OPTIONS).unwrap_or_default());
    }
    if follows_downstream || http2.is_some() {
        put_field(&mut versions, 2, http2.unwrap_or_default());
    }
    let mut out = BytesMut::new();
    for (number, deprecated) in [(1, COMMON_HTTP_OPTIONS), (2, UPSTREAM_HTTP_OPTIONS)] {
        if let Some(value) = value(deprecated) {
            put_field(&mut out, number, value);
        }
    }
    put_field(&mut out, if follows_downstream { 4 } else { 3 }, &versions);
    out
}

/// Encodes one `HttpFilter` of `http_filters`.
fn put_filter(out: &mut BytesMut, name: &str, config: AnyMessage) {
    let mut filter = BytesMut::new();
    put_string(&mut filter, 1, name);
    put_field(&mut filter, 4, &config.encode_to_vec());
    put_field(out, HTTP_FILTERS, &filter);
}

fn any(full_name: &str, value: BytesMut) -> AnyMessage {
    AnyMessage {
        type_url: format!("type.googleapis.com/{full_name}"),
        value: value.freeze(),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::cluster::{ClusterConfigParts, LocalityPolicy};
    use plimsoll_core::model::load_aware_locality::{LoadAwareLocality, LoadAwareLocalityParts};
    use plimsoll_core::model::orca::EndpointLoadMetricsFormat;
    use plimsoll_core::model::zone_aware::FractionSource;
    use plimsoll_schema::metadata::struct_json;
    use plimsoll_schema::pb::upstream::HttpProtocolOptionsMessage;

    use super::super::{ClusterOut, decode_cluster, encode_cluster, rewrite_cluster_policy};
    use super::*;

    fn message(config: &ClusterConfig, locality: LocalityDelivery) -> ClusterMessage {
        ClusterMessage::decode(encode_cluster(&ClusterOut::new(config, locality))).unwrap()
    }

    /// Returns the settings that the module gets, as Envoy passes them.
    fn settings(message: &ClusterMessage) -> Value {
        let list = message.load_balancing_policy.as_ref().unwrap();
        let first = list.policies[0].typed_extension_config.as_ref().unwrap();
        let config = first.typed_config.as_ref().unwrap();
        let fields = raw_fields(&config.value);
        let last = fields.map(|field| field.unwrap()).last().unwrap();
        assert_eq!(last.number, 3);
        let any = AnyMessage::decode(last.value).unwrap();
        assert_eq!(any.type_name(), "google.protobuf.Struct");
        struct_json(&any.unpack().unwrap())
    }

    fn measured(locality_policy: LocalityPolicy) -> ClusterConfig {
        ClusterConfig::try_new(ClusterConfigParts {
            name: "orders".into(),
            locality_policy,
            ..Default::default()
        })
        .unwrap()
    }

    #[test]
    fn the_module_comes_before_the_policy_of_envoy() {
        let rules = ZoneAware::default()
            .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField);
        let config = measured(LocalityPolicy::ZoneAware(rules));
        let with_module = message(&config, LocalityDelivery::Module);
        let settings = settings(&with_module);
        let policy = &settings["cluster"]["load_balancing_policy"]["policies"][0];
        let typed = &policy["typed_extension_config"]["typed_config"];
        let rules = &typed["locality_lb_config"]["zone_aware_lb_config"];
        assert_eq!(rules["locality_basis"], "LRS_REPORTED_RATE", "{settings}");
        assert!(settings.get("node").is_none(), "{settings}");
        // Without the first policy, the cluster is that of a stock Envoy.
        let mut rest = with_module;
        let list = rest.load_balancing_policy.as_mut().unwrap();
        list.policies.remove(0);
        assert_eq!(rest, message(&config, LocalityDelivery::Stock));
    }

    #[test]
    fn a_client_that_does_not_know_modules_takes_the_next_policy() {
        let config = measured(LocalityPolicy::ZoneAware(ZoneAware::default()));
        let bytes = message(&config, LocalityDelivery::Module).encode_to_vec();
        let read = decode_cluster(&bytes).unwrap();
        assert!(read.config.zone_aware().is_some());
    }

    #[test]
    fn the_filter_is_added_where_load_reports_are_used() {
        let load_aware = LoadAwareLocality::try_new(LoadAwareLocalityParts::default()).unwrap();
        let config = measured(LocalityPolicy::LoadAwareLocality(load_aware));
        let message = message(&config, LocalityDelivery::Module);
        let options = &message.typed_extension_protocol_options[HTTP_PROTOCOL_OPTIONS];
        let read: HttpProtocolOptionsMessage = options.unpack().unwrap();
        assert!(read.explicit_http_config.is_some());
        let names: Vec<_> = raw_fields(&options.value)
            .map(|field| field.unwrap())
            .filter(|field| field.number == HTTP_FILTERS)
            .map(|field| {
                let name = raw_fields(field.value).next();
                String::from_utf8(name.unwrap().unwrap().value.to_vec()).unwrap()
            })
            .collect();
        assert_eq!(names, [ORCA_FILTER, "envoy.filters.http.upstream_codec"]);
        let settings = settings(&message);
        let policy = &settings["cluster"]["load_balancing_policy"]["policies"][0];
        let name = &policy["typed_extension_config"]["name"];
        assert_eq!(*name, "envoy.load_balancing_policies.load_aware_locality");
    }

    #[test]
    fn a_format_reaches_modules_with_their_filter() {
        let config = ClusterConfig::try_new(ClusterConfigParts {
            name: "orders".into(),
            endpoint_load_metrics_format: Some(EndpointLoadMetricsFormat::Json),
            ..Default::default()
        })
        .unwrap();
        let message = message(&config, LocalityDelivery::Module);
        let settings = settings(&message);
        let ours = &settings["cluster"]["plimsoll"];
        assert_eq!(ours["endpoint_load_metrics_format"], "JSON", "{settings}");
        let options = &message.typed_extension_protocol_options[HTTP_PROTOCOL_OPTIONS];
        assert_eq!(filters_of(options)[0], ORCA_FILTER);
    }

    /// Returns the protocol options of a relayed cluster after a policy that needs the filter.
    fn options_of(original: &[u8]) -> AnyMessage {
        let load_aware = LoadAwareLocality::try_new(LoadAwareLocalityParts::default()).unwrap();
        let config = measured(LocalityPolicy::LoadAwareLocality(load_aware));
        let sent = rewrite_cluster_policy(original, &config, LocalityDelivery::Module).unwrap();
        let message = ClusterMessage::decode(&*sent).unwrap();
        message.typed_extension_protocol_options[HTTP_PROTOCOL_OPTIONS].clone()
    }

    fn filters_of(options: &AnyMessage) -> Vec<String> {
        let fields = raw_fields(&options.value).map(|field| field.unwrap());
        let filters = fields.filter(|field| field.number == HTTP_FILTERS);
        let names = filters.map(|field| {
            let name = raw_fields(field.value).next().unwrap().unwrap().value;
            String::from_utf8(name.to_vec()).unwrap()
        });
        names.collect()
    }

    /// Envoy ignores the deprecated fields beside the protocol options that carry the filter.
    #[test]
    fn deprecated_protocol_options_of_a_relayed_cluster_still_apply() {
        // An unknown field in Http2ProtocolOptions.
        let mut http2 = BytesMut::new();
        put_field(&mut http2, 900, b"new");
        let cluster = |fields: &[(u32, &[u8])]| {
            let mut out = BytesMut::new();
            for (number, value) in fields {
                put_field(&mut out, *number, value);
            }
            out
        };
        let version = |options: &AnyMessage| {
            let read: HttpProtocolOptionsMessage = options.unpack().unwrap();
            let explicit = read.explicit_http_config.unwrap_or_default();
            let downstream = read.use_downstream_protocol_config.unwrap_or_default();
            [explicit, downstream].map(|config| {
                let http1 = config.http_protocol_options.is_some();
                (http1, config.http2_protocol_options.is_some())
            })
        };
        const NO: (bool, bool) = (false, false);
        let plain = options_of(&cluster(&[]));
        assert_eq!(version(&plain), [(true, false), NO]);
        let options = options_of(&cluster(&[
            (HTTP2_OPTIONS, &http2),
            (COMMON_HTTP_OPTIONS, b""),
        ]));
        assert_eq!(version(&options), [(false, true), NO]);
        let has_unknown = options.value.windows(3).any(|part| part == b"new");
        assert!(has_unknown, "unknown fields stay");
        let read: HttpProtocolOptionsMessage = options.unpack().unwrap();
        assert!(read.common_http_protocol_options.is_some());
        assert_eq!(filters_of(&options).len(), 2);
        let mut follows = cluster(&[(HTTP2_OPTIONS, &http2)]);
        // The number 1 (USE_DOWNSTREAM_PROTOCOL) as a varint.
        follows.extend_from_slice(&[0xd0, 0x01, 0x01]);
        assert_eq!(version(&options_of(&follows)), [NO, (true, true)]);
    }

    #[test]
    fn filters_of_a_relayed_cluster_stay_around_the_one_of_the_module() {
        let mut options = BytesMut::new();
        put_field(&mut options, 3, b"");
        for name in ["auth", "envoy.filters.http.upstream_codec"] {
            put_filter(&mut options, name, any("x", BytesMut::new()));
        }
        let relayed = ClusterMessage {
            typed_extension_protocol_options: [(
                HTTP_PROTOCOL_OPTIONS.to_owned(),
                any(HTTP_PROTOCOL_OPTIONS, options),
            )]
            .into(),
            ..Default::default()
        };
        let options = options_of(&relayed.encode_to_vec());
        let expected = ["auth", ORCA_FILTER, "envoy.filters.http.upstream_codec"];
        assert_eq!(filters_of(&options), expected);
    }

    #[test]
    fn a_relayed_cluster_keeps_its_protocol_options() {
        let load_aware = LoadAwareLocality::try_new(LoadAwareLocalityParts::default()).unwrap();
        let config = measured(LocalityPolicy::LoadAwareLocality(load_aware));
        let settings = ClusterMessage {
            typed_extension_protocol_options: super::super::tests::http2(),
            ..Default::default()
        };
        let relayed = encode_cluster(&ClusterOut {
            settings: Some(&settings),
            ..ClusterOut::new(&config, LocalityDelivery::Stock)
        });
        let once = rewrite_cluster_policy(&relayed, &config, LocalityDelivery::Module).unwrap();
        let message = ClusterMessage::decode(&*once).unwrap();
        let options = &message.typed_extension_protocol_options;
        assert_eq!(options.len(), 1);
        let options = &options[HTTP_PROTOCOL_OPTIONS];
        let read: HttpProtocolOptionsMessage = options.unpack().unwrap();
        let version = read.explicit_http_config.unwrap();
        assert!(version.http2_protocol_options.is_some());
        let filters = |options: &AnyMessage| {
            let fields = raw_fields(&options.value).map(|field| field.unwrap().number);
            fields.filter(|number| *number == HTTP_FILTERS).count()
        };
        assert_eq!(filters(options), 2);
        let twice = rewrite_cluster_policy(&once, &config, LocalityDelivery::Module).unwrap();
        let message = ClusterMessage::decode(&*twice).unwrap();
        let options = &message.typed_extension_protocol_options[HTTP_PROTOCOL_OPTIONS];
        assert_eq!(filters(options), 2, "added once");
        let list = message.load_balancing_policy.unwrap();
        assert_eq!(list.policies.len(), 3);
    }
}
