//! Protobuf messages of the xDS API and of Plimsoll's extensions, each declared once.
//!
//! [`pb`] declares the messages as prost structs; `#[derive(Described)]` generates a [`Descriptor`]
//! from each declaration. Everything that needs names or types reads the descriptor: [`mod@file`]
//! encodes YAML and JSON into the wire format, so that one converter handles files and management
//! servers alike; [`unsupported`] finds fields that are set but have no effect; [`json`] prints a
//! message; `json_schema` generates JSON Schemas for editors and the reference pages. Adding a
//! field takes one line in its struct and one line in its converter.
//!
//! [`yaml`] parses text into a tree with line and column numbers, for these messages and for the
//! configuration files that are specific to Plimsoll. The converters of `plimsoll-xds` give the
//! messages their meaning.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod descriptor;
pub mod error;
pub mod field;
pub mod file;
pub mod json;
#[cfg(feature = "schema")]
pub mod json_schema;
pub mod metadata;
pub mod pb;
pub mod registry;
pub mod unread;
pub mod unsupported;
pub mod yaml;

pub use descriptor::{
    Described, Descriptor, EnumValues, Field, FieldType, Impact, Kind, Label, ProtoEnum, Unread,
    UnsupportedField,
};
pub use registry::by_name;
