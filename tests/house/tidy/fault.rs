//! [`Fault`]: one broken house rule, with its place and what to do about it.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) advice: String,
}

impl Fault {
    pub(crate) fn new(
        path: &str,
        line: usize,
        rule: &'static str,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule,
            advice: advice.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            rule,
            advice,
        } = self;
        write!(f, "{path}:{line}: {rule}: {advice}")
    }
}

/// Fails the test with one line per fault.
#[track_caller]
pub(crate) fn assert_none(faults: &[Fault]) {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert!(
        faults.is_empty(),
        "{} house rule(s) broken:\n{}",
        faults.len(),
        lines.join("\n")
    );
}

#[cfg(test)]
mod tests {
    use super::{Fault, assert_none};

    #[test]
    fn a_fault_reads_like_a_compiler_message() {
        let fault = Fault::new("src/a.rs", 7, "line width", "break the line");
        assert_eq!(fault.to_string(), "src/a.rs:7: line width: break the line");
        assert_none(&[]);
    }

    #[test]
    #[should_panic(expected = "1 house rule(s) broken:\nsrc/a.rs:7: r: a")]
    fn faults_fail_the_test() {
        assert_none(&[Fault::new("src/a.rs", 7, "r", "a")]);
    }
}
