//! Fleets in virtual time: the production engine driven by modelled traffic, hosts and failures.
//!
//! A [`Scenario`] says where traffic arrives, what hosts can serve, and what goes wrong. [`run`]
//! simulates it once per [`Policy`], each with the same arrivals, and returns a [`Report`]:
//! numbers, time series, a table, CSV and a page of charts. Same seed, same bytes.
//!
//! Nothing that decides lives here: balancers, pickers, hosts and the planner are those of
//! `plimsoll-core`, called from an event queue. Files and terminals do not live here either; the
//! binary reads, writes and shows progress.
//!
//! # Example
//!
//! ```
//! use plimsoll_sim::{Scenario, run};
//!
//! # fn main() -> Result<(), plimsoll_core::units::FieldError> {
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
//! # Map
//!
//! | room | what lives there |
//! |---|---|
//! | [`scenario`] | what a file says, checked |
//! | [`policy`] | names, and the settings of the core behind them |
//! | `workload`, `situation` | demand and capacity over time, what is broken when |
//! | `host_model`, `network`, `topology` | hosts, delays, assignments |
//! | `proxy`, `control_plane` | drivers of the engine's balancer, picker and planner |
//! | `world` | clock, event queue, handlers |
//! | [`metrics`], `optimum` | what a run amounts to, and what nobody can beat |
//! | [`checker`] | bounds that a scenario sets |
//! | [`report`] | table, CSV, HTML |

pub mod checker;
mod control_plane;
mod draws;
mod host_model;
pub mod metrics;
mod network;
mod num;
mod optimum;
pub mod policy;
mod proxy;
pub mod report;
pub mod scenario;
mod simulate;
mod situation;
#[cfg(test)]
mod testing;
mod topology;
mod workload;
mod world;

pub use policy::Policy;
pub use report::Report;
pub use scenario::{Scenario, ScenarioParts};
pub use simulate::{Progress, run};
