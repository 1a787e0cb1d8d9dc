//! [`HumanDuration`]: a duration as scenarios spell it: `"250ms"`, `"90s"`, `"10m"`, `"1h"`.

use std::fmt;
use std::time::Duration;

use plimsoll_core::units::parse_duration;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// A duration in a scenario file or on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    /// Creates a duration of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Creates a duration of milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Parses a number and a unit, as everywhere else ([`parse_duration`]).
    pub fn parse(text: &str) -> Result<Self, String> {
        parse_duration(text).map(Self)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 1.0 {
            write!(f, "{} ms", seconds * 1e3)
        } else if seconds >= 120.0
            && self.0.subsec_nanos() == 0
            && self.0.as_secs().is_multiple_of(60)
        {
            write!(f, "{} min", self.0.as_secs() / 60)
        } else {
            write!(f, "{seconds} s")
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for HumanDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HumanDuration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let pattern = r"^[0-9]*\.?[0-9]* ?(ns|us|ms|s|m|min|h|d)$";
        schemars::json_schema!({ "type": "string", "pattern": pattern })
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = HumanDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration in quotes, for example \"90s\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<HumanDuration, E> {
                HumanDuration::parse(&number.to_string()).map_err(E::custom)
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<HumanDuration, E> {
                HumanDuration::parse(&number.to_string()).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<HumanDuration, E> {
                HumanDuration::parse(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_displayed_in_a_suitable_unit() {
        for (millis, shown) in [
            (250, "250 ms"),
            (1500, "1.5 s"),
            (90_000, "90 s"),
            (600_000, "10 min"),
        ] {
            assert_eq!(HumanDuration::from_millis(millis).to_string(), shown);
        }
    }
}
