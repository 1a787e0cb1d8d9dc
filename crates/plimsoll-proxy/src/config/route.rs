//! Routes: `RouteConfiguration`, `VirtualHost` and `Route`, from files to [`RouteTable`].
//!
//! Conditions are in `matching`, what happens to a request in `action`, header rules in `headers`.

mod action;
mod headers;
mod matching;

use std::sync::Arc;

use plimsoll_core::units::FieldError;
use serde::Deserialize;

use self::action::{DirectResponseYaml, RedirectYaml, RetryPolicyYaml, RouteActionYaml};
use self::headers::HeaderRulesYaml;
use self::matching::RouteMatchYaml;
use crate::header_rules::HeaderRules;
use crate::router::{Action, Route, RouteTable, VirtualHost};

/// `RouteConfiguration`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteConfigurationYaml {
    name: String,
    virtual_hosts: Vec<VirtualHostYaml>,
    request_headers_to_add: Vec<headers::HeaderValueOptionYaml>,
    request_headers_to_remove: Vec<String>,
    response_headers_to_add: Vec<headers::HeaderValueOptionYaml>,
    response_headers_to_remove: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VirtualHostYaml {
    name: String,
    domains: Vec<String>,
    #[serde(default)]
    routes: Vec<RouteYaml>,
    retry_policy: Option<RetryPolicyYaml>,
    #[serde(default)]
    request_headers_to_add: Vec<headers::HeaderValueOptionYaml>,
    #[serde(default)]
    request_headers_to_remove: Vec<String>,
    #[serde(default)]
    response_headers_to_add: Vec<headers::HeaderValueOptionYaml>,
    #[serde(default)]
    response_headers_to_remove: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteYaml {
    #[serde(default)]
    name: String,
    #[serde(rename = "match")]
    matching: RouteMatchYaml,
    route: Option<RouteActionYaml>,
    redirect: Option<RedirectYaml>,
    direct_response: Option<DirectResponseYaml>,
    #[serde(default)]
    request_headers_to_add: Vec<headers::HeaderValueOptionYaml>,
    #[serde(default)]
    request_headers_to_remove: Vec<String>,
    #[serde(default)]
    response_headers_to_add: Vec<headers::HeaderValueOptionYaml>,
    #[serde(default)]
    response_headers_to_remove: Vec<String>,
}

/// Rules of what surrounds a route: of the request, of the response.
#[derive(Clone, Default)]
struct Around {
    request: HeaderRules,
    response: HeaderRules,
    retry: Option<RetryPolicyYaml>,
}

impl RouteConfigurationYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self) -> Result<RouteTable, FieldError> {
        let around = Around {
            request: HeaderRulesYaml {
                prefix: "request",
                add: self.request_headers_to_add,
                remove: self.request_headers_to_remove,
            }
            .checked()?,
            response: HeaderRulesYaml {
                prefix: "response",
                add: self.response_headers_to_add,
                remove: self.response_headers_to_remove,
            }
            .checked()?,
            retry: None,
        };
        let mut hosts = Vec::new();
        for (index, host) in self.virtual_hosts.into_iter().enumerate() {
            let place = format!("virtual_hosts[{index}]");
            let host = host.checked(&around).map_err(|error| error.under(&place))?;
            hosts.push(host);
        }
        RouteTable::new(self.name, hosts).map_err(|domain| {
            let reason = format!("the domain {domain:?} stands twice");
            FieldError::new("virtual_hosts", reason)
        })
    }
}

impl VirtualHostYaml {
    fn checked(self, outer: &Around) -> Result<VirtualHost, FieldError> {
        if self.domains.is_empty() {
            return Err(FieldError::new("domains", "must have an entry"));
        }
        let request = HeaderRulesYaml {
            prefix: "request",
            add: self.request_headers_to_add,
            remove: self.request_headers_to_remove,
        };
        let response = HeaderRulesYaml {
            prefix: "response",
            add: self.response_headers_to_add,
            remove: self.response_headers_to_remove,
        };
        let around = Around {
            request: request.checked()?.followed_by(&outer.request),
            response: response.checked()?.followed_by(&outer.response),
            retry: self.retry_policy,
        };
        let mut domains = Vec::new();
        for (index, domain) in self.domains.iter().enumerate() {
            let stars = domain.matches('*').count();
            let edge = domain.starts_with('*') || domain.ends_with('*');
            if domain.is_empty() || stars > 1 || (stars == 1 && !edge) {
                let reason = format!("{domain:?} is not a name, *.suffix, prefix.* or *");
                return Err(FieldError::new(format!("domains[{index}]"), reason));
            }
            domains.push(domain.to_ascii_lowercase());
        }
        let mut routes = Vec::new();
        for (index, route) in self.routes.into_iter().enumerate() {
            let place = format!("routes[{index}]");
            let route = route
                .checked(&around)
                .map_err(|error| error.under(&place))?;
            routes.push(route);
        }
        Ok(VirtualHost {
            name: self.name,
            domains,
            routes,
        })
    }
}

impl RouteYaml {
    fn checked(self, around: &Around) -> Result<Route, FieldError> {
        let request = HeaderRulesYaml {
            prefix: "request",
            add: self.request_headers_to_add,
            remove: self.request_headers_to_remove,
        };
        let response = HeaderRulesYaml {
            prefix: "response",
            add: self.response_headers_to_add,
            remove: self.response_headers_to_remove,
        };
        let (path, headers, grpc) = self
            .matching
            .checked()
            .map_err(|error| error.under("match"))?;
        let action = match (self.route, self.redirect, self.direct_response) {
            (Some(route), None, None) => {
                let forward = route.checked(around.retry.as_ref());
                let forward = forward.map_err(|error| error.under("route"))?;
                Action::Forward(Box::new(forward))
            }
            (None, Some(redirect), None) => {
                let redirect = redirect.checked();
                Action::Redirect(redirect.map_err(|error| error.under("redirect"))?)
            }
            (None, None, Some(direct)) => {
                let direct = direct.checked();
                Action::Direct(direct.map_err(|error| error.under("direct_response"))?)
            }
            _ => {
                let reason = "must have exactly one of route, redirect and direct_response";
                return Err(FieldError::new("", reason));
            }
        };
        Ok(Route {
            name: Arc::from(self.name),
            path,
            headers,
            grpc,
            action,
            request_rules: request.checked()?.followed_by(&around.request),
            response_rules: response.checked()?.followed_by(&around.response),
        })
    }
}
