//! Fields that arrive and are not honoured, found by one walk over the bytes of a resource.
//!
//! prost drops the fields that a message does not declare, and with them what the sender wanted. So
//! the bytes are walked once more beside the decoding, against a table per message ([`Kind`]): the
//! fields that are read, and Envoy's names of the others. What is set and not read has a
//! [`Class`]. A field that would change which host gets a request, or what a request meets there,
//! is refused by its path ([`refuse`]); any other, those of later versions included, is reported
//! ([`ignored_fields`]). Values that are not supported are refused where they are decoded.
//!
//! The tables are beside us, those of routes in `route_unread`. A test holds them against the
//! declarations in `pb` and against the field numbers of Envoy.

mod cluster;
mod endpoint;
mod listener;
mod policy;
mod tls;

use std::fmt::Write as _;

use super::field::{Field, fields};
use crate::ads;
use crate::error::DecodeError;

pub(super) use cluster::CLUSTER;
pub(super) use endpoint::ASSIGNMENT;

/// Paths that are reported of one resource; what a hostile server adds is left out.
const MAX_IGNORED: usize = 64;

/// Steps of the longest path that is walked: policies may hold policies without end, and those that
/// do are refused where they are decoded.
const MAX_STEPS: usize = 48;

/// A message and its fields.
pub(super) struct Kind {
    /// Fields that are read, or refused where they are decoded.
    pub(super) read: &'static [(u32, &'static str, Inside)],
    /// Fields that change nothing of what is decided here.
    pub(super) unread: &'static [(u32, &'static str)],
    /// Fields that would change something.
    pub(super) refused: &'static [(u32, &'static str, Class)],
}

impl Kind {
    /// A message without fields.
    pub(super) const EMPTY: Self = Self {
        read: &[],
        unread: &[],
        refused: &[],
    };
}

/// What follows when a field is set and not honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Nothing that is decided here: it is reported.
    Unused,
    /// A request would meet something else at its host: refused by whoever connects to hosts.
    Request,
    /// Another host would get the request: refused by everybody who balances.
    Host,
}

/// What a field that is read holds.
#[derive(Clone, Copy)]
pub(super) enum Inside {
    /// Nothing to look into.
    Value,
    /// One message.
    One(&'static Kind),
    /// A list of messages.
    Many(&'static Kind),
    /// A message that changes something only if it is not empty, such as a `BoolValue`.
    Default,
    /// The same with a class of its own.
    DefaultOr(Class),
    /// An `Any`; types that have no table are not looked into.
    Any(fn(&str) -> Option<&'static Kind>),
    /// A map to `Any`.
    AnyMap(fn(&str) -> Option<&'static Kind>),
    /// A list of policies, of which the first that we have counts.
    Policies,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Name(&'static str),
    Number(u32),
    Index(usize),
    Key(String),
}

/// A field that is not honoured, at the first place where it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    class: Class,
    path: Vec<Step>,
}

/// An error at the first field whose class is at least `lowest`.
pub(super) fn refuse(bytes: &[u8], kind: &Kind, lowest: Class) -> Result<(), DecodeError> {
    let findings = walk(bytes, kind)?;
    let Some(refused) = findings.iter().find(|found| found.class >= lowest) else {
        return Ok(());
    };
    let reason = match refused.class {
        Class::Host => "is not supported and would change which host gets a request",
        _ => "is not supported and would change what a request meets",
    };
    Err(DecodeError::new(spelled(&refused.path), reason))
}

/// Paths of the fields of a resource that are set and have no effect, each at its first place.
/// Empty for resources that cannot be read or are of a type that is not asked for.
pub fn ignored_fields(type_url: &str, bytes: &[u8]) -> Vec<String> {
    let kind = match type_url {
        ads::LISTENER => &listener::LISTENER,
        ads::ROUTE_CONFIGURATION => &super::route_unread::ROUTE_CONFIGURATION,
        ads::CLUSTER => &CLUSTER,
        ads::CLUSTER_LOAD_ASSIGNMENT => &ASSIGNMENT,
        _ => return Vec::new(),
    };
    unread(bytes, kind).unwrap_or_default()
}

/// Paths of the fields of a message that are set and not read.
pub(super) fn unread(bytes: &[u8], kind: &Kind) -> Result<Vec<String>, DecodeError> {
    let findings = walk(bytes, kind)?;
    Ok(findings.iter().map(|found| spelled(&found.path)).collect())
}

fn walk(bytes: &[u8], kind: &Kind) -> Result<Vec<Finding>, DecodeError> {
    let mut walk = Walk {
        path: Vec::new(),
        found: Vec::new(),
    };
    walk.message(bytes, kind)?;
    Ok(walk.found)
}

fn spelled(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        let dot = if text.is_empty() { "" } else { "." };
        // Writing into a string does not fail.
        let _ = match step {
            Step::Name(name) => write!(text, "{dot}{name}"),
            Step::Number(number) => write!(text, "{dot}field {number}"),
            Step::Index(index) => write!(text, "[{index}]"),
            Step::Key(key) => write!(text, "[{key}]"),
        };
    }
    text
}

/// Paths are written out only when something is found: an assignment has many endpoints.
struct Walk {
    path: Vec<Step>,
    found: Vec<Finding>,
}

impl Walk {
    fn message(&mut self, bytes: &[u8], kind: &Kind) -> Result<(), DecodeError> {
        if self.path.len() > MAX_STEPS {
            return Ok(());
        }
        let mut seen = [0_usize; 64];
        let mut chosen = false;
        for field in fields(bytes) {
            let field = field?;
            let read = kind.read.iter();
            let position = read.clone().position(|entry| entry.0 == field.number);
            let Some(position) = position else {
                self.not_read(field.number, kind);
                continue;
            };
            let (_, name, inside) = kind.read[position];
            self.path.push(Step::Name(name));
            match inside {
                Inside::Many(_) | Inside::Policies => {
                    let index = &mut seen[position];
                    self.path.push(Step::Index(*index));
                    *index += 1;
                    match inside {
                        Inside::Many(inner) => self.message(field.value, inner)?,
                        _ if chosen => {}
                        _ => chosen = self.policy(field.value)?,
                    }
                    self.path.pop();
                }
                inside => self.inside(field, inside)?,
            }
            self.path.pop();
        }
        Ok(())
    }

    fn not_read(&mut self, number: u32, kind: &Kind) {
        let refused = kind.refused.iter().find(|entry| entry.0 == number);
        let unread = kind.unread.iter().find(|entry| entry.0 == number);
        let (step, class) = match (refused, unread) {
            (Some(&(_, name, class)), _) => (Step::Name(name), class),
            (None, Some(&(_, name))) => (Step::Name(name), Class::Unused),
            (None, None) => (Step::Number(number), Class::Unused),
        };
        self.path.push(step);
        self.find(class);
        self.path.pop();
    }

    fn inside(&mut self, field: Field<'_>, inside: Inside) -> Result<(), DecodeError> {
        match inside {
            Inside::One(inner) => self.message(field.value, inner)?,
            Inside::Default if !field.value.is_empty() => self.find(Class::Unused),
            Inside::DefaultOr(class) if !field.value.is_empty() => self.find(class),
            Inside::Any(kinds) => self.any(field.value, kinds)?,
            Inside::AnyMap(kinds) => {
                let (key, value) = two(field.value)?;
                let key = String::from_utf8_lossy(key).into_owned();
                self.path.push(Step::Key(key));
                self.any(value, kinds)?;
                self.path.pop();
            }
            _ => {}
        }
        Ok(())
    }

    fn any(
        &mut self,
        any: &[u8],
        kinds: fn(&str) -> Option<&'static Kind>,
    ) -> Result<(), DecodeError> {
        let (type_url, value) = two(any)?;
        match type_name(type_url).and_then(kinds) {
            Some(kind) => self.message(value, kind),
            None => Ok(()),
        }
    }

    /// Looks into a policy if we have it. An extension of a type that we do not have is skipped, as
    /// Envoy and gRPC do, so that newer ones can stand before older ones.
    fn policy(&mut self, policy: &[u8]) -> Result<bool, DecodeError> {
        let extension = value_of(policy, 4)?;
        let any = value_of(extension, 2)?;
        let (type_url, value) = two(any)?;
        let Some(kind) = type_name(type_url).and_then(policy::kind) else {
            return Ok(false);
        };
        let path = ["typed_extension_config", "typed_config"].map(Step::Name);
        let depth = self.path.len();
        self.path.extend(path);
        self.message(value, kind)?;
        self.path.truncate(depth);
        Ok(true)
    }

    /// Notes the field at the present path, unless it was found at another index already.
    fn find(&mut self, class: Class) {
        let known = |found: &Finding| same_field(&found.path, &self.path);
        if self.found.iter().any(known) {
            return;
        }
        if class > Class::Unused || self.found.len() < MAX_IGNORED {
            let path = self.path.clone();
            self.found.push(Finding { class, path });
        }
    }
}

fn same_field(one: &[Step], other: &[Step]) -> bool {
    let same = |(one, other): (&Step, &Step)| match (one, other) {
        (Step::Index(_), Step::Index(_)) => true,
        (one, other) => one == other,
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// The first two fields of a message: `Any`, or an entry of a map.
fn two(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    Ok((value_of(bytes, 1)?, value_of(bytes, 2)?))
}

/// The last value of a field with a length; empty if it is not set.
fn value_of(bytes: &[u8], number: u32) -> Result<&[u8], DecodeError> {
    let mut value: &[u8] = &[];
    for field in fields(bytes) {
        let field = field?;
        if field.number == number {
            value = field.value;
        }
    }
    Ok(value)
}

fn type_name(type_url: &[u8]) -> Option<&str> {
    let type_url = std::str::from_utf8(type_url).ok()?;
    type_url.rsplit_once('/').map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
