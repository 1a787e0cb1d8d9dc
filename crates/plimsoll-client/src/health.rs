//! Active health checking: `probe` sends one check, `check` holds Envoy's thresholds and intervals,
//! `checks` runs a task per host and check.

mod check;
pub(crate) mod checks;
mod probe;
