//! `#[schema(...)]` attributes of a message: its name and its unsupported fields.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{Attribute, LitStr};

/// Parses an attribute into pairs of key and string literal.
pub(crate) fn pairs(attribute: &Attribute) -> syn::Result<Vec<(String, LitStr)>> {
    let mut pairs = Vec::new();
    attribute.parse_nested_meta(|meta| {
        let Some(key) = meta.path.get_ident() else {
            return Err(meta.error("expected a name"));
        };
        pairs.push((key.to_string(), meta.value()?.parse()?));
        Ok(())
    })?;
    Ok(pairs)
}

/// Expands the impact of a field that is declared and not read, such as `changes_request?`.
pub(crate) fn unread(written: &LitStr) -> syn::Result<TokenStream> {
    let text = written.value();
    let unless_default = text.ends_with('?');
    let impact = variant(text.trim_end_matches('?'), written)?;
    Ok(quote! {
        Some(crate::descriptor::Unread {
            impact: crate::descriptor::Impact::#impact,
            unless_default: #unless_default,
        })
    })
}

/// Returns the variant of `Impact` that an attribute names.
fn variant(impact: &str, place: &LitStr) -> syn::Result<Ident> {
    let name = match impact {
        "harmless" => "Harmless",
        "unused" => "Unused",
        "changes_request" => "Request",
        "changes_host" => "Host",
        other => {
            let text = format!("unknown impact `{other}`");
            return Err(syn::Error::new(place.span(), text));
        }
    };
    Ok(Ident::new(name, Span::call_site()))
}

/// Expands a list of unsupported fields such as `4 require_tls, 8 cors?`.
pub(crate) fn unsupported_fields(impact: &str, list: &LitStr) -> syn::Result<Vec<TokenStream>> {
    let impact = variant(impact, list)?;
    let text = list.value();
    text.split(',')
        .map(|entry| {
            let (number, name) = entry
                .trim()
                .split_once(char::is_whitespace)
                .ok_or_else(|| syn::Error::new(list.span(), "expected `number name`"))?;
            let number: u32 = number
                .parse()
                .map_err(|error| syn::Error::new(list.span(), format!("{number:?}: {error}")))?;
            let name = name.trim();
            let unless_default = name.ends_with('?');
            let name = name.trim_end_matches('?');
            Ok(quote! {
                crate::descriptor::UnsupportedField {
                    number: #number,
                    name: #name,
                    impact: crate::descriptor::Impact::#impact,
                    unless_default: #unless_default,
                }
            })
        })
        .collect()
}
