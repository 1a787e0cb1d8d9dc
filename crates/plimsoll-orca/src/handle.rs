//! [`OrcaHandle`]: metrics that the application sets for the whole process.
//!
//! `recorder` sets metrics for one request. Values set here stay until they are set again, and are
//! sent from the next tick on.

use std::fmt;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::units::FieldError;
use plimsoll_xds::orca::OrcaFormat;

use crate::metrics::{Field, Map};
use crate::open_rca::OpenRcaService;
use crate::state::Shared;

/// Sets metrics of the process; from [`OrcaLayer::handle`](crate::OrcaLayer::handle).
///
/// Use it for load that the layer cannot measure, such as queues or GPUs. Values appear in every
/// report and override measured ones; setting `None` removes a value again. Values must be finite
/// and at least 0, names printable ASCII without spaces and without `,`, `=` and `:`; an error
/// names the metric. Clones share one report.
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

    /// Sets the utilization of the application. Balancers prefer it to the CPU utilization, and
    /// treat 0 as not reported.
    pub fn set_application_utilization(
        &self,
        value: impl Into<Option<f64>>,
    ) -> Result<(), FieldError> {
        self.set(Field::Application, value.into())
    }

    /// Sets the CPU utilization, where the application knows it better than the layer can measure.
    pub fn set_cpu_utilization(&self, value: impl Into<Option<f64>>) -> Result<(), FieldError> {
        self.set(Field::Cpu, value.into())
    }

    /// Sets the share of memory in use.
    pub fn set_mem_utilization(&self, value: impl Into<Option<f64>>) -> Result<(), FieldError> {
        self.set(Field::Mem, value.into())
    }

    /// Sets the requests per second, for processes whose requests do not all pass the layer.
    pub fn set_rps_fractional(&self, value: impl Into<Option<f64>>) -> Result<(), FieldError> {
        self.set(Field::Rps, value.into())
    }

    /// Sets the errors per second.
    pub fn set_eps(&self, value: impl Into<Option<f64>>) -> Result<(), FieldError> {
        self.set(Field::Eps, value.into())
    }

    /// Sets a metric of the application, such as a queue length.
    pub fn set_named_metric(
        &self,
        name: &str,
        value: impl Into<Option<f64>>,
    ) -> Result<(), FieldError> {
        let value = value.into();
        self.shared
            .with_process(|metrics| metrics.put(Map::Named, name, value))
    }

    /// Sets the utilization of a resource, from 0 to 1.
    pub fn set_utilization(
        &self,
        name: &str,
        value: impl Into<Option<f64>>,
    ) -> Result<(), FieldError> {
        let value = value.into();
        self.shared
            .with_process(|metrics| metrics.put(Map::Utilization, name, value))
    }

    /// Writes the next report now rather than at the next tick.
    pub fn refresh(&self) {
        self.shared.refresh();
    }

    /// Returns the load report that responses currently carry.
    pub fn report(&self) -> OrcaLoadReport {
        self.shared.published().report().clone()
    }

    /// Number of requests in flight: received, and their response body has not ended.
    pub fn in_flight(&self) -> u64 {
        self.shared.in_flight()
    }

    /// Number of failed requests since the start: status 500 or higher, a gRPC status other than
    /// OK, an error of the service, or a failed response body.
    pub fn errors(&self) -> u64 {
        self.shared.errors()
    }

    /// Counts a request of a server without tower services, until the returned guard is dropped.
    ///
    /// ```
    /// let orca = plimsoll_orca::layer().handle();
    /// let request = orca.begin_request();
    /// assert_eq!(orca.in_flight(), 1);
    /// request.fail(); // or drop it when the response has been sent
    /// assert_eq!((orca.in_flight(), orca.errors()), (0, 1));
    /// ```
    pub fn begin_request(&self) -> OrcaRequest {
        self.shared.begin_request();
        OrcaRequest {
            shared: Arc::clone(&self.shared),
            failed: false,
        }
    }

    /// Returns the current report as a header of a response, for servers without tower services;
    /// `None` while there is nothing to report.
    pub fn header(&self, format: OrcaFormat) -> Option<(HeaderName, HeaderValue)> {
        self.shared.published().header(format).cloned()
    }

    /// Returns the gRPC service that streams reports out of band.
    pub fn open_rca_service(&self) -> OpenRcaService {
        OpenRcaService::new(Arc::clone(&self.shared))
    }

    /// Ends all current and future out-of-band streams. Call it when the server begins a graceful
    /// shutdown: the streams have no end of their own, so the shutdown would wait for them.
    pub fn shutdown(&self) {
        self.shared.shutdown();
    }

    fn set(&self, field: Field, value: Option<f64>) -> Result<(), FieldError> {
        self.shared
            .with_process(|metrics| metrics.set(field, value))
    }
}

/// A request that counts as in flight until it is dropped; from [`OrcaHandle::begin_request`].
#[derive(Debug)]
#[must_use = "the request ends when this is dropped"]
pub struct OrcaRequest {
    shared: Arc<Shared>,
    failed: bool,
}

impl OrcaRequest {
    /// Ends the request and counts it as failed.
    pub fn fail(mut self) {
        self.failed = true;
    }
}

impl Drop for OrcaRequest {
    fn drop(&mut self) {
        self.shared.end_request(self.failed);
    }
}

impl fmt::Debug for OrcaHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrcaHandle")
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}
