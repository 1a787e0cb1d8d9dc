//! Simulator of proxy fleets in virtual time: the production engine with modeled traffic, hosts and
//! failures.
//!
//! A [`Scenario`] describes where traffic arrives, what hosts can serve, and what fails. [`run`]
//! simulates it once per [`Policy`] with the same arrivals and returns a [`Report`]: metrics, time
//! series, a table, CSV and a page of charts. The same seed gives the same bytes.
//!
//! No routing decision is made here: balancers, pickers and the planner are those of
//! `plimsoll-core`, called from an event queue. The binary reads files, writes output and shows
//! progress.
//!
//! # Example
//!
//! ```
//! use plimsoll_sim::{Scenario, run};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let scenario = Scenario::parse(
//!     r#"
//!     title = "Two zones, three quarters of the demand in one"
//!     duration = "20s"
//!     policies = ["zone_aware_hosts", "zone_aware_weights", "optimum"]
//!
//!     [traffic]
//!     mean_utilization = 0.5
//!
//!     [[zone]]
//!     name = "a"
//!     demand = 75
//!     hosts = [{ count = 4, capacity = 50 }]
//!
//!     [[zone]]
//!     name = "b"
//!     demand = 25
//!     hosts = [{ count = 4, capacity = 50 }]
//!     "#,
//! )?;
//! let report = run(&scenario, |_| {})?;
//! let [hosts, weights, optimum] = &report.policies[..] else { panic!() };
//! assert!(hosts.metrics.max_over_mean_5s_avg > 1.4);
//! assert!(weights.metrics.max_over_mean_5s_avg < 1.1);
//! assert!((optimum.metrics.cross_zone_share - 0.25).abs() < 0.01);
//! println!("{}", report.table());
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`scenario`] | scenario files and their validation |
//! | [`policy`] | policy names and the core settings behind them |
//! | `workload`, `faults` | demand and capacity over time, failures |
//! | `host_model`, `network`, `topology` | hosts, delays, assignments |
//! | [`zone_loss`] | utilization without one of the zones |
//! | `proxy`, `control_plane` | drivers of the engine's balancer, picker and planner |
//! | `unreachable` | how Plimsoll's data planes avoid hosts without connection |
//! | `ignored_zones` | when and why zone-aware routing was off |
//! | `world` | clock, event queue, event handlers |
//! | [`metrics`], `optimum` | metrics of a run, and the theoretical optimum |
//! | [`checker`] | bounds that a scenario sets |
//! | [`report`] | table, CSV, page of charts |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod checker;
mod control_plane;
mod draws;
mod faults;
mod host_model;
mod ignored_zones;
pub mod metrics;
mod network;
mod num;
mod optimum;
pub mod policy;
mod proxy;
mod recording;
pub mod report;
pub mod scenario;
mod simulate;
#[cfg(test)]
mod testing;
mod topology;
mod unreachable;
mod workload;
mod world;
pub mod zone_loss;

pub use policy::Policy;
pub use recording::{Recording, Replay};
pub use report::Report;
pub use scenario::{Scenario, ScenarioError, ScenarioParts};
pub use simulate::{Progress, run};
