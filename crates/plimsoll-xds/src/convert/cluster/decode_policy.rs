//! Decoding of `load_balancing_policy`: the first supported policy of the list wins.
//!
//! Unsupported policies are skipped; a list without a supported one is an error that names the
//! supported ones. Error paths start inside the message being read. Legacy fields are read in
//! `legacy`.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, LeastRequestParts, Maglev,
    RingHash, RoundRobin, SlowStart,
};
use plimsoll_core::model::subset::LbSubsetConfig;
use plimsoll_core::model::zone_aware::ZoneAware;
use plimsoll_core::units::FieldError;

use super::super::{Strictness, named};
use super::decode_locality::locality;
use super::decode_orca::{client_side_weighted_round_robin, load_aware_locality};
use super::encode_policy::PREFIX;
use super::subset;
use plimsoll_schema::by_name;
use plimsoll_schema::pb::AnyMessage;
use plimsoll_schema::pb::duration;
use plimsoll_schema::pb::enums::TypedHashFunction;
use plimsoll_schema::pb::policy::{
    ConsistentHashingMessage, LeastRequestMessage, LoadBalancingPolicyMessage, MaglevMessage,
    RandomMessage, RingHashMessage, RoundRobinMessage, SlowStartMessage,
    TypedExtensionConfigMessage, WrrLocalityMessage,
};

/// Endpoint policy, and locality policy if the message sets one.
pub(super) type Policies = (EndpointPolicy, Option<LocalityPolicy>);

pub(super) type SubsetPolicies = (Option<LbSubsetConfig>, Policies);

pub(in super::super) const SUPPORTED: &str = "round_robin, least_request, random, ring_hash, \
     maglev, client_side_weighted_round_robin, wrr_locality, load_aware_locality, subset";
/// Policy that applies its child policy within each subset.
const SUBSET: &str = "subset.v3.Subset";

/// Envoy policies that are not supported, as `package.version.Message`.
const UNSUPPORTED: [&str; 5] = [
    "cluster_provided.v3.ClusterProvided",
    "dynamic_forward_proxy.v3.DynamicForwardProxy",
    "dynamic_modules.v3.DynamicModulesLoadBalancerConfig",
    "override_host.v3.OverrideHost",
    "pick_first.v3.PickFirst",
];

/// Decodes the first supported policy of a cluster, which may define subsets.
pub(super) fn outermost(
    list: &LoadBalancingPolicyMessage,
    strictness: Strictness,
) -> Result<SubsetPolicies, FieldError> {
    first_supported(list, strictness, strictness, |any| {
        if name(any) == Some(SUBSET) {
            let subsets = any
                .unpack()
                .and_then(|message| subset::typed(message, strictness));
            return Some(subsets.map(|(config, typed)| (Some(config), typed)));
        }
        let typed = typed_config(any, None, strictness)?;
        Some(typed.map(|typed| (None, typed)))
    })
}

/// Decodes the first supported policy of a list that is not nested in another policy.
pub(super) fn load_balancing_policy(
    list: &LoadBalancingPolicyMessage,
    strictness: Strictness,
) -> Result<Policies, FieldError> {
    first_supported(list, strictness, strictness, |any| {
        typed_config(any, None, strictness)
    })
}

/// Decodes the first policy for which `read` returns `Some`. The policies after it are decoded and
/// checked too if `behind` is strict, as for files.
fn first_supported<T>(
    list: &LoadBalancingPolicyMessage,
    strictness: Strictness,
    behind: Strictness,
    read: impl Fn(&AnyMessage) -> Option<Result<T, FieldError>>,
) -> Result<T, FieldError> {
    let mut first = None;
    for (index, policy) in list.policies.iter().enumerate() {
        let path = format!("policies[{index}].typed_extension_config");
        let config = policy.typed_extension_config.clone().unwrap_or_default();
        if strictness == Strictness::Strict {
            check_extension(&config, behind).map_err(|error| error.under(&path))?;
        }
        let any = config.typed_config.unwrap_or_default();
        let Some(typed) = read(&any) else {
            continue;
        };
        let typed = typed.map_err(|error| error.under("typed_config").under(&path))?;
        first.get_or_insert(typed);
        if behind == Strictness::Lenient {
            break;
        }
    }
    first.ok_or_else(|| none_supported(list))
}

/// Checks name and type; if `behind` is strict, the type must be one that Envoy supports.
fn check_extension(
    config: &TypedExtensionConfigMessage,
    behind: Strictness,
) -> Result<(), FieldError> {
    if config.name.is_empty() {
        return Err(FieldError::new("name", "must be set, and not empty"));
    }
    let Some(any) = &config.typed_config else {
        return Err(FieldError::new("typed_config", "must be set"));
    };
    let is_known = by_name(any.type_name()).is_some()
        || name(any).is_some_and(|name| UNSUPPORTED.contains(&name));
    if is_known || behind == Strictness::Lenient {
        return Ok(());
    }
    let reason = format!(
        "unknown type {:?}, expected type.googleapis.com/{PREFIX}* of {SUPPORTED}",
        any.type_url
    );
    Err(FieldError::new("typed_config.@type", reason))
}

fn none_supported(list: &LoadBalancingPolicyMessage) -> FieldError {
    let types = list.policies.iter().map(|policy| {
        let config = policy.typed_extension_config.as_ref();
        let any = config.and_then(|config| config.typed_config.as_ref());
        any.map_or("", |any| any.type_url.as_str())
    });
    let types: Vec<_> = types.collect();
    let reason = match types.as_slice() {
        [] => "must have at least one policy".to_owned(),
        types => format!("none of {types:?} is supported; supported are {SUPPORTED}"),
    };
    FieldError::new("policies", reason)
}

/// Decodes a policy, or returns `None` for an unsupported type. A `parent` policy has already
/// chosen the locality policy, so its children must not choose one. That also bounds the nesting.
fn typed_config(
    any: &AnyMessage,
    parent: Option<&str>,
    strictness: Strictness,
) -> Option<Result<Policies, FieldError>> {
    let endpoint = match (name(any)?, parent) {
        (SUBSET, _) => {
            let reason = "subsets are made by the outermost policy only";
            Err(FieldError::new("", reason))
        }
        ("client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin", _) => {
            any.unpack().and_then(client_side_weighted_round_robin)
        }
        ("least_request.v3.LeastRequest", _) => any.unpack().and_then(least_request),
        ("load_aware_locality.v3.LoadAwareLocality", None) => any
            .unpack()
            .and_then(|message| load_aware_locality(message, strictness)),
        ("maglev.v3.Maglev", _) => any.unpack().and_then(maglev),
        ("random.v3.Random", _) => any.unpack().and_then(|message: RandomMessage| {
            let locality = locality(message.locality_lb_config)?;
            Ok((EndpointPolicy::Random, locality))
        }),
        ("ring_hash.v3.RingHash", _) => any
            .unpack()
            .and_then(|message| ring_hash(message, strictness)),
        ("round_robin.v3.RoundRobin", _) => any.unpack().and_then(round_robin),
        ("wrr_locality.v3.WrrLocality", None) => any
            .unpack()
            .and_then(|message| wrr_locality(message, strictness)),
        ("load_aware_locality.v3.LoadAwareLocality", Some("load_aware_locality")) => {
            let reason = "load_aware_locality cannot be its own endpoint_picking_policy";
            Err(FieldError::new("", reason))
        }
        (
            "load_aware_locality.v3.LoadAwareLocality" | "wrr_locality.v3.WrrLocality",
            Some(parent),
        ) => Err(chooses_again(parent)),
        _ => return None,
    };
    Some(endpoint.and_then(|typed| match (parent, &typed) {
        (Some(parent), (_, Some(_))) => Err(chooses_again(parent)),
        _ => Ok(typed),
    }))
}

/// Returns package, version and message name of a policy.
fn name(any: &AnyMessage) -> Option<&str> {
    let (_, full_name) = any.type_url.rsplit_once('/')?;
    full_name.strip_prefix(PREFIX)
}

fn chooses_again(parent: &str) -> FieldError {
    let reason = format!("the child chooses a locality, but {parent} has done that already");
    FieldError::new("", reason)
}

/// Decodes the endpoint policy of a child of `parent`. Policies after the first supported one are
/// not checked, not even in files, as in Envoy.
pub(super) fn child(
    list: Option<LoadBalancingPolicyMessage>,
    parent: &str,
    strictness: Strictness,
) -> Result<EndpointPolicy, FieldError> {
    let list = list.unwrap_or_default();
    let read = |any: &AnyMessage| typed_config(any, Some(parent), strictness);
    let typed = first_supported(&list, strictness, Strictness::Lenient, read);
    let (endpoint, _) = typed.map_err(|error| match error.path() {
        "policies" => {
            let reason = format!("No supported endpoint picking policy. Supported are {SUPPORTED}");
            FieldError::new("endpoint_picking_policy", reason)
        }
        _ => error.under("endpoint_picking_policy"),
    })?;
    Ok(endpoint)
}

fn wrr_locality(
    message: WrrLocalityMessage,
    strictness: Strictness,
) -> Result<Policies, FieldError> {
    let endpoint = child(message.endpoint_picking_policy, "wrr_locality", strictness)?;
    Ok((endpoint, Some(LocalityPolicy::WrrLocality)))
}

fn round_robin(message: RoundRobinMessage) -> Result<Policies, FieldError> {
    let slow_start = slow_start(message.slow_start_config)?;
    let policy = EndpointPolicy::RoundRobin(RoundRobin { slow_start });
    Ok((policy, locality(message.locality_lb_config)?))
}

fn least_request(message: LeastRequestMessage) -> Result<Policies, FieldError> {
    if message.enable_full_scan.is_some() {
        let reason = "does nothing in Envoy; use selection_method: FULL_SCAN";
        return Err(FieldError::new("enable_full_scan", reason));
    }
    let bias = message.active_request_bias;
    let policy = LeastRequest::try_new(LeastRequestParts {
        choice_count: message.choice_count,
        active_request_bias: bias.map(|bias| bias.default_value),
        selection_method: named(message.selection_method, "selection_method")?,
        slow_start: slow_start(message.slow_start_config)?,
        _non_exhaustive: (),
    })
    .map_err(|error| inside("active_request_bias", error))?;
    let policy = EndpointPolicy::LeastRequest(policy);
    Ok((policy, locality(message.locality_lb_config)?))
}

fn ring_hash(message: RingHashMessage, strictness: Strictness) -> Result<Policies, FieldError> {
    let function = match named(message.hash_function, "hash_function")? {
        TypedHashFunction::DefaultHash => HashFunction::default(),
        TypedHashFunction::XxHash => HashFunction::XxHash,
        TypedHashFunction::MurmurHash2 => HashFunction::MurmurHash2,
    };
    let hashing = match message.consistent_hashing_lb_config {
        Some(config) => {
            // As in Envoy, the deprecated field has no effect beside the new one.
            let reason = "cannot be combined with consistent_hashing_lb_config, which replaces it";
            let by_name = message.use_hostname_for_hashing;
            strictness.reject(by_name, "use_hostname_for_hashing", reason)?;
            let factor = message.hash_balance_factor.is_some();
            strictness.reject(factor, "hash_balance_factor", reason)?;
            consistent_hashing(Some(config))?
        }
        None => ConsistentHashing::try_new(
            message.use_hostname_for_hashing,
            message.hash_balance_factor,
        )?,
    };
    let (minimum, maximum) = (message.minimum_ring_size, message.maximum_ring_size);
    let ring = RingHash::try_new(function, minimum, maximum, hashing)?;
    let weighted = message.locality_weighted_lb_config;
    Ok((EndpointPolicy::RingHash(ring), weights(weighted)))
}

fn maglev(message: MaglevMessage) -> Result<Policies, FieldError> {
    let hashing = consistent_hashing(message.consistent_hashing_lb_config)?;
    let maglev = Maglev::try_new(message.table_size, hashing)?;
    let weighted = message.locality_weighted_lb_config;
    Ok((EndpointPolicy::Maglev(maglev), weights(weighted)))
}

fn weights(config: Option<()>) -> Option<LocalityPolicy> {
    config.map(|()| LocalityPolicy::LocalityWeighted)
}

/// Checks that at most one locality policy is set, for typed and legacy configuration.
pub(super) fn one_of(
    zone_aware: Option<Result<ZoneAware, FieldError>>,
    locality_weighted: Option<()>,
) -> Result<Option<LocalityPolicy>, FieldError> {
    match (zone_aware, locality_weighted) {
        (Some(_), Some(())) => Err(FieldError::new(
            "locality_weighted_lb_config",
            "cannot be combined with zone_aware_lb_config",
        )),
        (Some(checked), None) => {
            let zone_aware = checked.map_err(|error| error.under("zone_aware_lb_config"))?;
            Ok(Some(LocalityPolicy::ZoneAware(zone_aware)))
        }
        (None, weighted) => Ok(weights(weighted)),
    }
}

/// Decodes consistent hashing settings, typed or legacy; error paths include the field name.
pub(super) fn consistent_hashing(
    config: Option<ConsistentHashingMessage>,
) -> Result<ConsistentHashing, FieldError> {
    let config = config.unwrap_or_default();
    ConsistentHashing::try_new(config.use_hostname_for_hashing, config.hash_balance_factor)
        .map_err(|error| error.under("consistent_hashing_lb_config"))
}

/// Decodes slow start settings, typed or legacy; error paths include the field name.
pub(super) fn slow_start(
    config: Option<SlowStartMessage>,
) -> Result<Option<SlowStart>, FieldError> {
    let Some(config) = config else {
        return Ok(None);
    };
    let under = |error: FieldError| error.under("slow_start_config");
    let window = duration(config.slow_start_window, "slow_start_window").map_err(under)?;
    SlowStart::try_new(
        window.unwrap_or_default(),
        config.aggression.map(|aggression| aggression.default_value),
        config.min_weight_percent.map(|percent| percent.value),
    )
    .map_err(|error| under(inside("aggression", error)))
}

/// Maps an error of a plain number in the core to the `RuntimeDouble` in the message.
pub(super) fn inside(field: &str, error: FieldError) -> FieldError {
    if error.path() == field {
        FieldError::new("default_value", error.reason()).under(field)
    } else {
        error
    }
}
