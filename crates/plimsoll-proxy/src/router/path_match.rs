//! [`PathMatcher`]: which paths a route is for.

use plimsoll_xds::string_match::SafeRegex;

/// Which paths a route is for; the query is not looked at.
#[derive(Clone, Debug)]
pub enum PathMatcher {
    /// Paths that start like this.
    Prefix(String, Case),
    /// The path itself, or paths that go on with a slash.
    Separated(String, Case),
    /// This path.
    Exact(String, Case),
    /// The whole path.
    Regex(SafeRegex),
}

/// Whether upper and lower case differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// They differ.
    Sensitive,
    /// They are the same.
    Ignored,
}

impl PathMatcher {
    /// Whether `path` matches.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Prefix(prefix, case) => starts_with(path, prefix, *case),
            Self::Separated(prefix, case) => {
                starts_with(path, prefix, *case)
                    && matches!(path.as_bytes().get(prefix.len()), None | Some(b'/'))
            }
            Self::Exact(exact, case) => {
                path.len() == exact.len() && starts_with(path, exact, *case)
            }
            Self::Regex(regex) => regex.matches(path.as_bytes()),
        }
    }

    /// `path` with the part that was matched replaced; whole paths are replaced as a whole.
    pub fn rewrite(&self, path: &str, replacement: &str) -> String {
        let matched = match self {
            Self::Prefix(prefix, _) | Self::Separated(prefix, _) => prefix.len(),
            Self::Exact(..) | Self::Regex(_) => path.len(),
        };
        format!("{replacement}{}", path.get(matched..).unwrap_or_default())
    }
}

fn starts_with(path: &str, prefix: &str, case: Case) -> bool {
    let start = path.as_bytes().get(..prefix.len());
    start.is_some_and(|start| match case {
        Case::Sensitive => start == prefix.as_bytes(),
        Case::Ignored => start.eq_ignore_ascii_case(prefix.as_bytes()),
    })
}
