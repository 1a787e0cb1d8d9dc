//! `getters!`: read-only access to the fields of checked types.
//!
//! Checked settings have private fields, so that unchecked values cannot get in. Each line in an
//! `impl` becomes a method with the name of a field that returns a copy, `&T`, or `Option<&T>`.

macro_rules! getters {
    () => {};
    ($(#[$meta:meta])* $field:ident: &$type:ty, $($rest:tt)*) => {
        $(#[$meta])*
        pub fn $field(&self) -> &$type {
            &self.$field
        }
        getters! { $($rest)* }
    };
    ($(#[$meta:meta])* $field:ident: Option<&$type:ty>, $($rest:tt)*) => {
        $(#[$meta])*
        pub const fn $field(&self) -> Option<&$type> {
            self.$field.as_ref()
        }
        getters! { $($rest)* }
    };
    ($(#[$meta:meta])* $field:ident: $type:ty, $($rest:tt)*) => {
        $(#[$meta])*
        pub const fn $field(&self) -> $type {
            self.$field
        }
        getters! { $($rest)* }
    };
}
