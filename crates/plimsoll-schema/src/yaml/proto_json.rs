//! Scalars and small messages in the JSON mapping of protobuf, which Envoy's YAML follows.
//!
//! Numbers may be quoted (64-bit numbers are printed that way), whole numbers may be written as
//! floats, NaN and infinities are strings, enums are written by name or number. Only the range of
//! the type is checked here; the core checks the range of each field.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use plimsoll_core::units::{parse_duration, parse_percent};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, Visitor};

/// Converts `lowerCamelCase` to `lower_camel_case`; returns anything else unchanged.
pub fn snake_case(key: &str) -> Cow<'_, str> {
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
                checked.ok_or_else(|| match value {
                    Some(_) => E::custom(format_args!("{written} is above {max}")),
                    None => E::custom(format_args!("{written} is not a whole number from 0 on")),
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

/// A whole number that may be negative (`int32`, `int64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Int(pub i64);

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntVisitor;

        impl IntVisitor {
            fn check<E: Error>(value: Option<i64>, written: impl fmt::Display) -> Result<i64, E> {
                let error =
                    || E::custom(format_args!("{written} is not a whole number of 64 bits"));
                value.ok_or_else(error)
            }
        }

        impl Visitor<'_> for IntVisitor {
            type Value = i64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<i64, E> {
                Ok(value)
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<i64, E> {
                Self::check(i64::try_from(value).ok(), value)
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<i64, E> {
                let size = whole(value.abs()).and_then(|size| i64::try_from(size).ok());
                Self::check(
                    size.map(|size| if value < 0.0 { -size } else { size }),
                    value,
                )
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<i64, E> {
                Self::check(value.parse().ok(), format_args!("{value:?}"))
            }
        }

        deserializer.deserialize_any(IntVisitor).map(Self)
    }
}

/// Converts a whole number of at most 2^53, above which doubles skip whole numbers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked just above"
)]
fn whole(value: f64) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    ((0.0..=EXACT).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

/// A floating-point number (`double`, `float` and their wrapper messages). May be NaN or infinite;
/// the core's checked types refuse those where the field does not allow them.
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

            #[expect(clippy::cast_precision_loss, reason = "the field is a double")]
            fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
                Ok(value as f64)
            }

            #[expect(clippy::cast_precision_loss, reason = "the field is a double")]
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

impl Double {
    /// Rounds the value to single precision, as Envoy and gRPC do for `float` fields.
    #[expect(clippy::cast_possible_truncation, reason = "the field is a float")]
    pub fn rounded_to_float(self) -> f64 {
        f64::from(self.0 as f32)
    }
}

/// `google.protobuf.Duration`, not negative. Protobuf writes seconds (`90s`); other units (`2m`,
/// `250ms`) are read as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProtoDuration(pub Duration);

impl<'de> Deserialize<'de> for ProtoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DurationVisitor;

        impl DurationVisitor {
            fn without_unit<E: Error>(value: impl fmt::Display) -> Result<Duration, E> {
                Err(E::custom(format_args!(
                    "{value} has no unit; write for example \"250ms\", \"1.5s\", \"2m\" or \"1h\""
                )))
            }
        }

        impl Visitor<'_> for DurationVisitor {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"5s\" or \"0.5s\"")
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Duration, E> {
                parse_duration(value).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Duration, E> {
                Self::without_unit(value)
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Duration, E> {
                Self::without_unit(value)
            }
        }

        deserializer.deserialize_any(DurationVisitor).map(Self)
    }
}

/// A number in a unit of the field, or text with a percent sign.
struct PercentVisitor {
    /// Units of the field in one percent.
    per_percent: f64,
    expected: &'static str,
}

impl Visitor<'_> for PercentVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<f64, E> {
        match parse_percent(value) {
            Some(Ok(percent)) => Ok(percent * self.per_percent),
            Some(Err(reason)) => Err(E::custom(reason)),
            None => value
                .parse()
                .map_err(|_| E::custom(format_args!("{value:?} is not {}", self.expected))),
        }
    }
}

/// A whole percentage: `55`, or `55%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholePercent(pub u32);

impl<'de> Deserialize<'de> for WholePercent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_any(PercentVisitor {
            per_percent: 1.0,
            expected: "a percentage such as 55 or \"55%\"",
        })?;
        let whole = whole(value).and_then(|value| u32::try_from(value).ok());
        whole.map(Self).ok_or_else(|| {
            D::Error::custom(format_args!(
                "{value} is not a whole percentage from 0 to 100"
            ))
        })
    }
}

/// A share in basis points, `5500`, or in percent, `55%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BasisPointShare(pub u64);

impl<'de> Deserialize<'de> for BasisPointShare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_any(PercentVisitor {
            per_percent: 100.0,
            expected: "a share in basis points such as 5500, or a percentage such as \"55%\"",
        })?;
        // 0.29 % is 28.999999999999996 basis points.
        let near = (value * 1e6).round() / 1e6;
        whole(near).map(Self).ok_or_else(|| {
            D::Error::custom(format_args!("{near} is not a whole number of basis points"))
        })
    }
}

/// A share of the whole, `0.6`, or in percent, `60%`. The range is checked by the field's owner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share(pub f64);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_any(PercentVisitor {
            per_percent: 0.01,
            expected: "a share such as 0.6 or \"60%\"",
        })?;
        Ok(Self(value))
    }
}

/// An enum with the names and numbers of its protobuf definition.
pub trait ProtoEnum: Copy + 'static {
    /// Name, number and value of every variant, ordered by number.
    const VALUES: &'static [(&'static str, i64, Self)];
}

/// An enum read by name or number; anything not in [`ProtoEnum::VALUES`] is refused.
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
                    E::custom(format_args!(
                        "unknown value {written}, expected one of {}",
                        names.join(", ")
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

/// A value of any type that is accepted and ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// A message without fields: only its presence matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Empty {}
