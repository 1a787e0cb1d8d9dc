//! How a locality is chosen: one file per policy, each arithmetic on counts and weights.
//!
//! Policies compute tables when something changed (`zone_aware::regenerate`, the schedulers of
//! `locality_weighted`) and answer picks from them. Hosts are not known here.

pub mod convergent;
pub mod demand;
pub mod fractions;
pub mod load_aware_locality;
pub mod locality_weighted;
pub(crate) mod observed_load;
pub mod sampling;
pub mod zone_aware;
