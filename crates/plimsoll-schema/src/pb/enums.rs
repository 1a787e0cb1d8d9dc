//! Enums of Envoy's API and of Plimsoll's extensions: names, numbers and Rust values.

use plimsoll_core::model::cluster::LocalitySampling;
use plimsoll_core::model::endpoint_policy::{HashFunction, SelectionMethod};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::load_aware_locality::{ColdStart, RemoteMean, SpillController};
use plimsoll_core::model::orca::{EndpointLoadMetricsFormat, UtilizationPrecedence};
use plimsoll_core::model::subset::{
    MetadataFallbackPolicy, SelectorFallbackPolicy, SubsetFallbackPolicy,
};
use plimsoll_core::model::transport::{DnsLookupFamily, HttpMethod, HttpVersion, SanType};
use plimsoll_core::model::zone_aware::{CapacityBasis, FractionSource, LocalityBasis};

use crate::descriptor::ProtoEnum;

/// Implements [`ProtoEnum`] for enums that are declared elsewhere.
macro_rules! proto_enums {
    ($($type:ty { $($name:literal = $number:literal => $value:expr),* $(,)? })*) => {
        $(impl ProtoEnum for $type {
            const VALUES: &'static [(&'static str, i64, Self)] = &[$(($name, $number, $value)),*];
        })*
    };
}

proto_enums! {
    CodecType {
        "AUTO" = 0 => Self::Auto,
        "HTTP1" = 1 => Self::Http1,
        "HTTP2" = 2 => Self::Http2,
    }
    ForwardClientCertDetails {
        "SANITIZE" = 0 => Self::Sanitize,
        "FORWARD_ONLY" = 1 => Self::ForwardOnly,
        "APPEND_FORWARD" = 2 => Self::AppendForward,
        "SANITIZE_SET" = 3 => Self::SanitizeSet,
        "ALWAYS_FORWARD_ONLY" = 4 => Self::AlwaysForwardOnly,
    }
    HeadersWithUnderscoresAction {
        "ALLOW" = 0 => Self::Allow,
        "REJECT_REQUEST" = 1 => Self::RejectRequest,
        "DROP_HEADER" = 2 => Self::DropHeader,
    }
    PathWithEscapedSlashesAction {
        "IMPLEMENTATION_SPECIFIC_DEFAULT" = 0 => Self::KeepUnchanged,
        "KEEP_UNCHANGED" = 1 => Self::KeepUnchanged,
        "REJECT_REQUEST" = 2 => Self::RejectRequest,
        "UNESCAPE_AND_REDIRECT" = 3 => Self::UnescapeAndRedirect,
        "UNESCAPE_AND_FORWARD" = 4 => Self::UnescapeAndForward,
    }
    ServerHeaderTransformation {
        "OVERWRITE" = 0 => Self::Overwrite,
        "PASS_THROUGH" = 2 => Self::PassThrough,
    }
    CapacityBasis {
        "HEALTHY_HOSTS_NUM" = 0 => Self::HealthyHostsNum,
        "HEALTHY_HOSTS_WEIGHT" = 1 => Self::HealthyHostsWeight,
    }
    ColdStart {
        "LOCAL" = 0 => Self::Local,
        "HOST_COUNT" = 1 => Self::HostCount,
    }
    DnsLookupFamily {
        "AUTO" = 0 => Self::Auto,
        "V4_ONLY" = 1 => Self::V4Only,
        "V6_ONLY" = 2 => Self::V6Only,
        "V4_PREFERRED" = 3 => Self::V4Preferred,
        "ALL" = 4 => Self::All,
    }
    EndpointLoadMetricsFormat {
        "TEXT" = 0 => Self::Text,
        "JSON" = 1 => Self::Json,
        "BIN" = 2 => Self::Bin,
    }
    FractionSource {
        "EDS_FIELD" = 0 => Self::EdsField,
        "LOCALITY_METADATA" = 1 => Self::LocalityMetadata,
    }
    HashFunction {
        "XX_HASH" = 0 => Self::XxHash,
        "MURMUR_HASH_2" = 1 => Self::MurmurHash2,
    }
    HealthStatus {
        "UNKNOWN" = 0 => Self::Unknown,
        "HEALTHY" = 1 => Self::Healthy,
        "UNHEALTHY" = 2 => Self::Unhealthy,
        "DRAINING" = 3 => Self::Draining,
        "TIMEOUT" = 4 => Self::Timeout,
        "DEGRADED" = 5 => Self::Degraded,
    }
    HttpMethod {
        "METHOD_UNSPECIFIED" = 0 => Self::Get,
        "GET" = 1 => Self::Get,
        "HEAD" = 2 => Self::Head,
        "POST" = 3 => Self::Post,
        "PUT" = 4 => Self::Put,
        "DELETE" = 5 => Self::Delete,
        "OPTIONS" = 7 => Self::Options,
        "TRACE" = 8 => Self::Trace,
        "PATCH" = 9 => Self::Patch,
    }
    // `CodecClientType`; HTTP/3 is not supported.
    HttpVersion {
        "HTTP1" = 0 => Self::Http1,
        "HTTP2" = 1 => Self::Http2,
    }
    // Value 2 comes from the LRS design (decision 0028); values from 50001 on are Plimsoll's, out
    // of the range that Envoy may use later.
    LocalityBasis {
        "HEALTHY_HOSTS_NUM" = 0 => Self::HealthyHostsNum,
        "HEALTHY_HOSTS_WEIGHT" = 1 => Self::HealthyHostsWeight,
        "LRS_REPORTED_RATE" = 2 => Self::LrsReportedRate,
        "OBSERVED_LOAD" = 50_001 => Self::ObservedLoad,
    }
    LocalitySampling {
        "RANDOM" = 0 => Self::Random,
        "LOW_DISCREPANCY" = 1 => Self::LowDiscrepancy,
    }
    MetadataFallbackPolicy {
        "METADATA_NO_FALLBACK" = 0 => Self::NoFallback,
        "FALLBACK_LIST" = 1 => Self::FallbackList,
    }
    RemoteMean {
        "ALL" = 0 => Self::All,
        "REPORTING_ONLY" = 1 => Self::ReportingOnly,
    }
    SanType {
        "EMAIL" = 1 => Self::Email,
        "DNS" = 2 => Self::Dns,
        "URI" = 3 => Self::Uri,
        "IP_ADDRESS" = 4 => Self::IpAddress,
    }
    SelectorFallbackPolicy {
        "NOT_DEFINED" = 0 => Self::NotDefined,
        "NO_FALLBACK" = 1 => Self::NoFallback,
        "ANY_ENDPOINT" = 2 => Self::AnyEndpoint,
        "DEFAULT_SUBSET" = 3 => Self::DefaultSubset,
        "KEYS_SUBSET" = 4 => Self::KeysSubset,
    }
    SpillController {
        "HEADROOM" = 0 => Self::Headroom,
        "CONVERGENT" = 1 => Self::Convergent,
    }
    SubsetFallbackPolicy {
        "NO_FALLBACK" = 0 => Self::NoFallback,
        "ANY_ENDPOINT" = 1 => Self::AnyEndpoint,
        "DEFAULT_SUBSET" = 2 => Self::DefaultSubset,
    }
    UtilizationPrecedence {
        "APPLICATION_FIRST" = 0 => Self::ApplicationFirst,
        "NAMED_METRICS_FIRST" = 1 => Self::NamedMetricsFirst,
    }
}

proto_enums! {
    AppendAction {
        "APPEND_IF_EXISTS_OR_ADD" = 0 => Self::AppendIfExistsOrAdd,
        "ADD_IF_ABSENT" = 1 => Self::AddIfAbsent,
        "OVERWRITE_IF_EXISTS_OR_ADD" = 2 => Self::OverwriteIfExistsOrAdd,
        "OVERWRITE_IF_EXISTS" = 3 => Self::OverwriteIfExists,
    }
    SelectionMethod {
        "N_CHOICES" = 0 => Self::NChoices,
        "FULL_SCAN" = 1 => Self::FullScan,
    }
}

/// Declares enums that have no counterpart in the core.
macro_rules! wire_enums {
    ($($(#[$doc:meta])* $type:ident {
        $($name:literal = $number:literal => $value:ident),* $(,)?
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[allow(missing_docs, reason = "the names are the specification's")]
            pub enum $type {
                $($value = $number),*
            }

            impl ProtoEnum for $type {
                const VALUES: &'static [(&'static str, i64, Self)] =
                    &[$(($name, $number, Self::$value)),*];
            }
        )*
    };
}

wire_enums! {
    /// `ApiConfigSource.ApiType`: protocol variant of a management server.
    ApiType {
        "REST" = 1 => Rest,
        "GRPC" = 2 => Grpc,
        "DELTA_GRPC" = 3 => DeltaGrpc,
        "AGGREGATED_GRPC" = 5 => AggregatedGrpc,
        "AGGREGATED_DELTA_GRPC" = 6 => AggregatedDeltaGrpc,
    }
    /// `envoy.config.core.v3.ApiVersion`; only version 3 is supported.
    ApiVersion {
        "AUTO" = 0 => Auto,
        "V3" = 2 => V3,
    }
    /// `envoy.type.v3.FractionalPercent.DenominatorType`: denominator of a fraction.
    Denominator {
        "HUNDRED" = 0 => Hundred,
        "TEN_THOUSAND" = 1 => TenThousand,
        "MILLION" = 2 => Million,
    }
    /// `Cluster.DiscoveryType`; `ORIGINAL_DST` is not supported.
    DiscoveryType {
        "STATIC" = 0 => Static,
        "STRICT_DNS" = 1 => StrictDns,
        "LOGICAL_DNS" = 2 => LogicalDns,
        "EDS" = 3 => Eds,
    }
    /// `Cluster.LbPolicy`; `CLUSTER_PROVIDED` is not supported.
    LbPolicy {
        "ROUND_ROBIN" = 0 => RoundRobin,
        "LEAST_REQUEST" = 1 => LeastRequest,
        "RING_HASH" = 2 => RingHash,
        "RANDOM" = 3 => Random,
        "MAGLEV" = 5 => Maglev,
        "LOAD_BALANCING_POLICY_CONFIG" = 7 => LoadBalancingPolicyConfig,
    }
    /// `RedirectAction.RedirectResponseCode`: status of a redirect.
    RedirectCode {
        "MOVED_PERMANENTLY" = 0 => MovedPermanently,
        "FOUND" = 1 => Found,
        "SEE_OTHER" = 2 => SeeOther,
        "TEMPORARY_REDIRECT" = 3 => TemporaryRedirect,
        "PERMANENT_REDIRECT" = 4 => PermanentRedirect,
    }
    /// `RoutingPriority`: class of circuit-breaker limits.
    RoutingPriority {
        "DEFAULT" = 0 => Default,
        "HIGH" = 1 => High,
    }
    /// `SocketAddress.Protocol`; UDP is not supported.
    SocketProtocol {
        "TCP" = 0 => Tcp,
    }
    /// `TlsParameters.TlsProtocol`: version of TLS.
    TlsProtocol {
        "TLS_AUTO" = 0 => Auto,
        "TLSv1_0" = 1 => Tls10,
        "TLSv1_1" = 2 => Tls11,
        "TLSv1_2" = 3 => Tls12,
        "TLSv1_3" = 4 => Tls13,
    }
    /// Whether a certificate of an unknown authority is accepted: that of
    /// `CertificateValidationContext`.
    TrustChainVerification {
        "VERIFY_TRUST_CHAIN" = 0 => VerifyTrustChain,
        "ACCEPT_UNTRUSTED" = 1 => AcceptUntrusted,
    }
    /// `RingHash.HashFunction` of the typed policy, whose numbers differ from the legacy ones.
    TypedHashFunction {
        "DEFAULT_HASH" = 0 => DefaultHash,
        "XX_HASH" = 1 => XxHash,
        "MURMUR_HASH_2" = 2 => MurmurHash2,
    }
}

/// `HeaderValueOption.HeaderAppendAction`: what to do if the header exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppendAction {
    #[default]
    AppendIfExistsOrAdd,
    AddIfAbsent,
    OverwriteIfExistsOrAdd,
    OverwriteIfExists,
}

/// `HttpConnectionManager.CodecType`: HTTP version of the clients; HTTP/3 is not supported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CodecType {
    #[default]
    Auto,
    Http1,
    Http2,
}

/// `HttpConnectionManager.ForwardClientCertDetails`: handling of `x-forwarded-client-cert`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardClientCertDetails {
    #[default]
    Sanitize,
    ForwardOnly,
    AppendForward,
    SanitizeSet,
    AlwaysForwardOnly,
}

/// `HttpProtocolOptions.HeadersWithUnderscoresAction`: handling of header names with `_`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadersWithUnderscoresAction {
    #[default]
    Allow,
    RejectRequest,
    DropHeader,
}

/// `HttpConnectionManager.PathWithEscapedSlashesAction`: handling of `%2F` in paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathWithEscapedSlashesAction {
    #[default]
    KeepUnchanged,
    RejectRequest,
    UnescapeAndRedirect,
    UnescapeAndForward,
}

/// `HttpConnectionManager.ServerHeaderTransformation`: handling of the `server` header;
/// `APPEND_IF_ABSENT` is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerHeaderTransformation {
    Overwrite,
    PassThrough,
}
