//! Reads the protobuf descriptors inside a binary.
//!
//! A C++ binary contains the `FileDescriptorProto` of every linked file as serialized bytes. They
//! start with the file name and end with the syntax, in the order of field numbers, which is how
//! they are found and delimited.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// Prefixes of file names.
const ROOTS: [&[u8]; 3] = [b"envoy/", b"xds/", b"google/"];
/// Maximum size of a `FileDescriptorProto`.
const MAX_SIZE: usize = 4 << 20;

/// Names by number, and reserved numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) names: BTreeMap<u64, String>,
    pub(crate) reserved: Vec<Range<u64>>,
}

/// Messages and enums by full name.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    pub(crate) messages: BTreeMap<String, Numbers>,
    pub(crate) enums: BTreeMap<String, Numbers>,
    pub(crate) files: usize,
}

impl Descriptors {
    /// Reads all descriptors of `binary`.
    pub(crate) fn of(binary: &Path) -> Self {
        let bytes = std::fs::read(binary).unwrap();
        let mut all = Self::default();
        let mut rest = bytes.as_slice();
        // Tag of field 1, followed by length and name.
        while let Some(start) = rest.iter().position(|&byte| byte == 0x0a) {
            rest = &rest[start..];
            if is_file(rest) {
                all.add_file(rest);
            }
            rest = &rest[1..];
        }
        all
    }

    fn add_file(&mut self, bytes: &[u8]) {
        let (mut package, mut messages, mut enums) = (String::new(), Vec::new(), Vec::new());
        let window = &bytes[..bytes.len().min(MAX_SIZE)];
        for (number, value) in Fields(window) {
            match (number, value) {
                (2, Value::Bytes(name)) => package = text(name),
                (4, Value::Bytes(message)) => messages.push(message),
                (5, Value::Bytes(descriptor)) => enums.push(descriptor),
                // `syntax` is the last field.
                (12, Value::Bytes(_)) => {
                    self.files += 1;
                    messages
                        .iter()
                        .for_each(|each| self.add_message(&package, each));
                    enums.iter().for_each(|each| self.add_enum(&package, each));
                    return;
                }
                (1 | 3 | 6..=8 | 10 | 11 | 14, _) => {}
                // Not a descriptor.
                _ => return,
            }
        }
    }

    /// Adds a `DescriptorProto` and its nested types.
    fn add_message(&mut self, scope: &str, bytes: &[u8]) {
        let name = format!("{scope}.{}", name_of(bytes));
        let mut numbers = Numbers::default();
        for (number, value) in Fields(bytes) {
            match (number, value) {
                (2, Value::Bytes(field)) => {
                    let tag = number_of(field, 3).unwrap_or_default();
                    numbers.names.insert(tag, name_of(field));
                }
                (3, Value::Bytes(nested)) => self.add_message(&name, nested),
                (4, Value::Bytes(nested)) => self.add_enum(&name, nested),
                (9, Value::Bytes(range)) => {
                    // The end is exclusive.
                    let [from, to] = [1, 2].map(|field| number_of(range, field).unwrap_or(0));
                    numbers.reserved.push(from..to);
                }
                _ => {}
            }
        }
        self.messages.insert(name, numbers);
    }

    /// Adds an `EnumDescriptorProto` to `enums`.
    fn add_enum(&mut self, scope: &str, bytes: &[u8]) {
        let mut numbers = Numbers::default();
        for (number, value) in Fields(bytes) {
            match (number, value) {
                (2, Value::Bytes(value)) => {
                    let tag = number_of(value, 2).unwrap_or_default();
                    numbers.names.insert(tag, name_of(value));
                }
                (4, Value::Bytes(range)) => {
                    // The end is inclusive here.
                    let [from, to] = [1, 2].map(|field| number_of(range, field).unwrap_or(0));
                    numbers.reserved.push(from..to + 1);
                }
                _ => {}
            }
        }
        self.enums
            .insert(format!("{scope}.{}", name_of(bytes)), numbers);
    }
}

fn is_file(bytes: &[u8]) -> bool {
    let length = bytes.get(1).map_or(0, |&length| usize::from(length));
    let name = bytes.get(2..2 + length).unwrap_or_default();
    length < 128 && name.ends_with(b".proto") && ROOTS.iter().any(|root| name.starts_with(root))
}

/// Returns the name, which is field 1 of every descriptor.
fn name_of(bytes: &[u8]) -> String {
    let name = Fields(bytes).find_map(|(number, value)| match value {
        Value::Bytes(name) if number == 1 => Some(text(name)),
        _ => None,
    });
    name.unwrap_or_default()
}

fn number_of(bytes: &[u8], field: u64) -> Option<u64> {
    Fields(bytes).find_map(|(number, value)| match value {
        Value::Number(value) if number == field => Some(value),
        _ => None,
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

enum Value<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// Iterator over the fields of a message; stops at invalid bytes.
struct Fields<'b>(&'b [u8]);

impl<'b> Iterator for Fields<'b> {
    type Item = (u64, Value<'b>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Bytes(self.take(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'b> Fields<'b> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}
