//! Decoders and encoders of protobuf messages: the public functions of `convert`.
//!
//! Decoders return checked types or a [`DecodeError`](plimsoll_schema::error::DecodeError) with the
//! field path. Encoders cannot fail.

pub use crate::convert::assignment::{
    AssignmentEdits, AssignmentOut, Edit, EndpointOut, HEALTH_STATUS, LocalityEdit, LocalityOut,
    MODULE_METADATA, decode_assignment, decode_endpoints, encode_assignment, rewrite_assignment,
};
pub use crate::convert::cluster::{
    ClassicBasis, ClusterIn, ClusterOut, LocalityDelivery, decode_cluster, decode_upstream_cluster,
    encode_cluster, rewrite_cluster_policy, rewrite_extensions, rewrite_load_reporting,
    rewrite_panic_threshold,
};
pub use crate::convert::decode_listener::{ApiListener, RouteSource, decode_listener};
pub use crate::convert::discovery::{
    decode_delta_discovery_request, decode_delta_discovery_response, decode_discovery_request,
    decode_discovery_response, encode_any, encode_delta_discovery_request,
    encode_delta_discovery_response, encode_delta_resource, encode_discovery_request,
    encode_discovery_response, resource_name, unwrap_resource,
};
pub use crate::convert::encode_listener::{encode_api_listener, encode_http_listener};
pub use crate::convert::host_stats::decode_host_stats;
pub use crate::convert::load_report::{
    decode_load_stats_request, decode_load_stats_response, encode_load_report,
    encode_load_stats_request, encode_load_stats_response,
};
pub use crate::convert::node::{decode_node, encode_node};
pub use crate::convert::replica::{
    decode_node_record, decode_plan_record, decode_replica_record, encode_node_record,
    encode_plan_record, encode_replica_record,
};
pub use crate::convert::route::decode_route_configuration;
pub use plimsoll_schema::unsupported::ignored_fields;
