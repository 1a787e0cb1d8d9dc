//! One request: its options, the pick of a host, attempts and retries, and its bodies.

pub(crate) mod admission;
pub(crate) mod attempt_span;
pub(crate) mod body;
pub(crate) mod call;
#[cfg(any(feature = "tonic", feature = "reqwest"))]
pub(crate) mod deadline_body;
pub(crate) mod destination;
pub(crate) mod options;
mod replay;
pub(crate) mod request_end;
pub(crate) mod retry;
