//! [`OrcaLayerBuilder`]: the settings of a layer, checked once.
//!
//! What they do lives in `state` (measuring) and `call` (emitting).

use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_xds::orca::OrcaFormat;

use crate::layer::OrcaLayer;
use crate::state::Shared;

/// When a response carries a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Always.
    #[default]
    Always,
    /// When the request has a header `endpoint-load-metrics-format` with `TEXT`, `JSON` or `BIN`.
    OnRequest,
}

/// Settings of an [`OrcaLayer`].
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

    /// Requests in flight at which the process is full: `application_utilization` is what is in
    /// flight divided by it. Not set by default, so that balancers look at the CPU.
    pub fn concurrency_limit(mut self, requests: u64) -> Self {
        self.settings.concurrency_limit = Some(requests);
        self
    }

    /// Time over which rates and utilizations are taken; 1 s, from one tick to a minute.
    ///
    /// Balancers smooth what they are told, so that a second is enough. A long window adds its
    /// length to the delay of their loop, and a late loop swings: with the headroom rule of
    /// `load_aware_locality` 10 s instead of 1 s makes the swing several times as slow, and wider.
    pub fn window(mut self, window: Duration) -> Self {
        self.settings.window = window;
        self
    }

    /// How often a thread reads CPU and memory and writes the next report; 100 ms, from 10 ms to
    /// 10 s. Requests only copy what is there.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.settings.tick = tick;
        self
    }

    /// Form of the header of HTTP responses; text. A report that text cannot express (one with the
    /// cost of a request) is written as JSON. The request may ask for another form.
    pub fn http_format(mut self, format: OrcaFormat) -> Self {
        self.settings.http_format = format;
        self
    }

    /// Form of the trailer of gRPC responses; `endpoint-load-metrics-bin`, which is the one that
    /// gRPC clients know.
    pub fn grpc_format(mut self, format: OrcaFormat) -> Self {
        self.settings.grpc_format = format;
        self
    }

    /// When a response carries a report; always.
    pub fn when(mut self, when: When) -> Self {
        self.settings.when = when;
        self
    }

    /// Whether the CPU is measured; yes.
    pub fn cpu(mut self, measured: bool) -> Self {
        self.settings.cpu = measured;
        self
    }

    /// Whether memory is measured; yes.
    pub fn memory(mut self, measured: bool) -> Self {
        self.settings.memory = measured;
        self
    }

    /// Checks the settings and starts measuring. The error names the setting.
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

    fn refusal(settings: OrcaLayerBuilder) -> String {
        settings.build().unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_setting() {
        let builder = OrcaLayerBuilder::new;
        let zero = refusal(builder().concurrency_limit(0));
        assert_eq!(zero, "concurrency_limit: must be at least 1");
        let fast = refusal(builder().tick(Duration::from_millis(9)));
        assert_eq!(fast, "tick: must be between 10ms and 10s, is 9ms");
        let slow = refusal(builder().tick(Duration::from_millis(10_001)));
        assert_eq!(slow, "tick: must be between 10ms and 10s, is 10.001s");
        let short = refusal(builder().window(Duration::from_millis(99)));
        let reason = "window: must be between the tick (100ms) and 60s, is 99ms";
        assert_eq!(short, reason);
        assert!(refusal(builder().window(Duration::from_secs(61))).starts_with("window: "));
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
