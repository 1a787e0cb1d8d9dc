//! Listeners and routes for stock Envoys, in the format of `RouteConfiguration`. Routes are parsed
//! and validated by plimsoll-xds and delivered unchanged.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::route::{RouteConfigurationMessage, VirtualHostMessage};
use plimsoll_xds::route::{
    Action, HashSource, RetryHostPredicate, RetryPolicy, Route, RouteConfiguration,
};
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::wire::decode_route_configuration;

/// A listener and its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Name of the listener and of its route configuration.
    pub name: Arc<str>,
    pub address: SocketAddr,
    /// Routes by virtual host; the `RouteConfiguration` message is delivered unchanged.
    pub routes: RouteConfiguration,
}

/// A listener for Envoys.
#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerYaml {
    /// Name of the listener and of its route configuration.
    name: String,
    /// IP address and port that every Envoy listens on.
    address: String,
    /// Virtual hosts with their routes; `domains` defaults to every host.
    virtual_hosts: Vec<FileMessage<VirtualHostMessage>>,
}

impl ListenerYaml {
    /// Validates the listener; error paths are relative to the listener.
    pub(super) fn validate(&self) -> Result<Listener, FieldError> {
        if self.name.is_empty() {
            return Err(FieldError::new("name", "must not be empty"));
        }
        let address = self.address.parse().map_err(|_| {
            let reason = format!("{:?} is not an IP address and port", self.address);
            FieldError::new("address", reason)
        })?;
        let hosts = self.virtual_hosts.iter().enumerate().map(|(index, host)| {
            let path = format!("virtual_hosts[{index}]");
            virtual_host(host).map_err(|error| error.under(&path))
        });
        let message = RouteConfigurationMessage {
            name: self.name.clone(),
            virtual_hosts: hosts.collect::<Result<_, _>>()?,
            ..Default::default()
        };
        let routes = decode_route_configuration(FileMessage::from(&message).bytes())?;
        check_delivered(&routes)?;
        Ok(Listener {
            name: self.name.as_str().into(),
            address,
            routes,
        })
    }
}

fn virtual_host(
    written: &FileMessage<VirtualHostMessage>,
) -> Result<VirtualHostMessage, FieldError> {
    let mut host = written.message()?;
    // Envoy rejects virtual hosts without a name.
    if host.name.is_empty() {
        return Err(FieldError::new("name", "must not be empty"));
    }
    if host.domains.is_empty() {
        host.domains.push("*".to_owned());
    }
    Ok(host)
}

/// Rejects routes with fields that plimsoll-xds does not parse: they could not be delivered.
fn check_delivered(routes: &RouteConfiguration) -> Result<(), FieldError> {
    for (index, host) in routes.virtual_hosts().iter().enumerate() {
        let path = format!("virtual_hosts[{index}]");
        if has_unknown_predicate(host.retry_policy.as_ref()) {
            return Err(not_delivered("retry_policy.retry_host_predicate").under(&path));
        }
        for (index, route) in host.routes.iter().enumerate() {
            if let Some(field) = undelivered(route) {
                let path = format!("{path}.routes[{index}]");
                return Err(not_delivered(field).under(&path));
            }
        }
    }
    Ok(())
}

fn undelivered(route: &Route) -> Option<&'static str> {
    let action = match &route.action {
        Action::Forward(action) => action,
        Action::Unsupported(field) => return Some(field),
        _ => return None,
    };
    let mut hashed = action.hash_policy.iter();
    if hashed.any(|policy| policy.source == HashSource::Unsupported) {
        return Some("route.hash_policy");
    }
    has_unknown_predicate(action.retry_policy.as_ref())
        .then_some("route.retry_policy.retry_host_predicate")
}

fn has_unknown_predicate(policy: Option<&RetryPolicy>) -> bool {
    let mut predicates = policy
        .iter()
        .flat_map(|policy| &policy.retry_host_predicate);
    predicates.any(|predicate| *predicate != RetryHostPredicate::PreviousHosts)
}

fn not_delivered(field: &str) -> FieldError {
    FieldError::new(field, "is not delivered by this control plane")
}
