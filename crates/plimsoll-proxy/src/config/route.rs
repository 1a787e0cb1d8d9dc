//! Routes: `RouteConfiguration`, `VirtualHost` and `Route`, from files to the nouns of
//! plimsoll-xds, which management servers are read into as well.
//!
//! Conditions are in `matching`, what happens to a request in `action`, header rules in `headers`,
//! the way back to text in `json`.
//! What a proxy cannot do is refused by `router`, for both.

mod action;
mod headers;
pub(crate) mod json;
mod matching;

use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{Action, Route, RouteConfiguration, VirtualHost};
use serde::Deserialize;

use self::action::{DirectResponseYaml, RedirectYaml, RetryPolicyYaml, RouteActionYaml};
use self::headers::{HeaderValueOptionYaml, header_rules};
use self::matching::RouteMatchYaml;

/// `RouteConfiguration`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteConfigurationYaml {
    /// Its name.
    name: String,
    /// Routes, by host.
    virtual_hosts: Vec<VirtualHostYaml>,
    /// A port in the host of a request is not looked at.
    ignore_port_in_host_matching: bool,
    /// The most specific header rule wins instead of the least specific one.
    most_specific_header_mutations_wins: bool,
    /// Fields that requests get.
    request_headers_to_add: Vec<HeaderValueOptionYaml>,
    /// Fields that requests lose.
    request_headers_to_remove: Vec<String>,
    /// Fields that responses get.
    response_headers_to_add: Vec<HeaderValueOptionYaml>,
    /// Fields that responses lose.
    response_headers_to_remove: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct VirtualHostYaml {
    /// Its name.
    name: String,
    /// Hosts: exact, `*.suffix`, `prefix.*` or `*`.
    domains: Vec<String>,
    /// The first that matches wins.
    #[serde(default)]
    routes: Vec<RouteYaml>,
    /// Retries of routes that say nothing of them.
    retry_policy: Option<RetryPolicyYaml>,
    /// Fields that requests get.
    #[serde(default)]
    request_headers_to_add: Vec<HeaderValueOptionYaml>,
    /// Fields that requests lose.
    #[serde(default)]
    request_headers_to_remove: Vec<String>,
    /// Fields that responses get.
    #[serde(default)]
    response_headers_to_add: Vec<HeaderValueOptionYaml>,
    /// Fields that responses lose.
    #[serde(default)]
    response_headers_to_remove: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RouteYaml {
    /// Its name, for access logs.
    #[serde(default)]
    name: String,
    /// Which requests.
    #[serde(rename = "match")]
    matching: RouteMatchYaml,
    /// Send them to a cluster.
    route: Option<RouteActionYaml>,
    /// Send the client elsewhere.
    redirect: Option<RedirectYaml>,
    /// Answer here.
    direct_response: Option<DirectResponseYaml>,
    /// Fields that requests get.
    #[serde(default)]
    request_headers_to_add: Vec<HeaderValueOptionYaml>,
    /// Fields that requests lose.
    #[serde(default)]
    request_headers_to_remove: Vec<String>,
    /// Fields that responses get.
    #[serde(default)]
    response_headers_to_add: Vec<HeaderValueOptionYaml>,
    /// Fields that responses lose.
    #[serde(default)]
    response_headers_to_remove: Vec<String>,
}

impl RouteConfigurationYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self) -> Result<RouteConfiguration, FieldError> {
        let mut hosts = Vec::new();
        for (index, host) in self.virtual_hosts.into_iter().enumerate() {
            let place = format!("virtual_hosts[{index}]");
            hosts.push(host.checked().map_err(|error| error.under(&place))?);
        }
        let mut configuration = RouteConfiguration::try_new(self.name, hosts)?;
        configuration.ignore_port_in_host_matching = self.ignore_port_in_host_matching;
        configuration.most_specific_header_mutations_wins =
            self.most_specific_header_mutations_wins;
        configuration.headers = header_rules(
            (self.request_headers_to_add, self.request_headers_to_remove),
            (
                self.response_headers_to_add,
                self.response_headers_to_remove,
            ),
        )?;
        Ok(configuration)
    }
}

impl VirtualHostYaml {
    fn checked(self) -> Result<VirtualHost, FieldError> {
        if self.domains.is_empty() {
            return Err(FieldError::new("domains", "must have an entry"));
        }
        let retry = self.retry_policy.as_ref().map(RetryPolicyYaml::checked);
        let retry = retry.transpose();
        let retry_policy = retry.map_err(|error| error.under("retry_policy"))?;
        let mut routes = Vec::new();
        for (index, route) in self.routes.into_iter().enumerate() {
            let place = format!("routes[{index}]");
            let mut route = route.checked().map_err(|error| error.under(&place))?;
            route.inherit(retry_policy.as_ref());
            routes.push(route);
        }
        Ok(VirtualHost {
            name: self.name,
            domains: self.domains,
            routes,
            retry_policy,
            headers: header_rules(
                (self.request_headers_to_add, self.request_headers_to_remove),
                (
                    self.response_headers_to_add,
                    self.response_headers_to_remove,
                ),
            )?,
        })
    }
}

impl RouteYaml {
    fn checked(self) -> Result<Route, FieldError> {
        let route_match = self.matching.checked();
        let action = match (self.route, self.redirect, self.direct_response) {
            (Some(route), None, None) => {
                let action = route.checked().map_err(|error| error.under("route"))?;
                Action::Forward(Box::new(action))
            }
            (None, Some(redirect), None) => {
                let redirect = redirect.checked();
                Action::Redirect(redirect.map_err(|error| error.under("redirect"))?)
            }
            (None, None, Some(direct)) => {
                let direct = direct.checked();
                direct.map_err(|error| error.under("direct_response"))?
            }
            _ => {
                let reason = "must have exactly one of route, redirect and direct_response";
                return Err(FieldError::new("", reason));
            }
        };
        Ok(Route {
            name: self.name,
            route_match: route_match.map_err(|error| error.under("match"))?,
            action,
            headers: header_rules(
                (self.request_headers_to_add, self.request_headers_to_remove),
                (
                    self.response_headers_to_add,
                    self.response_headers_to_remove,
                ),
            )?,
        })
    }
}
