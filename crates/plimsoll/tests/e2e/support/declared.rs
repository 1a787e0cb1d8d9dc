//! Declarations of plimsoll-schema: reads messages and field numbers from the source of `pb`, and
//! the values of the enum that we extend.
//!
//! A declaration belongs to the message that its documentation names first, else to the message of
//! its own name. Variants of a oneof are members of the message that the enum's documentation
//! names. Messages that only Plimsoll has ("Plimsoll extension: …") are skipped, because they
//! cannot conflict.

use std::path::{Path, PathBuf};

use plimsoll_core::model::zone_aware::LocalityBasis;
use plimsoll_xds::schema::ProtoEnum as _;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plimsoll-schema/src");
/// Fields whose protobuf name is a Rust keyword: our name, protobuf name.
const RENAMED: [(&str, &str); 3] = [
    ("this_server", "self"),
    ("discovery_type", "type"),
    ("route_match", "match"),
];

/// Declaration of a message or enum.
#[derive(Debug)]
pub(crate) struct Declared {
    /// File and name, for error messages.
    pub(crate) place: String,
    /// Suffix of the full name in Envoy.
    pub(crate) name: String,
    pub(crate) is_enum: bool,
    /// Names and numbers of fields or values.
    pub(crate) members: Vec<(String, u64)>,
}

/// Returns all declarations of messages.
pub(crate) fn declared() -> Vec<Declared> {
    let directory = Path::new(SOURCE);
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory.join("pb"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.push(directory.join("pb.rs"));
    files.sort();
    let mut all: Vec<_> = files.iter().flat_map(|file| read(file)).collect();
    let values = LocalityBasis::VALUES.iter();
    all.push(Declared {
        place: "LocalityBasis".to_owned(),
        name: "ZoneAwareLbConfig.LocalityBasis".to_owned(),
        is_enum: true,
        members: values
            .map(|(name, number, _)| ((*name).to_owned(), number.cast_unsigned()))
            .collect(),
    });
    all
}

fn read(file: &Path) -> Vec<Declared> {
    let text = std::fs::read_to_string(file).unwrap();
    let (mut found, mut docs, mut is_oneof) = (Vec::new(), String::new(), false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        is_oneof |= line.starts_with("#[derive(") && line.contains("Oneof");
        if let Some(doc) = line.strip_prefix("///") {
            docs.push_str(doc);
        } else if let Some((name, is_enum)) = opening(line) {
            let members = members(lines.by_ref().take_while(|line| *line != "}"), is_enum);
            if !docs.trim_start().starts_with("Plimsoll extension:") {
                found.push(Declared {
                    place: format!("{}: {name}", file.display()),
                    name: message_name(&docs, name),
                    is_enum: is_enum && !is_oneof,
                    members,
                });
            }
            docs.clear();
            is_oneof = false;
        } else if line.starts_with("#[") && !line.ends_with(")]") {
            lines.by_ref().find(|line| line.ends_with(")]"));
        } else if !line.starts_with("#[") {
            docs.clear();
            is_oneof = false;
        }
    }
    found
}

/// Returns the name of a struct or enum that starts in `line`, and whether it is an enum.
fn opening(line: &str) -> Option<(&str, bool)> {
    let line = line.strip_suffix(" {")?;
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let name = |kind| line.strip_prefix(kind);
    name("struct ")
        .map(|name| (name, false))
        .or_else(|| name("enum ").map(|name| (name, true)))
}

fn message_name(docs: &str, name: &str) -> String {
    let quoted = docs.split('`').nth(1);
    let own = name.strip_suffix("Message").unwrap_or(name);
    quoted.unwrap_or(own).to_owned()
}

fn members<'l>(lines: impl Iterator<Item = &'l str>, is_enum: bool) -> Vec<(String, u64)> {
    let (mut members, mut tag) = (Vec::new(), None);
    for line in lines.map(str::trim) {
        if line.starts_with("#[prost(oneof") {
            // The variants have the numbers.
        } else if line.starts_with("#[prost(") {
            tag = line.split("tag = \"").nth(1).and_then(|rest| {
                let (number, _) = rest.split_once('"')?;
                number.parse().ok()
            });
            assert!(tag.is_some(), "no number in {line}");
        } else if let (true, Some((name, number))) = (is_enum, line.split_once(" = ")) {
            let number = whole(number.trim_end_matches(','));
            members.extend(number.map(|number| (constant(name), number)));
        } else if let (Some(name), Some(number)) = (member_name(line, is_enum), tag) {
            members.push((name, number));
            tag = None;
        }
    }
    members
}

/// Returns the protobuf name of a field or of a variant of a oneof.
fn member_name(line: &str, is_enum: bool) -> Option<String> {
    if is_enum {
        let (name, _) = line.split_once('(')?;
        return Some(constant(name).to_ascii_lowercase());
    }
    let (name, _) = line.split_once(": ")?;
    let name = name.trim_start_matches("pub ").trim_start_matches("r#");
    let renamed = RENAMED.iter().find(|(ours, _)| *ours == name);
    Some(renamed.map_or(name, |(_, theirs)| theirs).to_owned())
}

fn whole(number: &str) -> Option<u64> {
    number.replace('_', "").parse().ok()
}

/// Converts `HealthyHostsNum` to `HEALTHY_HOSTS_NUM`.
fn constant(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}
