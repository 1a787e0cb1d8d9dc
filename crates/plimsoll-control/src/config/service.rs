//! [`Service`]: an upstream cluster, its endpoints, and how measured demand may steer its traffic.
//! plimsoll-xds parses the cluster; `delivery` decides how it is steered at a given node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, HealthChecking};
use plimsoll_core::planner::capacity::LearnedCapacity;
use plimsoll_core::planner::zone_plan::ZoneGoal;
use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::cluster::{ClusterMessage, CommonLbConfigMessage};
use plimsoll_xds::pb::endpoint::{AssignmentMessage, AssignmentPolicyMessage};
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::upstream::EndpointExtras;
use plimsoll_xds::wire::decode_endpoints;
use plimsoll_xds::yaml::ClusterYaml;
use plimsoll_xds::yaml::proto_json::ProtoEnum;
use prost::Message as _;
use serde_json::json;
use xxhash_rust::xxh64::xxh64;

use super::cost::{self, CostYaml};
use super::discovered::name_of;
use super::objective::{self, CapacityYaml, Learning, ObjectiveYaml};
use super::settings::digest;
use super::yaml::ServiceYaml;
use crate::delivery::{self, NotSteeredReason};
use crate::settings::{ClusterSettings, LOAD_BALANCING, WITHOUT_EFFECT_BEHIND_A_RELAY};

/// Whether measured demand steers the traffic to a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    #[default]
    Enforce,
    /// Measured demand is computed and shown, but the cluster is delivered as it is written.
    Shadow,
    /// The cluster is delivered to proxies as configured, without measured demand.
    Off,
}

/// How measured demand is delivered to a data plane (decision 0028).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The best delivery of demand that the receiving node supports.
    #[default]
    Auto,
    /// `observed_traffic_fraction` on the fleet's assignment; only for Plimsoll data planes.
    EdsField,
    /// The fractions of `EdsField` as metadata of localities; only for Plimsoll data planes.
    LocalityMetadata,
    /// `LoadStatsResponse.observed_traffic`; only for Plimsoll data planes.
    LrsResponse,
    /// Endpoint weights on the fleet's assignment.
    FleetWeights,
    /// Locality weights on the service's assignment, different for each receiving zone.
    LocalityWeights,
}

/// An upstream cluster and how measured demand steers it.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    pub config: Arc<ClusterConfig>,
    pub assignment: Arc<ClusterLoadAssignment>,
    /// Settings of endpoints beside load balancing, such as the port of health checks.
    pub endpoint_extras: Arc<BTreeMap<SocketAddr, EndpointExtras>>,
    pub mode: Mode,
    /// Percentage of the requests that measured demand sends; the others go as with `OFF`.
    pub ramp: u32,
    /// Whether `ramp` is not as written, but lower while an unseen zone is tried: it then starts
    /// from host counts.
    pub is_trial: bool,
    pub delivery: Delivery,
    /// What the service wants of its zones, and what its hosts can serve.
    pub goal: ZoneGoal,
    /// How the capacity of its hosts is learned; `None` if it is declared or does not matter.
    pub learning: Option<Learning>,
    /// The assignment that data planes are sent, if it is another one than `assignment`, by which
    /// is planned: learned weights have no effect without measured demand, and part of it with a
    /// ramp.
    pub(crate) sent_assignment: Option<Arc<ClusterLoadAssignment>>,
    /// Whether proxies get demand in a form of the service's own: what is on the fleet's assignment
    /// is shared by all of its services. So with an objective, and while fleets with different
    /// demand use the service.
    pub has_own_plan: bool,
    /// Settings beside load balancing, which data planes are sent: health checks, TLS and so on.
    pub settings: Arc<ClusterSettings>,
    /// Whether the relayed server's cluster has health checks; those of the file are in `settings`.
    pub has_relayed_health_checks: bool,
    /// Whether the file has a load-balancing policy; if not, a relay keeps the relayed server's.
    pub has_explicit_policy: bool,
    /// What the file has beside a policy, for a relay.
    pub beside_policy: BesidePolicy,
    /// The field that explicitly requests measured demand: `objective`, `cost` with more than one
    /// price, `delivery`, `ramp` or `mode: ENFORCE`.
    /// Without such a field, demand steers unless the cluster has an explicit `locality_basis`.
    pub demand_field: Option<&'static str>,
    /// Why no locality weights can be set on its endpoints, which come from a relayed server.
    pub no_weights: Option<NotSteeredReason>,
    /// Fleets that get the service, and whose demand for it counts; `None` for all.
    pub visible_to: Option<Arc<BTreeSet<String>>>,
    /// Hash of the service as it is written, by which replicas compare their files; 0 for clusters
    /// of a relayed server.
    pub digest: u64,
}

/// Load-balancing settings of the file that choose no policy: a relay adds them to the cluster of
/// the other server, whose policy stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BesidePolicy {
    pub panic_threshold: bool,
    /// `plimsoll`: settings that Envoy does not have.
    pub extensions: bool,
}

impl Service {
    /// Returns the service with a part of its endpoints. Envoy keeps hosts that pass active health
    /// checks although they left the assignment, unless it is told otherwise.
    pub(crate) fn with_endpoints(&self, left: ClusterLoadAssignment) -> Self {
        let mut service = self.clone();
        service.assignment = Arc::new(left);
        if let Some(settings) = self.settings.for_removed_hosts() {
            service.settings = Arc::new(settings);
        }
        service
    }

    /// Returns the name of the cluster and of its assignment.
    pub fn name(&self) -> &Arc<str> {
        self.config.name()
    }

    /// Whether another service differs in its endpoints at most.
    pub(crate) fn has_same_settings(&self, other: &Self) -> bool {
        let Self {
            config,
            assignment: _,
            endpoint_extras: _,
            mode,
            ramp,
            is_trial: _,
            delivery,
            goal,
            learning,
            sent_assignment: _,
            has_own_plan,
            settings,
            has_relayed_health_checks,
            has_explicit_policy,
            beside_policy,
            demand_field,
            no_weights,
            visible_to,
            digest: _,
        } = self;
        (Arc::ptr_eq(config, &other.config) || *config == other.config)
            && *mode == other.mode
            && *ramp == other.ramp
            && *delivery == other.delivery
            && *goal == other.goal
            && *learning == other.learning
            && *has_own_plan == other.has_own_plan
            && (Arc::ptr_eq(settings, &other.settings) || *settings == other.settings)
            && *has_relayed_health_checks == other.has_relayed_health_checks
            && *has_explicit_policy == other.has_explicit_policy
            && *beside_policy == other.beside_policy
            && *demand_field == other.demand_field
            && *no_weights == other.no_weights
            && *visible_to == other.visible_to
    }

    /// Returns the assignment that data planes are sent.
    pub(crate) fn sent_assignment(&self) -> &Arc<ClusterLoadAssignment> {
        self.sent_assignment.as_ref().unwrap_or(&self.assignment)
    }

    /// Returns the service with the learned capacity of its hosts: for plans in any case, and for
    /// data planes as far as measured demand steers it.
    pub(crate) fn with_learned(self: &Arc<Self>, learned: &LearnedCapacity) -> Arc<Self> {
        let ramp = match self.mode {
            Mode::Enforce => self.ramp,
            Mode::Shadow | Mode::Off => 0,
        };
        // Cannot fail: weights are small, and there are fewer hosts than would add up to 32 bits.
        let with_ramp = |ramp| learned.applied_to(&self.assignment, ramp).map(Arc::new);
        let (Ok(planned), Ok(sent)) = (with_ramp(100), with_ramp(ramp)) else {
            return Arc::clone(self);
        };
        Arc::new(Self {
            assignment: planned,
            sent_assignment: (ramp < 100).then_some(sent),
            goal: ZoneGoal {
                capacity: Some(learned.unit()),
                ..self.goal.clone()
            },
            ..Self::clone(self)
        })
    }

    /// Whether a fleet gets the service. What it reports about others does not count.
    pub(crate) fn is_visible_to(&self, fleet: &str) -> bool {
        let fleets = self.visible_to.as_ref();
        fleets.is_none_or(|fleets| fleets.contains(fleet))
    }

    /// A cluster of a relayed server that passes through as it is.
    pub(crate) fn observed(
        config: Arc<ClusterConfig>,
        assignment: Arc<ClusterLoadAssignment>,
        has_relayed_health_checks: bool,
    ) -> Self {
        Self {
            config,
            assignment,
            endpoint_extras: Arc::default(),
            mode: Mode::Off,
            ramp: 100,
            is_trial: false,
            delivery: Delivery::Auto,
            goal: ZoneGoal::default(),
            learning: None,
            sent_assignment: None,
            has_own_plan: false,
            settings: Arc::default(),
            has_relayed_health_checks,
            has_explicit_policy: false,
            beside_policy: BesidePolicy::default(),
            demand_field: None,
            no_weights: None,
            visible_to: None,
            digest: 0,
        }
    }

    /// Whether proxies check the hosts, whatever becomes of their requests.
    pub(crate) fn has_health_checks(&self) -> bool {
        self.settings.has_health_checks() || self.has_relayed_health_checks
    }
}

impl ProtoEnum for Mode {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("ENFORCE", 0, Self::Enforce),
        ("SHADOW", 1, Self::Shadow),
        ("OFF", 2, Self::Off),
    ];
}

impl ProtoEnum for Delivery {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("AUTO", 0, Self::Auto),
        ("EDS_FIELD", 1, Self::EdsField),
        ("LOCALITY_METADATA", 2, Self::LocalityMetadata),
        ("LRS_RESPONSE", 3, Self::LrsResponse),
        ("FLEET_WEIGHTS", 4, Self::FleetWeights),
        ("LOCALITY_WEIGHTS", 5, Self::LocalityWeights),
    ];
}

impl ServiceYaml {
    /// Validates the service definition; error paths are relative to it.
    pub(super) fn validate(self, general: &CostYaml) -> Result<Service, FieldError> {
        let demand_field = self.demand_field();
        let common = common_lb_config(&self.cluster);
        let beside_policy = BesidePolicy {
            panic_threshold: common.healthy_panic_threshold.is_some(),
            extensions: self.cluster.field_names().any(|field| field == "plimsoll"),
        };
        let has_explicit_policy = chooses_policy(&self.cluster, &common);
        let (config, settings) = cluster(&self.cluster).map_err(|error| error.under("cluster"))?;
        let ramp = self.ramp.map_or(100, |ramp| ramp.0);
        if ramp > 100 {
            let reason = format!("{ramp} is not a percentage between 0 and 100");
            return Err(FieldError::new("ramp", reason));
        }
        let cost = self
            .cost
            .as_ref()
            .map_or_else(|| general.clone(), |own| own.over(general));
        let cost = cost.validate().map_err(|error| error.under("cost"))?;
        let (goal, learning) = objective::goal(self.objective, self.capacity.as_ref(), cost)?;
        let (config, settings) = with_metrics(config, settings, learning.as_ref())?;
        let message = FileMessage::from(&self.assignment(&config)?);
        let digest = self.digest(message.bytes(), &goal, learning.as_ref());
        let visible_to = self.visible_to()?;
        let endpoints = decode_endpoints(message.bytes())?;
        let service = Service {
            config: Arc::new(config),
            assignment: Arc::new(endpoints.assignment),
            endpoint_extras: endpoints.extras,
            mode: self.mode.map_or_else(Mode::default, |mode| mode.0),
            ramp,
            is_trial: false,
            delivery: self.delivery.0,
            has_own_plan: goal.needs_plan(),
            goal,
            learning,
            sent_assignment: None,
            settings: Arc::new(settings),
            has_relayed_health_checks: false,
            has_explicit_policy,
            beside_policy,
            demand_field,
            no_weights: None,
            visible_to,
            digest,
        };
        if service.learning.is_some() && service.config.endpoint_policy().is_hash() {
            let reason = "would move keys of consistent hashing with every change of a weight";
            return Err(FieldError::new("capacity.learned", reason));
        }
        delivery::check(&service)?;
        Ok(service)
    }

    /// Rejects what a relay cannot change, because endpoints come from the relayed server.
    pub(super) fn check_relayed(&self) -> Result<(), FieldError> {
        let fields = [
            (
                "overprovisioning_factor",
                self.overprovisioning_factor.is_some(),
            ),
            ("visible_to", self.visible_to.is_some()),
            (
                "capacity.learned",
                self.capacity.as_ref().is_some_and(CapacityYaml::is_learned),
            ),
        ];
        match fields.into_iter().find(|(_, is_set)| *is_set) {
            Some((field, _)) => Err(FieldError::new(field, WITHOUT_EFFECT_BEHIND_A_RELAY)),
            None => Ok(()),
        }
    }

    /// Returns the fleets that get the service; `None` for all.
    fn visible_to(&self) -> Result<Option<Arc<BTreeSet<String>>>, FieldError> {
        let Some(written) = &self.visible_to else {
            return Ok(None);
        };
        let fleets: BTreeSet<String> = written.iter().cloned().collect();
        if fleets.is_empty() || fleets.contains("") {
            let reason = "needs names of fleets, or `*` for all";
            return Err(FieldError::new("visible_to", reason));
        }
        Ok(Some(fleets)
            .filter(|fleets| !fleets.contains("*"))
            .map(Arc::new))
    }

    fn assignment(&self, config: &ClusterConfig) -> Result<AssignmentMessage, FieldError> {
        let entries = self.endpoints.iter().enumerate().map(|(index, entry)| {
            let path = format!("endpoints[{index}]");
            entry.message().map_err(|error| error.under(&path))
        });
        Ok(AssignmentMessage {
            cluster_name: config.name().to_string(),
            endpoints: entries.collect::<Result<_, _>>()?,
            policy: Some(AssignmentPolicyMessage {
                overprovisioning_factor: self.overprovisioning_factor.map(|factor| factor.0),
                ..Default::default()
            }),
        })
    }

    /// Hashes what is written, with messages in canonical form.
    fn digest(&self, endpoints: &[u8], goal: &ZoneGoal, learning: Option<&Learning>) -> u64 {
        let decoded = ClusterMessage::decode(self.cluster.bytes().clone());
        let cluster = decoded.unwrap_or_default().encode_to_vec();
        // One price steers nothing.
        let prices = goal.needs_rows().then(|| cost::shown(&goal.cost));
        let delivery = Some(self.delivery.0).filter(|delivery| *delivery != Delivery::Auto);
        digest([
            ("cluster", json!(xxh64(&cluster, 0))),
            ("endpoints", json!(xxh64(endpoints, 0))),
            ("mode", json!(self.mode.map(|mode| name_of(mode.0)))),
            ("ramp", json!(self.ramp.map(|ramp| ramp.0))),
            ("delivery", json!(delivery.map(name_of))),
            ("objective", json!(objective::shown(goal))),
            ("capacity", json!(objective::shown_capacity(goal, learning))),
            ("visible_to", json!(self.visible_to)),
            ("cost", json!(prices)),
        ])
    }
}

impl ServiceYaml {
    fn demand_field(&self) -> Option<&'static str> {
        let is_enforced = self.mode.is_some_and(|mode| mode.0 == Mode::Enforce);
        let has_target = self
            .objective
            .is_some_and(|one| one != ObjectiveYaml::default());
        // One price is an estimate of money and steers nothing.
        let own = self.cost.as_ref().map(CostYaml::validate);
        let has_prices = matches!(own, Some(Ok(cost)) if !cost.is_uniform());
        let fields = [
            ("objective", has_target),
            ("cost", has_prices),
            ("delivery", self.delivery.0 != Delivery::Auto),
            ("ramp", self.ramp.is_some()),
            ("mode", is_enforced),
        ];
        let mut written = fields.into_iter().filter(|(_, written)| *written);
        written.next().map(|(field, _)| field)
    }
}

fn common_lb_config(written: &ClusterYaml) -> CommonLbConfigMessage {
    let common = written.part(|field| field == "common_lb_config");
    let decoded = ClusterMessage::decode(common.bytes().clone()).ok();
    // Fields have been checked when the file was read.
    decoded
        .and_then(|cluster| cluster.common_lb_config)
        .unwrap_or_default()
}

/// Whether a cluster has fields that choose its load-balancing policy.
fn chooses_policy(written: &ClusterYaml, common: &CommonLbConfigMessage) -> bool {
    let beside = ["name", "plimsoll", "common_lb_config"];
    let is_policy = |field: &str| LOAD_BALANCING.contains(&field) && !beside.contains(&field);
    written.field_names().any(is_policy)
        || common.zone_aware_lb_config.is_some()
        || common.locality_weighted_lb_config.is_some()
        || common.consistent_hashing_lb_config.is_some()
}

/// Lets data planes report the metrics that capacity is learned from.
fn with_metrics(
    config: ClusterConfig,
    settings: ClusterSettings,
    learning: Option<&Learning>,
) -> Result<(ClusterConfig, ClusterSettings), FieldError> {
    let Some(learning) = learning else {
        return Ok((config, settings));
    };
    let settings = settings.with_endpoint_metrics(&learning.metrics());
    let parts = ClusterConfigParts {
        lrs_report_endpoint_metrics: settings.written().lrs_report_endpoint_metrics.clone(),
        ..config.into_parts()
    };
    Ok((ClusterConfig::try_new(parts)?, settings))
}

/// Validates the cluster and rejects fields that are not delivered to proxies.
fn cluster(written: &ClusterYaml) -> Result<(ClusterConfig, ClusterSettings), FieldError> {
    let policies = written.part(|field| LOAD_BALANCING.contains(&field));
    let parts = plimsoll_xds::yaml::cluster_config_parts(&policies)?;
    let settings = ClusterSettings::read(written)?;
    let parts = ClusterConfigParts {
        // Data planes run health checks; the control plane uses the health in the assignment only.
        health_checking: HealthChecking::default(),
        lrs_report_endpoint_metrics: settings.written().lrs_report_endpoint_metrics.clone(),
        ..parts
    };
    Ok((ClusterConfig::try_new(parts)?, settings))
}
