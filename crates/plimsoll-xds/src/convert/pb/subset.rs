//! Subset load balancing: one message for `Cluster.LbSubsetConfig` and for `subset.v3.Subset`,
//! whose common fields have the same numbers.

use prost::Message;

use super::metadata::StructMessage;
use super::policy::LoadBalancingPolicyMessage;

/// `subset.v3.Subset`; the legacy message ends with field 8.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SubsetMessage {
    #[prost(int32, tag = "1")]
    pub(crate) fallback_policy: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) default_subset: Option<StructMessage>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) subset_selectors: Vec<SubsetSelectorMessage>,
    #[prost(bool, tag = "4")]
    pub(crate) locality_weight_aware: bool,
    #[prost(bool, tag = "5")]
    pub(crate) scale_locality_weight: bool,
    #[prost(bool, tag = "6")]
    pub(crate) panic_mode_any: bool,
    #[prost(bool, tag = "7")]
    pub(crate) list_as_any: bool,
    #[prost(int32, tag = "8")]
    pub(crate) metadata_fallback_policy: i32,
    #[prost(message, optional, tag = "9")]
    pub(crate) subset_lb_policy: Option<LoadBalancingPolicyMessage>,
    #[prost(bool, tag = "10")]
    pub(crate) allow_redundant_keys: bool,
    /// Ours.
    #[prost(uint32, optional, tag = "50001")]
    pub(crate) max_subsets: Option<u32>,
}

/// `LbSubsetSelector`, typed and legacy alike.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SubsetSelectorMessage {
    #[prost(string, repeated, tag = "1")]
    pub(crate) keys: Vec<String>,
    #[prost(int32, tag = "2")]
    pub(crate) fallback_policy: i32,
    #[prost(string, repeated, tag = "3")]
    pub(crate) fallback_keys_subset: Vec<String>,
    #[prost(bool, tag = "4")]
    pub(crate) single_host_per_subset: bool,
}
