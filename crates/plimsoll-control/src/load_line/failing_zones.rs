//! [`FailingZones`]: the zones that keep demand from steering a service, and why (decision 0038).

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::model::locality::Locality;

/// Zones that would get more requests by demand than by host counts, and must not. While there are
/// any, proxies get host counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailingZones {
    /// Requests to them fail.
    pub failing: BTreeSet<Locality>,
    /// Those of `failing` to which only the requests of some zones fail, with these zones.
    pub only_from: BTreeMap<Locality, Vec<Locality>>,
    /// No proxy reports requests to them any more.
    pub unseen: BTreeSet<Locality>,
}

impl FailingZones {
    /// Whether nothing keeps demand from steering.
    pub fn is_empty(&self) -> bool {
        self.failing.is_empty() && self.unseen.is_empty()
    }

    /// Returns the reason as a clause, for people; `None` without one.
    pub fn text(&self) -> Option<String> {
        let clause = |what: &str, zones: Vec<&Locality>| {
            (!zones.is_empty()).then(|| format!("{what} {}", joined(zones)))
        };
        let is_of_all = |zone: &&Locality| !self.only_from.contains_key(zone);
        let of_all = self.failing.iter().filter(is_of_all);
        let failing = clause("requests fail in", of_all.collect());
        let of_some = self.only_from.iter().map(|(to, from)| link_fails(from, to));
        let unseen = clause("no proxy reports requests to", self.unseen.iter().collect());
        let clauses: Vec<String> = failing.into_iter().chain(of_some).chain(unseen).collect();
        (!clauses.is_empty()).then(|| clauses.join(" and "))
    }
}

/// Says that the requests from some zones to another fail, as a clause.
pub(crate) fn link_fails(from: &[Locality], to: &Locality) -> String {
    format!("requests from {} to {to} fail", joined(from))
}

fn joined<'a>(zones: impl IntoIterator<Item = &'a Locality>) -> String {
    let names: Vec<String> = zones.into_iter().map(ToString::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_that_is_unseen_is_not_said_to_fail() {
        let zones = |names: &[&str]| names.iter().map(|zone| Locality::zone_only(zone)).collect();
        for (failing, unseen, expected) in [
            (&["b"][..], &[][..], Some("requests fail in b")),
            (&[], &["b"], Some("no proxy reports requests to b")),
            (
                &["b", "c"],
                &["d"],
                Some("requests fail in b, c and no proxy reports requests to d"),
            ),
            (&[], &[], None),
        ] {
            let withheld = FailingZones {
                failing: zones(failing),
                unseen: zones(unseen),
                only_from: BTreeMap::new(),
            };
            assert_eq!(withheld.text().as_deref(), expected);
            assert_eq!(withheld.is_empty(), expected.is_none());
        }
    }

    #[test]
    fn zones_whose_requests_fail_alone_are_named() {
        let [a, b, c] = ["a", "b", "c"].map(Locality::zone_only);
        let withheld = FailingZones {
            failing: [b.clone(), c].into(),
            only_from: [(b, vec![a])].into(),
            ..FailingZones::default()
        };
        let text = withheld.text();
        let expected = "requests fail in c and requests from a to b fail";
        assert_eq!(text.as_deref(), Some(expected));
    }
}
