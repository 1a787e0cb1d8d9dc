//! [`FirstReport`]: of all reports of a response the first valid one is used (envoy-semantics §6).
//!
//! Reading does not live here but in `header`. Called by whatever sees responses.

use plimsoll_core::model::orca::OrcaLoadReport;

use super::{OrcaCode, OrcaError, OrcaLimits, header};

/// One per response, kept over headers and trailers: look at the final response headers first, then
/// at the trailers.
///
/// A retry has a response of its own. Envoy keeps one over all tries of a request, so that the
/// report of the host that was tried second is lost when the first one sent one with its error;
/// here each host's report is used (docs/decisions/0019).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstReport {
    taken: bool,
}

impl FirstReport {
    /// The report in `headers`, if it is the first valid one.
    ///
    /// `None` when there is none, and when there was a valid one before: then `headers` are not
    /// even looked at. An error is a broken report: count it, and leave the values known so far as
    /// they are. It does not keep a later report from being used.
    pub fn look<'h>(
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

    /// There was a valid one.
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
        let found = first.look(pairs, &OrcaLimits::default())?;
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
        assert_eq!(look(&mut first, &eps("x")), Ok(None), "not looked at");
    }

    #[test]
    fn trailers_have_a_chance_after_silence_and_after_a_fault() {
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
