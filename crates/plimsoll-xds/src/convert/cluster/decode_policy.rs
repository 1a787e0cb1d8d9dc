//! `load_balancing_policy` from bytes: the first supported policy of the list wins.
//!
//! A type that we do not have is skipped; a list of nothing else is an error that says what is
//! supported. Paths of errors start inside the message that is read. The legacy fields are read in
//! `legacy`.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, LeastRequestParts, Maglev,
    RingHash, RoundRobin, SelectionMethod, SlowStart,
};
use plimsoll_core::model::subset::LbSubsetConfig;
use plimsoll_core::model::zone_aware::ZoneAware;
use plimsoll_core::units::FieldError;
use prost::Message;

use super::super::pb::AnyMessage;
use super::super::pb::duration;
use super::super::pb::policy::{
    ConsistentHashingMessage, LeastRequestMessage, LoadBalancingPolicyMessage, MaglevMessage,
    RandomMessage, RingHashMessage, RoundRobinMessage, SlowStartMessage, WrrLocalityMessage,
};
use super::decode_locality::locality;
use super::decode_orca::{client_side_weighted_round_robin, load_aware_locality};
use super::encode_policy::PREFIX;
use super::subset;
use crate::yaml::proto_json::ProtoEnum;

/// What a typed policy says: the host, and the locality if it says anything about it.
pub(super) type Typed = (EndpointPolicy, Option<LocalityPolicy>);

/// The same with the subsets around it, if there are any.
pub(super) type Outermost = (Option<LbSubsetConfig>, Typed);

/// Policies we have, for error messages.
pub(in super::super) const SUPPORTED: &str = "round_robin, least_request, random, ring_hash, \
     maglev, client_side_weighted_round_robin, wrr_locality, load_aware_locality, subset";
/// The policy that has another one inside each of its subsets.
const SUBSET: &str = "subset.v3.Subset";

/// The first supported policy of the list of a cluster.
pub(super) fn outermost(list: &LoadBalancingPolicyMessage) -> Result<Outermost, FieldError> {
    first_supported(list, |any| {
        if name(any) == Some(SUBSET) {
            let subsets = read(any).and_then(subset::typed);
            return Some(subsets.map(|(config, typed)| (Some(config), typed)));
        }
        let typed = typed_config(any, None)?;
        Some(typed.map(|typed| (None, typed)))
    })
}

/// The first supported policy of a list. `parent` has chosen the locality already, if there is one;
/// its children must not. That also bounds how deep lists may nest.
pub(super) fn load_balancing_policy(
    list: &LoadBalancingPolicyMessage,
    parent: Option<&str>,
) -> Result<Typed, FieldError> {
    first_supported(list, |any| typed_config(any, parent))
}

/// The first policy that `read` has; it says `None` to types that it does not know.
fn first_supported<T>(
    list: &LoadBalancingPolicyMessage,
    read: impl Fn(&AnyMessage) -> Option<Result<T, FieldError>>,
) -> Result<T, FieldError> {
    for (index, policy) in list.policies.iter().enumerate() {
        let Some(config) = &policy.typed_extension_config else {
            continue;
        };
        let Some(any) = &config.typed_config else {
            continue;
        };
        if let Some(typed) = read(any) {
            let path = format!("policies[{index}].typed_extension_config.typed_config");
            return typed.map_err(|error| error.under(&path));
        }
    }
    let reason = match list.policies.as_slice() {
        [] => "must have at least one policy".to_owned(),
        policies => {
            let types = policies.iter().map(|policy| {
                let config = policy.typed_extension_config.as_ref();
                let any = config.and_then(|config| config.typed_config.as_ref());
                any.map_or("", |any| any.type_url.as_str())
            });
            let types: Vec<_> = types.collect();
            format!("none of {types:?} is supported; supported are {SUPPORTED}")
        }
    };
    Err(FieldError::new("policies", reason))
}

/// `None` when we do not have the type.
fn typed_config(any: &AnyMessage, parent: Option<&str>) -> Option<Result<Typed, FieldError>> {
    let endpoint = match name(any)? {
        SUBSET => Err(FieldError::new(
            "",
            "subsets are made by the outermost policy only",
        )),
        "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin" => {
            read(any).and_then(client_side_weighted_round_robin)
        }
        "least_request.v3.LeastRequest" => read(any).and_then(least_request),
        "load_aware_locality.v3.LoadAwareLocality" => match parent {
            None => read(any).and_then(load_aware_locality),
            Some(parent) => Err(chooses_again(parent)),
        },
        "maglev.v3.Maglev" => read(any).and_then(maglev),
        "random.v3.Random" => read(any).and_then(|message: RandomMessage| {
            Ok((
                EndpointPolicy::Random,
                locality(message.locality_lb_config)?,
            ))
        }),
        "ring_hash.v3.RingHash" => read(any).and_then(ring_hash),
        "round_robin.v3.RoundRobin" => read(any).and_then(round_robin),
        "wrr_locality.v3.WrrLocality" => match parent {
            None => read(any).and_then(wrr_locality),
            Some(parent) => Err(chooses_again(parent)),
        },
        _ => return None,
    };
    Some(endpoint.and_then(|typed| match (parent, &typed) {
        (Some(parent), (_, Some(_))) => Err(chooses_again(parent)),
        _ => Ok(typed),
    }))
}

/// Package, version and message of a policy.
fn name(any: &AnyMessage) -> Option<&str> {
    let (_, full_name) = any.type_url.rsplit_once('/')?;
    full_name.strip_prefix(PREFIX)
}

fn chooses_again(parent: &str) -> FieldError {
    let reason = format!("the child chooses a locality, but {parent} has done that already");
    FieldError::new("", reason)
}

fn read<M: Message + Default>(any: &AnyMessage) -> Result<M, FieldError> {
    M::decode(any.value.clone()).map_err(|error| FieldError::new("", error.to_string()))
}

/// The endpoint policy of a child of `parent`.
pub(super) fn child(
    list: Option<LoadBalancingPolicyMessage>,
    parent: &str,
) -> Result<EndpointPolicy, FieldError> {
    let typed = load_balancing_policy(&list.unwrap_or_default(), Some(parent));
    let (endpoint, _) = typed.map_err(|error| error.under("endpoint_picking_policy"))?;
    Ok(endpoint)
}

fn wrr_locality(message: WrrLocalityMessage) -> Result<Typed, FieldError> {
    let endpoint = child(message.endpoint_picking_policy, "wrr_locality")?;
    Ok((endpoint, Some(LocalityPolicy::WrrLocality)))
}

fn round_robin(message: RoundRobinMessage) -> Result<Typed, FieldError> {
    let slow_start = slow_start(message.slow_start_config)?;
    let policy = EndpointPolicy::RoundRobin(RoundRobin { slow_start });
    Ok((policy, locality(message.locality_lb_config)?))
}

fn least_request(message: LeastRequestMessage) -> Result<Typed, FieldError> {
    let methods = [SelectionMethod::NChoices, SelectionMethod::FullScan];
    let bias = message.active_request_bias;
    let policy = LeastRequest::try_new(LeastRequestParts {
        choice_count: message.choice_count,
        active_request_bias: bias.map(|bias| bias.default_value),
        selection_method: choice(message.selection_method, &methods, "selection_method")?,
        slow_start: slow_start(message.slow_start_config)?,
    })?;
    let policy = EndpointPolicy::LeastRequest(policy);
    Ok((policy, locality(message.locality_lb_config)?))
}

fn ring_hash(message: RingHashMessage) -> Result<Typed, FieldError> {
    let functions = [
        HashFunction::default(),
        HashFunction::XxHash,
        HashFunction::MurmurHash2,
    ];
    let hashing = match message.consistent_hashing_lb_config {
        Some(config) => consistent_hashing(Some(config))?,
        // The deprecated spelling.
        None => ConsistentHashing::try_new(
            message.use_hostname_for_hashing,
            message.hash_balance_factor,
        )?,
    };
    let ring = RingHash::try_new(
        choice(message.hash_function, &functions, "hash_function")?,
        message.minimum_ring_size,
        message.maximum_ring_size,
        hashing,
    )?;
    let weighted = message.locality_weighted_lb_config;
    Ok((EndpointPolicy::RingHash(ring), weights(weighted)))
}

fn maglev(message: MaglevMessage) -> Result<Typed, FieldError> {
    let hashing = consistent_hashing(message.consistent_hashing_lb_config)?;
    let maglev = Maglev::try_new(message.table_size, hashing)?;
    let weighted = message.locality_weighted_lb_config;
    Ok((EndpointPolicy::Maglev(maglev), weights(weighted)))
}

fn weights(config: Option<()>) -> Option<LocalityPolicy> {
    config.map(|()| LocalityPolicy::LocalityWeighted)
}

/// At most one of the two, typed and legacy alike.
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

/// Settings of hashing, typed and legacy alike; the path of an error includes their name.
pub(super) fn consistent_hashing(
    config: Option<ConsistentHashingMessage>,
) -> Result<ConsistentHashing, FieldError> {
    let config = config.unwrap_or_default();
    ConsistentHashing::try_new(config.use_hostname_for_hashing, config.hash_balance_factor)
        .map_err(|error| error.under("consistent_hashing_lb_config"))
}

/// Settings of slow start, typed and legacy alike; the path of an error includes their name.
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
    .map_err(under)
}

/// The value that a file has under the same number; an unknown number is an error, never a default.
pub(super) fn named<T: ProtoEnum>(number: i32, path: &str) -> Result<T, FieldError> {
    let mut values = T::VALUES.iter();
    let found = values.find(|(_, known, _)| *known == i64::from(number));
    found.map(|&(_, _, value)| value).ok_or_else(|| {
        let reason = format!("{number} is none of its {} values", T::VALUES.len());
        FieldError::new(path, reason)
    })
}

/// The value with that number; an unknown number is an error, never a default.
pub(super) fn choice<T: Copy>(number: i32, values: &[T], path: &str) -> Result<T, FieldError> {
    let value = usize::try_from(number)
        .ok()
        .and_then(|number| values.get(number));
    value.copied().ok_or_else(|| {
        let reason = format!("{number} is none of its {} values", values.len());
        FieldError::new(path, reason)
    })
}
