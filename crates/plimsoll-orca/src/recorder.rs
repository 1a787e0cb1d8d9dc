//! [`OrcaRecorder`]: metrics that a handler sets for the response to one request.
//!
//! The layer inserts one into the extensions of every request and reads it when it writes the
//! report (`call`). For the whole process see `handle`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::units::FieldError;

use crate::metrics::{Field, Map, Metrics};
use crate::state::lock;

/// Adds metrics to the report of one response; found in the extensions of the request.
///
/// In axum use `Extension<OrcaRecorder>`, in tonic `request.extensions().get::<OrcaRecorder>()`.
/// Set values before the report is sent: before the headers of an HTTP response, or the trailers of
/// a gRPC response. They override [`OrcaHandle`](crate::OrcaHandle)'s values; the same rules apply.
///
/// ```
/// use axum::Extension;
/// use plimsoll_orca::OrcaRecorder;
///
/// async fn search(Extension(orca): Extension<OrcaRecorder>) -> &'static str {
///     if let Err(error) = orca.set_request_cost("rows", 1250.0) {
///         eprintln!("{error}");
///     }
///     "found"
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct OrcaRecorder {
    slot: Arc<Slot>,
}

/// Kept small: every request has a slot, and most handlers set nothing.
#[derive(Debug, Default)]
struct Slot {
    used: AtomicBool,
    metrics: Mutex<Option<Box<Metrics>>>,
}

impl OrcaRecorder {
    /// Sets a cost of this request, such as rows read or tokens generated.
    pub fn set_request_cost(&self, name: &str, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.put(Map::RequestCost, name, Some(value)))
    }

    /// Sets a metric of the application, such as a queue length.
    pub fn set_named_metric(&self, name: &str, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.put(Map::Named, name, Some(value)))
    }

    /// Sets the utilization of a resource, from 0 to 1.
    pub fn set_utilization(&self, name: &str, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.put(Map::Utilization, name, Some(value)))
    }

    /// Sets the utilization of the application.
    pub fn set_application_utilization(&self, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.set(Field::Application, Some(value)))
    }

    /// Sets the share of the CPU in use.
    pub fn set_cpu_utilization(&self, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.set(Field::Cpu, Some(value)))
    }

    /// Sets the share of memory in use.
    pub fn set_mem_utilization(&self, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.set(Field::Mem, Some(value)))
    }

    /// Returns `report` with the recorded metrics applied; `None` if nothing was recorded.
    pub(crate) fn applied_to(&self, report: &OrcaLoadReport) -> Option<OrcaLoadReport> {
        // Requests without recorded metrics do not take the lock.
        if !self.slot.used.load(Ordering::Acquire) {
            return None;
        }
        let metrics = lock(&self.slot.metrics);
        let mut report = report.clone();
        metrics.as_ref()?.apply(&mut report);
        Some(report)
    }

    fn with(
        &self,
        set: impl FnOnce(&mut Metrics) -> Result<(), FieldError>,
    ) -> Result<(), FieldError> {
        let mut metrics = lock(&self.slot.metrics);
        set(metrics.get_or_insert_default())?;
        self.slot.used.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_unchanged_until_a_metric_is_set() {
        let recorder = OrcaRecorder::default();
        let measured = OrcaLoadReport {
            cpu_utilization: 0.5,
            ..Default::default()
        };
        assert_eq!(recorder.applied_to(&measured), None);
        let error = recorder.set_request_cost("rows", f64::NAN).unwrap_err();
        assert_eq!(error.path(), "request_cost.rows");
        assert_eq!(
            recorder.applied_to(&measured),
            None,
            "a rejected value is not recorded"
        );

        let elsewhere = recorder.clone();
        elsewhere.set_request_cost("rows", 3.0).unwrap();
        elsewhere.set_named_metric("queue", 2.0).unwrap();
        elsewhere.set_utilization("disk", 0.5).unwrap();
        elsewhere.set_application_utilization(0.25).unwrap();
        elsewhere.set_mem_utilization(0.125).unwrap();
        let expected = OrcaLoadReport {
            application_utilization: 0.25,
            mem_utilization: 0.125,
            request_cost: [("rows", 3.0)].into_iter().collect(),
            named_metrics: [("queue", 2.0)].into_iter().collect(),
            utilization: [("disk", 0.5)].into_iter().collect(),
            ..measured.clone()
        };
        assert_eq!(recorder.applied_to(&measured), Some(expected));
        recorder.set_cpu_utilization(0.75).unwrap();
        let over = recorder.applied_to(&measured).unwrap();
        assert_eq!(over.cpu_utilization, 0.75);
    }
}
