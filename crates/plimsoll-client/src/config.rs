//! Builders for what a client is configured with: [`Cluster`] with [`Endpoint`]s, [`Policy`] and
//! its families, health checks, outlier detection and TLS.
//!
//! Builders fill in the checked types of `plimsoll_core` and `plimsoll_xds`, which Envoy's YAML and
//! xDS resources end in too, and declare no settings of their own. Values are checked once, when
//! the client is built; errors name the field as Envoy spells it.

/// Declares setters of a builder: `name(value: Type) => field.path = expression;`
macro_rules! setters {
    ($(
        $(#[$doc:meta])*
        $name:ident($($value:ident: $type:ty)?) => $($place:ident).+ = $new:expr;
    )+) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self $(, $value: $type)?) -> Self {
                self.$($place).+ = $new;
                self
            }
        )+
    };
}

pub(crate) mod checks;
mod cluster;
mod endpoint;
mod endpoint_policy;
pub(crate) mod environment;
mod health_check;
mod outlier_detection;
mod policy;
mod tls;
#[cfg(feature = "yaml")]
mod yaml;

pub use cluster::Cluster;
pub(crate) use cluster::Hosts;
pub use endpoint::Endpoint;
pub use endpoint_policy::{
    ClientSideWeightedRoundRobinPolicy, LeastRequestPolicy, MaglevPolicy, RandomPolicy,
    RingHashPolicy, RoundRobinPolicy,
};
pub use health_check::ActiveHealthCheck;
pub use outlier_detection::Outliers;
pub use policy::{
    LoadAwarePolicy, LocalityWeightedPolicy, Policy, WrrLocalityPolicy, ZoneAwarePolicy,
};
pub use tls::Tls;
