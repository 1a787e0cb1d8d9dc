//! Message types that an `Any` may contain, by extension point.

use crate::pb;
use crate::{Described, Descriptor};

/// Message types accepted at one extension point.
pub type Types = &'static [&'static Descriptor];

/// Returns the descriptor of the message with this full name, if it is declared.
pub fn by_name(full_name: &str) -> Option<&'static Descriptor> {
    let all = [
        POLICIES,
        TRANSPORT_SOCKETS,
        DOWNSTREAM_TRANSPORT_SOCKETS,
        PROTOCOL_OPTIONS,
        NETWORK_FILTERS,
        HTTP_FILTERS,
        LISTENER_FILTERS,
        PER_FILTER_CONFIGS,
        ACCESS_LOGS,
        TRACERS,
    ];
    all.into_iter()
        .flatten()
        .find(|known| known.name == full_name)
        .copied()
}

/// Load balancing policies: `load_balancing_policy.policies[].typed_extension_config`.
pub static POLICIES: Types = &[
    pb::policy::ClientSideWeightedRoundRobinMessage::DESCRIPTOR,
    pb::policy::LeastRequestMessage::DESCRIPTOR,
    pb::policy::LoadAwareLocalityMessage::DESCRIPTOR,
    pb::policy::MaglevMessage::DESCRIPTOR,
    pb::policy::RandomMessage::DESCRIPTOR,
    pb::policy::RingHashMessage::DESCRIPTOR,
    pb::policy::RoundRobinMessage::DESCRIPTOR,
    pb::subset::SubsetMessage::DESCRIPTOR,
    pb::policy::WrrLocalityMessage::DESCRIPTOR,
];

/// Transport sockets of a cluster: TLS or plain text.
pub static TRANSPORT_SOCKETS: Types = &[
    pb::tls::UpstreamTlsMessage::DESCRIPTOR,
    pb::tls::RawBufferMessage::DESCRIPTOR,
];

/// HTTP protocol options of a cluster: `typed_extension_protocol_options`.
pub static PROTOCOL_OPTIONS: Types = &[pb::upstream::HttpProtocolOptionsMessage::DESCRIPTOR];

/// Transport sockets of a listener.
pub static DOWNSTREAM_TRANSPORT_SOCKETS: Types = &[pb::tls::DownstreamTlsMessage::DESCRIPTOR];

/// Network filters of a listener.
pub static NETWORK_FILTERS: Types = &[pb::listener::HttpConnectionManagerMessage::DESCRIPTOR];

/// HTTP filters of a connection manager.
pub static HTTP_FILTERS: Types = &[
    pb::cors::CorsMessage::DESCRIPTOR,
    pb::http_filter::HealthCheckFilterMessage::DESCRIPTOR,
    pb::http_filter::LocalRateLimitMessage::DESCRIPTOR,
    pb::http_filter::BufferMessage::DESCRIPTOR,
    pb::http_filter::RouterMessage::DESCRIPTOR,
];

/// Filters that see a connection before its filter chain is selected: `listener_filters`.
pub static LISTENER_FILTERS: Types = &[pb::listener::TlsInspectorMessage::DESCRIPTOR];

/// Settings of HTTP filters in routes: `typed_per_filter_config`.
pub static PER_FILTER_CONFIGS: Types = &[pb::cors::CorsPolicyMessage::DESCRIPTOR];

/// Access logs of a listener.
pub static ACCESS_LOGS: Types = &[
    pb::access_log::FileAccessLogMessage::DESCRIPTOR,
    pb::access_log::StdoutAccessLogMessage::DESCRIPTOR,
];

/// Tracers of a connection manager: `tracing.provider`.
pub static TRACERS: Types = &[pb::trace::OpenTelemetryConfigMessage::DESCRIPTOR];
