//! [`OrcaHandle`]: what the application says about the process as a whole.
//!
//! For one request see `recorder`. Values are kept until they are set again, and are sent from the
//! next tick on.

use std::fmt;
use std::sync::Arc;

use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::units::FieldError;

use crate::metrics::{Field, Map};
use crate::open_rca::OpenRcaService;
use crate::state::Shared;

/// Sets metrics of the process; from [`OrcaLayer::handle`](crate::OrcaLayer::handle).
///
/// All clones mean the same report. What is set here stands in every report, over what was
/// measured; `None` takes it back. Values are finite and at least 0, names are printable ASCII
/// without blanks and without `,`, `=` and `:`; the error names the metric.
///
/// ```
/// let layer = plimsoll_orca::layer();
/// let orca = layer.handle();
/// orca.set_named_metric("queue_depth", 12.0)?;
/// orca.set_utilization("gpu", 0.8)?;
/// orca.set_application_utilization(0.8)?;
/// orca.set_application_utilization(None)?;
/// # Ok::<(), plimsoll_orca::FieldError>(())
/// ```
#[derive(Clone)]
pub struct OrcaHandle {
    shared: Arc<Shared>,
}

impl OrcaHandle {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// What the application calls its utilization. Balancers look at it before they look at the
    /// CPU, and take a 0 for a value that is missing.
    pub fn set_application_utilization(
        &self,
        value: impl Into<Option<f64>>,
    ) -> Result<(), FieldError> {
        self.set(Field::Application, value.into())
    }

    /// Share of the CPU in use, where it is known better than it can be measured.
    pub fn set_cpu_utilization(&self, value: impl Into<Option<f64>>) -> Result<(), FieldError> {
        self.set(Field::Cpu, value.into())
    }

    /// Share of memory in use.
    pub fn set_mem_utilization(&self, value: impl Into<Option<f64>>) -> Result<(), FieldError> {
        self.set(Field::Mem, value.into())
    }

    /// Requests per second, for processes whose requests do not all come through the layer.
    pub fn set_rps_fractional(&self, value: impl Into<Option<f64>>) -> Result<(), FieldError> {
        self.set(Field::Rps, value.into())
    }

    /// Errors per second.
    pub fn set_eps(&self, value: impl Into<Option<f64>>) -> Result<(), FieldError> {
        self.set(Field::Eps, value.into())
    }

    /// A metric of the application.
    pub fn set_named_metric(
        &self,
        name: &str,
        value: impl Into<Option<f64>>,
    ) -> Result<(), FieldError> {
        let value = value.into();
        self.shared
            .with_process(|metrics| metrics.put(Map::Named, name, value))
    }

    /// Share of a resource in use.
    pub fn set_utilization(
        &self,
        name: &str,
        value: impl Into<Option<f64>>,
    ) -> Result<(), FieldError> {
        let value = value.into();
        self.shared
            .with_process(|metrics| metrics.put(Map::Utilization, name, value))
    }

    /// Measures and writes the next report now rather than at the next tick.
    pub fn refresh(&self) {
        self.shared.refresh();
    }

    /// The report that is being sent.
    pub fn report(&self) -> OrcaLoadReport {
        self.shared.published().report().clone()
    }

    /// Requests that came in and whose responses have not ended.
    pub fn in_flight(&self) -> u64 {
        self.shared.in_flight()
    }

    /// Requests that failed since the start: with a status of 500 or more, a gRPC status other than
    /// OK, an error of the service, or a body that broke off.
    pub fn errors(&self) -> u64 {
        self.shared.errors()
    }

    /// The service with which reports are asked for out of band.
    pub fn open_rca_service(&self) -> OpenRcaService {
        OpenRcaService::new(Arc::clone(&self.shared))
    }

    /// Ends all out-of-band streams, now and in future. Call it when the server begins to shut
    /// down: such a stream never ends by itself, and a graceful shutdown would wait for it.
    pub fn shutdown(&self) {
        self.shared.shutdown();
    }

    fn set(&self, field: Field, value: Option<f64>) -> Result<(), FieldError> {
        self.shared
            .with_process(|metrics| metrics.set(field, value))
    }
}

impl fmt::Debug for OrcaHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrcaHandle")
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}
