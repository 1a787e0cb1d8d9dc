//! [`Rig`]: a cluster with subsets as a driver of production runs it: assignments in, snapshots
//! published, picks by a worker. Hosts get addresses in the order in which they come, because that
//! is the order of lists here.

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
use plimsoll_core::model::subset::LbSubsetConfig;
use plimsoll_core::model::zone_aware::RuntimeOverrides;
use plimsoll_core::picker::{PickArgs, Picker};
use plimsoll_core::publish::{Publisher, channel};
use plimsoll_core::rng::Rng;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use serde_json::{Map, Value};

use super::super::inputs::{Health, HostInput, LocalityInput, PriorityInput, metadata};
use super::{ChildName, PickInputs, Update};
use crate::vectors::CaseError;

const NOW: Instant = Instant::ORIGIN;

/// The draws of one pick; 0 where there are none, as while balancers are built.
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

/// A host and its address.
#[derive(Clone, Debug)]
struct Known {
    host: HostInput,
    address: SocketAddr,
}

/// Hosts of one locality.
#[derive(Clone, Debug)]
struct Place {
    zone: String,
    weight: Option<u32>,
    hosts: Vec<Known>,
}

/// Hosts by priority and locality, as the case has them now.
#[derive(Debug, Default)]
struct Hosts {
    priorities: Vec<Vec<Place>>,
    addresses: u16,
}

pub(super) struct Rig {
    upstream: Hosts,
    local: Hosts,
    /// Zones in the order of their first mention: the order of their localities.
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
            return Err(CaseError::inputs("seed: only 0 is known"));
        }
        let mut upstream = Hosts::default();
        for priority in &inputs.priorities {
            upstream.append(priority.clone())?;
        }
        let mut local = Hosts::default();
        if let Some(own) = &inputs.local {
            local.append(own.clone())?;
        }
        let zones = upstream.priorities.iter().chain(&local.priorities);
        let zones = zones.flatten().map(|place| place.zone.clone());
        let mut seen: Vec<String> = Vec::new();
        for zone in zones {
            if !seen.contains(&zone) {
                seen.push(zone);
            }
        }
        let all = inputs.priorities.iter().chain(&inputs.local);
        let own = match all.clone().any(|priority| priority.has_local_locality) {
            true => locality(&seen, seen.first().map_or("", String::as_str)),
            false => Locality::zone_only("own"),
        };
        let config = cluster(inputs)?;
        let checked = Arc::new(ClusterConfig::try_new(config.clone())?);
        let balancer = Balancer::new(checked, own, NOW);
        let (publisher, reader) = channel(balancer.initial_snapshot(NOW));
        let draws = Draws::default();
        let mut rig = Self {
            upstream,
            zones: seen,
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
                .handle_originating(rig.local.assignment(&rig.zones)?, NOW);
        }
        rig.publish();
        Ok(rig)
    }

    fn publish(&mut self) {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.publisher.publish(snapshot);
        }
        // What a worker draws when it takes a snapshot over belongs to no pick.
        self.picker.snapshot();
    }

    /// The host of one pick; every draw that is given must be taken.
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
            return Err(CaseError::inputs(format!("random: {left} were not drawn")));
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
        self.balancer.handle_originating(assignment, NOW);
        self.publish();
        Ok(())
    }

    /// Settings without subsets: all of them go.
    pub(super) fn destroy(&mut self) -> Result<(), CaseError> {
        self.config.lb_subset_config = None;
        let config = ClusterConfig::try_new(self.config.clone())?;
        self.balancer.handle_config(Arc::new(config), NOW);
        self.publish();
        Ok(())
    }

    /// The statistics that `named` has keys of.
    pub(super) fn stats(&mut self, named: Option<&Value>) -> Value {
        let gauges = self.picker.snapshot().subset_gauges().unwrap_or_default();
        let gauges = [
            ("lb_subsets_active", gauges.0),
            ("lb_subsets_single_host_per_subset_duplicate", gauges.1),
        ];
        let picks = self.picker.stats().iter();
        let all = picks.chain(self.balancer.stats().iter()).chain(gauges);
        let wanted = |name: &str| named.is_some_and(|named| named.get(name).is_some());
        let named = all.filter(|(name, _)| name.starts_with("lb_subsets") && wanted(name));
        let named: Map<String, Value> = named
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        Value::Object(named)
    }

    /// The hosts of the default subset.
    pub(super) fn default_subset(&mut self) -> Option<Vec<String>> {
        let snapshot = Arc::clone(self.picker.snapshot());
        let hosts = snapshot.default_subset()?.hosts();
        let names = hosts.filter_map(|host| self.upstream.name(host.address()));
        Some(names.collect())
    }

    /// Metadata and hosts of every subset.
    pub(super) fn subsets(&mut self) -> Vec<(Metadata, Vec<String>)> {
        let snapshot = Arc::clone(self.picker.snapshot());
        let name = |host: &Arc<plimsoll_core::host::Host>| self.upstream.name(host.address());
        let subsets = snapshot.subsets();
        let names = subsets.into_iter().map(|subset| {
            let hosts = subset.hosts.into_iter().filter_map(name).collect();
            (subset.metadata, hosts)
        });
        names.collect()
    }
}

impl Hosts {
    fn append(&mut self, priority: PriorityInput) -> Result<(), CaseError> {
        let places = priority.into_localities().into_iter();
        let places = places.map(|place| self.place(place));
        let places = places.collect::<Result<Vec<_>, _>>()?;
        self.priorities.push(places);
        Ok(())
    }

    fn place(&mut self, place: LocalityInput) -> Result<Place, CaseError> {
        let hosts = place.hosts.into_iter().map(|host| self.known(host));
        Ok(Place {
            zone: place.zone,
            weight: place.weight,
            hosts: hosts.collect::<Result<_, _>>()?,
        })
    }

    fn known(&mut self, host: HostInput) -> Result<Known, CaseError> {
        let many = || CaseError::inputs("more hosts than a case can mean");
        self.addresses = self.addresses.checked_add(1).ok_or_else(many)?;
        let [high, low] = self.addresses.to_be_bytes();
        Ok(Known {
            host,
            address: SocketAddr::from(([10, 0, high, low], 80)),
        })
    }

    fn name(&self, address: SocketAddr) -> Option<String> {
        let places = self.priorities.iter().flatten();
        let mut hosts = places.flat_map(|place| &place.hosts);
        let found = hosts.find(|known| known.address == address);
        found.map(|known| known.host.id.clone())
    }

    fn update(&mut self, update: &Update) -> Result<(), CaseError> {
        if self.priorities.len() <= update.priority {
            self.priorities.resize_with(update.priority + 1, Vec::new);
        }
        let mut places = std::mem::take(&mut self.priorities[update.priority]);
        for place in &mut places {
            let gone = |known: &Known| update.remove.contains(&known.host.id);
            place.hosts.retain(|known| !gone(known));
            for known in &mut place.hosts {
                if let Some(fields) = update.metadata.get(&known.host.id) {
                    let fields = fields.as_object().cloned();
                    known.host.metadata = fields;
                }
                if let Some(&health) = update.health.get(&known.host.id) {
                    known.host.health = health;
                }
            }
        }
        for host in &update.add {
            let zone = host.zone.clone();
            let known = self.known(host.clone())?;
            if places.is_empty() {
                places.push(Place {
                    zone: zone.clone().unwrap_or_default(),
                    weight: None,
                    hosts: Vec::new(),
                });
            }
            let at = zone.map_or(Some(0), |zone| places.iter().position(|it| it.zone == zone));
            let at = at.ok_or_else(|| CaseError::inputs("zone: there is no such locality"))?;
            places[at].hosts.push(known);
        }
        self.priorities[update.priority] = places;
        Ok(())
    }

    fn assignment(&self, zones: &[String]) -> Result<ClusterLoadAssignment, CaseError> {
        let mut endpoints = Vec::new();
        for (priority, places) in (0..).zip(&self.priorities) {
            for place in places {
                let hosts = place.hosts.iter().map(endpoint);
                endpoints.push(LocalityParts {
                    locality: locality(zones, &place.zone),
                    priority,
                    load_balancing_weight: place.weight,
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

fn endpoint(known: &Known) -> Result<LbEndpoint, CaseError> {
    let fields = known.host.metadata.as_ref();
    Ok(LbEndpoint {
        health_status: match known.host.health {
            Health::Healthy => HealthStatus::Healthy,
            Health::Degraded => HealthStatus::Degraded,
            Health::Unhealthy => HealthStatus::Unhealthy,
        },
        metadata: fields.map(metadata).transpose()?.unwrap_or_default(),
        ..LbEndpoint::new(known.address)
    })
}

/// The locality of a zone: sorted by when the zone was first mentioned.
fn locality(zones: &[String], zone: &str) -> Locality {
    let place = zones.iter().position(|known| known == zone);
    let place = place.unwrap_or(zones.len());
    Locality::zone_only(&format!("{place:03} {zone}"))
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
    let locality_policy = match inputs.child.locality_weighted {
        true => LocalityPolicy::LocalityWeighted,
        false if endpoint_policy.is_hash() => LocalityPolicy::Flat,
        false => LocalityPolicy::default(),
    };
    let subsets = LbSubsetConfig::try_new(inputs.lb_subset_config.parts()?)?;
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
        lb_subset_config: Some(subsets),
        ..ClusterConfigParts::default()
    })
}
