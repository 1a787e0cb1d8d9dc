//! ORCA load reports in response headers, trailers and out-of-band streams.
//!
//! | module | content |
//! |---|---|
//! | `header` | header names and formats, errors with Envoy's codes and texts |
//! | `text`, `json`, `message` | the formats; `message` is protobuf |
//! | `first` | the first valid report of a response wins |
//! | `encode` | encoding in the same formats |
//! | [`oob`] | out-of-band reporting: one stream per host |
//!
//! `plimsoll_core::model::orca` interprets reports. No input panics; a malformed report is an
//! [`OrcaError`], which callers count and otherwise ignore.

mod encode;
mod first;
mod header;
mod json;
mod message;
pub mod oob;
mod text;

use std::borrow::Cow;
use std::fmt;

use plimsoll_core::model::orca::OrcaLoadReport;

pub use encode::{OrcaFormat, encode, encode_message};
pub use first::FirstReport;
pub use header::{ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN, parse, parse_message};

/// Size limits of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrcaLimits {
    /// Bytes of a header value or message; default 64 KiB, Envoy's limit for a message.
    pub max_bytes: usize,
    /// Entries of the three maps together; default 1000.
    pub max_metrics: usize,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for OrcaLimits {
    fn default() -> Self {
        Self {
            max_bytes: 64 * 1024,
            max_metrics: 1_000,
            _non_exhaustive: (),
        }
    }
}

impl OrcaLimits {
    fn check_bytes(&self, found: usize) -> Result<(), OrcaError> {
        if found <= self.max_bytes {
            return Ok(());
        }
        let max = self.max_bytes;
        let message = format!("ORCA report has {found} bytes, at most {max} are allowed");
        Err(OrcaError::new(OrcaCode::ResourceExhausted, message))
    }

    fn check_metrics(&self, report: OrcaLoadReport) -> Result<OrcaLoadReport, OrcaError> {
        let maps = [
            &report.named_metrics,
            &report.utilization,
            &report.request_cost,
        ];
        let found: usize = maps.iter().map(|map| map.len()).sum();
        if found <= self.max_metrics {
            return Ok(report);
        }
        let max = self.max_metrics;
        let message = format!("ORCA report has {found} metrics, at most {max} are allowed");
        Err(OrcaError::new(OrcaCode::ResourceExhausted, message))
    }
}

/// Reason why there is no valid report, or why it cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrcaError {
    code: OrcaCode,
    message: Cow<'static, str>,
}

/// Canonical status code of an [`OrcaError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OrcaCode {
    /// The backend sent no report, which is not an error of the backend.
    NotFound,
    InvalidArgument,
    AlreadyExists,
    /// The report exceeds [`OrcaLimits`].
    ResourceExhausted,
}

impl OrcaError {
    /// Returns the canonical status code.
    pub const fn code(&self) -> OrcaCode {
        self.code
    }

    /// Returns the reason, truncated to a kilobyte because it may quote the backend.
    pub fn message(&self) -> &str {
        &self.message
    }

    const NOT_FOUND: Self = Self {
        code: OrcaCode::NotFound,
        message: Cow::Borrowed("no ORCA data sent from the backend"),
    };

    fn new(code: OrcaCode, message: impl Into<Cow<'static, str>>) -> Self {
        /// Keeps log lines short, because the message may quote the backend.
        const MAX_MESSAGE: usize = 1024;
        let mut message = message.into();
        if message.len() > MAX_MESSAGE {
            let mut ends = (0..=MAX_MESSAGE).rev();
            let cut = ends.find(|&end| message.is_char_boundary(end)).unwrap_or(0);
            message = format!("{}…", &message[..cut]).into();
        }
        Self { code, message }
    }

    fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(OrcaCode::InvalidArgument, message)
    }
}

impl fmt::Display for OrcaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OrcaError {}

impl OrcaCode {
    /// Returns the canonical name, such as `InvalidArgument`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "NotFound",
            Self::InvalidArgument => "InvalidArgument",
            Self::AlreadyExists => "AlreadyExists",
            Self::ResourceExhausted => "ResourceExhausted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_its_message_and_names_its_code() {
        let error = OrcaError::invalid("no");
        assert_eq!(error.to_string(), "no");
        assert_eq!(error.code().as_str(), "InvalidArgument");
        let all = [
            OrcaCode::NotFound,
            OrcaCode::InvalidArgument,
            OrcaCode::AlreadyExists,
            OrcaCode::ResourceExhausted,
        ];
        for code in all {
            assert_eq!(code.as_str(), format!("{code:?}"));
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let error = OrcaError::invalid("é".repeat(1_000));
        assert_eq!(error.message().len(), 1024 + "…".len());
        let odd = OrcaError::invalid(format!("a{}", "é".repeat(1_000)));
        assert_eq!(odd.message().len(), 1023 + "…".len());
        assert!(odd.message().ends_with("é…"));
        let short = "x".repeat(1024);
        assert_eq!(OrcaError::invalid(short.clone()).message(), short);
    }

    #[test]
    fn limits_are_inclusive() {
        let limits = OrcaLimits {
            max_bytes: 3,
            max_metrics: 2,
            ..Default::default()
        };
        assert_eq!(limits.check_bytes(3), Ok(()));
        let error = limits.check_bytes(4).unwrap_err();
        assert_eq!(error.code(), OrcaCode::ResourceExhausted);
        assert_eq!(
            error.message(),
            "ORCA report has 4 bytes, at most 3 are allowed"
        );
        let mut report = OrcaLoadReport::default();
        report.named_metrics.insert("a", 1.0);
        report.utilization.insert("a", 1.0);
        assert_eq!(limits.check_metrics(report.clone()), Ok(report.clone()));
        report.request_cost.insert("a", 1.0);
        let error = limits.check_metrics(report).unwrap_err();
        assert_eq!(
            error.message(),
            "ORCA report has 3 metrics, at most 2 are allowed"
        );
    }
}
