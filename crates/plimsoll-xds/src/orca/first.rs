//! Selects the first valid report of a response, as Envoy does.
//!
//! `header` parses reports. Called for response headers, then for trailers.

use plimsoll_core::model::orca::OrcaLoadReport;

use super::{OrcaCode, OrcaError, OrcaLimits, header};

/// Selects the first valid report of one response: pass the final response headers first, then the
/// trailers.
///
/// Each retry has its own response. Envoy keeps one selection over all tries of a request, so that
/// the report of the second host is lost if the first sent one with its error; here each host's
/// report is used (docs/decisions/0019).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstReport {
    taken: bool,
}

impl FirstReport {
    /// Parses the report in `headers`, if it is the first valid one.
    ///
    /// Returns `None` without a report, and after an earlier valid one, when `headers` are not even
    /// read. An error is a malformed report: count it and keep the values known so far. A later
    /// report can still be used.
    pub fn parse<'h>(
        &mut self,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        limits: &OrcaLimits,
    ) -> Result<Option<OrcaLoadReport>, OrcaError> {
        if self.taken {
            return Ok(None);
        }
        match header::parse(headers, limits) {
            Ok(report) => {
                self.taken = true;
                Ok(Some(report))
            }
            Err(error) if error.code() == OrcaCode::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a valid report was found.
    pub const fn is_taken(self) -> bool {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs<'h> = &'h [(&'h str, &'h str)];

    const NOTHING: Pairs<'_> = &[("content-type", "text/plain")];

    fn eps(value: &str) -> Vec<(&'static str, String)> {
        vec![("endpoint-load-metrics", format!("TEXT eps={value}"))]
    }

    fn look(first: &mut FirstReport, headers: &[(&str, String)]) -> Result<Option<f64>, OrcaError> {
        let pairs = headers
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()));
        let found = first.parse(pairs, &OrcaLimits::default())?;
        Ok(found.map(|report| report.eps))
    }

    fn nothing() -> Vec<(&'static str, String)> {
        let pairs = NOTHING.iter();
        pairs
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect()
    }

    #[test]
    fn headers_win_over_trailers() {
        let mut first = FirstReport::default();
        assert_eq!(look(&mut first, &eps("1")), Ok(Some(1.0)));
        assert!(first.is_taken());
        assert_eq!(look(&mut first, &eps("2")), Ok(None), "trailers");
        assert_eq!(look(&mut first, &eps("x")), Ok(None), "not parsed");
    }

    #[test]
    fn trailers_are_used_after_missing_or_malformed_headers() {
        let mut first = FirstReport::default();
        assert_eq!(look(&mut first, &nothing()), Ok(None));
        assert!(!first.is_taken());
        let error = look(&mut first, &eps("x")).unwrap_err();
        assert_eq!(error.code(), OrcaCode::InvalidArgument);
        assert!(!first.is_taken());
        assert_eq!(look(&mut first, &eps("2")), Ok(Some(2.0)));
        assert_eq!(look(&mut first, &eps("3")), Ok(None));
    }

    #[test]
    fn an_empty_report_counts() {
        let mut first = FirstReport::default();
        let empty = [("endpoint-load-metrics", "TEXT ".to_owned())];
        assert_eq!(look(&mut first, &empty), Ok(Some(0.0)));
        assert_eq!(look(&mut first, &eps("2")), Ok(None));
    }
}
