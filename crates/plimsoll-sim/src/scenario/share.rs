//! Shares in scenarios: `0.6`, or `"60%"`.

use std::fmt;

use plimsoll_core::units::parse_percent;
use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Reads a share: a number, or text with a percent sign.
pub(super) fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    struct Share;

    impl Visitor<'_> for Share {
        type Value = f64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a share such as 0.6 or \"60%\"")
        }

        #[expect(clippy::cast_precision_loss, reason = "a share")]
        fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
            Ok(value)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
            match parse_percent(text) {
                Some(Ok(percent)) => Ok(percent / 100.0),
                Some(Err(reason)) => Err(E::custom(reason)),
                None => Err(E::custom(format_args!(
                    "{text:?} is not a share; write for example 0.6 or \"60%\""
                ))),
            }
        }
    }

    deserializer.deserialize_any(Share)
}

/// Reads a share that may be left out.
pub(super) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<f64>, D::Error> {
    share(deserializer).map(Some)
}

/// Schema of a share, for `schemars`.
#[cfg(feature = "schema")]
pub(super) fn schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let pattern = r"^[0-9]*\.?[0-9]* ?%$";
    schemars::json_schema!({ "type": ["number", "string"], "minimum": 0, "pattern": pattern })
}
