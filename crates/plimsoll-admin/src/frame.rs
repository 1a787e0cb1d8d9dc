//! [`Frame`]: one document as it is sent, whole and as the difference to the one before.
//!
//! Each cluster and each node is written once per document, whoever looks; what reads the same as
//! before is left out of the difference. Whole documents are put together when a viewer needs one.

use std::collections::HashMap;
use std::sync::OnceLock;

use bytes::Bytes;
use serde::Serialize;

use crate::state::DashboardState;

/// One document, ready to be sent.
#[derive(Debug)]
pub(crate) struct Frame {
    sequence: u64,
    taken_unix_ms: u64,
    written: Written,
    patch: Bytes,
    full: OnceLock<Bytes>,
}

/// A document in parts, each as JSON.
#[derive(Debug, Default)]
struct Written {
    /// All but clusters and nodes, without the braces.
    head: String,
    clusters: Vec<(String, String)>,
    nodes: Option<Vec<(String, String)>>,
}

impl Frame {
    /// The document that comes after `before`.
    pub(crate) fn new(state: &DashboardState, before: Option<&Self>) -> Self {
        let sequence = before.map_or(1, |before| before.sequence + 1);
        let written = Written::of(state);
        let taken = state.taken_unix_ms;
        let patch = match before {
            Some(before) => event("patch", sequence, &written.patch(&before.written, taken)),
            None => Bytes::new(),
        };
        Self {
            sequence,
            taken_unix_ms: taken,
            written,
            patch,
            full: OnceLock::new(),
        }
    }

    /// What a viewer is sent that has seen `seen`: the difference if that was the document before,
    /// everything if not.
    pub(crate) fn after(&self, seen: Option<u64>) -> Bytes {
        match seen {
            Some(seen) if seen + 1 == self.sequence => self.patch.clone(),
            _ => {
                let full = self.full.get_or_init(|| {
                    let document = self.written.full(self.taken_unix_ms);
                    event("full", self.sequence, &document)
                });
                full.clone()
            }
        }
    }

    /// Its number.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Written {
    fn of(state: &DashboardState) -> Self {
        let members = [
            member("title", &state.title),
            member("subtitle", &state.subtitle),
            member("version", &state.version),
            member("notices", &state.notices),
            member("cost", &state.cost),
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
        let nodes = self.nodes.as_ref();
        let nodes = nodes.map_or_else(|| "null".to_owned(), |nodes| array(nodes.iter()));
        let head = &self.head;
        format!(
            r#"{{"taken_unix_ms":{taken_unix_ms},{head},"clusters":{clusters},"nodes":{nodes}}}"#
        )
    }

    /// Members of the head if any of it changed; clusters and nodes that changed, and keys of those
    /// that are gone.
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
    gone: Vec<&'a str>,
}

impl Difference<'_> {
    fn members(&self, name: &str) -> Vec<String> {
        let mut members = Vec::new();
        if !self.changed.is_empty() {
            let changed = array(self.changed.iter().copied());
            members.push(format!(r#""{name}":{changed}"#));
        }
        if !self.gone.is_empty() {
            members.push(member(&format!("{name}_gone"), &self.gone));
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
        .filter(|(key, text)| known.remove(key.as_str()) != Some(text.as_str()));
    let changed = changed.collect();
    let mut gone: Vec<&str> = known.into_keys().collect();
    gone.sort_unstable();
    Difference { changed, gone }
}

fn array<'a>(items: impl Iterator<Item = &'a (String, String)>) -> String {
    let texts: Vec<&str> = items.map(|(_, text)| text.as_str()).collect();
    format!("[{}]", texts.join(","))
}

fn member(name: &str, value: &impl Serialize) -> String {
    format!("\"{name}\":{}", json(value))
}

fn json(value: &impl Serialize) -> String {
    // Nothing in a document can fail to be written: keys are strings, and JSON has no NaN but null.
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// A server-sent event. JSON has no line breaks of its own.
fn event(name: &str, sequence: u64, data: &str) -> Bytes {
    format!("event: {name}\nid: {sequence}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests;
