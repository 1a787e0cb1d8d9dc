//! Every routing decision of Plimsoll, as state machines without IO, clock, threads or entropy.
//!
//! The proxy, the embeddable client, the Envoy module, the control plane and the simulator all run
//! this code. Exact to Envoy 1.40 where Envoy has the feature (priorities, panic, zone-aware
//! routing, locality weights, endpoint policies), exact to our decisions where it does not
//! (`LRS_REPORTED_RATE`, planning).
//!
//! # Two sides
//!
//! One **writer** per cluster owns a [`balancer::Balancer`]: inputs in (`handle_*`, with `now`
//! last), outputs out (`poll_snapshot`, `poll_event`, `poll_timeout`, drained after every input).
//! It publishes immutable [`snapshot::RoutingSnapshot`]s through a [`publish::Publisher`]: one
//! swap.
//!
//! Any number of **workers** own a [`picker::Picker`] each: lock-free, allocation-free picks from
//! the newest snapshot, with draws from their own seeded generator.
//!
//! The control plane's counterpart is [`planner::Planner`]: load reports of a fleet in, fractions
//! of demand and locality weights out.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use plimsoll_core::balancer::Balancer;
//! use plimsoll_core::model::assignment::{
//!     AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
//! };
//! use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts};
//! use plimsoll_core::model::locality::Locality;
//! use plimsoll_core::picker::{PickArgs, Picker, PickResult};
//! use plimsoll_core::publish;
//! use plimsoll_core::rng::Xoshiro256;
//! use plimsoll_core::time::Instant;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Instant::ORIGIN; // a driver reads its clock here
//! let config = ClusterConfigParts { name: "orders".into(), ..Default::default() };
//! let config = Arc::new(ClusterConfig::try_new(config)?);
//! let mut balancer = Balancer::new(config, Locality::zone_only("a"), now);
//! let (mut publisher, reader) = publish::channel(balancer.initial_snapshot(now));
//!
//! let locality = LocalityParts {
//!     locality: Locality::zone_only("a"),
//!     lb_endpoints: vec![LbEndpoint::new("127.0.0.1:8080".parse()?)],
//!     ..Default::default()
//! };
//! let assignment = AssignmentParts {
//!     cluster_name: "orders".into(),
//!     endpoints: vec![locality],
//!     ..Default::default()
//! };
//! balancer.handle_assignment(ClusterLoadAssignment::try_new(assignment)?, now);
//! while let Some(snapshot) = balancer.poll_snapshot() {
//!     publisher.publish(snapshot);
//! }
//!
//! let mut picker = Picker::new(reader, Xoshiro256::from_seed(1));
//! let PickResult::Complete(pick) = picker.pick(PickArgs::default()) else {
//!     return Err("no host".into());
//! };
//! let request = pick.host.begin_request();
//! // … send it to pick.host.address() …
//! request.finish(plimsoll_core::host::RequestOutcome::Success);
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! | room | what lives there |
//! |---|---|
//! | [`model`] | nouns of xDS, checked once |
//! | [`counts`], [`priority`], [`locality_picking`], [`host_source`], [`endpoint_picking`], [`edf`] | the deciding, as pure functions and small tables |
//! | [`balancer`], [`snapshot`], [`publish`], [`picker`], [`host`] | the writer, what it publishes, the workers |
//! | [`outlier_detection`] | which hosts are taken out for answering badly |
//! | [`planner`] | the control plane's arithmetic |
//! | [`explain`], [`event`], [`stats`] | what happened and why |
//! | [`time`], [`rng`], [`units`] | time, chance and numbers as arguments |

pub mod assignment_age;
pub mod balancer;
pub mod counts;
pub mod edf;
pub mod endpoint_picking;
pub mod event;
pub mod explain;
pub mod host;
pub mod host_source;
pub mod locality_picking;
pub mod model;
pub mod outlier_detection;
pub mod picker;
pub mod planner;
pub mod priority;
pub mod publish;
pub mod rng;
pub mod snapshot;
pub mod stats;
mod sync;
pub mod time;
pub mod units;
