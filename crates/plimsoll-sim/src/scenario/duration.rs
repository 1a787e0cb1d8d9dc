//! [`HumanDuration`]: a duration as scenarios spell it: `"250ms"`, `"90s"`, `"10m"`, `"1h"`.

use std::fmt;
use std::time::Duration;

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

    /// Parses a number and a unit: `us`, `ms`, `s`, `m` or `h`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let complain =
            || format!("{text:?} is not a duration: write \"250ms\", \"90s\", \"10m\" or \"1h\"");
        let split = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or_else(complain)?;
        let (number, unit) = text.split_at(split);
        let number: f64 = number.parse().map_err(|_| complain())?;
        let seconds = match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(complain()),
        };
        let length = Duration::try_from_secs_f64(number * seconds).map_err(|_| complain())?;
        Ok(Self(length))
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
        let pattern = r"^[0-9]*\.?[0-9]*(us|ms|s|m|h)$";
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

            fn visit_str<E: Error>(self, text: &str) -> Result<HumanDuration, E> {
                HumanDuration::parse(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        for (text, millis) in [
            ("250ms", 250),
            ("0.5s", 500),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h", 3_600_000),
            ("0s", 0),
        ] {
            assert_eq!(
                HumanDuration::parse(text),
                Ok(HumanDuration::from_millis(millis)),
                "{text}"
            );
        }
        assert_eq!(
            HumanDuration::parse("5us").unwrap().0,
            Duration::from_nanos(5_000)
        );
    }

    #[test]
    fn anything_else_is_rejected_with_examples() {
        for text in ["", "5", "s", "-1s", "1.2.3s", "5 s", "5d", "1e3s"] {
            let reason = HumanDuration::parse(text).unwrap_err();
            assert!(reason.contains("\"90s\""), "{text}: {reason}");
        }
    }

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
