//! Merges the EndpointSlices of a Service into the endpoints of each of its ports: the rules of
//! `discovery.k8s.io/v1`, without IO. `vectors/kubernetes/endpoints.json` has a case for each rule.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::budget::Usage;
use crate::objects::{AddressType, Conditions, EndpointSlice, Service, ServicePortSpec, SlicePort};

/// Values of `appProtocol` that mean HTTP/2 without TLS: of Kubernetes, and those that meshes use.
const HTTP2_PROTOCOLS: [&str; 4] = ["kubernetes.io/h2c", "grpc", "h2c", "http2"];

/// Which addresses of a Service with two families are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// The first of the Service's `ipFamilies`.
    #[default]
    Auto,
    Ipv4,
    Ipv6,
}

/// A port of a Service, with its endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortEndpoints {
    pub name: Arc<str>,
    /// Port of the Service, not of its endpoints.
    pub port: u16,
    /// Whether endpoints are contacted with HTTP/2.
    pub is_http2: bool,
    /// Sorted by address; all addresses are distinct.
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint that may get requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: SocketAddr,
    /// `None` if neither the endpoint nor the settings have a zone.
    pub zone: Option<Arc<str>>,
    pub state: EndpointState,
}

/// Whether an endpoint gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointState {
    Ready,
    /// Terminating, but serving: finishes its requests and gets no new ones.
    Draining,
}

/// Names that ports of a Service had a moment ago, by their present name: slices have the former
/// names until the controller has rewritten them.
pub type FormerNames = BTreeMap<Arc<str>, Vec<Arc<str>>>;

/// Merges the slices of a Service. Ports that are not TCP have no clusters.
pub fn merge<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a EndpointSlice> + Clone,
    family: AddressFamily,
    fallback_zone: Option<&Arc<str>>,
    former: &FormerNames,
) -> Vec<PortEndpoints> {
    if service.is_external_name {
        return Vec::new();
    }
    let address_type = address_type(service, slices.clone(), family);
    let used = slices.filter(|slice| slice.address_type == address_type);
    let ports = service.ports.iter().filter(|port| port.is_tcp);
    ports
        .map(|port| {
            let merged = merge_port(service, port, used.clone(), fallback_zone, former);
            let slice_protocol = used
                .clone()
                .find_map(|slice| matching(slice, port, former)?.app_protocol.clone());
            let protocol = port.app_protocol.as_ref().or(slice_protocol.as_ref());
            PortEndpoints {
                name: Arc::clone(&port.name),
                port: port.port,
                is_http2: is_http2(protocol.map(AsRef::as_ref), &port.name),
                endpoints: merged,
            }
        })
        .collect()
}

/// Returns what a Service uses, without merging: endpoints count whether they are ready or not.
pub(crate) fn usage<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a EndpointSlice> + Clone,
    family: AddressFamily,
    former: &FormerNames,
) -> Usage {
    let ports = || service.ports.iter().filter(|port| port.is_tcp);
    let address_type = address_type(service, slices.clone(), family);
    let mut usage = Usage {
        ports: ports().count(),
        ..Usage::default()
    };
    for slice in slices.filter(|slice| slice.address_type == address_type) {
        let own = ports().filter(|port| matching(slice, port, former).is_some());
        usage.endpoints += own.count() * slice.endpoints.len();
        let zones = slice.endpoints.iter().filter_map(|one| one.zone.as_ref());
        for zone in zones {
            if !usage.zones.contains(zone) {
                usage.zones.insert(Arc::clone(zone));
            }
        }
    }
    usage
}

/// Returns the one family whose addresses are used: a Pod with two addresses is one backend.
fn address_type<'a>(
    service: &Service,
    mut slices: impl Iterator<Item = &'a EndpointSlice>,
    family: AddressFamily,
) -> AddressType {
    match (family, service.address_family) {
        (AddressFamily::Ipv4, _) => AddressType::Ipv4,
        (AddressFamily::Ipv6, _) => AddressType::Ipv6,
        (AddressFamily::Auto, Some(first)) => first,
        (AddressFamily::Auto, None) => {
            if slices.any(|slice| slice.address_type == AddressType::Ipv4) {
                AddressType::Ipv4
            } else {
                AddressType::Ipv6
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Candidate {
    state: EndpointState,
    zone: Option<Arc<str>>,
}

fn merge_port<'a>(
    service: &Service,
    port: &ServicePortSpec,
    slices: impl Iterator<Item = &'a EndpointSlice>,
    fallback_zone: Option<&Arc<str>>,
    former: &FormerNames,
) -> Vec<Endpoint> {
    let mut found: BTreeMap<SocketAddr, Candidate> = BTreeMap::new();
    for slice in slices {
        // Slices of one Service may have different numbers for the same name: during a change of
        // `targetPort`, and with named ports of Pods.
        let Some(number) = matching(slice, port, former).and_then(|port| port.port) else {
            continue;
        };
        for endpoint in &slice.endpoints {
            let Some(state) = state(endpoint.conditions, service) else {
                continue;
            };
            let candidate = Candidate {
                state,
                zone: endpoint.zone.clone(),
            };
            let address = SocketAddr::new(canonical(endpoint.address), number);
            found
                .entry(address)
                .and_modify(|before| before.improve(&candidate))
                .or_insert(candidate);
        }
    }
    // With no ready endpoint left, those that still serve are better than none.
    let any_ready = found.values().any(|one| one.state == EndpointState::Ready);
    found
        .into_iter()
        .map(|(address, candidate)| Endpoint {
            address,
            zone: candidate.zone.or_else(|| fallback_zone.cloned()),
            state: if any_ready {
                candidate.state
            } else {
                EndpointState::Ready
            },
        })
        .collect()
}

impl Candidate {
    /// Merges the same address of another slice: slices are not updated together, and ready in one
    /// of them is ready. The result does not depend on their order.
    fn improve(&mut self, other: &Self) {
        if other.state < self.state {
            *self = other.clone();
        } else if other.state == self.state {
            let zones = [&self.zone, &other.zone].map(Clone::clone);
            self.zone = zones.into_iter().flatten().min();
        }
    }
}

fn matching<'a>(
    slice: &'a EndpointSlice,
    port: &ServicePortSpec,
    former: &FormerNames,
) -> Option<&'a SlicePort> {
    let named = |name: &Arc<str>| {
        let mut ports = slice.ports.iter();
        ports.find(|candidate| candidate.is_tcp && candidate.name == *name)
    };
    let former = former.get(&port.name).into_iter().flatten();
    named(&port.name).or_else(|| former.rev().find_map(named))
}

/// Returns the state of an endpoint; `None` if it gets no requests. An unset `ready` means ready,
/// an unset `serving` follows `ready`, and an unset `terminating` means no.
fn state(conditions: Conditions, service: &Service) -> Option<EndpointState> {
    let is_ready = conditions.ready.unwrap_or(true);
    if is_ready || service.publish_not_ready_addresses {
        return Some(EndpointState::Ready);
    }
    let is_serving = conditions.serving.unwrap_or(is_ready);
    let is_terminating = conditions.terminating.unwrap_or(false);
    (is_serving && is_terminating).then_some(EndpointState::Draining)
}

/// An IPv4 address that is written as IPv6 is the same endpoint.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Whether a port speaks HTTP/2: by `appProtocol`, or without it by a name such as `grpc-orders`.
fn is_http2(app_protocol: Option<&str>, name: &str) -> bool {
    match app_protocol {
        Some(protocol) => HTTP2_PROTOCOLS.contains(&protocol.to_ascii_lowercase().as_str()),
        None => {
            let protocol = name.split('-').next().unwrap_or_default();
            matches!(protocol, "grpc" | "h2c" | "http2")
        }
    }
}

#[cfg(test)]
mod tests;
