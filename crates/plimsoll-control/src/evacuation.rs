//! Taking zones out of use: orders of operators, of the configuration and of the control plane
//! itself, and what becomes of them.
//!
//! `plimsoll_core::evacuation` decides where a zone stands and what a drain would do. `ZonesOut`
//! holds the orders; `services` leaves out the endpoints that are drained, so every delivery
//! follows. `request` answers the admin API, `record` is an order as JSON, for the store that
//! replicas share and for the state file that `file` reads and writes; `guard` watches drains while
//! they move.

mod file;
mod guard;
mod record;
mod request;
mod zones_out;

pub use file::{StateFile, StateFileError};
pub(crate) use guard::guard;
pub use record::OrderRecord;
#[cfg(feature = "etcd")]
pub(crate) use record::decode;
pub(crate) use record::encode;
pub(crate) use request::errors;
pub use request::{
    DrainAnswer, DrainBody, EvacuationError, LinkReport, ReturnBody, ServiceCheck, SuspectReport,
    ZoneList, ZoneReport, zone_list,
};
pub(crate) use zones_out::{Commanded, ZoneCommand, ZonesOut};
