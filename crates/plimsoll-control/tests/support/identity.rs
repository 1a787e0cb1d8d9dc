//! Interpreter of byte strings as a rule of `identities` and the names it is compared with. Lines
//! are the pattern of a certificate's name, that name, the pattern of a node id, and the id. What
//! matches is compared with a matcher that tries everything. Used by the tests of this crate and by
//! the fuzz target `identity`.

use std::collections::BTreeMap;

use plimsoll_control::identity::{Captures, Pattern};

/// Memory that an input may use at a time, in bytes, and more for each of its bytes: what the
/// matcher remembers grows with placeholders and characters.
pub(crate) const MEMORY_BASE: u64 = 64 << 10;
pub(crate) const MEMORY_PER_BYTE: u64 = 8 << 10;
/// Longest name that the other matcher takes: its time grows exponentially.
const SHORT: usize = 12;

/// Whether the names matched, so that tests can check coverage.
pub(crate) fn run(bytes: &[u8]) -> Option<bool> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let (subject, name) = (lines.next()?, lines.next()?);
    let (allowed, id) = (lines.next()?, lines.next()?);
    let subject = Pattern::parse(subject, Some('/')).ok()?;
    let allowed = Pattern::parse(allowed, None).ok()?;
    let printed = subject.to_string();
    assert_eq!(Pattern::parse(&printed, Some('/')).as_ref(), Ok(&subject));
    let captures = subject.captures(name);
    check(
        &printed,
        name,
        Some('/'),
        &Captures::new(),
        captures.is_some(),
    );
    let Some(captures) = captures else {
        return Some(false);
    };
    assert!(subject.matches(&captures, name), "{printed} {name}");
    for value in captures.values() {
        assert!(!value.is_empty() && !value.contains('/'), "{value}");
    }
    if allowed.check_names(&subject).is_err() {
        return Some(false);
    }
    let matched = allowed.matches(&captures, id);
    check(&allowed.to_string(), id, None, &captures, matched);
    Some(matched)
}

/// Compares with a matcher that tries every text for every placeholder.
fn check(pattern: &str, name: &str, separator: Option<char>, captures: &Captures, matched: bool) {
    if name.chars().count() <= SHORT && pattern.len() <= 2 * SHORT {
        let expected = matches(pattern, name, separator, &mut captures.clone());
        assert_eq!(matched, expected, "{pattern:?} {name:?} {captures:?}");
    }
}

fn matches(
    pattern: &str,
    name: &str,
    separator: Option<char>,
    captures: &mut BTreeMap<String, String>,
) -> bool {
    let Some(first) = pattern.chars().next() else {
        return name.is_empty();
    };
    let (placeholder, rest) = match first {
        '*' => (None, &pattern[1..]),
        '{' => {
            let Some((placeholder, rest)) = pattern[1..].split_once('}') else {
                return false;
            };
            (Some(placeholder), rest)
        }
        _ => {
            let tail = name.strip_prefix(first);
            let pattern = &pattern[first.len_utf8()..];
            return tail.is_some_and(|tail| matches(pattern, tail, separator, captures));
        }
    };
    if let Some(known) = placeholder.and_then(|placeholder| captures.get(placeholder)) {
        let tail = name.strip_prefix(known.as_str());
        return tail.is_some_and(|tail| matches(rest, tail, separator, &mut captures.clone()));
    }
    let ends = name.char_indices().map(|(at, char)| at + char.len_utf8());
    let splits = ends.map(|end| name.split_at(end));
    let taken = splits.take_while(|(text, _)| !separator.is_some_and(|one| text.contains(one)));
    for (text, tail) in taken {
        let mut tried = captures.clone();
        tried.extend(placeholder.map(|placeholder| (placeholder.to_owned(), text.to_owned())));
        if matches(rest, tail, separator, &mut tried) {
            return true;
        }
    }
    false
}
