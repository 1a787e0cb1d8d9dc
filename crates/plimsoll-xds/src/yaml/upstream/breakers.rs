//! `circuit_breakers` from files.

use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::super::proto_json::{Named, Percent, ProtoEnum, Uint};
use super::number;
use crate::upstream::{CircuitBreakers, RetryBudget};

/// `CircuitBreakers`. `per_host_thresholds` is not here: there are no limits per host.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CircuitBreakersYaml {
    /// Limits by priority of requests.
    thresholds: Vec<Thresholds>,
}

/// `CircuitBreakers.Thresholds`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct Thresholds {
    /// Whose limits; those of `HIGH` are without effect, no request has it. Default `DEFAULT`.
    priority: Named<RoutingPriority>,
    /// Connections to all hosts together. Default 1024.
    max_connections: Option<Uint<u32>>,
    /// Requests that wait for a connection. Default 1024.
    max_pending_requests: Option<Uint<u32>>,
    /// Requests at a time. Default 1024.
    max_requests: Option<Uint<u32>>,
    /// Retries at a time. Default 3.
    max_retries: Option<Uint<u32>>,
    /// Retries as a share of requests, instead of `max_retries`.
    retry_budget: Option<RetryBudgetYaml>,
    // What remains is always counted.
    /// Without effect: what remains is always counted.
    track_remaining: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct RetryBudgetYaml {
    /// Retries at a time, in percent of requests in flight. Default 20.
    budget_percent: Option<Percent>,
    /// Retries at a time that are always allowed. Default 3.
    min_retry_concurrency: Option<Uint<u32>>,
}

/// `RoutingPriority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RoutingPriority {
    #[default]
    Default,
    High,
}

impl ProtoEnum for RoutingPriority {
    const VALUES: &'static [(&'static str, i64, Self)] =
        &[("DEFAULT", 0, Self::Default), ("HIGH", 1, Self::High)];
}

impl CircuitBreakersYaml {
    /// The limits of the default priority. No request has another one, so the limits of `HIGH` are
    /// known and without effect.
    pub(crate) fn checked(self) -> Result<CircuitBreakers, FieldError> {
        let mut breakers = CircuitBreakers::default();
        for (index, entry) in self.thresholds.into_iter().enumerate() {
            if entry.priority.0 == RoutingPriority::High {
                continue;
            }
            let default = CircuitBreakers::default();
            let or = |value, default| number(value).unwrap_or(default);
            let budget = entry.retry_budget.map(RetryBudgetYaml::checked).transpose();
            let path = format!("thresholds[{index}].retry_budget");
            breakers = CircuitBreakers {
                max_connections: or(entry.max_connections, default.max_connections),
                max_pending_requests: or(entry.max_pending_requests, default.max_pending_requests),
                max_requests: or(entry.max_requests, default.max_requests),
                max_retries: or(entry.max_retries, default.max_retries),
                retry_budget: budget.map_err(|error| error.under(&path))?,
            };
        }
        Ok(breakers)
    }
}

impl RetryBudgetYaml {
    fn checked(self) -> Result<RetryBudget, FieldError> {
        let percent = self.budget_percent.map(|percent| percent.value.0);
        RetryBudget::try_new(percent, number(self.min_retry_concurrency))
    }
}
