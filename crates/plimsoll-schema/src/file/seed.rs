//! Deserialization of a message into its encoded bytes, driven by its descriptor.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::structs::RawKey;
use super::value::{IgnoredFields, IsDefault, put};
use crate::field::put_field;
use crate::yaml::{nearest, unknown_field};
use crate::{Descriptor, Field, Kind, Label, UnsupportedField};

/// Encodes a message from the map of fields that `deserializer` provides.
pub(super) fn message<'de, D: Deserializer<'de>>(
    descriptor: &'static Descriptor,
    deserializer: D,
) -> Result<Vec<u8>, D::Error> {
    // `deserialize_struct`, so that a sequence of values by position is refused.
    deserializer.deserialize_struct("message", &[], MessageVisitor(descriptor))
}

struct MessageVisitor(&'static Descriptor);

impl<'de> Visitor<'de> for MessageVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<u8>, A::Error> {
        let mut out = Vec::new();
        fields(self.0, map, &mut out)?;
        Ok(out)
    }
}

/// Encodes the remaining entries of `map` as fields of the message.
pub(super) fn fields<'de, A: MapAccess<'de>>(
    descriptor: &'static Descriptor,
    mut map: A,
    out: &mut Vec<u8>,
) -> Result<(), A::Error> {
    let mut seen: Vec<u32> = Vec::new();
    while let Some(key) = map.next_key_seed(KeySeed(descriptor))? {
        let (number, name) = match key {
            Key::Supported(field) => (field.number, field.name),
            Key::Unsupported(field) => (field.number, field.name),
        };
        if seen.contains(&number) {
            return Err(A::Error::duplicate_field(name));
        }
        seen.push(number);
        match key {
            Key::Supported(field) => map.next_value_seed(FieldSeed { field, out })?,
            Key::Unsupported(field) => {
                let is_default = map.next_value::<IsDefault>()?.0;
                // The value is never decoded: any non-empty bytes mean "not the default".
                put_field(out, field.number, if is_default { &[] } else { &[8, 1] });
            }
        }
    }
    Ok(())
}

enum Key {
    Supported(&'static Field),
    Unsupported(&'static UnsupportedField),
}

/// Looks up a field by name. It fails while the key is read, so that the error has its location.
struct KeySeed(&'static Descriptor);

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Key, D::Error> {
        let name = String::deserialize(key)?;
        let exact = |field: &str| field == name;
        let camel_case = |field: &str| without_underscores(field) == name;
        for matches in [&exact as &dyn Fn(&str) -> bool, &camel_case] {
            if let Some(field) = self.0.fields.iter().find(|field| matches(field.name)) {
                return Ok(Key::Supported(field));
            }
            if let Some(field) = self.0.unsupported.iter().find(|field| matches(field.name)) {
                return Ok(Key::Unsupported(field));
            }
        }
        let documented = self.0.fields.iter().filter(|field| !field.doc.is_empty());
        let names: Vec<&str> = documented.map(|field| field.name).collect();
        let unsupported = self.0.unsupported.iter().map(|field| field.name);
        let known: Vec<&str> = names.iter().copied().chain(unsupported).collect();
        Err(match nearest(&name, &known) {
            Some(nearest) => D::Error::custom(unknown_field(&name, &[nearest])),
            None => D::Error::custom(unknown_field(&name, &names)),
        })
    }
}

/// Removes underscores before digits, which lowerCamelCase does not keep: `consecutive_5xx` is
/// `consecutive5xx` there.
fn without_underscores(name: &str) -> String {
    let mut rest = name.chars().peekable();
    let mut kept = String::with_capacity(name.len());
    while let Some(c) = rest.next() {
        if c != '_' || !rest.peek().is_some_and(char::is_ascii_digit) {
            kept.push(c);
        }
    }
    kept
}

struct FieldSeed<'a> {
    field: &'static Field,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        match self.field.label {
            Label::One if self.field.opaque && matches!(self.field.kind, Kind::Presence) => {
                value.deserialize_map(IgnoredFields)?;
                put_field(self.out, self.field.number, &[]);
                Ok(())
            }
            Label::One => put(self.field.kind, self.field.number, value, self.out),
            Label::Many => value.deserialize_seq(self),
            Label::Map => value.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.field.label {
            Label::Map => "a map of keys and values",
            _ => "a sequence",
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if self.field.label != Label::Many {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        let (kind, number) = (self.field.kind, self.field.number);
        while let Some(value) = items.next_element_seed(ValueSeed { kind, number })? {
            self.out.extend_from_slice(&value);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        if self.field.label != Label::Map {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        let kind = self.field.kind;
        while let Some(RawKey(key)) = entries.next_key()? {
            let mut entry = Vec::new();
            put_field(&mut entry, 1, key.as_bytes());
            entry.extend(entries.next_value_seed(ValueSeed { kind, number: 2 })?);
            put_field(self.out, self.field.number, &entry);
        }
        Ok(())
    }
}

/// Deserializes one value and encodes it as field `number`.
struct ValueSeed {
    kind: Kind,
    number: u32,
}

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Vec<u8>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Vec<u8>, D::Error> {
        let mut out = Vec::new();
        put(self.kind, self.number, value, &mut out)?;
        Ok(out)
    }
}
