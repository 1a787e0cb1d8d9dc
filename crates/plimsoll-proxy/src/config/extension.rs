//! `typed_config`: extensions of a listener, which are selected by the type of their settings.

use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::AnyMessage;
use plimsoll_xds::schema::{Described, Descriptor};

/// Whether the settings are of this type.
pub(super) fn is<M: Described>(config: Option<&AnyMessage>) -> bool {
    config.is_some_and(|any| any.type_name() == M::DESCRIPTOR.name)
}

/// Decodes settings that must be of this type; error paths start with `typed_config`.
pub(super) fn typed_config<M: Described>(config: Option<AnyMessage>) -> Result<M, FieldError> {
    match config {
        Some(any) if any.type_name() == M::DESCRIPTOR.name => {
            any.unpack().map_err(|error| error.under("typed_config"))
        }
        config => Err(unsupported(config.as_ref(), &[M::DESCRIPTOR])),
    }
}

/// Returns the error for settings that are of none of these types.
pub(super) fn unsupported(config: Option<&AnyMessage>, types: &[&Descriptor]) -> FieldError {
    let Some(any) = config else {
        return FieldError::new("typed_config", "must be set");
    };
    let names: Vec<_> = types.iter().map(|known| known.name).collect();
    let reason = format!(
        "{:?} is not supported here; supported: {}",
        any.type_url,
        names.join(", ")
    );
    FieldError::new("typed_config.@type", reason)
}
