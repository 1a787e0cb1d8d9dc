//! Tests of the state machine: which views are published, and when.

mod demand;
mod discovered;
pub(crate) mod driver;
mod limits;
mod membership;
mod node_checks;
mod relay;
mod reload;
mod replicated;
