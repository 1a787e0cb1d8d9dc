//! [`OrcaLayerBuilder`]: settings of a layer, validated by `build`.

use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_xds::orca::OrcaFormat;

use crate::layer::OrcaLayer;
use crate::state::Shared;

/// When a response carries a load report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    #[default]
    Always,
    /// Only if the request asks with `endpoint-load-metrics-format: TEXT`, `JSON` or `BIN`.
    OnRequest,
}

/// Settings of an [`OrcaLayer`]; from [`OrcaLayer::builder`].
///
/// ```
/// use std::time::Duration;
/// use plimsoll_orca::{OrcaFormat, OrcaLayer, When};
///
/// let layer = OrcaLayer::builder()
///     .concurrency_limit(200)
///     .http_format(OrcaFormat::Json)
///     .when(When::OnRequest)
///     .build()?;
///
/// let error = OrcaLayer::builder().window(Duration::ZERO).build().unwrap_err();
/// assert_eq!(error.path(), "window");
/// # Ok::<(), plimsoll_orca::FieldError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until `build`"]
pub struct OrcaLayerBuilder {
    settings: Settings,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) concurrency_limit: Option<u64>,
    pub(crate) window: Duration,
    pub(crate) tick: Duration,
    pub(crate) http_format: OrcaFormat,
    pub(crate) grpc_format: OrcaFormat,
    pub(crate) when: When,
    pub(crate) cpu: bool,
    pub(crate) memory: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency_limit: None,
            window: Duration::from_secs(1),
            tick: Duration::from_millis(100),
            http_format: OrcaFormat::Text,
            grpc_format: OrcaFormat::BinHeader,
            when: When::Always,
            cpu: true,
            memory: true,
        }
    }
}

impl OrcaLayerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            settings: Settings::default(),
        }
    }

    /// Sets the number of requests in flight at which the process is fully utilized:
    /// `application_utilization` is the requests in flight divided by it. Unset by default, so that
    /// balancers use the CPU utilization.
    pub fn concurrency_limit(mut self, requests: u64) -> Self {
        self.settings.concurrency_limit = Some(requests);
        self
    }

    /// Sets the window over which rates and utilizations are averaged; 1 s by default, at least one
    /// tick, at most a minute.
    ///
    /// Balancers smooth the reports, so one second is enough. A longer window delays their control
    /// loop and makes it oscillate: with the headroom rule of `load_aware_locality`, 10 s instead
    /// of 1 s makes the oscillation several times as slow, and wider.
    pub fn window(mut self, window: Duration) -> Self {
        self.settings.window = window;
        self
    }

    /// Sets how often a thread samples CPU and memory and writes the next report; 100 ms by
    /// default, from 10 ms to 10 s. Responses carry a copy of the last report.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.settings.tick = tick;
        self
    }

    /// Sets the format of the header of HTTP responses; text by default. A report with a request
    /// cost, which text cannot express, is written as JSON. A request may ask for another format.
    pub fn http_format(mut self, format: OrcaFormat) -> Self {
        self.settings.http_format = format;
        self
    }

    /// Sets the format of the trailer of gRPC responses; by default `endpoint-load-metrics-bin`,
    /// which gRPC clients understand.
    pub fn grpc_format(mut self, format: OrcaFormat) -> Self {
        self.settings.grpc_format = format;
        self
    }

    /// Sets when a response carries a report; always by default.
    pub fn when(mut self, when: When) -> Self {
        self.settings.when = when;
        self
    }

    /// Sets whether the CPU is measured; it is by default.
    pub fn cpu(mut self, measured: bool) -> Self {
        self.settings.cpu = measured;
        self
    }

    /// Sets whether memory is measured; it is by default.
    pub fn memory(mut self, measured: bool) -> Self {
        self.settings.memory = measured;
        self
    }

    /// Validates the settings and starts the sampling thread. The error names the setting.
    pub fn build(self) -> Result<OrcaLayer, FieldError> {
        let settings = self.settings;
        let Settings { window, tick, .. } = settings;
        if settings.concurrency_limit == Some(0) {
            return Err(FieldError::new("concurrency_limit", "must be at least 1"));
        }
        if !(Duration::from_millis(10)..=Duration::from_secs(10)).contains(&tick) {
            let reason = format!("must be between 10ms and 10s, is {tick:?}");
            return Err(FieldError::new("tick", reason));
        }
        if !(tick..=Duration::from_secs(60)).contains(&window) {
            let reason = format!("must be between the tick ({tick:?}) and 60s, is {window:?}");
            return Err(FieldError::new("window", reason));
        }
        Ok(OrcaLayer::new(Shared::start(settings)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(settings: OrcaLayerBuilder) -> String {
        settings.build().unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_setting() {
        let builder = OrcaLayerBuilder::new;
        let zero = rejection(builder().concurrency_limit(0));
        assert_eq!(zero, "concurrency_limit: must be at least 1");
        let fast = rejection(builder().tick(Duration::from_millis(9)));
        assert_eq!(fast, "tick: must be between 10ms and 10s, is 9ms");
        let slow = rejection(builder().tick(Duration::from_millis(10_001)));
        assert_eq!(slow, "tick: must be between 10ms and 10s, is 10.001s");
        let short = rejection(builder().window(Duration::from_millis(99)));
        let reason = "window: must be between the tick (100ms) and 60s, is 99ms";
        assert_eq!(short, reason);
        assert!(rejection(builder().window(Duration::from_secs(61))).starts_with("window: "));
    }

    #[test]
    fn limits_are_inclusive() {
        let slowest = OrcaLayerBuilder::new()
            .tick(Duration::from_secs(10))
            .window(Duration::from_secs(60));
        let fastest = OrcaLayerBuilder::new()
            .concurrency_limit(1)
            .tick(Duration::from_millis(10))
            .window(Duration::from_millis(10));
        for builder in [slowest, fastest, OrcaLayerBuilder::new()] {
            assert!(builder.build().is_ok());
        }
    }
}
