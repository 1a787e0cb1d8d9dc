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

/// Expands a list of unsupported fields such as `4 require_tls, 8 cors?`.
pub(crate) fn unsupported_fields(impact: &str, list: &LitStr) -> syn::Result<Vec<TokenStream>> {
    let impact = match impact {
        "harmless" => "Harmless",
        "unused" => "Unused",
        "changes_request" => "Request",
        "changes_host" => "Host",
        other => {
            let text = format!("unknown attribute `{other}` of a message");
            return Err(syn::Error::new(list.span(), text));
        }
    };
    let impact = Ident::new(impact, Span::call_site());
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
