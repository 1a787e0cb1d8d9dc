//! Domains of virtual hosts: which pattern fits an authority, and how well.

/// How well a pattern fits; the greater one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// `*`.
    Any,
    /// `x.*`, by the length of the pattern.
    Prefix(usize),
    /// `*.x`, by the length of the pattern.
    Suffix(usize),
    /// The authority itself.
    Exact,
}

/// How well `pattern` fits `host`, if it does. An asterisk stands for at least one character.
pub(super) fn rank(pattern: &str, host: &str) -> Option<Rank> {
    if pattern == "*" {
        return Some(Rank::Any);
    }
    let (pattern, host) = (pattern.as_bytes(), host.as_bytes());
    let longer = |fixed: &[u8]| host.len() > fixed.len();
    if let Some(suffix) = pattern.strip_prefix(b"*") {
        let fits = longer(suffix) && host[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix);
        return fits.then_some(Rank::Suffix(pattern.len()));
    }
    if let Some(prefix) = pattern.strip_suffix(b"*") {
        let fits = longer(prefix) && host[..prefix.len()].eq_ignore_ascii_case(prefix);
        return fits.then_some(Rank::Prefix(pattern.len()));
    }
    host.eq_ignore_ascii_case(pattern).then_some(Rank::Exact)
}

/// Whether a pattern is one that [`rank`] understands.
pub(super) fn is_pattern(pattern: &str) -> bool {
    let inner = pattern.strip_prefix('*').or(pattern.strip_suffix('*'));
    !pattern.is_empty() && !inner.unwrap_or(pattern).contains('*')
}

/// The authority without `:port`; brackets of IPv6 stay.
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

    #[test]
    fn asterisks_stand_for_something() {
        assert_eq!(rank("*.x.y", "a.x.y"), Some(Rank::Suffix(5)));
        assert_eq!(rank("*.x.y", ".x.y"), None);
        assert_eq!(rank("*.x.y", "x.y"), None);
        assert_eq!(rank("x.*", "X.y"), Some(Rank::Prefix(3)));
        assert_eq!(rank("x.*", "x."), None);
        assert_eq!(rank("X.y", "x.Y"), Some(Rank::Exact));
        assert_eq!(rank("*", ""), Some(Rank::Any));
        assert!(Rank::Exact > Rank::Suffix(9) && Rank::Suffix(3) > Rank::Prefix(9));
        assert!(Rank::Prefix(1) > Rank::Any);
    }

    #[test]
    fn one_asterisk_at_one_end() {
        for good in ["*", "*.a", "a.*", "a", "*-b.c"] {
            assert!(is_pattern(good), "{good}");
        }
        for bad in ["", "**", "*a*", "a*b", "*.*"] {
            assert!(!is_pattern(bad), "{bad}");
        }
    }

    #[test]
    fn ports_are_cut_off() {
        assert_eq!(without_port("a.b:80"), "a.b");
        assert_eq!(without_port("a.b"), "a.b");
        assert_eq!(without_port("[::1]:80"), "[::1]");
        assert_eq!(without_port("::1"), "::1");
        assert_eq!(without_port("a:b"), "a:b");
    }
}
