//! Admin API: the state of the control plane as JSON over HTTP. `report` builds the responses in
//! the writer task, which owns the state, between two messages; `plimsoll_control::explain` answers
//! explain and what-if requests; `metrics` is for Prometheus. The API is read-only, and requests
//! that a browser sends on behalf of other sites are rejected (`HttpGuard`).

mod failure;
mod metrics;
#[cfg(feature = "schema")]
mod openapi;
mod report;
mod responses;
mod routes;

pub use metrics::METRICS;
pub(crate) use metrics::families;
#[cfg(feature = "schema")]
pub use openapi::openapi;
/// What to do about each alert: docs/runbook.md.
pub const RUNBOOK: &str = include_str!("admin/runbook.txt");

/// Returns the section about an alert.
pub fn runbook_section(alert: &str) -> Option<&'static str> {
    let (_, section) = RUNBOOK.split_once(&format!("\n## {alert}\n"))?;
    let (section, _) = section.split_once("\n## ").unwrap_or((section, ""));
    Some(section.trim_start())
}

#[cfg(test)]
pub(crate) use report::only_cluster;
pub use report::{class_name, delivery, millis, mode_name, planned_cost, total_load, zone_load};
pub use routes::router;

#[cfg(test)]
mod tests;
