//! Normalization of request paths before routing, as Envoy does it: escaped slashes, then RFC 3986
//! normalization, then adjacent slashes. Without it, `/x/../admin` and `/%61dmin` pass a rule for
//! `/admin` that the upstream applies to them.

use std::borrow::Cow;

use http::uri::PathAndQuery;
use plimsoll_xds::pb::enums::PathWithEscapedSlashesAction;

use crate::config::PathOptions;

/// A path after normalization.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NormalizedPath {
    Unchanged,
    Forward(PathAndQuery),
    /// The client shall repeat the request with this path.
    Redirect(PathAndQuery),
    Rejected,
}

/// Normalizes the path of a request. The query is not changed.
pub(crate) fn normalize(target: &PathAndQuery, options: &PathOptions) -> NormalizedPath {
    let path = target.path();
    // `*` of an OPTIONS request is not a path.
    if !path.starts_with('/') {
        return NormalizedPath::Unchanged;
    }
    let escaped = has_escaped_slash(path);
    let mut new = Cow::Borrowed(path);
    let unescapes = matches!(
        options.escaped_slashes,
        PathWithEscapedSlashesAction::UnescapeAndRedirect
            | PathWithEscapedSlashesAction::UnescapeAndForward
    );
    if escaped && options.escaped_slashes == PathWithEscapedSlashesAction::RejectRequest {
        return NormalizedPath::Rejected;
    }
    if escaped && unescapes {
        new = Cow::Owned(unescape_slashes(&new));
    }
    if options.normalize && needs_normalization(&new) {
        match remove_dot_segments(&new) {
            Some(normalized) => new = Cow::Owned(normalized),
            None => return NormalizedPath::Rejected,
        }
    }
    if options.merge_slashes && new.contains("//") {
        new = Cow::Owned(merge_slashes(&new));
    }
    let Cow::Owned(mut new) = new else {
        return NormalizedPath::Unchanged;
    };
    let redirects = options.escaped_slashes == PathWithEscapedSlashesAction::UnescapeAndRedirect;
    if escaped && redirects {
        // Browsers read `//host` and `/\host` in `location` as another host.
        let start = new.len() - new.trim_start_matches(['/', '\\']).len();
        new.replace_range(..start, "/");
    }
    if let Some(query) = target.query() {
        new.push('?');
        new.push_str(query);
    }
    match PathAndQuery::try_from(new) {
        Ok(new) if escaped && redirects => NormalizedPath::Redirect(new),
        Ok(new) => NormalizedPath::Forward(new),
        Err(_) => NormalizedPath::Rejected,
    }
}

/// Returns the byte that a percent-encoded triplet at the start of `text` stands for.
fn decode(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}

fn has_escaped_slash(path: &str) -> bool {
    let bytes = path.as_bytes();
    memchr::memchr_iter(b'%', bytes).any(|at| matches!(decode(&bytes[at..]), Some(b'/' | b'\\')))
}

fn unescape_slashes(path: &str) -> String {
    let mut new = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        new.push_str(&rest[..at]);
        rest = &rest[at..];
        let slash = decode(rest.as_bytes()).filter(|byte| matches!(byte, b'/' | b'\\'));
        new.push(slash.map_or('%', char::from));
        rest = &rest[if slash.is_some() { 3 } else { 1 }..];
    }
    new.push_str(rest);
    new
}

/// Whether a path may change: it has a dot segment, an escape or a backslash.
fn needs_normalization(path: &str) -> bool {
    let bytes = path.as_bytes();
    memchr::memchr2(b'%', b'\\', bytes).is_some() || bytes.windows(2).any(|pair| pair == b"/.")
}

/// Decodes unreserved characters, replaces backslashes and resolves dot segments (RFC 3986, 6.2.2
/// and 5.2.4). `None` if the path has an escaped NUL.
fn remove_dot_segments(path: &str) -> Option<String> {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find(['%', '\\']) {
        decoded.push_str(&rest[..at]);
        rest = &rest[at..];
        let (new, length) = match decode(rest.as_bytes()) {
            _ if rest.starts_with('\\') => ('/', 1),
            Some(0) => return None,
            Some(byte) if is_unreserved(byte) => {
                escape_bare_percent(&mut decoded, byte);
                (char::from(byte), 3)
            }
            _ => ('%', 1),
        };
        decoded.push(new);
        rest = &rest[length..];
    }
    decoded.push_str(rest);
    let mut resolved = String::with_capacity(decoded.len());
    let mut segments = decoded[1..].split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => resolved.truncate(resolved.rfind('/').unwrap_or(0)),
            _ => {
                resolved.push('/');
                resolved.push_str(segment);
                continue;
            }
        }
        if last {
            resolved.push('/');
        }
    }
    Some(resolved)
}

/// Escapes a percent sign at the end of `text` that `byte` would make an escape which the client
/// has not written: `%2%65` must not become `%2e`, which the upstream would decode. As in Envoy.
fn escape_bare_percent(text: &mut String, byte: u8) {
    let behind = match text.as_bytes() {
        _ if !byte.is_ascii_hexdigit() => return,
        [.., b'%'] => text.len(),
        [.., b'%', digit] if digit.is_ascii_hexdigit() => text.len() - 1,
        _ => return,
    };
    text.insert_str(behind, "25");
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn merge_slashes(path: &str) -> String {
    let mut new = String::with_capacity(path.len());
    for char in path.chars() {
        if char != '/' || !new.ends_with('/') {
            new.push(char);
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(path: &'static str, options: PathOptions) -> String {
        match normalize(&PathAndQuery::from_static(path), &options) {
            NormalizedPath::Unchanged => path.to_owned(),
            NormalizedPath::Forward(new) => new.as_str().to_owned(),
            NormalizedPath::Redirect(new) => format!("redirect {new}"),
            NormalizedPath::Rejected => "rejected".to_owned(),
        }
    }

    #[test]
    fn paths_are_normalized() {
        let options = PathOptions {
            normalize: true,
            ..Default::default()
        };
        for (path, expected) in [
            ("/a/b", "/a/b"),
            ("/x/../admin", "/admin"),
            ("/x/%2e%2E/admin?q=/../", "/admin?q=/../"),
            ("/%61dmin", "/admin"),
            ("/a/./b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/../../a", "/a"),
            ("/..", "/"),
            ("/.hidden/...", "/.hidden/..."),
            ("/a\\..\\b", "/b"),
            ("/a%2Fb%20c%zz%", "/a%2Fb%20c%zz%"),
            ("/a//../b", "/a/b"),
            ("//admin", "//admin"),
            ("/a%00b", "rejected"),
            ("/x/%2%65%2%65/y", "/x/%252e%252e/y"),
            ("/%%32e/%2%6/%2%7a", "/%252e/%2%6/%2z"),
            ("/%20%61", "/%20a"),
            ("*", "*"),
        ] {
            assert_eq!(forwarded(path, options), expected, "{path}");
        }
        assert_eq!(
            forwarded("/x/../%61", PathOptions::default()),
            "/x/../%61",
            "off by default"
        );
    }

    #[test]
    fn adjacent_slashes_are_merged() {
        let options = PathOptions {
            merge_slashes: true,
            ..Default::default()
        };
        assert_eq!(forwarded("//a///b/?x=//", options), "/a/b/?x=//");
        assert_eq!(forwarded("/a/../b", options), "/a/../b");
    }

    #[test]
    fn escaped_slashes_are_kept_rejected_or_unescaped() {
        for (action, expected) in [
            (
                PathWithEscapedSlashesAction::KeepUnchanged,
                "/a%2f..%5Cb%41",
            ),
            (PathWithEscapedSlashesAction::RejectRequest, "rejected"),
            (
                PathWithEscapedSlashesAction::UnescapeAndForward,
                "/a/..\\b%41",
            ),
            (
                PathWithEscapedSlashesAction::UnescapeAndRedirect,
                "redirect /a/..\\b%41",
            ),
        ] {
            let options = PathOptions {
                escaped_slashes: action,
                ..Default::default()
            };
            assert_eq!(forwarded("/a%2f..%5Cb%41", options), expected);
            assert_eq!(forwarded("/a%41", options), "/a%41");
        }
        let all = PathOptions {
            normalize: true,
            merge_slashes: true,
            escaped_slashes: PathWithEscapedSlashesAction::UnescapeAndRedirect,
        };
        assert_eq!(
            forwarded("/x%2F%2f..%2F/admin?a%2Fb", all),
            "redirect /x/admin?a%2Fb"
        );
    }

    #[test]
    fn redirects_stay_on_their_host() {
        let options = PathOptions {
            escaped_slashes: PathWithEscapedSlashesAction::UnescapeAndRedirect,
            ..Default::default()
        };
        for path in [
            "/%2Fevil.example/",
            "/%5Cevil.example/",
            "//%2f%5c/evil.example/",
        ] {
            assert_eq!(
                forwarded(path, options),
                "redirect /evil.example/",
                "{path}"
            );
        }
        assert_eq!(forwarded("/a%2F/b", options), "redirect /a//b");
    }

    /// Most paths are not copied.
    #[test]
    fn only_paths_that_may_change_are_normalized() {
        for path in ["/", "/a/b.c/d..", "/a//b"] {
            assert!(!needs_normalization(path), "{path}");
        }
        for path in ["/.", "/a/../b", "/a/.b", "/%61", "/a\\b"] {
            assert!(needs_normalization(path), "{path}");
        }
    }
}
