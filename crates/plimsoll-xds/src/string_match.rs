//! String matchers of Envoy's API, for routes and for names in certificates.

use plimsoll_core::units::FieldError;
#[cfg(feature = "messages")]
use regex::bytes::{Regex, RegexBuilder};

/// Size limit of a compiled expression in bytes, against hostile ones.
#[cfg(feature = "messages")]
const MAX_COMPILED: usize = 1 << 20;

/// Pattern with case sensitivity (`StringMatcher`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringMatcher {
    pub pattern: StringPattern,
    /// Ignores ASCII case. No effect on regular expressions.
    pub ignore_case: bool,
}

/// Pattern of a string matcher (`match_pattern`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringPattern {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    /// Must match the whole string.
    Regex(SafeRegex),
}

impl StringMatcher {
    /// Creates a case-sensitive matcher.
    pub const fn new(pattern: StringPattern) -> Self {
        Self {
            pattern,
            ignore_case: false,
        }
    }

    /// Returns whether `value` matches the pattern.
    pub fn matches(&self, value: &[u8]) -> bool {
        let same = |part: &[u8], expected: &str| {
            if self.ignore_case {
                part.eq_ignore_ascii_case(expected.as_bytes())
            } else {
                part == expected.as_bytes()
            }
        };
        match &self.pattern {
            StringPattern::Exact(exact) => same(value, exact),
            StringPattern::Prefix(prefix) => value
                .get(..prefix.len())
                .is_some_and(|start| same(start, prefix)),
            StringPattern::Suffix(suffix) => {
                let start = value.len().checked_sub(suffix.len());
                start.is_some_and(|start| same(&value[start..], suffix))
            }
            StringPattern::Contains(part) if part.is_empty() => true,
            StringPattern::Contains(part) => {
                value.windows(part.len()).any(|window| same(window, part))
            }
            StringPattern::Regex(regex) => regex.matches(value),
        }
    }
}

/// Regular expression for whole strings, in RE2 syntax. It matches bytes, so character classes are
/// ASCII only. Without the feature `messages` there is none: [`Self::try_new`] fails.
#[derive(Clone, Debug)]
pub struct SafeRegex {
    text: String,
    #[cfg(feature = "messages")]
    regex: Regex,
}

impl SafeRegex {
    /// Compiles the expression; the path of an error is empty.
    #[cfg(feature = "messages")]
    pub fn try_new(text: &str) -> Result<Self, FieldError> {
        let whole = format!(r"\A(?:{text})\z");
        // Compile `text` alone first: an unbalanced parenthesis could close the group around it.
        let compiled = compile(text).and_then(|_| compile(&whole));
        match compiled {
            Ok(regex) => Ok(Self {
                text: text.to_owned(),
                regex,
            }),
            Err(error) => {
                let reason = format!("{text:?} is not a regular expression: {error}");
                Err(FieldError::new("", reason))
            }
        }
    }

    /// Fails: this build has no regular expressions.
    #[cfg(not(feature = "messages"))]
    pub fn try_new(text: &str) -> Result<Self, FieldError> {
        let reason = format!("{text:?}: regular expressions are not compiled in");
        Err(FieldError::new("", reason))
    }

    /// Returns the expression as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether all of `value` matches.
    #[cfg(feature = "messages")]
    pub fn matches(&self, value: &[u8]) -> bool {
        self.regex.is_match(value)
    }

    /// Never called: there is no value of this type.
    #[cfg(not(feature = "messages"))]
    pub const fn matches(&self, _value: &[u8]) -> bool {
        false
    }
}

#[cfg(feature = "messages")]
fn compile(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text)
        .unicode(false)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .build()
}

impl PartialEq for SafeRegex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SafeRegex {}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex(text: &str) -> StringPattern {
        StringPattern::Regex(SafeRegex::try_new(text).unwrap())
    }

    #[test]
    fn patterns_match_by_kind() {
        let cases = [
            (StringPattern::Exact("abc".into()), "abc", "abcd"),
            (StringPattern::Prefix("ab".into()), "abc", "bab"),
            (StringPattern::Suffix("bc".into()), "abc", "bca"),
            (StringPattern::Contains("b".into()), "abc", "ac"),
            (StringPattern::Contains("abc".into()), "abc", "ab"),
            (regex("a.c|d"), "abc", "abcd"),
        ];
        for (pattern, yes, no) in cases {
            let matcher = StringMatcher::new(pattern);
            assert!(matcher.matches(yes.as_bytes()), "{matcher:?}");
            assert!(!matcher.matches(no.as_bytes()), "{matcher:?}");
            assert!(!matcher.matches(b""), "{matcher:?}");
        }
        let all = StringMatcher::new(StringPattern::Contains(String::new()));
        assert!(all.matches(b""));
    }

    #[test]
    fn case_is_ignored_on_request() {
        for pattern in [
            StringPattern::Exact("aBc".into()),
            StringPattern::Prefix("aB".into()),
            StringPattern::Suffix("Bc".into()),
            StringPattern::Contains("B".into()),
        ] {
            let mut matcher = StringMatcher::new(pattern);
            assert!(!matcher.matches(b"AbC"), "{matcher:?}");
            matcher.ignore_case = true;
            assert!(matcher.matches(b"AbC"), "{matcher:?}");
        }
    }

    #[test]
    fn expressions_match_whole_strings_and_any_bytes() {
        let either = SafeRegex::try_new("a|bc").unwrap();
        assert!(either.matches(b"a") && either.matches(b"bc"));
        assert!(!either.matches(b"abc") && !either.matches(b"a\n"));
        assert!(SafeRegex::try_new(".*").unwrap().matches(b"\xff\x80"));
        assert_eq!(either, SafeRegex::try_new("a|bc").unwrap());
        assert_ne!(either, SafeRegex::try_new("a|b").unwrap());
    }

    #[test]
    fn bad_and_huge_expressions_are_rejected() {
        for bad in ["(", "a)|(b", "a{1000000}", r"(?:\w{200}){200}", "[z-a]"] {
            let error = SafeRegex::try_new(bad).unwrap_err();
            assert!(error.reason().contains("regular expression"), "{error}");
        }
    }
}
