//! What plimsoll-xds declares of the API: [`declared`] reads `convert/pb`, the one place where
//! field numbers and values of enums are written.
//!
//! A declaration is of the message that its documentation names first, else of the one that its own
//! name is made of. The variants of a oneof are members of the message that its enum documents.
//! Messages that are ours alone say so ("Ours: …") and are left out: nobody else
//! has numbers in them.

use std::path::{Path, PathBuf};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plimsoll-xds/src/convert");
/// Names that are words of Rust, as they are declared.
const RENAMED: [(&str, &str); 3] = [
    ("this_server", "self"),
    ("discovery_type", "type"),
    ("route_match", "match"),
];

/// A message or an enum as we have it.
#[derive(Debug)]
pub(crate) struct Declared {
    /// File and name, for people.
    pub(crate) place: String,
    /// The end of the full name of Envoy's.
    pub(crate) name: String,
    pub(crate) is_enum: bool,
    /// Names and numbers.
    pub(crate) members: Vec<(String, u64)>,
}

/// All of them.
pub(crate) fn declared() -> Vec<Declared> {
    let folder = Path::new(SOURCE);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("pb"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.push(folder.join("pb.rs"));
    files.sort();
    files.iter().flat_map(|file| read(file)).collect()
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
            if !docs.trim_start().starts_with("Ours:") {
                found.push(Declared {
                    place: format!("{}: {name}", file.display()),
                    name: message_name(&docs, name),
                    is_enum: is_enum && !is_oneof,
                    members,
                });
            }
            docs.clear();
            is_oneof = false;
        } else if !line.starts_with("#[") {
            docs.clear();
            is_oneof = false;
        }
    }
    found
}

/// The name of a struct or an enum that begins in `line`.
fn opening(line: &str) -> Option<(&str, bool)> {
    let line = line.strip_suffix(" {")?;
    let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
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
            // Its numbers stand beside the variants.
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

/// The name of a field, or of a variant of a oneof, as protobuf spells it.
fn member_name(line: &str, is_enum: bool) -> Option<String> {
    if is_enum {
        let (name, _) = line.split_once('(')?;
        return Some(constant(name).to_ascii_lowercase());
    }
    let (name, _) = line.split_once(": ")?;
    let name = name.trim_start_matches("pub(crate) ");
    let name = name.trim_start_matches("r#");
    let renamed = RENAMED.iter().find(|(ours, _)| *ours == name);
    Some(renamed.map_or(name, |(_, theirs)| theirs).to_owned())
}

fn whole(number: &str) -> Option<u64> {
    number.replace('_', "").parse().ok()
}

/// `HealthyHostsNum` as protobuf spells it.
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
