//! Message descriptors: the name of a message, its supported fields, and the fields of Envoy's
//! definition that Plimsoll does not support.

pub use crate::yaml::proto_json::ProtoEnum;

/// A protobuf message with a descriptor, implemented by `#[derive(Described)]`.
pub trait Described: prost::Message + Default {
    /// Descriptor generated from the declaration.
    const DESCRIPTOR: &'static Descriptor;
}

/// A Rust type that a length-delimited field can have.
pub trait FieldType {
    /// Kind of a field of this type.
    const KIND: Kind;
}

/// Name, documentation and fields of a message.
#[derive(Debug)]
pub struct Descriptor {
    /// Full name, as in `@type`.
    pub name: &'static str,
    /// Name in JSON Schemas and reference pages, where it is not that of [`Self::name`] without the
    /// package: two messages may have the same name there.
    pub title: &'static str,
    /// The doc comment of the declaration.
    pub doc: &'static str,
    pub fields: &'static [Field],
    /// Fields of Envoy's definition that the converters do not read.
    pub unsupported: &'static [UnsupportedField],
}

/// A field that the converters read.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub number: u32,
    /// Name in snake_case, as written in files.
    pub name: &'static str,
    /// The doc comment of the declaration.
    pub doc: &'static str,
    /// Type of one value.
    pub kind: Kind,
    pub label: Label,
    /// Whether the value may contain a private key and must be redacted when printed.
    pub secret: bool,
    /// Whether unsupported fields inside the value are neither refused nor reported.
    pub opaque: bool,
    /// Whether this is a list of extensions of which only the first supported one is used.
    pub first_supported: bool,
    /// Set if the converters do not read the field: it is declared so that a control plane can
    /// deliver it to other data planes. Readers treat it like an [`UnsupportedField`].
    pub unread: Option<Unread>,
}

/// How readers treat a field that is declared and not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    pub impact: Impact,
    /// Whether the field may be set to its default value, such as false.
    pub unless_default: bool,
}

/// A field of Envoy's definition that the converters do not read.
#[derive(Clone, Copy, Debug)]
pub struct UnsupportedField {
    pub number: u32,
    /// Name in snake_case, as written in files.
    pub name: &'static str,
    pub impact: Impact,
    /// Whether the field may be set to its default value, such as false.
    pub unless_default: bool,
}

/// Consequence of ignoring an unsupported field that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Impact {
    /// The result is the same with and without the field: accepted silently.
    Harmless,
    /// No routing decision depends on the field: accepted and reported.
    Unused,
    /// Requests would be handled differently: refused by readers that connect to hosts.
    Request,
    /// Requests would be sent to different hosts: refused by every reader.
    Host,
}

/// Cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    One,
    Many,
    /// A map with strings as keys.
    Map,
}

/// Type of one value of a field.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Bool,
    /// `int32` or `int64`, not distinguished.
    Int,
    Uint32,
    Uint64,
    Double,
    Float,
    String,
    Bytes,
    Enum(EnumValues),
    /// A `google.protobuf` wrapper around a scalar, such as `UInt32Value`.
    Wrapper(&'static Self),
    Message(fn() -> &'static Descriptor),
    /// A message whose contents are not read: only its presence matters.
    Presence,
    Duration,
    /// `google.protobuf.Any` and the message types that it may contain.
    Any(fn() -> &'static [&'static Descriptor]),
    Struct,
}

/// Names and numbers of an enum, with the Rust type erased.
#[derive(Clone, Copy, Debug)]
pub struct EnumValues {
    get: fn(usize) -> Option<(&'static str, i64)>,
}

impl EnumValues {
    /// Returns the values of `T`.
    pub const fn of<T: ProtoEnum>() -> Self {
        Self {
            get: |index| {
                let value = T::VALUES.get(index);
                value.map(|&(name, number, _)| (name, number))
            },
        }
    }

    /// Iterates over name and number of each value, in declaration order.
    pub fn iter(self) -> impl Iterator<Item = (&'static str, i64)> {
        (0..).map_while(self.get)
    }
}

impl Descriptor {
    /// Returns the supported field with this number.
    pub fn field(&self, number: u32) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.number == number)
    }

    /// Returns the name of the field with this number, supported or not.
    pub fn name_of(&self, number: u32) -> Option<&'static str> {
        let unsupported = self.unsupported.iter();
        let mut unsupported = unsupported.filter(|field| field.number == number);
        let supported = self.field(number).map(|field| field.name);
        supported.or_else(|| unsupported.next().map(|field| field.name))
    }
}

/// Maps plain Rust types to the `google.protobuf` wrappers, as prost does.
macro_rules! wrappers {
    ($($wrapped:ty => $kind:ident),* $(,)?) => {
        $(impl FieldType for $wrapped {
            const KIND: Kind = Kind::Wrapper(&Kind::$kind);
        })*
    };
}

wrappers! {
    bool => Bool,
    u32 => Uint32,
    u64 => Uint64,
    i64 => Int,
    f64 => Double,
    f32 => Float,
    String => String,
}

impl FieldType for () {
    const KIND: Kind = Kind::Presence;
}
