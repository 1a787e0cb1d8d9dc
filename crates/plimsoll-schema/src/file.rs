//! Reader of YAML and JSON files in protobuf's JSON mapping: encodes them into the wire format.
//!
//! A file becomes the bytes that a management server would have sent and goes through the same
//! converters. The deserializer knows the path of each value while it reads the text, so it reports
//! misspelled names and wrong types with line and column; errors that converters find later are
//! located by their path (`yaml::Document::locate`).
//!
//! An unsupported field is encoded as an empty value if the file sets it to its default, and as an
//! arbitrary non-empty value otherwise. `unsupported` decides from the bytes which of them are
//! refused, as it does for messages from a management server.

mod seed;
mod structs;
mod value;

use std::marker::PhantomData;

use bytes::Bytes;
use plimsoll_core::units::FieldError;
use serde::de::{Deserialize, Deserializer};

pub use structs::StructYaml;

use crate::error::DecodeError;
use crate::field::raw_fields;
use crate::{Described, Impact, UnsupportedField, unsupported};

/// A message `M` read from a file, encoded in the wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMessage<M> {
    bytes: Bytes,
    message: PhantomData<fn() -> M>,
}

impl<M> FileMessage<M> {
    /// Returns the encoded message.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl<M: Described> FileMessage<M> {
    /// Decodes the message; refuses the first field that is set but has no effect.
    pub fn message(&self) -> Result<M, FieldError> {
        unsupported::refuse(&self.bytes, M::DESCRIPTOR, Impact::Unused)?;
        Ok(M::decode(self.bytes.clone()).map_err(DecodeError::from)?)
    }

    /// Iterates over the names of the fields that are set, supported or not.
    pub fn field_names(&self) -> impl Iterator<Item = &'static str> {
        raw_fields(&self.bytes).flatten().filter_map(|raw| {
            let supported = M::DESCRIPTOR.field(raw.number).map(|field| field.name);
            let is_set =
                |field: &UnsupportedField| (field.number == raw.number).then_some(field.name);
            supported.or_else(|| M::DESCRIPTOR.unsupported.iter().find_map(is_set))
        })
    }
}

impl<M: Described> From<&M> for FileMessage<M> {
    fn from(message: &M) -> Self {
        Self {
            bytes: message.encode_to_vec().into(),
            message: PhantomData,
        }
    }
}

impl<M> Default for FileMessage<M> {
    fn default() -> Self {
        Self {
            bytes: Bytes::new(),
            message: PhantomData,
        }
    }
}

impl<'de, M: Described> Deserialize<'de> for FileMessage<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = seed::message(M::DESCRIPTOR, deserializer)?;
        Ok(Self {
            bytes: bytes.into(),
            message: PhantomData,
        })
    }
}

#[cfg(feature = "schema")]
impl<M: Described> schemars::JsonSchema for FileMessage<M> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        crate::json_schema::schema_name(M::DESCRIPTOR).into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        crate::json_schema::message(M::DESCRIPTOR, generator)
    }
}
