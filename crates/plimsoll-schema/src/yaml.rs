//! YAML parser for configuration files, with line and column of every value.
//!
//! Spelling follows the JSON mapping of protobuf, as in Envoy: fields in snake_case or
//! lowerCamelCase, enums by name or number, durations as `"0.5s"` (also with other units), numbers
//! also in quotes. One thing is stricter: a field without a value (YAML null) is refused, because
//! Envoy reads it as "not set" where the writer usually meant an empty message.

mod de;
mod document;
mod error;
mod faults;
mod json;
pub mod proto_json;
mod runtime;
#[cfg(feature = "schema")]
mod schema;
mod suggest;
mod variables;

pub use crate::file::StructYaml;
pub(crate) use de::{STRUCT_KEY, STRUCT_VALUE};
pub use document::Document;
pub use error::{ConfigError, Location};
pub use faults::{FaultFinder, Found, all_faults};
pub use runtime::RuntimeYaml;
pub use suggest::nearest;
pub(crate) use suggest::unknown_field;
pub use variables::expand;

#[cfg(test)]
mod scalar_tests;
