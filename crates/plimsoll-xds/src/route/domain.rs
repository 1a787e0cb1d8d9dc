//! Index of the domains of virtual hosts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::units::FieldError;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainIndex {
    exact: BTreeMap<String, usize>,
    /// Domains `*.x` without the asterisk, in lower case, longest first.
    suffixes: Vec<(String, usize)>,
    prefixes: Vec<(String, usize)>,
    any: Option<usize>,
}

impl DomainIndex {
    /// Indexes the domains of all virtual hosts. Each must be a valid pattern and unique.
    pub(super) fn try_new<'a>(
        hosts: impl Iterator<Item = &'a [String]>,
    ) -> Result<Self, FieldError> {
        let mut index = Self::default();
        let mut seen = BTreeSet::new();
        for (host, patterns) in hosts.enumerate() {
            for (position, pattern) in patterns.iter().enumerate() {
                let path = || format!("virtual_hosts[{host}].domains[{position}]");
                if !is_pattern(pattern) {
                    let reason = format!("{pattern:?} may have one * only, at its start or end");
                    return Err(FieldError::new(path(), reason));
                }
                let lower = pattern.to_ascii_lowercase();
                if seen.contains(&lower) {
                    let reason = format!("{pattern:?} is listed more than once");
                    return Err(FieldError::new(path(), reason));
                }
                index.add(&lower, host);
                seen.insert(lower);
            }
        }
        let longest_first = |list: &mut Vec<(String, usize)>| {
            list.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
        };
        longest_first(&mut index.suffixes);
        longest_first(&mut index.prefixes);
        Ok(index)
    }

    fn add(&mut self, pattern: &str, host: usize) {
        if pattern == "*" {
            self.any = Some(host);
        } else if let Some(suffix) = pattern.strip_prefix('*') {
            self.suffixes.push((suffix.to_owned(), host));
        } else if let Some(prefix) = pattern.strip_suffix('*') {
            self.prefixes.push((prefix.to_owned(), host));
        } else {
            self.exact.insert(pattern.to_owned(), host);
        }
    }

    /// Returns the virtual host of an authority. An asterisk stands for at least one character.
    pub(super) fn find(&self, authority: &str) -> Option<usize> {
        // Fast path: most configurations have only `*`.
        if self.exact.is_empty() && self.suffixes.is_empty() && self.prefixes.is_empty() {
            return self.any;
        }
        let authority = if authority.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(authority.to_ascii_lowercase())
        } else {
            Cow::Borrowed(authority)
        };
        let longer = |part: &str| authority.len() > part.len();
        let suffix = || {
            let mut suffixes = self.suffixes.iter();
            suffixes.find(|(part, _)| longer(part) && authority.ends_with(part))
        };
        let prefix = || {
            let mut prefixes = self.prefixes.iter();
            prefixes.find(|(part, _)| longer(part) && authority.starts_with(part))
        };
        let exact = self.exact.get(&*authority).copied();
        let wild = || suffix().or_else(prefix).map(|&(_, host)| host);
        exact.or_else(wild).or(self.any)
    }
}

/// Returns whether Envoy accepts the pattern.
fn is_pattern(pattern: &str) -> bool {
    let inner = pattern.strip_prefix('*').or(pattern.strip_suffix('*'));
    !pattern.is_empty() && !inner.unwrap_or(pattern).contains('*')
}

/// Removes `:port` from an authority; brackets of IPv6 stay.
pub(super) fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(hosts: &[&[&str]]) -> Result<DomainIndex, FieldError> {
        let owned = |domains: &&[&str]| domains.iter().map(|&domain| domain.to_owned()).collect();
        let hosts: Vec<Vec<String>> = hosts.iter().map(owned).collect();
        DomainIndex::try_new(hosts.iter().map(Vec::as_slice))
    }

    #[test]
    fn asterisks_match_at_least_one_character() {
        let domains = index(&[&["*.x.y"], &["x.*"], &["X.y"]]).unwrap();
        let cases = [
            ("a.x.y", Some(0)),
            (".x.y", None),
            ("x.y", Some(2)),
            ("X.z", Some(1)),
            ("x.", None),
            ("x.Y", Some(2)),
            ("", None),
        ];
        for (authority, expected) in cases {
            assert_eq!(domains.find(authority), expected, "{authority}");
        }
        assert_eq!(index(&[&["*"]]).unwrap().find(""), Some(0));
    }

    #[test]
    fn duplicate_domains_are_rejected() {
        let twice: [(&[&[&str]], &str); 4] = [
            (&[&["a", "A"]], "virtual_hosts[0].domains[1]"),
            (&[&["*"], &["*"]], "virtual_hosts[1].domains[0]"),
            (&[&["*.a"], &["b", "*.A"]], "virtual_hosts[1].domains[1]"),
            (&[&["a.*"], &["a.*"]], "virtual_hosts[1].domains[0]"),
        ];
        for (hosts, path) in twice {
            assert_eq!(index(hosts).unwrap_err().path(), path, "{hosts:?}");
        }
    }

    #[test]
    fn one_asterisk_is_allowed_at_either_end() {
        for good in ["*", "*.a", "a.*", "a", "*-b.c"] {
            assert!(is_pattern(good), "{good}");
        }
        for bad in ["", "**", "*a*", "a*b", "*.*"] {
            assert!(!is_pattern(bad), "{bad}");
        }
    }

    #[test]
    fn ports_are_removed() {
        assert_eq!(without_port("a.b:80"), "a.b");
        assert_eq!(without_port("a.b"), "a.b");
        assert_eq!(without_port("[::1]:80"), "[::1]");
        assert_eq!(without_port("::1"), "::1");
        assert_eq!(without_port("a:b"), "a:b");
    }
}
