//! Protocol options of a cluster from files, the typed way and the deprecated one.

use std::time::Duration;

use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::super::proto_json::{Empty, Named, ProtoDuration, ProtoEnum, Uint};
use super::{duration, number};
use crate::upstream::{Http2Options, HttpVersion, UpstreamOptions};

/// `typed_extension_protocol_options`: nothing but those of HTTP.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TypedExtensionProtocolOptions {
    /// How HTTP is spoken.
    #[serde(rename = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions")]
    http: Option<HttpProtocolOptions>,
}

/// `envoy.extensions.upstreams.http.v3.HttpProtocolOptions`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HttpProtocolOptions {
    /// `type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions`.
    #[serde(rename = "@type")]
    type_url: String,
    /// Limits of connections.
    #[serde(default)]
    common_http_protocol_options: CommonHttpProtocolOptions,
    /// Names in TLS.
    #[serde(default)]
    upstream_http_protocol_options: UpstreamHttpProtocolOptions,
    /// The version.
    explicit_http_config: ExplicitHttpConfig,
}

/// `HttpProtocolOptions.ExplicitHttpConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct ExplicitHttpConfig {
    /// HTTP/1.1.
    http_protocol_options: Option<Empty>,
    /// HTTP/2.
    http2_protocol_options: Option<Http2ProtocolOptions>,
}

/// `envoy.config.core.v3.HttpProtocolOptions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CommonHttpProtocolOptions {
    /// A connection without a request is closed; `0s` is never. Default `3600s`.
    idle_timeout: Option<ProtoDuration>,
    /// A connection ends after its requests; `0s` is never. Default never.
    max_connection_duration: Option<ProtoDuration>,
    /// The longest that a request may take; `0s` is no limit. Default no limit.
    max_stream_duration: Option<ProtoDuration>,
    /// Requests after which a connection is closed; 0 is no limit. Default no limit.
    max_requests_per_connection: Option<Uint<u32>>,
    /// Only `ALLOW`.
    headers_with_underscores_action: Named<HeadersWithUnderscoresAction>,
}

/// `HeadersWithUnderscoresAction`. Envoy knows others, for requests only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HeadersWithUnderscoresAction;

impl ProtoEnum for HeadersWithUnderscoresAction {
    const VALUES: &'static [(&'static str, i64, Self)] = &[("ALLOW", 0, Self)];
}

/// `UpstreamHttpProtocolOptions`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct UpstreamHttpProtocolOptions {
    /// The server name in TLS is the host of the request.
    auto_sni: bool,
    /// The certificate must be for that name.
    auto_san_validation: bool,
}

/// `Http2ProtocolOptions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Http2ProtocolOptions {
    /// Requests at a time on one connection.
    max_concurrent_streams: Option<Uint<u32>>,
    /// Bytes that may arrive unread on one stream.
    initial_stream_window_size: Option<Uint<u32>>,
    /// Bytes that may arrive unread on one connection.
    initial_connection_window_size: Option<Uint<u32>>,
    /// Pings on idle connections.
    connection_keepalive: Option<KeepaliveSettings>,
    // Bounds of Envoy's codec against floods, and how it compresses: ours has its own.
    /// Without effect: the codec has its own.
    hpack_table_size: Option<Uint<u32>>,
    /// Without effect: a bound of Envoy's codec.
    max_outbound_frames: Option<Uint<u32>>,
    /// Without effect: a bound of Envoy's codec.
    max_outbound_control_frames: Option<Uint<u32>>,
    /// Without effect: a bound of Envoy's codec.
    max_consecutive_inbound_frames_with_empty_payload: Option<Uint<u32>>,
    /// Without effect: a bound of Envoy's codec.
    max_inbound_priority_frames_per_stream: Option<Uint<u32>>,
    /// Without effect: a bound of Envoy's codec.
    max_inbound_window_update_frames_per_data_frame_sent: Option<Uint<u32>>,
    /// Without effect: there is one codec.
    use_oghttp2_codec: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct KeepaliveSettings {
    /// Time between two pings; without it none are sent.
    interval: Option<ProtoDuration>,
    /// How long the answer may take.
    timeout: Option<ProtoDuration>,
}

/// The deprecated fields of a cluster.
pub(crate) struct LegacyHttp {
    pub(crate) max_requests_per_connection: Option<Uint<u32>>,
    pub(crate) common: Option<CommonHttpProtocolOptions>,
    pub(crate) upstream: Option<UpstreamHttpProtocolOptions>,
    pub(crate) http1: Option<Empty>,
    pub(crate) http2: Option<Http2ProtocolOptions>,
}

const KEY: &str =
    "typed_extension_protocol_options.envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
const TYPE_URL: &str = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Puts protocol options into `options`; the paths of errors start at the cluster.
pub(crate) fn put(
    typed: TypedExtensionProtocolOptions,
    legacy: LegacyHttp,
    options: &mut UpstreamOptions,
) -> Result<(), FieldError> {
    let Some(typed) = typed.http else {
        return legacy.put(options);
    };
    if let Some(field) = legacy.first_set() {
        let reason = "cannot be combined with typed_extension_protocol_options";
        return Err(FieldError::new(field, reason));
    }
    if typed.type_url != TYPE_URL {
        let reason = format!("{:?} is not {TYPE_URL:?}", typed.type_url);
        return Err(FieldError::new("@type", reason).under(KEY));
    }
    typed.common_http_protocol_options.put(options);
    typed.upstream_http_protocol_options.put(options);
    let explicit = typed.explicit_http_config;
    match (
        explicit.http_protocol_options,
        explicit.http2_protocol_options,
    ) {
        (Some(_), None) => options.http_version = HttpVersion::Http1,
        (None, Some(http2)) => http2.put(options),
        _ => {
            let reason = "must have either http_protocol_options or http2_protocol_options";
            return Err(FieldError::new("explicit_http_config", reason).under(KEY));
        }
    }
    Ok(())
}

impl LegacyHttp {
    fn first_set(&self) -> Option<&'static str> {
        let set = [
            ("common_http_protocol_options", self.common.is_some()),
            ("upstream_http_protocol_options", self.upstream.is_some()),
            ("http_protocol_options", self.http1.is_some()),
            ("http2_protocol_options", self.http2.is_some()),
            (
                "max_requests_per_connection",
                self.max_requests_per_connection.is_some(),
            ),
        ];
        let first = set.into_iter().find(|&(_, set)| set);
        first.map(|(field, _)| field)
    }

    fn put(self, options: &mut UpstreamOptions) -> Result<(), FieldError> {
        if self.http1.is_some() && self.http2.is_some() {
            let reason = "cannot be combined with http_protocol_options";
            return Err(FieldError::new("http2_protocol_options", reason));
        }
        self.common.unwrap_or_default().put(options);
        self.upstream.unwrap_or_default().put(options);
        if let Some(requests) = number(self.max_requests_per_connection) {
            options.max_requests_per_connection = (requests > 0).then_some(requests);
        }
        if let Some(http2) = self.http2 {
            http2.put(options);
        }
        Ok(())
    }
}

impl CommonHttpProtocolOptions {
    fn put(self, options: &mut UpstreamOptions) {
        let unless_zero =
            |value: Option<ProtoDuration>| duration(value).filter(|value| *value > Duration::ZERO);
        if self.idle_timeout.is_some() {
            options.idle_timeout = unless_zero(self.idle_timeout);
        }
        options.max_connection_duration = unless_zero(self.max_connection_duration);
        options.max_stream_duration = unless_zero(self.max_stream_duration);
        options.max_requests_per_connection =
            number(self.max_requests_per_connection).filter(|&requests| requests > 0);
    }
}

impl UpstreamHttpProtocolOptions {
    fn put(self, options: &mut UpstreamOptions) {
        options.auto_sni = self.auto_sni;
        options.auto_san_validation = self.auto_san_validation;
    }
}

impl Http2ProtocolOptions {
    fn put(self, options: &mut UpstreamOptions) {
        options.http_version = HttpVersion::Http2;
        let keepalive = self.connection_keepalive.unwrap_or_default();
        options.http2 = Http2Options {
            max_concurrent_streams: number(self.max_concurrent_streams),
            initial_stream_window_size: number(self.initial_stream_window_size),
            initial_connection_window_size: number(self.initial_connection_window_size),
            keepalive_interval: duration(keepalive.interval),
            keepalive_timeout: duration(keepalive.timeout),
        };
    }
}
