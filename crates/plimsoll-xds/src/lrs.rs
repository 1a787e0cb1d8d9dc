//! The load reporting service, as protocol state without IO.
//!
//! [`message`] holds its two messages in our own words; `convert::load_report` turns them into
//! bytes and back. Demand is not computed here but by the planner of the core.

pub mod message;
