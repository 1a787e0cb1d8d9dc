//! Descriptor of one field, from its `#[prost(...)]` and `#[schema(...)]` attributes and its type.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Field, GenericArgument, LitInt, LitStr, Path, PathArguments, Token, Type};

use crate::{documentation, message, schema_attributes};

/// Options from the `#[schema(...)]` attribute of a field.
#[derive(Default)]
struct Options {
    name: Option<String>,
    values: Option<Path>,
    types: Option<Path>,
    secret: bool,
    opaque: bool,
    first_supported: bool,
    unread: Option<LitStr>,
}

/// Encoding from the `#[prost(...)]` attribute of a field.
#[derive(Default)]
struct Wire {
    kind: String,
    number: u32,
    repeated: bool,
    map: bool,
}

/// Expands to a `crate::descriptor::Field` expression.
pub(crate) fn descriptor(field: &Field) -> syn::Result<TokenStream> {
    let wire = wire(field)?;
    let options = options(field)?;
    let ident = field.ident.as_ref().map(ToString::to_string);
    let name = options.name.clone().or(ident).unwrap_or_default();
    let doc = documentation(&field.attrs);
    let number = wire.number;
    let kind = kind(field, &wire, &options)?;
    let label = match (wire.map, wire.repeated) {
        (true, _) => quote!(Map),
        (false, true) => quote!(Many),
        (false, false) => quote!(One),
    };
    let (secret, opaque) = (options.secret, options.opaque);
    let first_supported = options.first_supported;
    let unread = match &options.unread {
        Some(written) => message::unread(written)?,
        None => quote!(None),
    };
    Ok(quote! {
        crate::descriptor::Field {
            number: #number,
            name: #name,
            doc: #doc,
            kind: #kind,
            label: crate::descriptor::Label::#label,
            secret: #secret,
            opaque: #opaque,
            first_supported: #first_supported,
            unread: #unread,
        }
    })
}

fn kind(field: &Field, wire: &Wire, options: &Options) -> syn::Result<TokenStream> {
    if let Some(values) = &options.values {
        return Ok(
            quote!(crate::descriptor::Kind::Enum(crate::descriptor::EnumValues::of::<#values>())),
        );
    }
    if let Some(types) = &options.types {
        return Ok(quote!(crate::descriptor::Kind::Any(|| crate::registry::#types)));
    }
    Ok(match wire.kind.as_str() {
        "message" => {
            let inner = innermost(&field.ty);
            quote!(<#inner as crate::descriptor::FieldType>::KIND)
        }
        "bool" => quote!(crate::descriptor::Kind::Bool),
        "int32" | "int64" => quote!(crate::descriptor::Kind::Int),
        "uint32" => quote!(crate::descriptor::Kind::Uint32),
        "uint64" => quote!(crate::descriptor::Kind::Uint64),
        "double" => quote!(crate::descriptor::Kind::Double),
        "float" => quote!(crate::descriptor::Kind::Float),
        "string" => quote!(crate::descriptor::Kind::String),
        "bytes" => quote!(crate::descriptor::Kind::Bytes),
        other => {
            let text = format!("field type `{other}` is not supported by Described");
            return Err(syn::Error::new_spanned(field, text));
        }
    })
}

/// Returns `T` of `Option<T>`, `Vec<T>`, `Box<T>` and `BTreeMap<_, T>`.
fn innermost(ty: &Type) -> &Type {
    if let Type::Path(path) = ty
        && let Some(last) = path.path.segments.last()
        && let PathArguments::AngleBracketed(arguments) = &last.arguments
        && let Some(GenericArgument::Type(inner)) = arguments.args.last()
    {
        return innermost(inner);
    }
    ty
}

fn wire(field: &Field) -> syn::Result<Wire> {
    let mut wire = Wire::default();
    for attribute in &field.attrs {
        if !attribute.path().is_ident("prost") {
            continue;
        }
        attribute.parse_nested_meta(|meta| {
            let key = meta.path.get_ident().map(ToString::to_string);
            match key.as_deref() {
                Some("tag") => {
                    let text: LitStr = meta.value()?.parse()?;
                    wire.number = text.parse::<LitInt>()?.base10_parse()?;
                }
                Some("repeated") => wire.repeated = true,
                Some("optional" | "boxed") => {}
                Some("btree_map") => {
                    let _: LitStr = meta.value()?.parse()?;
                    wire.map = true;
                    wire.kind = "message".to_owned();
                }
                Some(kind) => {
                    wire.kind = kind.to_owned();
                    if meta.input.peek(Token![=]) {
                        let _: LitStr = meta.value()?.parse()?;
                    }
                }
                None => return Err(meta.error("expected a name")),
            }
            Ok(())
        })?;
    }
    Ok(wire)
}

fn options(field: &Field) -> syn::Result<Options> {
    let mut options = Options::default();
    for attribute in schema_attributes(&field.attrs) {
        attribute.parse_nested_meta(|meta| {
            let key = meta.path.get_ident().map(ToString::to_string);
            match key.as_deref() {
                Some("name") => options.name = Some(meta.value()?.parse::<LitStr>()?.value()),
                Some("values") => options.values = Some(meta.value()?.parse()?),
                Some("types") => options.types = Some(meta.value()?.parse()?),
                Some("secret") => options.secret = true,
                Some("opaque") => options.opaque = true,
                Some("unread") => options.unread = Some(meta.value()?.parse()?),
                Some("first_supported") => options.first_supported = true,
                _ => return Err(meta.error("unknown attribute of a field")),
            }
            Ok(())
        })?;
    }
    Ok(options)
}
