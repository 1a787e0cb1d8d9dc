//! [`FilterChainSelector`]: selects the filter chain of a connection, as Envoy's
//! `filter_chain_match` does. It does no IO; `inspect` reads what it needs of a connection.
//!
//! Criteria are compared one after the other, each by its most specific value: first the server
//! name, then the transport protocol, then the application protocols. There is no way back: if the
//! most specific server name has no chain for the rest, the default chain is used, or none.

use std::collections::HashMap;

use plimsoll_core::units::FieldError;

/// Criteria of a filter chain (`filter_chain_match`). Empty criteria match every connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterChainMatch {
    /// Exact names, or names with a wildcard for their first labels: `*.example.com`.
    pub server_names: Vec<String>,
    pub transport_protocol: Option<TransportProtocol>,
    /// ALPN protocols, of which the client must offer one.
    pub application_protocols: Vec<String>,
}

/// Whether a connection starts with a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportProtocol {
    Tls,
    RawBuffer,
}

/// What the first bytes of a connection say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionProperties<'a> {
    pub transport_protocol: TransportProtocol,
    /// Server name that the client asks for (SNI); empty if it asks for none.
    pub server_name: &'a str,
    /// ALPN protocols in the order of the client.
    pub application_protocols: Vec<&'a [u8]>,
}

impl ConnectionProperties<'_> {
    /// Properties of a connection without TLS.
    pub const RAW_BUFFER: Self = Self {
        transport_protocol: TransportProtocol::RawBuffer,
        server_name: "",
        application_protocols: Vec::new(),
    };
}

/// Index of the filter chains of a listener by their criteria.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterChainSelector {
    /// Chains by server name in lower case. A wildcard is stored without its `*`; the empty name
    /// has the chains for any server name.
    names: HashMap<String, Vec<Entry>>,
    default: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    transport_protocol: Option<TransportProtocol>,
    application_protocol: Option<String>,
    chain: usize,
}

impl FilterChainSelector {
    /// Creates the index. Chains have the numbers of their matches; `default` is the number of the
    /// chain for connections that match no other. Two chains for the same connections are an error.
    pub fn try_new(
        matches: &[FilterChainMatch],
        default: Option<usize>,
    ) -> Result<Self, FieldError> {
        let mut selector = Self {
            names: HashMap::new(),
            default,
        };
        for (chain, criteria) in matches.iter().enumerate() {
            let added = selector.add(chain, criteria);
            let path = format!("filter_chains[{chain}].filter_chain_match");
            added.map_err(|error| error.under(&path))?;
        }
        Ok(selector)
    }

    fn add(&mut self, chain: usize, criteria: &FilterChainMatch) -> Result<(), FieldError> {
        let mut names = Vec::new();
        for (index, name) in criteria.server_names.iter().enumerate() {
            let key = name_key(name);
            names.push(key.map_err(|error| error.under(&format!("server_names[{index}]")))?);
        }
        if names.is_empty() {
            names.push(String::new());
        }
        let protocols = &criteria.application_protocols;
        let protocols: Vec<Option<String>> = if protocols.is_empty() {
            vec![None]
        } else {
            protocols.iter().cloned().map(Some).collect()
        };
        for name in names {
            let entries = self.names.entry(name).or_default();
            for application_protocol in &protocols {
                let entry = Entry {
                    transport_protocol: criteria.transport_protocol,
                    application_protocol: application_protocol.clone(),
                    chain,
                };
                if let Some(same) = entries.iter().find(|one| one.same_criteria(&entry)) {
                    let reason = match same.chain {
                        other if other == chain => "has the same criteria twice".to_owned(),
                        other => format!("matches the same connections as filter_chains[{other}]"),
                    };
                    return Err(FieldError::new("", reason));
                }
                entries.push(entry);
            }
        }
        Ok(())
    }

    /// Returns the chain of all connections, if it does not depend on what clients send.
    pub fn only(&self) -> Option<usize> {
        let mut names = self.names.iter();
        match (names.next(), names.next()) {
            (None, _) => self.default,
            (Some((name, entries)), None) if name.is_empty() => match entries.as_slice() {
                [only] if only.matches_all() => Some(only.chain),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the chain that was declared as the default.
    pub const fn default_chain(&self) -> Option<usize> {
        self.default
    }

    /// Returns the chain of a connection; `None` if no chain matches and there is no default.
    pub fn find(&self, connection: &ConnectionProperties<'_>) -> Option<usize> {
        self.find_match(connection).or(self.default)
    }

    fn find_match(&self, connection: &ConnectionProperties<'_>) -> Option<usize> {
        let entries = self.entries(connection.server_name)?;
        let exact = Some(connection.transport_protocol);
        let has_exact = entries.iter().any(|one| one.transport_protocol == exact);
        let transport = exact.filter(|_| has_exact);
        let with_protocol = |protocol: Option<&[u8]>| {
            entries.iter().find(|one| {
                let own = one.application_protocol.as_deref().map(str::as_bytes);
                one.transport_protocol == transport && own == protocol
            })
        };
        let mut offered = connection.application_protocols.iter();
        offered
            .find_map(|protocol| with_protocol(Some(protocol)))
            .or_else(|| with_protocol(None))
            .map(|found| found.chain)
    }

    /// Returns the chains for the most specific entry of a server name: the name itself, the
    /// longest wildcard, or any name.
    fn entries(&self, server_name: &str) -> Option<&[Entry]> {
        let name = server_name.to_ascii_lowercase();
        let suffixes = name.match_indices('.').map(|(dot, _)| &name[dot..]);
        let wildcards = suffixes.filter(|suffix| suffix.len() < name.len());
        let mut keys = [name.as_str()].into_iter().chain(wildcards).chain([""]);
        keys.find_map(|key| self.names.get(key)).map(Vec::as_slice)
    }
}

impl Entry {
    fn same_criteria(&self, other: &Self) -> bool {
        self.transport_protocol == other.transport_protocol
            && self.application_protocol == other.application_protocol
    }

    const fn matches_all(&self) -> bool {
        self.transport_protocol.is_none() && self.application_protocol.is_none()
    }
}

/// Returns the key of a server name: lower case, and for `*.example.com` the suffix `.example.com`.
fn name_key(name: &str) -> Result<String, FieldError> {
    let key = name
        .strip_prefix('*')
        .filter(|rest| rest.starts_with('.'))
        .unwrap_or(name);
    if key.contains('*') {
        let reason = format!("{name:?} may have a wildcard only in front: `*.example.com`");
        return Err(FieldError::new("", reason));
    }
    if key.trim_matches('.').is_empty() || (key == name && key.starts_with('.')) {
        return Err(FieldError::new(
            "",
            format!("{name:?} is not a server name"),
        ));
    }
    Ok(key.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn criteria(names: &[&str], transport: Option<&str>, alpn: &[&str]) -> FilterChainMatch {
        let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
        FilterChainMatch {
            server_names: owned(names),
            transport_protocol: transport.map(|name| match name {
                "tls" => TransportProtocol::Tls,
                _ => TransportProtocol::RawBuffer,
            }),
            application_protocols: owned(alpn),
        }
    }

    fn tls<'a>(server_name: &'a str, alpn: &[&'a str]) -> ConnectionProperties<'a> {
        ConnectionProperties {
            transport_protocol: TransportProtocol::Tls,
            server_name,
            application_protocols: alpn.iter().map(|one| one.as_bytes()).collect(),
        }
    }

    const PLAIN: ConnectionProperties<'static> = ConnectionProperties::RAW_BUFFER;

    /// Expected chains are those of a running Envoy 1.40 with the same chains.
    #[test]
    fn the_most_specific_server_name_wins() {
        let matches = [
            criteria(&["a.example"], None, &[]),
            criteria(&["*.example", "UPPER.test"], None, &[]),
            criteria(&[], Some("raw_buffer"), &[]),
            criteria(&["*.b.example"], None, &[]),
        ];
        let selector = FilterChainSelector::try_new(&matches, None).unwrap();
        assert_eq!(selector.only(), None);
        for (name, expected) in [
            ("a.example", Some(0)),
            ("A.Example", Some(0)),
            ("c.example", Some(1)),
            ("x.c.example", Some(1)),
            ("x.b.example", Some(3)),
            ("b.example", Some(1)),
            ("example", None),
            ("other", None),
            ("upper.test", Some(1)),
            ("", None),
        ] {
            assert_eq!(selector.find(&tls(name, &[])), expected, "{name}");
        }
        assert_eq!(selector.find(&PLAIN), Some(2));
    }

    /// Expected chains are those of a running Envoy 1.40 with the same chains.
    #[test]
    fn criteria_are_compared_in_order_and_without_a_way_back() {
        let matches = [
            criteria(&[], None, &["h2"]),
            criteria(&[], Some("tls"), &["http/1.1"]),
            criteria(&["z.example"], None, &["foo"]),
        ];
        let selector = FilterChainSelector::try_new(&matches, Some(3)).unwrap();
        assert_eq!(selector.only(), None);
        for (name, alpn, expected) in [
            // The chain of `h2` has no transport protocol, that of `http/1.1` has the one of the
            // connection and hides it.
            ("", &["h2"][..], 3),
            ("", &["http/1.1"], 1),
            ("", &["h2", "http/1.1"], 1),
            ("", &[], 3),
            ("z.example", &["foo"], 2),
            ("z.example", &["h2"], 3),
            ("", &["bar"], 3),
        ] {
            assert_eq!(selector.find(&tls(name, alpn)), Some(expected), "{alpn:?}");
        }
        assert_eq!(selector.find(&PLAIN), Some(3));
    }

    #[test]
    fn a_single_chain_is_known_without_reading_from_the_connection() {
        let any = [criteria(&[], None, &[])];
        let selector = |matches: &[_], default| {
            let selector = FilterChainSelector::try_new(matches, default);
            selector.unwrap().only()
        };
        assert_eq!(selector(&any, None), Some(0));
        assert_eq!(
            selector(&any, Some(1)),
            Some(0),
            "the default is not reached"
        );
        assert_eq!(selector(&[], Some(0)), Some(0));
        assert_eq!(selector(&[criteria(&["a"], None, &[])], None), None);
        assert_eq!(selector(&[criteria(&[], Some("tls"), &[])], None), None);
    }

    #[test]
    fn equal_criteria_and_partial_wildcards_are_rejected() {
        let error = |matches: &[_]| {
            let error = FilterChainSelector::try_new(matches, None).unwrap_err();
            (error.path().to_owned(), error.reason().to_owned())
        };
        let any = criteria(&[], None, &[]);
        let (path, reason) = error(&[any.clone(), any]);
        assert_eq!(path, "filter_chains[1].filter_chain_match");
        assert_eq!(reason, "matches the same connections as filter_chains[0]");
        let overlapping = [
            criteria(&["a", "b"], None, &["h2", "x"]),
            criteria(&["c", "B"], None, &["x"]),
        ];
        assert_eq!(error(&overlapping).0, "filter_chains[1].filter_chain_match");
        let twice = error(&[criteria(&["a", "A"], None, &[])]);
        assert_eq!(twice.1, "has the same criteria twice");
        for name in ["*", "*.", "a*.example", "*a.example", "a.*", "", ".example"] {
            let (path, _) = error(&[criteria(&["x", name], None, &[])]);
            assert_eq!(
                path, "filter_chains[0].filter_chain_match.server_names[1]",
                "{name:?}"
            );
        }
    }
}
