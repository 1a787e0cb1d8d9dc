//! [`Rig`]: a cluster with subsets, driven as in production: assignments in, snapshots published,
//! picks by a worker. Addresses are assigned in order of appearance, because lists of hosts are
//! sorted by address.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, LeastRequestParts, Maglev,
    RingHash,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::metadata::{MatchCriteria, Metadata};
use plimsoll_core::model::zone_aware::RuntimeOverrides;
use plimsoll_core::picker::{PickArgs, Picker};
use plimsoll_core::publish::{Publisher, channel};
use plimsoll_core::rng::Rng;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use serde_json::{Map, Value};

use super::super::inputs::{
    Health, HostInput, LocalityInput, PriorityInput, metadata, subset_cluster,
};
use super::{ChildName, PickInputs, Update};
use crate::CaseError;
use crate::policies::NAME;

const NOW: Instant = Instant::ORIGIN;

/// Random numbers of one pick; 0 if none is left, as while balancers are built.
#[derive(Clone, Debug, Default)]
struct Draws(Rc<RefCell<VecDeque<u64>>>);

impl Rng for Draws {
    fn next_u64(&mut self) -> u64 {
        self.0.borrow_mut().pop_front().unwrap_or(0)
    }

    fn fork(&mut self) -> Self {
        self.clone()
    }
}

#[derive(Clone, Debug)]
struct AddressedHost {
    host: HostInput,
    address: SocketAddr,
}

#[derive(Clone, Debug)]
struct LocalityHosts {
    zone: String,
    weight: Option<u32>,
    hosts: Vec<AddressedHost>,
}

/// Current hosts of the case by priority and locality.
#[derive(Debug, Default)]
struct Hosts {
    priorities: Vec<Vec<LocalityHosts>>,
    addresses: u16,
}

pub(super) struct Rig {
    upstream: Hosts,
    local: Hosts,
    /// Zones in the order in which the case first mentions them, which is the order of localities.
    zones: Vec<String>,
    config: ClusterConfigParts,
    balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    picker: Picker<Draws>,
    draws: Draws,
}

impl Rig {
    pub(super) fn new(inputs: &PickInputs) -> Result<Self, CaseError> {
        if inputs.seed != 0 {
            return Err(CaseError::inputs("seed: must be 0"));
        }
        let mut upstream = Hosts::default();
        for priority in &inputs.priorities {
            upstream.append(priority.clone())?;
        }
        let mut local = Hosts::default();
        if let Some(own) = &inputs.local {
            local.append(own.clone())?;
        }
        let mut zones: Vec<String> = Vec::new();
        let priorities = upstream.priorities.iter().chain(&local.priorities);
        for locality in priorities.flatten() {
            if !zones.contains(&locality.zone) {
                zones.push(locality.zone.clone());
            }
        }
        let mut all = inputs.priorities.iter().chain(&inputs.local);
        let own = if all.any(|priority| priority.has_local_locality) {
            locality(&zones, zones.first().map_or("", String::as_str))
        } else {
            Locality::zone_only("own")
        };
        let config = cluster(inputs)?;
        let checked = Arc::new(ClusterConfig::try_new(config.clone())?);
        let balancer = Balancer::new(checked, own, NOW);
        let (publisher, reader) = channel(balancer.initial_snapshot(NOW));
        let draws = Draws::default();
        let mut rig = Self {
            upstream,
            zones,
            config,
            balancer,
            publisher,
            picker: Picker::new(reader, draws.clone()),
            draws,
            local,
        };
        rig.balancer
            .handle_assignment(rig.upstream.assignment(&rig.zones)?, NOW);
        if inputs.local.is_some() {
            rig.balancer
                .handle_fleet_assignment(rig.local.assignment(&rig.zones)?, NOW);
        }
        rig.publish();
        Ok(rig)
    }

    fn publish(&mut self) {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.publisher.publish(snapshot);
        }
        // Adopt the snapshot now: the random numbers it uses must not count for a pick.
        self.picker.snapshot();
    }

    /// Makes one pick; all given random numbers must be used.
    pub(super) fn pick(
        &mut self,
        metadata_match: Option<&MatchCriteria>,
        random: &[u64],
    ) -> Result<Option<String>, CaseError> {
        *self.draws.0.borrow_mut() = random.iter().copied().collect();
        let args = PickArgs {
            metadata_match,
            ..PickArgs::default()
        };
        let address = self.picker.pick(args).host().map(|host| host.address());
        let left = self.draws.0.borrow().len();
        if left > 0 {
            return Err(CaseError::inputs(format!("random: {left} were not used")));
        }
        Ok(address.and_then(|address| self.upstream.name(address)))
    }

    pub(super) fn update(&mut self, update: &Update) -> Result<(), CaseError> {
        self.upstream.update(update)?;
        let assignment = self.upstream.assignment(&self.zones)?;
        self.balancer.handle_assignment(assignment, NOW);
        self.publish();
        Ok(())
    }

    pub(super) fn update_local(&mut self, update: &Update) -> Result<(), CaseError> {
        self.local.update(update)?;
        let assignment = self.local.assignment(&self.zones)?;
        self.balancer.handle_fleet_assignment(assignment, NOW);
        self.publish();
        Ok(())
    }

    /// Removes `lb_subset_config` and with it all subsets.
    pub(super) fn destroy(&mut self) -> Result<(), CaseError> {
        self.config.lb_subset_config = None;
        let config = ClusterConfig::try_new(self.config.clone())?;
        self.balancer.handle_config(Arc::new(config), NOW);
        self.publish();
        Ok(())
    }

    /// Returns the statistics whose names are keys of `expected`.
    pub(super) fn stats(&mut self, expected: Option<&Value>) -> Value {
        let gauges = self.picker.snapshot().subset_gauges().unwrap_or_default();
        let gauges = [
            ("lb_subsets_active", gauges.0),
            ("lb_subsets_single_host_per_subset_duplicate", gauges.1),
        ];
        let is_expected = |name: &str| expected.is_some_and(|stats| stats.get(name).is_some());
        let stats = self.picker.stats().iter();
        let named: Map<String, Value> = stats
            .chain(self.balancer.stats().iter())
            .chain(gauges)
            .filter(|(name, _)| name.starts_with("lb_subsets") && is_expected(name))
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        Value::Object(named)
    }

    pub(super) fn default_subset(&mut self) -> Option<Vec<String>> {
        let snapshot = Arc::clone(self.picker.snapshot());
        let hosts = snapshot.default_subset()?.hosts();
        let names = hosts.filter_map(|host| self.upstream.name(host.address()));
        Some(names.collect())
    }

    pub(super) fn subsets(&mut self) -> Vec<(Metadata, Vec<String>)> {
        let snapshot = Arc::clone(self.picker.snapshot());
        let name = |host: &Arc<plimsoll_core::host::Host>| self.upstream.name(host.address());
        let subsets = snapshot.subsets().into_iter().map(|subset| {
            let hosts = subset.hosts.into_iter().filter_map(name).collect();
            (subset.metadata, hosts)
        });
        subsets.collect()
    }
}

impl Hosts {
    fn append(&mut self, priority: PriorityInput) -> Result<(), CaseError> {
        let localities = priority
            .into_localities()
            .into_iter()
            .map(|locality| self.add_locality(locality))
            .collect::<Result<Vec<_>, _>>()?;
        self.priorities.push(localities);
        Ok(())
    }

    fn add_locality(&mut self, locality: LocalityInput) -> Result<LocalityHosts, CaseError> {
        let hosts = locality.hosts.into_iter().map(|host| self.add_host(host));
        Ok(LocalityHosts {
            zone: locality.zone,
            weight: locality.weight,
            hosts: hosts.collect::<Result<_, _>>()?,
        })
    }

    fn add_host(&mut self, host: HostInput) -> Result<AddressedHost, CaseError> {
        let too_many = || CaseError::inputs("hosts: more than 65535");
        self.addresses = self.addresses.checked_add(1).ok_or_else(too_many)?;
        let [high, low] = self.addresses.to_be_bytes();
        Ok(AddressedHost {
            host,
            address: SocketAddr::from(([10, 0, high, low], 80)),
        })
    }

    fn name(&self, address: SocketAddr) -> Option<String> {
        self.priorities
            .iter()
            .flatten()
            .flat_map(|locality| &locality.hosts)
            .find(|each| each.address == address)
            .map(|each| each.host.id.clone())
    }

    fn update(&mut self, update: &Update) -> Result<(), CaseError> {
        if self.priorities.len() <= update.priority {
            self.priorities.resize_with(update.priority + 1, Vec::new);
        }
        let mut localities = std::mem::take(&mut self.priorities[update.priority]);
        for locality in &mut localities {
            let hosts = &mut locality.hosts;
            hosts.retain(|each| !update.remove.contains(&each.host.id));
            for AddressedHost { host, .. } in hosts {
                if let Some(fields) = update.metadata.get(&host.id) {
                    host.metadata = fields.as_object().cloned();
                }
                if let Some(&health) = update.health.get(&host.id) {
                    host.health = health;
                }
            }
        }
        for host in &update.add {
            let zone = host.zone.clone();
            let added = self.add_host(host.clone())?;
            if localities.is_empty() {
                localities.push(LocalityHosts {
                    zone: zone.clone().unwrap_or_default(),
                    weight: None,
                    hosts: Vec::new(),
                });
            }
            let position = |zone| localities.iter().position(|each| each.zone == zone);
            let index = zone
                .map_or(Some(0), position)
                .ok_or_else(|| CaseError::inputs("zone: unknown locality"))?;
            localities[index].hosts.push(added);
        }
        self.priorities[update.priority] = localities;
        Ok(())
    }

    fn assignment(&self, zones: &[String]) -> Result<ClusterLoadAssignment, CaseError> {
        let mut endpoints = Vec::new();
        for (priority, localities) in (0..).zip(&self.priorities) {
            for each in localities {
                let hosts = each.hosts.iter().map(endpoint);
                endpoints.push(LocalityParts {
                    locality: locality(zones, &each.zone),
                    priority,
                    load_balancing_weight: each.weight,
                    lb_endpoints: hosts.collect::<Result<_, _>>()?,
                    ..LocalityParts::default()
                });
            }
        }
        Ok(ClusterLoadAssignment::try_new(AssignmentParts {
            cluster_name: "case".into(),
            endpoints,
            ..AssignmentParts::default()
        })?)
    }
}

fn endpoint(AddressedHost { host, address }: &AddressedHost) -> Result<LbEndpoint, CaseError> {
    let fields = host.metadata.as_ref();
    Ok(LbEndpoint {
        health_status: match host.health {
            Health::Healthy => HealthStatus::Healthy,
            Health::Degraded => HealthStatus::Degraded,
            Health::Unhealthy => HealthStatus::Unhealthy,
        },
        metadata: fields.map(metadata).transpose()?.unwrap_or_default(),
        ..LbEndpoint::new(*address)
    })
}

/// Returns the locality of a zone; localities sort in the order in which cases mention zones.
fn locality(zones: &[String], zone: &str) -> Locality {
    let position = zones.iter().position(|known| known == zone);
    let index = position.unwrap_or(zones.len());
    Locality::zone_only(&format!("{index:03} {zone}"))
}

fn cluster(inputs: &PickInputs) -> Result<ClusterConfigParts, CaseError> {
    let endpoint_policy = match inputs.child.name {
        ChildName::RoundRobin => EndpointPolicy::default(),
        ChildName::Random => EndpointPolicy::Random,
        ChildName::LeastRequest => {
            EndpointPolicy::LeastRequest(LeastRequest::try_new(LeastRequestParts::default())?)
        }
        ChildName::RingHash => EndpointPolicy::RingHash(RingHash::try_new(
            HashFunction::default(),
            None,
            None,
            ConsistentHashing::default(),
        )?),
        ChildName::Maglev => {
            EndpointPolicy::Maglev(Maglev::try_new(None, ConsistentHashing::default())?)
        }
    };
    let locality_policy = if inputs.child.locality_weighted {
        LocalityPolicy::LocalityWeighted
    } else if endpoint_policy.is_hash() {
        LocalityPolicy::Flat
    } else {
        LocalityPolicy::default()
    };
    let round_robin = [format!("{NAME}round_robin")];
    let subsets =
        subset_cluster(inputs.lb_subset_config.clone(), &round_robin).map_err(CaseError::inputs)?;
    Ok(ClusterConfigParts {
        name: "case".into(),
        healthy_panic_threshold: Some(inputs.healthy_panic_threshold_percent),
        locality_policy,
        endpoint_policy,
        runtime: RuntimeOverrides {
            healthy_panic_threshold: inputs.runtime.healthy_panic_threshold,
            zone_routing_min_cluster_size: inputs.runtime.min_cluster_size,
            ..RuntimeOverrides::default()
        },
        lb_subset_config: subsets.lb_subset_config().map(|config| (**config).clone()),
        ..ClusterConfigParts::default()
    })
}
