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

use bytes::{Bytes, BytesMut};
use plimsoll_core::units::FieldError;
use serde::de::{Deserialize, Deserializer};

pub use structs::StructYaml;

use crate::error::DecodeError;
use crate::field::raw_fields;
use crate::{Described, Impact, unsupported};

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

    /// Returns the message with only the fields for whose names `is_part` is true.
    pub fn part(&self, is_part: impl Fn(&str) -> bool) -> Self {
        let mut bytes = BytesMut::with_capacity(self.bytes.len());
        for raw in raw_fields(&self.bytes).flatten() {
            if M::DESCRIPTOR.name_of(raw.number).is_some_and(&is_part) {
                bytes.extend_from_slice(raw.raw);
            }
        }
        Self {
            bytes: bytes.freeze(),
            message: PhantomData,
        }
    }

    /// Iterates over the names of the fields that are set, supported or not.
    pub fn field_names(&self) -> impl Iterator<Item = &'static str> {
        let fields = raw_fields(&self.bytes).flatten();
        fields.filter_map(|raw| M::DESCRIPTOR.name_of(raw.number))
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
