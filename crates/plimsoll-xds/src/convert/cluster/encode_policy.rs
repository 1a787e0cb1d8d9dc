//! Encoding of a cluster's load-balancing policy for a kind of client.
//!
//! Core settings become `load_balancing_policy`, for gRPC clients also `lb_policy`. Plimsoll
//! extensions are encoded by [`LocalityDelivery::AsConfigured`] only: a stock Envoy aborts on
//! `locality_basis: 2` and rejects unknown fields (decision 0028). `module` wraps such a policy for
//! the module inside Envoy.

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
use plimsoll_core::units::BasisPoints;
use prost::Message;

use super::super::number;
use super::module;
use super::subset;
use plimsoll_schema::pb::cluster::{ClusterMessage, PlimsollMessage, RingHashLbConfigMessage};
use plimsoll_schema::pb::policy::{
    ClientSideWeightedRoundRobinMessage, ConsistentHashingMessage, ForceLocalZoneMessage,
    LeastRequestMessage, LoadAwareLocalityMessage, LoadBalancingPolicyMessage,
    LocalityLbConfigMessage, LrsRateConfigMessage, MaglevMessage, OobReportingConfigMessage,
    PolicyMessage, RandomMessage, RingHashMessage, RoundRobinMessage, RuntimeDoubleMessage,
    SlowStartMessage, TypedExtensionConfigMessage, WrrLocalityMessage, ZoneAwareMessage,
};
use plimsoll_schema::pb::{AnyMessage, PercentMessage};

/// Encoding of the locality policy for a kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalityDelivery {
    /// The full configuration, for plimsoll data planes only.
    AsConfigured,
    /// The part that a stock Envoy supports. A measured `locality_basis` becomes host counts.
    Stock,
    /// Zone-aware routing with this `locality_basis` and the other configured settings. Not for
    /// policies without locality settings in Envoy: hashing, and client_side_weighted_round_robin,
    /// which uses zone-aware routing with Envoy's defaults.
    ZoneAware(ClassicBasis),
    LocalityWeighted,
    /// No locality policy: Envoy then uses zone-aware routing with Envoy's defaults.
    None,
    /// For gRPC clients, which support only the locality weights of the assignment.
    Grpc,
    /// The full configuration for Plimsoll's module inside Envoy, and after it `Stock` for an Envoy
    /// that cannot load modules. Only for nodes that announced the module.
    Module,
}

/// Values of `locality_basis` that every Envoy since 1.35 supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassicBasis {
    HealthyHostsNum,
    HealthyHostsWeight,
}

/// Package prefix of the load-balancing policies.
pub(in super::super) const PREFIX: &str = "envoy.extensions.load_balancing_policies.";
/// Number of `RING_HASH` in `Cluster.LbPolicy`.
const RING_HASH: i32 = 2;

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
    let policy = match locality_encoding(config, locality) {
        LocalityEncoding::Nothing => endpoint_policy(endpoint, None, own),
        LocalityEncoding::ZoneAware(zone_aware) => {
            let zone_aware = LocalityLbConfigMessage {
                zone_aware_lb_config: Some(zone_aware),
                locality_weighted_lb_config: None,
            };
            endpoint_policy(endpoint, Some(zone_aware), own)
        }
        LocalityEncoding::Weights if is_without_locality(endpoint, own) => {
            wrr_locality(vec![endpoint_policy(endpoint, None, own)])
        }
        LocalityEncoding::Weights => {
            let weighted = LocalityLbConfigMessage {
                zone_aware_lb_config: None,
                locality_weighted_lb_config: Some(()),
            };
            endpoint_policy(endpoint, Some(weighted), own)
        }
        LocalityEncoding::WrrLocality => wrr_locality(vec![endpoint_policy(endpoint, None, own)]),
        LocalityEncoding::LoadAware(settings) => {
            let child = endpoint_policy(endpoint, None, own);
            let message = load_aware_locality(settings, child, own);
            typed("load_aware_locality", "LoadAwareLocality", &message)
        }
    };
    let known = known_everywhere(config, locality);
    let supported: Vec<_> = std::iter::once(policy).chain(known).collect();
    let mut policies = match config.lb_subset_config() {
        Some(subsets) => {
            let message = subset::encode(subsets, supported, own);
            vec![typed("subset", "Subset", &message)]
        }
        None => supported,
    };
    if locality == LocalityDelivery::Module {
        policies.insert(0, module::policy(config));
    }
    cluster.load_balancing_policy = Some(list(policies));
    if own {
        cluster.plimsoll = extensions(config);
    }
}

/// Returns what an Envoy takes that does not know the policy: `load_aware_locality` came with 1.40,
/// and a cluster whose only policy is unknown is a NACK.
fn known_everywhere(config: &ClusterConfig, locality: LocalityDelivery) -> Option<PolicyMessage> {
    let is_envoy = matches!(locality, LocalityDelivery::Stock | LocalityDelivery::Module);
    config.load_aware_locality().filter(|_| is_envoy)?;
    let by_zone = LocalityLbConfigMessage {
        zone_aware_lb_config: Some(ZoneAwareMessage::default()),
        locality_weighted_lb_config: None,
    };
    Some(endpoint_policy(
        config.endpoint_policy(),
        Some(by_zone),
        false,
    ))
}

/// Returns the settings of a cluster that Envoy does not have, if some are written.
pub(super) fn extensions(config: &ClusterConfig) -> Option<PlimsollMessage> {
    let ours = PlimsollMessage {
        locality_sampling: config.written_locality_sampling().map(number),
        endpoint_load_metrics_format: config.endpoint_load_metrics_format().map(number),
    };
    Some(ours).filter(|ours| *ours != PlimsollMessage::default())
}

/// Returns whether the policy's message has no locality field; with `own` (Plimsoll) it has one.
const fn is_without_locality(policy: &EndpointPolicy, own: bool) -> bool {
    !own && matches!(policy, EndpointPolicy::ClientSideWeightedRoundRobin(_))
}

enum LocalityEncoding<'a> {
    Nothing,
    ZoneAware(ZoneAwareMessage),
    /// `locality_weighted_lb_config`, or `wrr_locality` for a policy without that field.
    Weights,
    WrrLocality,
    LoadAware(&'a LoadAwareLocality),
}

fn locality_encoding(config: &ClusterConfig, locality: LocalityDelivery) -> LocalityEncoding<'_> {
    let own = locality == LocalityDelivery::AsConfigured;
    match locality {
        LocalityDelivery::None | LocalityDelivery::Grpc => LocalityEncoding::Nothing,
        LocalityDelivery::LocalityWeighted => LocalityEncoding::Weights,
        LocalityDelivery::ZoneAware(basis) => {
            let settings = config.zone_aware().cloned().unwrap_or_default();
            let locality_basis = match basis {
                ClassicBasis::HealthyHostsNum => None,
                ClassicBasis::HealthyHostsWeight => Some(1),
            };
            LocalityEncoding::ZoneAware(ZoneAwareMessage {
                locality_basis,
                ..zone_aware(&settings, false)
            })
        }
        LocalityDelivery::AsConfigured | LocalityDelivery::Stock | LocalityDelivery::Module => {
            as_configured(config, own)
        }
    }
}

fn as_configured(config: &ClusterConfig, own: bool) -> LocalityEncoding<'_> {
    match config.locality_policy() {
        LocalityPolicy::Flat if config.endpoint_policy().is_hash() => LocalityEncoding::Nothing,
        // Only hash policies are flat by default; for others zone-aware routing must be disabled.
        LocalityPolicy::Flat => LocalityEncoding::ZoneAware(ZoneAwareMessage {
            routing_enabled: Some(PercentMessage { value: 0.0 }),
            ..Default::default()
        }),
        LocalityPolicy::LoadAwareLocality(settings) => LocalityEncoding::LoadAware(settings),
        LocalityPolicy::WrrLocality if own => LocalityEncoding::WrrLocality,
        // Envoy supports wrr_locality over client_side_weighted_round_robin only.
        LocalityPolicy::LocalityWeighted | LocalityPolicy::WrrLocality => LocalityEncoding::Weights,
        LocalityPolicy::ZoneAware(_) => {
            let settings = config.zone_aware().cloned().unwrap_or_default();
            LocalityEncoding::ZoneAware(zone_aware(&settings, own))
        }
    }
}

/// Writes the policy for gRPC clients. All support `lb_policy`; since gRFC A52 they also take the
/// first supported policy of `load_balancing_policy`. None has subsets (grpc/grpc#39186): they
/// ignore `lb_subset_config` and reject a cluster whose only policy is `subset`, so they get the
/// inner policy and send to all hosts.
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

/// Encodes an endpoint policy with its locality settings, if its message has a field for them.
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
        enable_full_scan: None,
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

/// Sets a runtime key, because Envoy rejects an empty one.
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

/// Encodes out-of-band settings only if set: older Envoys reject the field as unknown.
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
        demand_feed_forward_percent: Some(settings.demand_feed_forward_percent())
            .filter(|percent| (1..100).contains(percent)),
        ..message
    }
}

/// Encodes zone-aware settings, with Plimsoll's extension fields if `own`.
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
        locality_basis: settings.written_locality_basis().map(number),
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
        dead_band_bp: settings.written_dead_band().map(BasisPoints::get),
        observed_load_period: Some(settings.observed_load_period().into()),
        all_priorities: settings.all_priorities(),
        ..message
    }
}

/// Compensates that Envoy computes `100 * (value / 100)` and truncates, so 29 % would become 28.
fn percent(whole: u32) -> f64 {
    if whole >= 100 {
        return 100.0;
    }
    f64::from(whole) + if whole == 0 { 0.0 } else { 0.5 }
}
