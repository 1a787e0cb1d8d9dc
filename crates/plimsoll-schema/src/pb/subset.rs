//! Subset load balancing: one struct for `Cluster.LbSubsetConfig` and `subset.v3.Subset`, whose
//! common fields have the same numbers.

use plimsoll_core::model::subset::{
    MetadataFallbackPolicy, SelectorFallbackPolicy, SubsetFallbackPolicy,
};
use plimsoll_schema_derive::Described;
use prost::Message;

use super::metadata::StructMessage;
use super::policy::LoadBalancingPolicyMessage;

/// `subset.v3.Subset`: subset load balancing. The legacy message ends with field 8.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.subset.v3.Subset")]
pub struct SubsetMessage {
    /// Hosts for requests that match no subset: none, all or a default. Default `NO_FALLBACK`.
    #[prost(int32, tag = "1")]
    #[schema(values = SubsetFallbackPolicy)]
    pub fallback_policy: i32,
    /// Metadata that hosts of the default subset must have. Default none, which all hosts have.
    #[prost(message, optional, tag = "2")]
    pub default_subset: Option<StructMessage>,
    /// Metadata keys by which hosts are grouped into subsets.
    #[prost(message, repeated, tag = "3")]
    pub subset_selectors: Vec<SubsetSelectorMessage>,
    /// Apply locality weights within subsets.
    #[prost(bool, tag = "4")]
    pub locality_weight_aware: bool,
    /// Scale the weight of a locality by the fraction of its hosts that are in the subset.
    #[prost(bool, tag = "5")]
    pub scale_locality_weight: bool,
    /// If the fallback finds no host, use all hosts.
    #[prost(bool, tag = "6")]
    pub panic_mode_any: bool,
    /// A host with a list as metadata value matches each element of the list.
    #[prost(bool, tag = "7")]
    pub list_as_any: bool,
    /// Whether the match criteria of a request may list alternatives in `fallback_list`. Default
    /// `METADATA_NO_FALLBACK`.
    #[prost(int32, tag = "8")]
    #[schema(values = MetadataFallbackPolicy)]
    pub metadata_fallback_policy: i32,
    /// Policy that picks a host within a subset.
    #[prost(message, optional, tag = "9")]
    pub subset_lb_policy: Option<LoadBalancingPolicyMessage>,
    /// Ignore match criteria with keys that no selector has.
    #[prost(bool, tag = "10")]
    pub allow_redundant_keys: bool,
    /// Plimsoll extension: maximum number of subsets, 1 to 1000000. Default 10000.
    #[prost(uint32, optional, tag = "50001")]
    pub max_subsets: Option<u32>,
}

/// `LbSubsetSelector`, of the typed and the legacy API.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.subset.v3.Subset.LbSubsetSelector")]
pub struct SubsetSelectorMessage {
    /// Metadata keys of the selector; hosts with equal values of all keys form a subset.
    #[prost(string, repeated, tag = "1")]
    pub keys: Vec<String>,
    /// Hosts for requests with these keys that match no subset. Default `NOT_DEFINED`, which uses
    /// the fallback policy of the whole message.
    #[prost(int32, tag = "2")]
    #[schema(values = SelectorFallbackPolicy)]
    pub fallback_policy: i32,
    /// Keys of the criteria that are kept for the next attempt, with `KEYS_SUBSET`.
    #[prost(string, repeated, tag = "3")]
    pub fallback_keys_subset: Vec<String>,
    /// Each subset consists of one host, the first with these values, regardless of its health.
    #[prost(bool, tag = "4")]
    pub single_host_per_subset: bool,
}
