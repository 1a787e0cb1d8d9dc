//! Scalars and small messages in the JSON mapping of protobuf, which Envoy's YAML follows.
//!
//! Numbers may stand in quotes (64-bit ones are printed so), whole numbers may be written as
//! floats, NaN and infinities are strings, enums go by name or number. Ranges are not checked here
//! beyond what the type holds: the core does that and knows the names.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, Visitor};

/// `lowerCamelCase` as `lower_camel_case`; anything else as it is.
pub(super) fn snake_case(key: &str) -> Cow<'_, str> {
    let camel = key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.contains(|c: char| c.is_ascii_uppercase())
        && key.chars().all(|c| c.is_ascii_alphanumeric());
    if !camel {
        return Cow::Borrowed(key);
    }
    let mut snake = String::with_capacity(key.len() + 4);
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    Cow::Owned(snake)
}

/// An unsigned whole number (`uint32`, `uint64` and their wrapper messages).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uint<T>(pub T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Uint<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UintVisitor<T>(PhantomData<T>);

        impl<T: TryFrom<u64>> UintVisitor<T> {
            fn check<E: Error>(value: Option<u64>, written: impl fmt::Display) -> Result<T, E> {
                let max = if size_of::<T>() == 4 {
                    u64::from(u32::MAX)
                } else {
                    u64::MAX
                };
                let checked = value.and_then(|value| T::try_from(value).ok());
                checked.ok_or_else(|| {
                    E::custom(format_args!(
                        "{written} is not a whole number from 0 to {max}"
                    ))
                })
            }
        }

        impl<T: TryFrom<u64>> Visitor<'_> for UintVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
                Self::check(Some(value), value)
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
                Self::check(u64::try_from(value).ok(), value)
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
                Self::check(whole(value), value)
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
                Self::check(value.parse().ok(), format_args!("{value:?}"))
            }
        }

        deserializer
            .deserialize_any(UintVisitor(PhantomData))
            .map(Self)
    }
}

/// The whole number that `value` is, as long as every whole number is still a double.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked just above"
)]
fn whole(value: f64) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    ((0.0..=EXACT).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

/// A floating-point number (`double`, `float` and their wrapper messages). May be NaN or infinite:
/// the checked types refuse that with the meaning of the field at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Double(pub f64);

impl<'de> Deserialize<'de> for Double {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DoubleVisitor;

        impl Visitor<'_> for DoubleVisitor {
            type Value = f64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            #[expect(clippy::cast_precision_loss, reason = "a double is what was asked for")]
            fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
                Ok(value as f64)
            }

            #[expect(clippy::cast_precision_loss, reason = "a double is what was asked for")]
            fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
                Ok(value as f64)
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
                Ok(value)
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<f64, E> {
                match value {
                    "NaN" | ".nan" => Ok(f64::NAN),
                    "Infinity" | ".inf" => Ok(f64::INFINITY),
                    "-Infinity" | "-.inf" => Ok(f64::NEG_INFINITY),
                    _ => value
                        .parse()
                        .map_err(|_| E::custom(format_args!("{value:?} is not a number"))),
                }
            }
        }

        deserializer.deserialize_any(DoubleVisitor).map(Self)
    }
}

/// `google.protobuf.Duration`: seconds with up to nine decimals and an `s`, not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProtoDuration(pub Duration);

impl<'de> Deserialize<'de> for ProtoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DurationVisitor;

        impl Visitor<'_> for DurationVisitor {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"5s\" or \"0.5s\"")
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Duration, E> {
                seconds(value).ok_or_else(|| {
                    E::custom(format_args!(
                        "{value:?} is not a duration such as \"5s\" or \"0.5s\""
                    ))
                })
            }
        }

        deserializer.deserialize_any(DurationVisitor).map(Self)
    }
}

fn seconds(text: &str) -> Option<Duration> {
    /// Range of the message: about 10,000 years.
    const MAX_SECONDS: u64 = 315_576_000_000;
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let number = text.strip_suffix('s')?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if !digits(whole) || !digits(decimals) || decimals.len() > 9 {
        return None;
    }
    let nanos: u32 = format!("{decimals:0<9}").parse().ok()?;
    let seconds: u64 = whole.parse().ok()?;
    (seconds <= MAX_SECONDS).then(|| Duration::new(seconds, nanos))
}

/// An enum with the names and numbers of its proto.
pub trait ProtoEnum: Copy + 'static {
    /// Every value, in the order of the numbers.
    const VALUES: &'static [(&'static str, i64, Self)];
}

/// An enum by name or number; what is not in [`ProtoEnum::VALUES`] is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named<T>(pub T);

impl<'de, T: ProtoEnum> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamedVisitor<T>(PhantomData<T>);

        impl<T: ProtoEnum> NamedVisitor<T> {
            fn find<E: Error>(
                written: impl fmt::Display,
                matches: impl Fn(&str, i64) -> bool,
            ) -> Result<T, E> {
                let found = T::VALUES.iter().find(|(name, n, _)| matches(name, *n));
                found.map(|&(_, _, value)| value).ok_or_else(|| {
                    let names: Vec<_> = T::VALUES.iter().map(|(name, _, _)| *name).collect();
                    let names = names.join(", ");
                    E::custom(format_args!(
                        "unknown value {written}, expected one of {names}"
                    ))
                })
            }
        }

        impl<T: ProtoEnum> Visitor<'_> for NamedVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name or number of an enum value")
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
                Self::find(value, |name, _| name == value)
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
                Self::find(value, |_, number| number == value)
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
                Self::find(value, |_, number| u64::try_from(number) == Ok(value))
            }
        }

        deserializer
            .deserialize_any(NamedVisitor(PhantomData))
            .map(Self)
    }
}

/// `envoy.type.v3.Percent`: `{value: 50}`. An empty message is 0 percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Percent {
    /// Percent.
    pub value: Double,
}

/// `envoy.config.core.v3.RuntimeDouble`. The runtime key is accepted and never looked up: no
/// runtime layer carries doubles here, so the default is always what holds.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeDouble {
    /// The value.
    pub default_value: Double,
    /// The key that could override it in an Envoy.
    pub runtime_key: String,
}

/// `FractionalPercent`: so many of a hundred, ten thousand or a million.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct FractionalPercent {
    /// So many.
    numerator: Uint<u32>,
    /// Of so many. Default `HUNDRED`.
    denominator: Named<Denominator>,
}

impl FractionalPercent {
    /// So many,
    pub const fn numerator(&self) -> u32 {
        self.numerator.0
    }

    /// of so many.
    pub const fn denominator(&self) -> u32 {
        self.denominator.0.0
    }
}

#[derive(Clone, Copy, Debug)]
struct Denominator(u32);

impl Default for Denominator {
    fn default() -> Self {
        Self(100)
    }
}

impl ProtoEnum for Denominator {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("HUNDRED", 0, Self(100)),
        ("TEN_THOUSAND", 1, Self(10_000)),
        ("MILLION", 2, Self(1_000_000)),
    ];
}

/// A value that is accepted whatever it is, and not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// A message without fields: only its presence says something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Empty {}
