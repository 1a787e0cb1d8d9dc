//! Locality policies: one file each, arithmetic on counts and weights.
//!
//! Policies compute tables when something changed (`zone_aware::regenerate`, the schedulers of
//! `locality_weighted`) and answer picks from them. They do not see hosts.

#[doc(hidden)]
pub mod convergent;
pub mod demand;
pub(crate) mod failing_localities;
pub mod fractions;
pub(crate) mod host_count_fallback;
#[doc(hidden)]
pub mod load_aware_locality;
#[doc(hidden)]
pub mod locality_weighted;
pub(crate) mod observed_load;
#[doc(hidden)]
pub mod sampling;
pub mod zone_aware;
