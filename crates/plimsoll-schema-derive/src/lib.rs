//! `#[derive(Described)]`: generates the descriptor of a protobuf message from its prost struct.
//!
//! prost's derive uses number and type of each field and drops names and comments. The file reader,
//! the scan for unsupported fields, `/config_dump`, the JSON Schema and the reference pages need
//! those too; generated from the same struct, they cannot disagree with it.
//!
//! ```ignore
//! /// How a request is retried.
//! #[derive(Clone, PartialEq, Message, Described)]
//! #[schema(name = "envoy.config.route.v3.RetryPolicy")]
//! #[schema(unused = "9 retriable_headers", changes_host = "4 retry_priority")]
//! struct RetryPolicy {
//!     /// Number of attempts after the first one. Default 1.
//!     #[prost(message, optional, tag = "2")]
//!     num_retries: Option<u32>,
//! }
//! ```
//!
//! Attributes of a message: `name`, `title` (the name in schemas where that of the message is
//! taken), and lists of unsupported fields of Envoy's definition, as
//! comma-separated `number name`, by impact: `harmless` (accepted, the result is the same),
//! `unused` (accepted and reported), `changes_request` and `changes_host` (refused). A `?` after a
//! name accepts the default value. Attributes of a field: `name` where the Rust name differs,
//! `values` (the enum of an `int32`), `types` (message types accepted in an `Any`), `secret` (not
//! printed), `opaque` (not scanned for unsupported fields), `first_supported` (a list of which
//! only the first entry with a known type is used) and `unread` (the impact of a field that is
//! declared to be delivered to other data planes, while our own readers treat it as unsupported).

mod field;
mod message;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Expr, ExprLit, Fields, Lit, Meta, parse_macro_input};

/// Derives `crate::descriptor::Described` for a struct that derives `prost::Message`.
#[proc_macro_derive(Described, attributes(schema))]
pub fn described(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

fn expand(input: &DeriveInput) -> syn::Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new_spanned(input, "a message must be a struct"));
    };
    let mut fields = Vec::new();
    if let Fields::Named(named) = &data.fields {
        for declared in &named.named {
            fields.push(field::descriptor(declared)?);
        }
    }
    let mut name = input.ident.to_string();
    let mut title = String::new();
    let mut unsupported = Vec::new();
    for attribute in schema_attributes(&input.attrs) {
        for (key, value) in message::pairs(attribute)? {
            match key.as_str() {
                "name" => name = value.value(),
                "title" => title = value.value(),
                impact => unsupported.extend(message::unsupported_fields(impact, &value)?),
            }
        }
    }
    let ident = &input.ident;
    let doc = documentation(&input.attrs);
    Ok(quote! {
        impl crate::descriptor::Described for #ident {
            const DESCRIPTOR: &'static crate::Descriptor = &crate::Descriptor {
                name: #name,
                title: #title,
                doc: #doc,
                fields: &[#(#fields),*],
                unsupported: &[#(#unsupported),*],
            };
        }

        impl crate::descriptor::FieldType for #ident {
            const KIND: crate::descriptor::Kind = crate::descriptor::Kind::Message(
                || <#ident as crate::descriptor::Described>::DESCRIPTOR,
            );
        }
    })
}

fn schema_attributes(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("schema"))
}

/// Returns the text of doc comments, with lines joined by spaces and paragraphs by line breaks.
fn documentation(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        let Meta::NameValue(pair) = &attribute.meta else {
            continue;
        };
        let Expr::Lit(ExprLit {
            lit: Lit::Str(line),
            ..
        }) = &pair.value
        else {
            continue;
        };
        if !pair.path.is_ident("doc") {
            continue;
        }
        let line = line.value();
        match line.trim() {
            "" => text.push_str("\n\n"),
            line if text.is_empty() || text.ends_with('\n') => text.push_str(line),
            line => {
                text.push(' ');
                text.push_str(line);
            }
        }
    }
    text
}
