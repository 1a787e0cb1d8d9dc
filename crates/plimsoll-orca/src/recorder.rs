//! [`OrcaRecorder`]: what a handler says about the request it serves.
//!
//! The layer puts one into the extensions of every request, and looks at it when the report is
//! written (`call`). For the process as a whole see `handle`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::units::FieldError;

use crate::metrics::{Field, Map, Metrics};

/// Adds to the report of one response; found in the extensions of the request.
///
/// In axum it is `Extension<OrcaRecorder>`, in tonic `request.extensions().get::<OrcaRecorder>()`.
/// What counts is what was set before the report is sent: before the headers of an HTTP response,
/// before the trailers of a gRPC one. Values are checked as those of
/// [`OrcaHandle`](crate::OrcaHandle), over which they go.
#[derive(Clone, Debug, Default)]
pub struct OrcaRecorder {
    slot: Arc<Slot>,
}

/// Small, because there is one per request and most handlers say nothing.
#[derive(Debug, Default)]
struct Slot {
    used: AtomicBool,
    metrics: Mutex<Option<Box<Metrics>>>,
}

impl OrcaRecorder {
    /// What this request cost, such as rows read or tokens made.
    pub fn set_request_cost(&self, name: &str, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.put(Map::RequestCost, name, Some(value)))
    }

    /// A metric of the application.
    pub fn set_named_metric(&self, name: &str, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.put(Map::Named, name, Some(value)))
    }

    /// Share of a resource in use.
    pub fn set_utilization(&self, name: &str, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.put(Map::Utilization, name, Some(value)))
    }

    /// What the application calls its utilization.
    pub fn set_application_utilization(&self, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.set(Field::Application, Some(value)))
    }

    /// Share of the CPU in use.
    pub fn set_cpu_utilization(&self, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.set(Field::Cpu, Some(value)))
    }

    /// Share of memory in use.
    pub fn set_mem_utilization(&self, value: f64) -> Result<(), FieldError> {
        self.with(|metrics| metrics.set(Field::Mem, Some(value)))
    }

    /// `report` with what was set; `None` if nothing was.
    pub(crate) fn over(&self, report: &OrcaLoadReport) -> Option<OrcaLoadReport> {
        // The lock is for requests that use it.
        if !self.slot.used.load(Ordering::Acquire) {
            return None;
        }
        let metrics = self.slot.metrics.lock();
        let metrics = metrics.unwrap_or_else(PoisonError::into_inner);
        let mut report = report.clone();
        metrics.as_ref()?.apply(&mut report);
        Some(report)
    }

    fn with(
        &self,
        set: impl FnOnce(&mut Metrics) -> Result<(), FieldError>,
    ) -> Result<(), FieldError> {
        let metrics = self.slot.metrics.lock();
        let mut metrics = metrics.unwrap_or_else(PoisonError::into_inner);
        set(metrics.get_or_insert_default())?;
        self.slot.used.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_until_something_was_set() {
        let recorder = OrcaRecorder::default();
        let measured = OrcaLoadReport {
            cpu_utilization: 0.5,
            ..Default::default()
        };
        assert_eq!(recorder.over(&measured), None);
        let error = recorder.set_request_cost("rows", f64::NAN).unwrap_err();
        assert_eq!(error.path(), "request_cost.rows");
        assert_eq!(recorder.over(&measured), None, "a refusal is not a word");

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
        assert_eq!(recorder.over(&measured), Some(expected));
        recorder.set_cpu_utilization(0.75).unwrap();
        let over = recorder.over(&measured).unwrap();
        assert_eq!(over.cpu_utilization, 0.75);
    }
}
