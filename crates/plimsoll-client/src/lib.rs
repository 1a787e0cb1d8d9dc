//! An embeddable data plane: a tower service that picks the zone and the host of every request with
//! the engine of Plimsoll.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use plimsoll_client::{Client, UpstreamOptions, RequestBody};
//! use plimsoll_core::model::assignment::{
//!     AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
//! };
//! use plimsoll_core::model::locality::Locality;
//! use plimsoll_xds::yaml::parse_cluster;
//! use tower_service::Service as _;
//!
//! let cluster = parse_cluster("name: orders\nlb_policy: LEAST_REQUEST")?;
//! let endpoints = ClusterLoadAssignment::try_new(AssignmentParts {
//!     cluster_name: "orders".into(),
//!     endpoints: vec![LocalityParts {
//!         locality: Locality::zone_only("zone-a"),
//!         lb_endpoints: vec![LbEndpoint::new("127.0.0.1:8080".parse()?)],
//!         ..Default::default()
//!     }],
//!     ..Default::default()
//! })?;
//! let client = Client::builder()
//!     .locality(Locality::zone_only("zone-a"))
//!     .cluster(cluster, endpoints, UpstreamOptions::default())
//!     .build();
//! let mut orders = client.service("orders")?;
//! let body = RequestBody::new(http_body_util::Empty::new());
//! let response = orders.call(http::Request::new(body)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! One task owns every balancer (`cluster_manager`) and publishes snapshots; services pick from
//! them without a lock. Connections live in `endpoint`, tries in `call`, accounting in
//! `body`. Deciding happens in plimsoll-core, the wire is plimsoll-xds.

mod backoff;
mod body;
mod call;
#[cfg(feature = "tonic")]
mod channel;
#[cfg(feature = "tonic")]
mod channel_body;
mod client;
mod cluster;
mod cluster_manager;
mod cluster_status;
mod connect;
mod connection;
mod destination;
mod dns;
mod endpoint;
mod error;
mod event_log;
mod health_check;
mod health_checks;
mod layer;
mod managed;
mod metrics;
mod oob;
mod options;
mod pool;
mod probe;
mod replay;
mod request_form;
mod retry;
mod service;
mod service_config;
mod stats;
mod target;
#[cfg(feature = "tls-ring")]
mod tls;
#[cfg(feature = "tonic")]
mod tonic;
mod xds;

pub use body::{RequestBody, ResponseBody};
#[cfg(feature = "tonic")]
pub use channel::channel;
#[cfg(feature = "tonic")]
pub use channel_body::ChannelBody;
pub use client::{Client, ClientBuilder};
pub use cluster_status::{ClusterStatus, ConnectionCounts, HostStatus};
pub use error::{Error, ErrorKind};
pub use layer::{Balanced, ClusterLayer};
pub use metrics::{METRICS, Metric, counters_of_others};
pub use options::{RequestOptions, RetryPolicy};
pub use plimsoll_core::model::metadata::{MatchCriteria, Metadata, MetadataValue};
pub use plimsoll_xds::ads::Variant;
pub use plimsoll_xds::driver::ConnectOptions;
pub use plimsoll_xds::service_config::GrpcFeatures;
pub use plimsoll_xds::upstream::{CircuitBreakers, EndpointExtras, HttpVersion, UpstreamOptions};
pub use retry::RetryOn;
pub use service::ClusterService;
pub use service_config::WRR_CUSTOM_METRICS;
pub use target::TargetService;
#[cfg(feature = "tonic")]
pub use tonic::Channel;
pub use xds::{
    Following, IgnoredFields, LoadReporting, RouteCheck, RouteStatus, XdsOptions, XdsState,
    XdsStatus,
};
