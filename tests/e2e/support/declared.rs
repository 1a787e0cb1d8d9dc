//! Declarations of plimsoll-schema: messages and field numbers from the source of `pb`, and the
//! values of the enum that we extend.
//!
//! A declaration belongs to the message that its attribute `schema` or else its documentation names
//! first, else to the message of its own name. Variants of a oneof are members of the message that
//! the enum's documentation names. Messages that only Plimsoll has ("Plimsoll extension: …") are
//! skipped, because they cannot conflict.

use std::path::{Path, PathBuf};

use plimsoll_core::model::zone_aware::LocalityBasis;
use plimsoll_xds::schema::ProtoEnum as _;
use syn::{Attribute, Expr, ExprLit, Ident, Item, Lit, LitStr, Meta, Token};

const SOURCE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../crates/plimsoll-schema/src"
);

/// Declaration of a message or enum.
#[derive(Debug)]
pub(crate) struct Declared {
    /// File and name, for error messages.
    pub(crate) place: String,
    /// Suffix of the full name in Envoy.
    pub(crate) name: String,
    pub(crate) is_enum: bool,
    /// Names and numbers of fields or values.
    pub(crate) members: Vec<(String, u64)>,
}

/// Returns all declarations of messages.
pub(crate) fn declared() -> Vec<Declared> {
    let directory = Path::new(SOURCE);
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory.join("pb"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.push(directory.join("pb.rs"));
    files.sort();
    let mut all: Vec<_> = files.iter().flat_map(|file| read(file)).collect();
    let values = LocalityBasis::VALUES.iter();
    all.push(Declared {
        place: "LocalityBasis".to_owned(),
        name: "ZoneAwareLbConfig.LocalityBasis".to_owned(),
        is_enum: true,
        members: values
            .map(|(name, number, _)| ((*name).to_owned(), number.cast_unsigned()))
            .collect(),
    });
    all
}

fn read(file: &Path) -> Vec<Declared> {
    let source = syn::parse_file(&std::fs::read_to_string(file).unwrap()).unwrap();
    let items = source.items.iter();
    let declared = items.filter_map(|item| match item {
        Item::Struct(message) => {
            let fields = message.fields.iter();
            let named = fields.filter_map(|field| Some((&field.attrs, field.ident.as_ref()?)));
            declaration(file, &message.attrs, &message.ident, named)
        }
        Item::Enum(oneof) => {
            let variants = oneof.variants.iter();
            let named = variants.map(|variant| (&variant.attrs, &variant.ident));
            declaration(file, &oneof.attrs, &oneof.ident, named)
        }
        _ => None,
    });
    declared.collect()
}

/// Returns the message that a struct, or the enum of a oneof, declares.
fn declaration<'f>(
    file: &Path,
    attributes: &[Attribute],
    ident: &Ident,
    fields: impl Iterator<Item = (&'f Vec<Attribute>, &'f Ident)>,
) -> Option<Declared> {
    let docs = documentation(attributes);
    let members: Vec<_> = fields
        .filter_map(|(attributes, ident)| {
            let number = value(attributes, "prost", "tag")?.parse().unwrap();
            let renamed = value(attributes, "schema", "name");
            let name = renamed.unwrap_or_else(|| snake_case(&ident.to_string()));
            Some((name, number))
        })
        .collect();
    if members.is_empty() || docs.trim_start().starts_with("Plimsoll extension:") {
        return None;
    }
    let own = ident.to_string();
    let own = own.strip_suffix("Message").unwrap_or(&own);
    let quoted = docs.split('`').nth(1).unwrap_or(own).to_owned();
    Some(Declared {
        place: format!("{}: {ident}", file.display()),
        name: value(attributes, "schema", "name").unwrap_or(quoted),
        is_enum: false,
        members,
    })
}

fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let Meta::NameValue(meta) = &attribute.meta else {
            return None;
        };
        match &meta.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) if meta.path.is_ident("doc") => Some(text.value()),
            _ => None,
        }
    });
    lines.collect()
}

/// Returns the text of `key = "…"` in an attribute.
fn value(attributes: &[Attribute], attribute: &str, key: &str) -> Option<String> {
    let mut found = None;
    for one in attributes
        .iter()
        .filter(|one| one.path().is_ident(attribute))
    {
        // Other attributes may have other syntax behind what is searched.
        let _ = one.parse_nested_meta(|meta| {
            if meta.input.peek(Token![=]) {
                let text = meta.value()?.parse::<LitStr>()?.value();
                found = found
                    .take()
                    .or_else(|| meta.path.is_ident(key).then_some(text));
            }
            Ok(())
        });
    }
    found
}

/// Converts `HealthChecks` to `health_checks`; fields have their names already.
fn snake_case(name: &str) -> String {
    let name = name.trim_start_matches("r#");
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}
