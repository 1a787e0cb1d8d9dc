//! Tests of the state machine: which views are published, and when.

mod capacity;
mod demand;
pub(crate) mod driver;
mod evacuation;
mod limits;
mod membership;
mod node_checks;
mod objectives;
mod relay;
mod relay_demand;
mod reload;
mod replicated;
mod served;
