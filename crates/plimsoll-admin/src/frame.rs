//! [`Frame`]: one dashboard document, encoded in full and as a patch to the previous one.
//!
//! Each cluster and each node is serialized once per document, for all viewers; unchanged clusters
//! and nodes are left out of the patch. Full documents are assembled when a viewer needs one.

use std::collections::HashMap;
use std::sync::OnceLock;

use bytes::Bytes;
use serde::Serialize;

use crate::state::DashboardState;

/// One dashboard document, serialized as server-sent events.
#[derive(Debug)]
pub(crate) struct Frame {
    sequence: u64,
    taken_unix_ms: u64,
    document: Document,
    patch: Bytes,
    full: OnceLock<Bytes>,
}

/// A dashboard document in parts, each serialized as JSON.
#[derive(Debug, Default)]
struct Document {
    /// All JSON members except clusters and nodes, without the braces.
    head: String,
    clusters: Vec<(String, String)>,
    nodes: Option<Vec<(String, String)>>,
}

impl Frame {
    /// Serializes the document that follows the frame `before`.
    pub(crate) fn new(state: &DashboardState, before: Option<&Self>) -> Self {
        let sequence = before.map_or(1, |before| before.sequence + 1);
        let document = Document::new(state);
        let taken = state.taken_unix_ms;
        let patch = match before {
            Some(before) => event("patch", sequence, &document.patch(&before.document, taken)),
            None => Bytes::new(),
        };
        Self {
            sequence,
            taken_unix_ms: taken,
            document,
            patch,
            full: OnceLock::new(),
        }
    }

    /// Returns the event for a viewer whose last frame is `seen`: a patch if `seen` is the previous
    /// frame, the full document otherwise.
    pub(crate) fn event_since(&self, seen: Option<u64>) -> Bytes {
        match seen {
            Some(seen) if seen + 1 == self.sequence => self.patch.clone(),
            _ => {
                let full = || {
                    let document = self.document.full(self.taken_unix_ms);
                    event("full", self.sequence, &document)
                };
                self.full.get_or_init(full).clone()
            }
        }
    }

    /// Returns the sequence number of the frame.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Document {
    fn new(state: &DashboardState) -> Self {
        let members = [
            member("title", &state.title),
            member("subtitle", &state.subtitle),
            member("version", &state.version),
            member("verdict", &state.verdict),
            member("notices", &state.notices),
            member("cost", &state.cost),
            member("replicas", &state.replicas),
            member("evacuation", &state.evacuation),
            member("links", &state.links),
            member("events", &state.events),
            member("actions", &state.actions),
            member("one_proxy", &state.one_proxy),
            member("what_if", &state.what_if),
            member("explain", &state.explain),
        ];
        let clusters = state.clusters.iter();
        let nodes = state.nodes.as_ref();
        Self {
            head: members.join(","),
            clusters: clusters.map(|one| (one.key(), json(one))).collect(),
            nodes: nodes.map(|nodes| nodes.iter().map(|one| (one.key(), json(one))).collect()),
        }
    }

    fn full(&self, taken_unix_ms: u64) -> String {
        let clusters = array(self.clusters.iter());
        let nodes = match &self.nodes {
            Some(nodes) => array(nodes.iter()),
            None => "null".to_owned(),
        };
        let head = &self.head;
        format!(
            r#"{{"taken_unix_ms":{taken_unix_ms},{head},"clusters":{clusters},"nodes":{nodes}}}"#
        )
    }

    /// Serializes the difference to `before`: the head if it changed, clusters and nodes that
    /// changed, and the keys of removed clusters and nodes.
    fn patch(&self, before: &Self, taken_unix_ms: u64) -> String {
        let mut members = vec![format!(r#""taken_unix_ms":{taken_unix_ms}"#)];
        if self.head != before.head {
            members.push(format!(r#""head":{{{}}}"#, self.head));
        }
        let clusters = difference(&self.clusters, &before.clusters);
        members.extend(clusters.members("clusters"));
        match (&self.nodes, &before.nodes) {
            (Some(nodes), Some(before)) => {
                members.extend(difference(nodes, before).members("nodes"));
            }
            (Some(nodes), None) => members.extend(difference(nodes, &[]).members("nodes")),
            (None, _) => {}
        }
        format!("{{{}}}", members.join(","))
    }
}

struct Difference<'a> {
    changed: Vec<&'a (String, String)>,
    removed: Vec<&'a str>,
}

impl Difference<'_> {
    fn members(&self, name: &str) -> Vec<String> {
        let mut members = Vec::new();
        if !self.changed.is_empty() {
            let changed = array(self.changed.iter().copied());
            members.push(format!(r#""{name}":{changed}"#));
        }
        if !self.removed.is_empty() {
            members.push(member(&format!("{name}_gone"), &self.removed));
        }
        members
    }
}

fn difference<'a>(now: &'a [(String, String)], before: &'a [(String, String)]) -> Difference<'a> {
    let mut known: HashMap<&str, &str> = before
        .iter()
        .map(|(key, text)| (key.as_str(), text.as_str()))
        .collect();
    let changed = now
        .iter()
        .filter(|(key, text)| known.remove(key.as_str()) != Some(text.as_str()))
        .collect();
    let mut removed: Vec<&str> = known.into_keys().collect();
    removed.sort_unstable();
    Difference { changed, removed }
}

fn array<'a>(items: impl Iterator<Item = &'a (String, String)>) -> String {
    let texts: Vec<&str> = items.map(|(_, text)| text.as_str()).collect();
    format!("[{}]", texts.join(","))
}

fn member(name: &str, value: &impl Serialize) -> String {
    format!("\"{name}\":{}", json(value))
}

fn json(value: &impl Serialize) -> String {
    // Serialization does not fail: map keys are strings, and NaN becomes null.
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// Formats a server-sent event. `data` must have no line breaks; JSON has none.
fn event(name: &str, sequence: u64, data: &str) -> Bytes {
    format!("event: {name}\nid: {sequence}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests;
