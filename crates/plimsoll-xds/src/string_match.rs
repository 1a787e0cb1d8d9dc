//! [`StringMatcher`] and [`SafeRegex`]: how Envoy's messages say which strings they mean.
//!
//! Used by routes (headers, paths) and by TLS (names in certificates). Pure: a string in, yes or no
//! out.

use plimsoll_core::units::FieldError;
use regex::bytes::{Regex, RegexBuilder};

/// Bound of one compiled expression, bytes: a hostile one cannot take all memory.
const MAX_COMPILED: usize = 1 << 20;

/// `StringMatcher`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringMatcher {
    /// What is looked for.
    pub pattern: StringPattern,
    /// Upper and lower case of ASCII letters are the same. Without effect on expressions.
    pub ignore_case: bool,
}

/// `StringMatcher.match_pattern`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringPattern {
    /// The whole string.
    Exact(String),
    /// Its start.
    Prefix(String),
    /// Its end.
    Suffix(String),
    /// Any part of it.
    Contains(String),
    /// The whole string.
    Regex(SafeRegex),
}

impl StringMatcher {
    /// A matcher that knows upper from lower case.
    pub const fn new(pattern: StringPattern) -> Self {
        Self {
            pattern,
            ignore_case: false,
        }
    }

    /// Whether `value` matches.
    pub fn matches(&self, value: &[u8]) -> bool {
        let same = |part: &[u8], wanted: &str| {
            if self.ignore_case {
                part.eq_ignore_ascii_case(wanted.as_bytes())
            } else {
                part == wanted.as_bytes()
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

/// `RegexMatcher`: an expression for whole strings, in the language of RE2. It matches bytes, so
/// letters outside ASCII have no classes.
#[derive(Clone, Debug)]
pub struct SafeRegex {
    text: String,
    regex: Regex,
}

impl SafeRegex {
    /// Compiles; the path of an error is empty.
    pub fn try_new(text: &str) -> Result<Self, FieldError> {
        let whole = format!(r"\A(?:{text})\z");
        // Alone first: an unbalanced parenthesis could otherwise close ours.
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

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches all of `value`.
    pub fn matches(&self, value: &[u8]) -> bool {
        self.regex.is_match(value)
    }
}

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
    fn patterns_match_as_their_names_say() {
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
    fn bad_and_huge_expressions_are_refused() {
        for bad in ["(", "a)|(b", "a{1000000}", r"(?:\w{200}){200}", "[z-a]"] {
            let error = SafeRegex::try_new(bad).unwrap_err();
            assert!(error.reason().contains("regular expression"), "{error}");
        }
    }
}
