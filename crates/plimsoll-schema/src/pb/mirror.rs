//! Mirroring of requests: `envoy.config.route.v3.RouteAction.RequestMirrorPolicy`.

use plimsoll_schema_derive::Described;
use prost::Message;

use super::route::RuntimeFractionMessage;

/// `RouteAction.RequestMirrorPolicy`: a cluster that gets copies of requests.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RouteAction.RequestMirrorPolicy")]
#[schema(unused = "4 trace_sampled, 7 request_headers_mutations, 8 host_rewrite_literal")]
pub struct RequestMirrorPolicyMessage {
    /// Cluster that gets the copies. One of `cluster` and `cluster_header` must be set.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// Fraction of requests that are mirrored. Default all.
    #[prost(message, optional, tag = "3")]
    pub runtime_fraction: Option<RuntimeFractionMessage>,
    /// Request header that contains the name of the cluster. Requests without it are not mirrored.
    #[prost(string, tag = "5")]
    pub cluster_header: String,
    /// Keep the host of the request instead of appending `-shadow` to it.
    #[prost(bool, tag = "6")]
    pub disable_shadow_host_suffix_append: bool,
}
