//! Serde deserializer over the tree of `document`, which adds path and location to errors.
//!
//! It differs from a plain deserializer in three ways: keys in lowerCamelCase are converted to
//! snake_case; `@type` is yielded first in every map, so that the type of a `typed_config` is known
//! before its fields; null is refused where a value is expected. Inside a `google.protobuf.Struct`
//! ([`STRUCT_KEY`], [`STRUCT_VALUE`]) keys keep their spelling and null is a valid value. Errors
//! collect their path and location while they propagate.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess};
use serde::de::{Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::document::{Entry, Node, Value};
use super::error::ConfigError;
use super::proto_json::snake_case;

/// Name of the newtype that requests a key in its original spelling.
pub(crate) const STRUCT_KEY: &str = "google.protobuf.Struct.FieldsEntry.key";
/// Name of the newtype that requests any value, including null.
pub(crate) const STRUCT_VALUE: &str = "google.protobuf.Value";

impl<'de> Deserializer<'de> for &'de Node {
    type Error = ConfigError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match &self.value {
            Value::Null => Err(ConfigError::custom(
                "has no value; write {} for an empty message, or leave the field out",
            )),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Signed(value) => visitor.visit_i64(*value),
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::String(value) => visitor.visit_borrowed_str(value),
            Value::List(items) => visitor.visit_seq(Items {
                items: items.iter().enumerate(),
            }),
            Value::Map(entries) => visitor.visit_map(Entries::new(entries)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        match &self.value {
            Value::Null if name == STRUCT_VALUE => visitor.visit_unit(),
            _ if name == STRUCT_VALUE => self.deserialize_any(visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    // A derived struct would also accept a list of its fields by position, which is always a
    // mistake.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        let found = match &self.value {
            Value::Null | Value::Map(_) => return self.deserialize_any(visitor),
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Signed(value) => Unexpected::Signed(*value),
            Value::Unsigned(value) => Unexpected::Unsigned(*value),
            Value::Float(value) => Unexpected::Float(*value),
            Value::String(value) => Unexpected::Str(value),
            Value::List(_) => Unexpected::Seq,
        };
        Err(ConfigError::invalid_type(found, &"a map of fields"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map enum identifier
    }
}

struct Items<'de> {
    items: std::iter::Enumerate<std::slice::Iter<'de, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = ConfigError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ConfigError> {
        let Some((index, item)) = self.items.next() else {
            return Ok(None);
        };
        let value = seed.deserialize(item);
        let located = |error: ConfigError| error.under(&format!("[{index}]")).or_at(item.location);
        value.map(Some).map_err(located)
    }
}

struct Entries<'de> {
    entries: std::vec::IntoIter<&'de Entry>,
    current: Option<&'de Entry>,
}

impl<'de> Entries<'de> {
    fn new(entries: &'de [Entry]) -> Self {
        let mut order: Vec<_> = entries.iter().collect();
        order.sort_by_key(|entry| entry.key != "@type");
        Self {
            entries: order.into_iter(),
            current: None,
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = ConfigError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ConfigError> {
        self.current = self.entries.next();
        let Some(entry) = self.current else {
            return Ok(None);
        };
        let located = |error: ConfigError| error.under(&entry.key).or_at(entry.location);
        seed.deserialize(Key(&entry.key)).map(Some).map_err(located)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, ConfigError> {
        let Some(entry) = self.current.take() else {
            return Err(ConfigError::custom("value requested before its key"));
        };
        let located = |error: ConfigError| error.under(&entry.key).or_at(entry.value.location);
        seed.deserialize(&entry.value).map_err(located)
    }
}

struct Key<'de>(&'de str);

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = ConfigError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        visitor.visit_str(&snake_case(self.0))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        match name {
            STRUCT_KEY => visitor.visit_borrowed_str(self.0),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use crate::yaml::document::Document;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct Outer {
        inner_list: Vec<Inner>,
        flag: Option<bool>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        some_name: String,
    }

    fn read(text: &str) -> Result<Outer, String> {
        let document = Document::parse(text).map_err(|error| error.to_string())?;
        document.read().map_err(|error| error.to_string())
    }

    #[test]
    fn both_spellings_are_one_field() {
        let snake = read("inner_list: [{some_name: x}]\nflag: true\n").unwrap();
        let camel = read("innerList: [{someName: x}]\nflag: true\n").unwrap();
        assert_eq!(snake, camel);
        assert_eq!(snake.inner_list[0].some_name, "x");
        let both = read("innerList: []\ninner_list: []\n").unwrap_err();
        assert_eq!(both, "inner_list: set twice, in two spellings");
    }

    #[test]
    fn unknown_fields_keep_their_spelling_in_errors() {
        assert_eq!(
            read("innerList:\n- someName: x\n- someNome: x\n").unwrap_err(),
            "innerList[1].someNome: unknown field, did you mean some_name? (at 3:3)"
        );
    }

    #[test]
    fn wrong_types_missing_fields_and_nulls_are_located() {
        assert_eq!(
            read("inner_list: [{some_name: 1}]\n").unwrap_err(),
            "inner_list[0].some_name: invalid type: integer `1`, expected a string (at 1:26)"
        );
        assert_eq!(
            read("inner_list: [{}]\n").unwrap_err(),
            "inner_list[0].some_name: must be set (at 1:14)"
        );
        for (text, found) in [
            ("[[], true]", "sequence"),
            ("inner_list: [[x]]", "sequence"),
            ("inner_list: [x]", "string \"x\""),
            ("inner_list: [-1]", "integer `-1`"),
            ("inner_list: [2.5]", "floating point `2.5`"),
            ("true", "boolean `true`"),
        ] {
            let error = read(text).unwrap_err();
            let reason = format!("invalid type: {found}, expected a map of fields");
            assert!(error.contains(&reason), "{text}: {error}");
        }
        let null = read("flag:\n").unwrap_err();
        assert!(null.starts_with("flag: has no value; write {}"), "{null}");
        let empty = read("").unwrap_err();
        assert!(empty.starts_with("the file is empty"), "{empty}");
    }
}
