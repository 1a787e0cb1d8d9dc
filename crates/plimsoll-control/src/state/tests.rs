//! The single writer: who hears what, and when.

mod demand;
pub(crate) mod driver;
mod membership;
mod reload;
