//! Detection of unsupported fields: fields that are set in a message but have no effect.
//!
//! prost silently drops the fields that a struct does not declare. To find them, the encoded
//! message is scanned a second time against its descriptor. A field that would change which host
//! gets a request, or how a request is handled, is refused with its path ([`refuse`]); any other,
//! including fields of newer API versions, is reported ([`paths`]). Files are checked in the same
//! way, because they are encoded first.

use std::fmt::Write as _;

use crate::error::DecodeError;
use crate::field::{RawField, raw_fields};
use crate::pb;
use crate::{Described, Descriptor, Field, Impact, Kind, Label, Unread, by_name};

/// Limit on reported paths per resource, so that a hostile server cannot exhaust memory.
const MAX_REPORTED: usize = 64;

/// Limit on path segments. Policies can nest without bound; the decoder refuses those that exceed
/// its own limit.
const MAX_DEPTH: usize = 48;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Name(&'static str),
    Number(u32),
    Index(usize),
    Key(String),
}

/// What a scan is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Purpose {
    /// Finds what a reader ignores.
    #[default]
    Reading,
    /// Finds what cannot be delivered.
    Delivery,
}

/// An unsupported field, at the first path where it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    impact: Impact,
    path: Vec<Segment>,
}

/// Fails at the first unsupported field whose impact is at least `lowest`.
pub fn refuse(
    bytes: &[u8],
    descriptor: &'static Descriptor,
    lowest: Impact,
) -> Result<(), DecodeError> {
    let findings = scan(bytes, descriptor)?;
    let Some(refused) = findings.iter().find(|found| found.impact >= lowest) else {
        return Ok(());
    };
    let reason = match refused.impact {
        Impact::Host => "is not supported and would change which host gets a request",
        Impact::Request => "is not supported and would change how requests are handled",
        _ => "is not supported",
    };
    Err(DecodeError::new(path_text(&refused.path), reason))
}

/// Fails at the first field that is not declared, so that its value is not known. Declared fields
/// that are not read are accepted: this is the check of a control plane, which delivers what it
/// does not read itself.
pub fn refuse_undeclared(
    bytes: &[u8],
    descriptor: &'static Descriptor,
    reason: &'static str,
) -> Result<(), DecodeError> {
    let mut scan = Scan {
        purpose: Purpose::Delivery,
        ..Scan::default()
    };
    scan.message(bytes, descriptor)?;
    match scan.findings.first() {
        Some(found) => Err(DecodeError::new(path_text(&found.path), reason)),
        None => Ok(()),
    }
}

/// Returns the paths of the unsupported fields of a message, each where it is first set.
pub fn paths(bytes: &[u8], descriptor: &'static Descriptor) -> Result<Vec<String>, DecodeError> {
    let findings = scan(bytes, descriptor)?;
    let path = |found: &Finding| path_text(&found.path);
    Ok(findings.iter().map(path).collect())
}

/// Returns the paths of the unsupported fields of an xDS resource, each where it is first set.
/// Empty for resources that cannot be decoded and for other resource types.
pub fn ignored_fields(type_url: &str, bytes: &[u8]) -> Vec<String> {
    let known = [
        pb::listener::ListenerMessage::DESCRIPTOR,
        pb::route::RouteConfigurationMessage::DESCRIPTOR,
        pb::cluster::ClusterMessage::DESCRIPTOR,
        pb::endpoint::AssignmentMessage::DESCRIPTOR,
    ];
    let name = type_url.rsplit('/').next();
    known
        .into_iter()
        .find(|known| Some(known.name) == name)
        .and_then(|descriptor| paths(bytes, descriptor).ok())
        .unwrap_or_default()
}

fn scan(bytes: &[u8], descriptor: &'static Descriptor) -> Result<Vec<Finding>, DecodeError> {
    let mut scan = Scan::default();
    scan.message(bytes, descriptor)?;
    Ok(scan.findings)
}

fn path_text(path: &[Segment]) -> String {
    let mut text = String::new();
    for segment in path {
        let dot = if text.is_empty() { "" } else { "." };
        // Writing to a string does not fail.
        let _ = match segment {
            Segment::Name(name) => write!(text, "{dot}{name}"),
            Segment::Number(number) => write!(text, "{dot}field {number}"),
            Segment::Index(index) => write!(text, "[{index}]"),
            Segment::Key(key) => write!(text, "[{key}]"),
        };
    }
    text
}

/// Recursive scan of a message. The current path is formatted only when something is found, because
/// an assignment has many endpoints.
#[derive(Default)]
struct Scan {
    purpose: Purpose,
    path: Vec<Segment>,
    findings: Vec<Finding>,
}

impl Scan {
    fn message(&mut self, bytes: &[u8], descriptor: &Descriptor) -> Result<(), DecodeError> {
        if self.path.len() > MAX_DEPTH {
            return Ok(());
        }
        let mut lengths = [0_usize; 64];
        let mut is_chosen = false;
        for raw in raw_fields(bytes) {
            let raw = raw?;
            let position = |field: &Field| field.number == raw.number;
            let Some(position) = descriptor.fields.iter().position(position) else {
                self.unsupported(raw, descriptor);
                continue;
            };
            let field = &descriptor.fields[position];
            if let (Some(unread), Purpose::Reading) = (field.unread, self.purpose) {
                self.unread(raw, field, unread);
                continue;
            }
            if !is_scanned(field) {
                continue;
            }
            self.path.push(Segment::Name(field.name));
            if field.label == Label::Many {
                self.path.push(Segment::Index(lengths[position]));
                lengths[position] += 1;
            }
            if !field.first_supported {
                self.value(raw.value, field)?;
            } else if !is_chosen {
                is_chosen = self.extension(raw.value, field)?;
            }
            if field.label == Label::Many {
                self.path.pop();
            }
            self.path.pop();
        }
        Ok(())
    }

    fn value(&mut self, value: &[u8], field: &Field) -> Result<(), DecodeError> {
        if field.label == Label::Map {
            let (key, value) = first_two_fields(value)?;
            let key = String::from_utf8_lossy(key).into_owned();
            self.path.push(Segment::Key(key));
            self.nested(value, field.kind)?;
            self.path.pop();
            return Ok(());
        }
        self.nested(value, field.kind)
    }

    fn nested(&mut self, value: &[u8], kind: Kind) -> Result<(), DecodeError> {
        match kind {
            Kind::Message(descriptor) => self.message(value, descriptor()),
            Kind::Any(_) => {
                let (type_url, value) = first_two_fields(value)?;
                match type_name(type_url).and_then(by_name) {
                    Some(descriptor) => self.message(value, descriptor),
                    None => {
                        if self.purpose == Purpose::Delivery {
                            self.record_at(Segment::Name("@type"), Impact::Unused);
                        }
                        Ok(())
                    }
                }
            }
            _ => Ok(()),
        }
    }

    fn unsupported(&mut self, raw: RawField<'_>, descriptor: &Descriptor) {
        let mut known = descriptor.unsupported.iter();
        let (segment, impact) = match known.find(|entry| entry.number == raw.number) {
            Some(entry) if entry.unless_default && is_default(raw) => return,
            Some(entry) => (Segment::Name(entry.name), entry.impact),
            None => (Segment::Number(raw.number), Impact::Unused),
        };
        if impact > Impact::Harmless || self.purpose == Purpose::Delivery {
            self.record_at(segment, impact);
        }
    }

    fn unread(&mut self, raw: RawField<'_>, field: &Field, unread: Unread) {
        let is_accepted = unread.unless_default && is_default(raw);
        if !is_accepted && unread.impact > Impact::Harmless {
            self.record_at(Segment::Name(field.name), unread.impact);
        }
    }

    fn record_at(&mut self, segment: Segment, impact: Impact) {
        self.path.push(segment);
        self.record(impact);
        self.path.pop();
    }

    /// Scans a policy if its type is known; returns whether it is. An extension of an unknown type
    /// is skipped, as Envoy and gRPC do, so that newer policies can be listed before older ones.
    fn extension(&mut self, policy: &[u8], field: &Field) -> Result<bool, DecodeError> {
        let extension = value_of(policy, 4)?;
        let any = value_of(extension, 2)?;
        let is_known = type_name(value_of(any, 1)?).and_then(by_name).is_some();
        if is_known {
            self.nested(policy, field.kind)?;
        }
        Ok(is_known)
    }

    /// Records the field at the current path, unless it was found at another index already.
    fn record(&mut self, impact: Impact) {
        let known = |found: &Finding| same_field(&found.path, &self.path);
        if self.findings.iter().any(known) {
            return;
        }
        if impact > Impact::Unused || self.findings.len() < MAX_REPORTED {
            let path = self.path.clone();
            self.findings.push(Finding { impact, path });
        }
    }
}

const fn is_scanned(field: &Field) -> bool {
    !field.opaque && matches!(field.kind, Kind::Message(_) | Kind::Any(_))
}

/// Whether a field has its default value: an empty message, or false.
fn is_default(raw: RawField<'_>) -> bool {
    if raw.is_length_delimited {
        raw.value.is_empty() || raw.value == [8, 0]
    } else {
        raw.raw.last() == Some(&0)
    }
}

/// Whether two paths differ only in list indexes.
fn same_field(one: &[Segment], other: &[Segment]) -> bool {
    let same = |(one, other): (&Segment, &Segment)| match (one, other) {
        (Segment::Index(_), Segment::Index(_)) => true,
        (one, other) => one == other,
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// Returns fields 1 and 2 of a message: type URL and value of an `Any`, key and value of a map
/// entry.
fn first_two_fields(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    Ok((value_of(bytes, 1)?, value_of(bytes, 2)?))
}

/// Returns the last value of a length-delimited field; empty if it is not set.
fn value_of(bytes: &[u8], number: u32) -> Result<&[u8], DecodeError> {
    let mut value: &[u8] = &[];
    for field in raw_fields(bytes) {
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
