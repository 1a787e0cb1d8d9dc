//! [`Pattern`]: a name with placeholders, as rules of identities have them.
//!
//! `*` stands for any characters, at least one, but not for the separator of the name (`/` of a
//! URI, `.` of a DNS name). `{word}` stands for the same and remembers the characters; in another
//! pattern of the rule, `{word}` stands for exactly these.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Characters that the placeholders of a pattern stood for.
pub type Captures = BTreeMap<String, String>;

/// A name with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Part>,
    /// Character that no placeholder stands for.
    separator: Option<char>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Any,
    Named(String),
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("is empty")]
    Empty,
    #[error("has a {{ or }} without its counterpart")]
    Braces,
    #[error("{{{0}}} is not a name of letters, digits and _")]
    Name(String),
    #[error("has two placeholders without a character between them")]
    Adjacent,
    #[error("{{{0}}} is not in `uri` or `dns` of the rule")]
    Unknown(String),
}

impl Pattern {
    /// Parses a pattern for names with this separator.
    pub fn parse(text: &str, separator: Option<char>) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(['*', '{', '}']).unwrap_or(rest.len());
            let part = match first {
                '*' => {
                    rest = &rest[1..];
                    Part::Any
                }
                '{' => {
                    let (name, after) = rest[1..].split_once('}').ok_or(PatternError::Braces)?;
                    rest = after;
                    Part::Named(checked_name(name)?)
                }
                '}' => return Err(PatternError::Braces),
                _ => {
                    let (literal, after) = rest.split_at(end);
                    rest = after;
                    Part::Literal(literal.to_owned())
                }
            };
            let adjacent = parts.last().is_some_and(Part::is_placeholder) && part.is_placeholder();
            if adjacent {
                return Err(PatternError::Adjacent);
            }
            parts.push(part);
        }
        Ok(Self { parts, separator })
    }

    /// Checks that every named placeholder of this pattern is one of `subject`.
    pub fn check_names(&self, subject: &Self) -> Result<(), PatternError> {
        let known: Vec<&str> = subject.names().collect();
        match self.names().find(|name| !known.contains(name)) {
            Some(name) => Err(PatternError::Unknown(name.to_owned())),
            None => Ok(()),
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Named(name) => Some(name.as_str()),
            Part::Literal(_) | Part::Any => None,
        })
    }

    /// Returns the text of a pattern without placeholders.
    pub(super) fn literal(&self) -> Option<&str> {
        match &self.parts[..] {
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    pub(super) fn has_slash(&self) -> bool {
        let slash = |part: &Part| matches!(part, Part::Literal(text) if text.contains('/'));
        self.parts.iter().any(slash)
    }

    /// Returns what the placeholders stand for if `name` matches.
    pub fn captures(&self, name: &str) -> Option<Captures> {
        let mut matcher = self.matcher(Captures::new());
        matcher
            .advance(&self.parts, name)
            .then_some(matcher.captures)
    }

    /// Whether `value` matches, with the named placeholders of another pattern.
    pub fn matches(&self, captures: &Captures, value: &str) -> bool {
        self.matcher(captures.clone()).advance(&self.parts, value)
    }

    fn matcher(&self, captures: Captures) -> Matcher {
        let mut named: Vec<&str> = self.names().collect();
        named.retain(|name| !captures.contains_key(*name));
        named.sort_unstable();
        let repeats = named.windows(2).any(|pair| pair[0] == pair[1]);
        Matcher {
            separator: self.separator,
            captures,
            failed: (!repeats).then(BTreeSet::new),
        }
    }
}

/// One attempt to match a name, which may be as long as a node id and as repetitive as its sender
/// likes.
struct Matcher {
    separator: Option<char>,
    captures: Captures,
    /// Parts and characters that were left where a match failed: without this memory the time would
    /// grow exponentially with the number of placeholders. `None` if a placeholder occurs twice:
    /// then a failure depends on what it stood for.
    failed: Option<BTreeSet<(usize, usize)>>,
}

impl Matcher {
    /// Matches the rest of a name, shortest placeholder first.
    fn advance(&mut self, parts: &[Part], rest: &str) -> bool {
        let Some((first, after)) = parts.split_first() else {
            return rest.is_empty();
        };
        let known = match first {
            Part::Literal(text) => Some(text),
            Part::Named(name) => self.captures.get(name),
            Part::Any => None,
        };
        if let Some(known) = known {
            let next = rest.strip_prefix(known.as_str());
            return next.is_some_and(|rest| self.advance(after, rest));
        }
        let place = (parts.len(), rest.len());
        if self
            .failed
            .as_ref()
            .is_some_and(|failed| failed.contains(&place))
        {
            return false;
        }
        let longest = self.separator.and_then(|separator| rest.find(separator));
        let longest = &rest[..longest.unwrap_or(rest.len())];
        for end in longest
            .char_indices()
            .map(|(at, char)| at + char.len_utf8())
        {
            if let Part::Named(name) = first {
                self.captures.insert(name.clone(), rest[..end].to_owned());
            }
            if self.advance(after, &rest[end..]) {
                return true;
            }
        }
        if let Part::Named(name) = first {
            self.captures.remove(name);
        }
        if let Some(failed) = &mut self.failed {
            failed.insert(place);
        }
        false
    }
}

impl Part {
    fn is_placeholder(&self) -> bool {
        !matches!(self, Self::Literal(_))
    }
}

fn checked_name(name: &str) -> Result<String, PatternError> {
    let valid = |char: char| char.is_ascii_alphanumeric() || char == '_';
    if name.is_empty() || !name.chars().all(valid) {
        return Err(PatternError::Name(name.to_owned()));
    }
    Ok(name.to_owned())
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Literal(text) => f.write_str(text)?,
                Part::Any => f.write_str("*")?,
                Part::Named(name) => write!(f, "{{{name}}}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text, Some('/')).unwrap()
    }

    fn captures(text: &str, name: &str) -> Option<Vec<(String, String)>> {
        let captures = pattern(text).captures(name)?;
        Some(captures.into_iter().collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Some(pairs.iter().map(owned).collect())
    }

    #[test]
    fn placeholders_stand_for_one_segment_or_a_part_of_it() {
        let none = pairs(&[]);
        assert_eq!(captures("spiffe://td/a", "spiffe://td/a"), none);
        assert_eq!(captures("spiffe://td/a", "spiffe://td/ab"), None);
        assert_eq!(captures("spiffe://td/ab", "spiffe://td/a"), None);
        assert_eq!(captures("spiffe://td/*", "spiffe://td/a"), none);
        assert_eq!(captures("spiffe://td/*", "spiffe://td/a/b"), None);
        assert_eq!(captures("spiffe://td/*", "spiffe://td/"), None);
        assert_eq!(captures("spiffe://td/*/b", "spiffe://td/a/b"), none);
        assert_eq!(captures("gw-*-a", "gw-1-a-a"), none);
        assert_eq!(captures("gw-*-a", "gw-1-b"), None);
        assert_eq!(
            captures("spiffe://td/ns/{ns}/sa/{sa}", "spiffe://td/ns/shop/sa/web"),
            pairs(&[("ns", "shop"), ("sa", "web")])
        );
        assert_eq!(captures("{x}-{x}", "a-a"), pairs(&[("x", "a")]));
        assert_eq!(captures("{x}-{x}", "a-b"), None);
        // What fails after one capture may match after another.
        assert_eq!(
            captures("{x}-*-*-{x}", "a-b-c-d-a-b"),
            pairs(&[("x", "a-b")])
        );
        // The shortest capture that fits.
        assert_eq!(captures("{x}-b", "a-b-b"), pairs(&[("x", "a-b")]));
        assert_eq!(captures("{x}-*", "é-b-b"), pairs(&[("x", "é")]));
    }

    #[test]
    fn a_name_cannot_make_a_match_take_long() {
        // Tried one way after the other, these would take years.
        let any = ["*"; 12].join("-") + "x";
        let named: Vec<String> = (0..12).map(|index| format!("{{p{index}}}")).collect();
        let name = "-".repeat(256);
        for text in [any, named.join("-") + "x"] {
            let pattern = Pattern::parse(&text, None).unwrap();
            assert_eq!(pattern.captures(&name), None);
            assert!(pattern.captures(&(name.clone() + "x")).is_some());
            assert!(!pattern.matches(&Captures::new(), &name));
        }
        // A failed attempt leaves nothing behind.
        let ambiguous = Pattern::parse("{a}-{b}/c", None).unwrap();
        let captured = ambiguous.captures("1-2-3/c").unwrap();
        assert_eq!((&*captured["a"], &*captured["b"]), ("1", "2-3"));
    }

    #[test]
    fn a_captured_text_is_no_pattern() {
        let captured = pattern("id/{x}").captures("id/*").unwrap();
        assert!(pattern("{x}").matches(&captured, "*"));
        assert!(!pattern("{x}").matches(&captured, "anything"));
        assert!(pattern("fleet-{x}-*").matches(&captured, "fleet-*-1"));
        assert!(!pattern("fleet-{x}-*").matches(&captured, "fleet-a-1"));
    }

    #[test]
    fn without_a_separator_placeholders_stand_for_anything() {
        let any = Pattern::parse("*", None).unwrap();
        assert!(any.matches(&Captures::new(), "a/b.c"));
        assert!(!any.matches(&Captures::new(), ""));
        let dns = Pattern::parse("*.example", Some('.')).unwrap();
        assert!(dns.captures("a.example").is_some());
        assert!(dns.captures("a.b.example").is_none());
    }

    #[test]
    fn invalid_patterns_are_refused() {
        let error = |text: &str| Pattern::parse(text, None).unwrap_err();
        assert_eq!(error(""), PatternError::Empty);
        assert_eq!(error("a{b"), PatternError::Braces);
        assert_eq!(error("a}b"), PatternError::Braces);
        assert_eq!(error("{}"), PatternError::Name(String::new()));
        assert_eq!(error("{a-b}"), PatternError::Name("a-b".to_owned()));
        assert_eq!(error("**"), PatternError::Adjacent);
        assert_eq!(error("{a}*"), PatternError::Adjacent);
        let subject = pattern("{a}/{b}");
        assert_eq!(pattern("{b}-{a}").check_names(&subject), Ok(()));
        let unknown = PatternError::Unknown("c".to_owned());
        assert_eq!(pattern("{a}-{c}x").check_names(&subject), Err(unknown));
        assert!(pattern("a/b").has_slash() && !pattern("a*-{b}").has_slash());
        assert_eq!(pattern("a/*/{b}").to_string(), "a/*/{b}");
    }
}
