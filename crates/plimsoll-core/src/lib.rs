//! Load balancing decisions for Envoy-compatible proxies and gRPC clients, as pure state machines.
//!
//! The crate answers one question: which host gets the next request? It covers priorities and
//! panic, zone-aware routing, locality weights, subsets, slow start, outlier detection, retries,
//! load reports and the endpoint policies round robin, least request, random, ring hash, Maglev and
//! client-side weighted round robin. The proxy, the embeddable client, the control plane and the
//! simulator of Plimsoll all run this code.
//!
//! * **Exact.** Where Envoy 1.40 has a feature, picks match Envoy draw by draw; recorded vectors
//!   verify it. Beyond Envoy, zones are balanced by measured demand (LRS) or by load (ORCA).
//! * **Fast.** A pick takes no lock, allocates nothing and costs 10 to 35 ns, for 10 hosts or for
//!   10,000.
//! * **Deterministic.** No IO, clock, threads or entropy: time and random numbers are arguments, so
//!   that a simulation or an incident replays from a seed.
//! * **Explainable.** [`snapshot::RoutingSnapshot::explain`] says why traffic goes where it goes.
//!
//! # How it fits together
//!
//! One **writer** per cluster owns a [`balancer::Balancer`]. It passes inputs to `handle_*`, with
//! `now` last, and drains `poll_snapshot`, `poll_event` and `poll_timeout` after every input. Each
//! immutable [`snapshot::RoutingSnapshot`] is published through a [`publish::Publisher`], with one
//! pointer swap.
//!
//! Any number of **workers** own a [`picker::Picker`] each and pick from the newest snapshot, with
//! random numbers from their own seeded generator.
//!
//! A **control plane** runs a [`planner::Planner`] instead: load reports of a fleet in, fractions
//! of demand per zone out.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use plimsoll_core::embed::{
//!     AssignmentParts, Balancer, ClusterConfig, ClusterConfigParts, ClusterLoadAssignment,
//!     Instant, LbEndpoint, Locality, LocalityParts, PickArgs, PickResult, Picker,
//!     RequestOutcome, Xoshiro256, channel,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Instant::ORIGIN; // drivers read their clock here
//! let parts = ClusterConfigParts { name: "orders".into(), ..Default::default() };
//! let config = Arc::new(ClusterConfig::try_new(parts)?);
//! let mut balancer = Balancer::new(config, Locality::zone_only("a"), now);
//! let (mut publisher, reader) = channel(balancer.initial_snapshot(now));
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
//! let request = pick.host.begin_request(); // counts as in flight until it is finished or dropped
//! // … send it to pick.host.address() …
//! request.finish(RequestOutcome::Success);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`embed`] | what an own proxy or client needs, in one list: the stable part |
//! | [`model`] | xDS resources as checked types: clusters, assignments, localities, reports |
//! | [`balancer`], [`snapshot`], [`publish`], [`picker`], [`host`] | the path from an update to a pick |
//! | [`counts`], [`locality_picking`], [`host_source`] | the arithmetic behind a snapshot |
//! | [`outlier_detection`], [`assignment_age`] | ejection of failing hosts, expiry of endpoints |
//! | [`planner`] | demand per zone, for control planes |
//! | [`explain`], [`event`], [`stats`], [`mod@log_line`] | observability |
//! | [`time`], [`rng`], [`units`], [`backoff`] | time, random numbers, checked numbers, backoff |
//!
//! Items hidden from this documentation are not part of the API: they are single steps of a pick,
//! public only for the conformance tests.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod getters;

pub mod assignment_age;
pub mod backoff;
pub mod balancer;
pub mod counts;
#[doc(hidden)]
pub mod edf;
pub mod embed;
#[doc(hidden)]
pub mod endpoint_picking;
pub mod evacuation;
pub mod event;
pub mod explain;
pub mod host;
pub mod host_source;
pub mod locality_picking;
pub mod log_line;
pub mod model;
pub mod outlier_detection;
pub mod picker;
pub mod planner;
#[doc(hidden)]
pub mod priority;
pub mod publish;
pub mod rng;
pub mod snapshot;
pub mod stats;
mod sync;
pub mod time;
pub mod units;

/// Runs the code of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
