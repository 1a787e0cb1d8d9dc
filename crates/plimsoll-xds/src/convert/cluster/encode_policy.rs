//! The policy of a cluster to bytes, in the words that its receiver knows.
//!
//! Settings of the core become `load_balancing_policy`; for gRPC clients also `lb_policy`. What
//! only plimsoll data planes know is written by [`LocalityDelivery::AsConfigured`] and by nothing
//! else: a stock Envoy aborts on `locality_basis: 2` and refuses unknown fields (decisions D9).

use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, OobReporting,
};
use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, RingHash, SlowStart,
};
use plimsoll_core::model::load_aware_locality::{
    ColdStart, LoadAwareLocality, RemoteMean, SpillController,
};
use plimsoll_core::model::orca::{MetricName, UtilizationPrecedence};
use plimsoll_core::model::zone_aware::{CapacityBasis, FractionSource, LocalityBasis, ZoneAware};
use prost::Message;

use super::super::pb::cluster::{ClusterMessage, RingHashLbConfigMessage};
use super::super::pb::policy::{
    ClientSideWeightedRoundRobinMessage, ConsistentHashingMessage, ForceLocalZoneMessage,
    LeastRequestMessage, LoadAwareLocalityMessage, LoadBalancingPolicyMessage, LocalityBasisValue,
    LocalityLbConfigMessage, LrsRateConfigMessage, MaglevMessage, OobReportingConfigMessage,
    PolicyMessage, RandomMessage, RingHashMessage, RoundRobinMessage, RuntimeDoubleMessage,
    SlowStartMessage, TypedExtensionConfigMessage, WrrLocalityMessage, ZoneAwareMessage,
};
use super::super::pb::{AnyMessage, PercentMessage};
use super::subset;
use crate::yaml::proto_json::ProtoEnum;

/// What a receiver is told about the choice of localities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalityDelivery {
    /// What the configuration says, in full: only for plimsoll data planes.
    AsConfigured,
    /// What the configuration says, as far as a stock Envoy knows it. A measured basis becomes
    /// host counts.
    Stock,
    /// Zone-aware routing on this basis, with the other settings of the configuration. Policies
    /// that cannot say so in Envoy stay without: hashing, and client_side_weighted_round_robin,
    /// which routes by zone with Envoy's defaults.
    ZoneAware(ClassicBasis),
    /// By the weights of the assignment.
    LocalityWeighted,
    /// Nothing is said: Envoy routes by zone with its defaults.
    None,
    /// For gRPC clients: by the weights of the assignment, which is all they know.
    Grpc,
}

/// The bases that every Envoy since 1.35 knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassicBasis {
    /// Number of healthy hosts.
    HealthyHostsNum,
    /// Sum of the weights of healthy hosts.
    HealthyHostsWeight,
}

/// Names of the policies, in full.
pub(in super::super) const PREFIX: &str = "envoy.extensions.load_balancing_policies.";
/// `Cluster.LbPolicy`.
const RING_HASH: i32 = 2;

/// Writes the policy into the fields of `cluster` that hold it.
pub(super) fn put(
    cluster: &mut ClusterMessage,
    config: &ClusterConfig,
    locality: LocalityDelivery,
) {
    if locality == LocalityDelivery::Grpc {
        put_grpc(cluster, config.endpoint_policy());
        return;
    }
    let own = locality == LocalityDelivery::AsConfigured;
    let endpoint = config.endpoint_policy();
    let policy = match wanted(config, locality) {
        Wanted::Nothing => endpoint_policy(endpoint, None, own),
        Wanted::ZoneAware(zone_aware) => {
            let zone_aware = LocalityLbConfigMessage {
                zone_aware_lb_config: Some(zone_aware),
                locality_weighted_lb_config: None,
            };
            endpoint_policy(endpoint, Some(zone_aware), own)
        }
        Wanted::Weights if is_without_locality(endpoint, own) => {
            wrr_locality(vec![endpoint_policy(endpoint, None, own)])
        }
        Wanted::Weights => {
            let weighted = LocalityLbConfigMessage {
                zone_aware_lb_config: None,
                locality_weighted_lb_config: Some(()),
            };
            endpoint_policy(endpoint, Some(weighted), own)
        }
        Wanted::WrrLocality => wrr_locality(vec![endpoint_policy(endpoint, None, own)]),
        Wanted::LoadAware(settings) => {
            let child = endpoint_policy(endpoint, None, own);
            let message = load_aware_locality(settings, child, own);
            typed("load_aware_locality", "LoadAwareLocality", &message)
        }
    };
    let policy = match config.lb_subset_config() {
        Some(subsets) => typed("subset", "Subset", &subset::encode(subsets, policy, own)),
        None => policy,
    };
    cluster.load_balancing_policy = Some(list(vec![policy]));
    if own {
        cluster.locality_sampling = config.written_locality_sampling().map(number);
    }
}

/// The number that a file has for the same value.
fn number<T: ProtoEnum + PartialEq>(value: T) -> i32 {
    let found = T::VALUES.iter().find(|(_, _, known)| *known == value);
    found.map_or(0, |&(_, number, _)| {
        i32::try_from(number).unwrap_or_default()
    })
}

/// Whether Envoy's message of the policy cannot say how a locality is chosen; ours can.
const fn is_without_locality(policy: &EndpointPolicy, own: bool) -> bool {
    !own && matches!(policy, EndpointPolicy::ClientSideWeightedRoundRobin(_))
}

/// What is said about localities.
enum Wanted<'a> {
    Nothing,
    ZoneAware(ZoneAwareMessage),
    /// `locality_weighted_lb_config`, or its stand-in where the policy has no such field.
    Weights,
    WrrLocality,
    LoadAware(&'a LoadAwareLocality),
}

fn wanted(config: &ClusterConfig, locality: LocalityDelivery) -> Wanted<'_> {
    let own = locality == LocalityDelivery::AsConfigured;
    match locality {
        LocalityDelivery::None | LocalityDelivery::Grpc => Wanted::Nothing,
        LocalityDelivery::LocalityWeighted => Wanted::Weights,
        LocalityDelivery::ZoneAware(basis) => {
            let settings = config.zone_aware().cloned().unwrap_or_default();
            let locality_basis = match basis {
                ClassicBasis::HealthyHostsNum => None,
                ClassicBasis::HealthyHostsWeight => Some(1),
            };
            Wanted::ZoneAware(ZoneAwareMessage {
                locality_basis,
                ..zone_aware(&settings, false)
            })
        }
        LocalityDelivery::AsConfigured | LocalityDelivery::Stock => as_configured(config, own),
    }
}

fn as_configured(config: &ClusterConfig, own: bool) -> Wanted<'_> {
    match config.locality_policy() {
        LocalityPolicy::Flat if config.endpoint_policy().is_hash() => Wanted::Nothing,
        // Only hash policies are flat by default: for the others routing by zone is off.
        LocalityPolicy::Flat => Wanted::ZoneAware(ZoneAwareMessage {
            routing_enabled: Some(PercentMessage { value: 0.0 }),
            ..Default::default()
        }),
        LocalityPolicy::LoadAwareLocality(settings) => Wanted::LoadAware(settings),
        LocalityPolicy::WrrLocality if own => Wanted::WrrLocality,
        // Envoy takes wrr_locality over client_side_weighted_round_robin only.
        LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality => Wanted::Weights,
        LocalityPolicy::ZoneAware(_) => {
            let settings = config.zone_aware().cloned().unwrap_or_default();
            Wanted::ZoneAware(zone_aware(&settings, own))
        }
    }
}

/// gRPC clients know `lb_policy` since ever and `load_balancing_policy` since gRFC A52, where they
/// take the first policy they have. None of them has subsets (grpc/grpc#39186): they ignore
/// `lb_subset_config` and refuse a cluster whose only policy is `subset`, so they get the policy
/// inside and send to all hosts.
fn put_grpc(cluster: &mut ClusterMessage, endpoint: &EndpointPolicy) {
    let round_robin = || typed("round_robin", "RoundRobin", &RoundRobinMessage::default());
    let first = match endpoint {
        EndpointPolicy::RoundRobin(_) | EndpointPolicy::Random => return,
        EndpointPolicy::Maglev(_) => {
            cluster.lb_policy = RING_HASH;
            return;
        }
        EndpointPolicy::RingHash(ring) => {
            cluster.lb_policy = RING_HASH;
            cluster.ring_hash_lb_config = Some(RingHashLbConfigMessage {
                minimum_ring_size: Some(ring.minimum_ring_size()),
                hash_function: 0,
                maximum_ring_size: Some(ring.maximum_ring_size()),
            });
            return;
        }
        EndpointPolicy::LeastRequest(_) | EndpointPolicy::ClientSideWeightedRoundRobin(_) => {
            endpoint_policy(endpoint, None, false)
        }
    };
    let policy = wrr_locality(vec![first, round_robin()]);
    cluster.load_balancing_policy = Some(list(vec![policy]));
}

pub(super) fn list(policies: Vec<PolicyMessage>) -> LoadBalancingPolicyMessage {
    LoadBalancingPolicyMessage { policies }
}

fn typed(package: &str, message_name: &str, message: &impl Message) -> PolicyMessage {
    PolicyMessage {
        typed_extension_config: Some(TypedExtensionConfigMessage {
            name: format!("envoy.load_balancing_policies.{package}"),
            typed_config: Some(AnyMessage::pack(
                &format!("{PREFIX}{package}.v3.{message_name}"),
                message,
            )),
        }),
    }
}

fn wrr_locality(children: Vec<PolicyMessage>) -> PolicyMessage {
    let message = WrrLocalityMessage {
        endpoint_picking_policy: Some(list(children)),
    };
    typed("wrr_locality", "WrrLocality", &message)
}

/// A policy with what is said about localities, as far as its message has a field for it.
fn endpoint_policy(
    policy: &EndpointPolicy,
    locality: Option<LocalityLbConfigMessage>,
    own: bool,
) -> PolicyMessage {
    let weighted = locality
        .as_ref()
        .and_then(|locality| locality.locality_weighted_lb_config);
    match policy {
        EndpointPolicy::ClientSideWeightedRoundRobin(policy) => {
            let message = ClientSideWeightedRoundRobinMessage {
                locality_lb_config: locality.filter(|_| own),
                ..client_side_weighted_round_robin(policy, own)
            };
            let name = "ClientSideWeightedRoundRobin";
            typed("client_side_weighted_round_robin", name, &message)
        }
        EndpointPolicy::LeastRequest(settings) => {
            let message = least_request(settings, policy.slow_start(), locality);
            typed("least_request", "LeastRequest", &message)
        }
        EndpointPolicy::Maglev(policy) => {
            let message = MaglevMessage {
                table_size: Some(policy.table_size()),
                consistent_hashing_lb_config: consistent_hashing(policy.consistent_hashing()),
                locality_weighted_lb_config: weighted,
            };
            typed("maglev", "Maglev", &message)
        }
        EndpointPolicy::Random => {
            let message = RandomMessage {
                locality_lb_config: locality,
            };
            typed("random", "Random", &message)
        }
        EndpointPolicy::RingHash(policy) => {
            typed("ring_hash", "RingHash", &ring_hash(policy, weighted))
        }
        EndpointPolicy::RoundRobin(policy) => {
            let message = RoundRobinMessage {
                slow_start_config: policy.slow_start.as_ref().map(slow_start),
                locality_lb_config: locality,
            };
            typed("round_robin", "RoundRobin", &message)
        }
    }
}

fn least_request(
    settings: &LeastRequest,
    slow: Option<&SlowStart>,
    locality: Option<LocalityLbConfigMessage>,
) -> LeastRequestMessage {
    LeastRequestMessage {
        choice_count: Some(settings.choice_count()),
        active_request_bias: Some(runtime_double(
            settings.active_request_bias(),
            "upstream.active_request_bias",
        )),
        slow_start_config: slow.map(slow_start),
        locality_lb_config: locality,
        selection_method: settings.selection_method() as i32,
    }
}

fn ring_hash(policy: &RingHash, weighted: Option<()>) -> RingHashMessage {
    RingHashMessage {
        hash_function: match policy.hash_function() {
            HashFunction::XxHash => 1,
            HashFunction::MurmurHash2 => 2,
        },
        minimum_ring_size: Some(policy.minimum_ring_size()),
        maximum_ring_size: Some(policy.maximum_ring_size()),
        consistent_hashing_lb_config: consistent_hashing(policy.consistent_hashing()),
        locality_weighted_lb_config: weighted,
        ..Default::default()
    }
}

fn consistent_hashing(settings: ConsistentHashing) -> Option<ConsistentHashingMessage> {
    (settings != ConsistentHashing::default()).then(|| ConsistentHashingMessage {
        use_hostname_for_hashing: settings.use_hostname_for_hashing(),
        hash_balance_factor: settings.hash_balance_factor(),
    })
}

fn slow_start(settings: &SlowStart) -> SlowStartMessage {
    SlowStartMessage {
        slow_start_window: Some(settings.window().into()),
        aggression: Some(runtime_double(
            settings.aggression(),
            "upstream.slow_start_aggression",
        )),
        min_weight_percent: Some(PercentMessage {
            value: settings.min_weight_percent(),
        }),
    }
}

/// Envoy refuses an empty key.
fn runtime_double(default_value: f64, runtime_key: &str) -> RuntimeDoubleMessage {
    RuntimeDoubleMessage {
        default_value,
        runtime_key: runtime_key.to_owned(),
    }
}

fn metric_names(names: &[MetricName]) -> Vec<String> {
    names.iter().map(|name| name.as_str().to_owned()).collect()
}

const fn precedence(precedence: UtilizationPrecedence) -> i32 {
    match precedence {
        UtilizationPrecedence::ApplicationFirst => 0,
        UtilizationPrecedence::NamedMetricsFirst => 1,
    }
}

/// Older Envoys refuse the field as unknown: only where it says something.
fn oob_config(oob: &OobReporting) -> Option<OobReportingConfigMessage> {
    let config = OobReportingConfigMessage {
        port_value: oob.port().map_or(0, u32::from),
        authority: oob
            .authority()
            .map_or_else(String::new, ToString::to_string),
    };
    (config != OobReportingConfigMessage::default()).then_some(config)
}

fn client_side_weighted_round_robin(
    policy: &ClientSideWeightedRoundRobin,
    own: bool,
) -> ClientSideWeightedRoundRobinMessage {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float is what the proto holds"
    )]
    let penalty = policy.error_utilization_penalty() as f32;
    ClientSideWeightedRoundRobinMessage {
        enable_oob_load_report: Some(policy.enable_oob_load_report()),
        oob_reporting_period: Some(policy.oob_reporting_period().into()),
        blackout_period: Some(policy.blackout_period().into()),
        weight_expiration_period: Some(policy.weight_expiration_period().into()),
        weight_update_period: Some(policy.weight_update_period().into()),
        error_utilization_penalty: Some(penalty),
        metric_names_for_computing_utilization: metric_names(policy.metric_names()),
        slow_start_config: policy.slow_start().map(slow_start),
        oob_reporting_config: policy.oob_reporting().and_then(oob_config),
        utilization_precedence: if own {
            precedence(policy.utilization_precedence())
        } else {
            0
        },
        locality_lb_config: None,
    }
}

fn load_aware_locality(
    settings: &LoadAwareLocality,
    child: PolicyMessage,
    own: bool,
) -> LoadAwareLocalityMessage {
    let message = LoadAwareLocalityMessage {
        endpoint_picking_policy: Some(list(vec![child])),
        weight_update_period: Some(settings.weight_update_period().into()),
        metric_names_for_computing_utilization: metric_names(settings.metric_names()),
        utilization_variance_threshold: Some(settings.utilization_variance_threshold()),
        smoothing_time_constant: Some(settings.smoothing_time_constant().into()),
        remote_probe_fraction: Some(settings.remote_probe_fraction()),
        weight_expiration_period: Some(
            settings
                .weight_expiration_period()
                .unwrap_or_default()
                .into(),
        ),
        enable_oob_load_report: settings.oob_reporting_period().map(|_| true),
        oob_reporting_period: settings.oob_reporting_period().map(Into::into),
        oob_reporting_config: settings.oob_reporting().and_then(oob_config),
        ..Default::default()
    };
    if !own {
        return message;
    }
    LoadAwareLocalityMessage {
        utilization_precedence: precedence(settings.utilization_precedence()),
        cold_start: match settings.cold_start() {
            ColdStart::Local => 0,
            ColdStart::HostCount => 1,
        },
        remote_mean: match settings.remote_mean() {
            RemoteMean::All => 0,
            RemoteMean::ReportingOnly => 1,
        },
        spill_controller: match settings.spill_controller() {
            SpillController::Headroom => 0,
            SpillController::Convergent => 1,
        },
        local_probe_fraction: Some(settings.local_probe_fraction()),
        demand_feed_forward: match settings.spill_controller() {
            SpillController::Headroom => None,
            SpillController::Convergent => Some(settings.demand_feed_forward()),
        },
        ..message
    }
}

/// Stock words only, unless `own`.
fn zone_aware(settings: &ZoneAware, own: bool) -> ZoneAwareMessage {
    let by_weight = settings.locality_basis() == LocalityBasis::HealthyHostsWeight;
    let message = ZoneAwareMessage {
        routing_enabled: Some(PercentMessage {
            value: percent(settings.routing_enabled()),
        }),
        min_cluster_size: settings.written_min_cluster_size(),
        fail_traffic_on_panic: settings.fail_traffic_on_panic(),
        force_local_zone: settings
            .force_local_zone()
            .map(|size| ForceLocalZoneMessage {
                min_size: Some(size),
            }),
        locality_basis: Some(1).filter(|_| by_weight),
        ..Default::default()
    };
    if !own {
        return message;
    }
    ZoneAwareMessage {
        locality_basis: settings
            .written_locality_basis()
            .map(|basis| LocalityBasisValue::from(basis) as i32),
        lrs_rate_config: Some(LrsRateConfigMessage {
            staleness_threshold: Some(settings.staleness_threshold().into()),
            fraction_source: match settings.fraction_source() {
                FractionSource::EdsField => 0,
                FractionSource::LocalityMetadata => 1,
            },
        }),
        upstream_locality_basis: match settings.upstream_locality_basis() {
            CapacityBasis::HealthyHostsNum => 0,
            CapacityBasis::HealthyHostsWeight => 1,
        },
        dead_band_bp: Some(settings.dead_band().get()),
        observed_load_period: Some(settings.observed_load_period().into()),
        all_priorities: settings.all_priorities(),
        ..message
    }
}

/// Envoy computes `100 * (value / 100)` and cuts, so that 29 % would come out as 28: half a point
/// more brings out what is meant.
fn percent(whole: u32) -> f64 {
    if whole >= 100 {
        return 100.0;
    }
    f64::from(whole) + if whole == 0 { 0.0 } else { 0.5 }
}
