//! Decoding of a whole cluster for data planes: connection settings beyond the policies, which
//! `decode` reads.

use std::time::Duration;

use plimsoll_core::units::FieldError;

use super::super::load_assignment::load_assignment;
use super::super::{Strictness, named};
use super::{decode, upstream_health, upstream_http, upstream_tls};
use crate::upstream::{
    CircuitBreakers, Discovery, DnsOptions, EdsSource, OutlierFields, RetryBudget, TcpKeepalive,
    UpstreamCluster, UpstreamOptions,
};
use plimsoll_schema::Impact;
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::pb::cluster::ClusterMessage;
use plimsoll_schema::pb::enums::{DiscoveryType, RoutingPriority};
use plimsoll_schema::pb::upstream::{
    CircuitBreakersMessage, ConnectionOptionsMessage, EdsClusterConfigMessage,
    OutlierDetectionMessage, ThresholdsMessage,
};
use plimsoll_schema::pb::{ConfigSourceMessage, duration, under};

/// Decodes a cluster with its connection settings, leniently.
pub fn decode_upstream_cluster(bytes: &[u8]) -> Result<UpstreamCluster, DecodeError> {
    read_upstream_cluster(bytes, Strictness::Lenient)
}

pub(crate) fn read_upstream_cluster(
    bytes: &[u8],
    strictness: Strictness,
) -> Result<UpstreamCluster, DecodeError> {
    let (mut message, config) = decode::read(bytes, Impact::Request, strictness)?;
    let assignment = under(
        message.load_assignment.take().map(load_assignment),
        "load_assignment",
    )?;
    let options = options(message, strictness)?;
    Ok(UpstreamCluster::try_new(config, options, assignment)?)
}

fn options(message: ClusterMessage, strictness: Strictness) -> Result<UpstreamOptions, FieldError> {
    let mut options = UpstreamOptions {
        discovery: discovery(&message, strictness)?,
        close_connections_on_host_health_failure: message.close_connections_on_host_health_failure,
        ..Default::default()
    };
    upstream_http::put(&message, strictness, &mut options)?;
    if let Some(timeout) = duration(message.connect_timeout, "connect_timeout")? {
        options.connect_timeout = timeout;
    }
    let breakers = message.circuit_breakers.map(circuit_breakers);
    options.circuit_breakers = under(breakers, "circuit_breakers")?.unwrap_or_default();
    options.health_checks = upstream_health::health_checks(message.health_checks)?;
    let outlier = message
        .outlier_detection
        .map(|message| outlier_fields(message).and_then(OutlierFields::checked));
    options.outlier_detection = under(outlier, "outlier_detection")?;
    let socket = message.transport_socket.as_ref();
    let tls = under(socket.map(upstream_tls::upstream_tls), "transport_socket")?;
    options.tls = tls.flatten();
    options.lrs = under(message.lrs_server.as_ref().map(is_self), "lrs_server")?.unwrap_or(false);
    let connection = message.upstream_connection_options;
    options.tcp_keepalive = connection.and_then(tcp_keepalive);
    Ok(options)
}

fn discovery(message: &ClusterMessage, strictness: Strictness) -> Result<Discovery, FieldError> {
    let mut dns = DnsOptions {
        lookup_family: named(message.dns_lookup_family, "dns_lookup_family")?,
        ..Default::default()
    };
    match duration(message.dns_refresh_rate, "dns_refresh_rate")? {
        Some(rate) if rate < Duration::from_millis(1) => {
            let reason = "must be at least 0.001s";
            return Err(FieldError::new("dns_refresh_rate", reason));
        }
        Some(rate) => dns.refresh_rate = rate,
        None => {}
    }
    let discovery_type = named(message.discovery_type.unwrap_or_default(), "type")?;
    let eds_config = message.eds_cluster_config.clone();
    if discovery_type != DiscoveryType::Eds {
        let reason = "has no effect unless the type is EDS";
        strictness.reject(eds_config.is_some(), "eds_cluster_config", reason)?;
    }
    match discovery_type {
        DiscoveryType::Static => Ok(Discovery::Static),
        DiscoveryType::StrictDns => Ok(Discovery::StrictDns(dns)),
        DiscoveryType::LogicalDns => Ok(Discovery::LogicalDns(dns)),
        DiscoveryType::Eds => match eds_config {
            Some(config) => eds(config).map_err(|error| error.under("eds_cluster_config")),
            None => {
                let reason = "must be set with type EDS";
                Err(FieldError::new("eds_cluster_config", reason))
            }
        },
    }
}

fn eds(message: EdsClusterConfigMessage) -> Result<Discovery, FieldError> {
    let config = message.eds_config.unwrap_or_default();
    let path = config
        .path_config_source
        .map(|source| source.path)
        .or((!config.path.is_empty()).then_some(config.path));
    let source = match (config.ads, config.this_server, path) {
        (Some(()), None, None) | (None, Some(()), None) => EdsSource::Ads,
        (None, None, Some(path)) => EdsSource::Path(path),
        _ => {
            let reason = "must be exactly one of ads, self and path_config_source";
            return Err(FieldError::new("eds_config", reason));
        }
    };
    Ok(Discovery::Eds {
        service_name: (!message.service_name.is_empty()).then_some(message.service_name),
        source,
    })
}

fn is_self(source: &ConfigSourceMessage) -> Result<bool, FieldError> {
    match (source.this_server, source.ads) {
        (Some(()), None) => Ok(true),
        _ => Err(FieldError::new("", "only self is supported")),
    }
}

/// Decodes the thresholds of the default routing priority, which every request has.
fn circuit_breakers(message: CircuitBreakersMessage) -> Result<CircuitBreakers, FieldError> {
    let mut breakers = CircuitBreakers::default();
    for (index, entry) in message.thresholds.into_iter().enumerate() {
        let path = format!("thresholds[{index}]");
        let priority = named::<RoutingPriority>(entry.priority, "priority")
            .map_err(|error| error.under(&path))?;
        if priority == RoutingPriority::Default {
            breakers = thresholds(entry).map_err(|error| error.under(&path))?;
        }
    }
    Ok(breakers)
}

fn thresholds(entry: ThresholdsMessage) -> Result<CircuitBreakers, FieldError> {
    let default = CircuitBreakers::default();
    let pending = entry.max_pending_requests;
    let budget = entry.retry_budget.map(|budget| {
        let percent = budget.budget_percent.map(|percent| percent.value);
        RetryBudget::try_new(percent, budget.min_retry_concurrency)
    });
    Ok(CircuitBreakers {
        max_connections: entry.max_connections.unwrap_or(default.max_connections),
        max_pending_requests: pending.unwrap_or(default.max_pending_requests),
        max_requests: entry.max_requests.unwrap_or(default.max_requests),
        max_retries: entry.max_retries.unwrap_or(default.max_retries),
        retry_budget: under(budget, "retry_budget")?,
        _non_exhaustive: (),
    })
}

fn outlier_fields(message: OutlierDetectionMessage) -> Result<OutlierFields, FieldError> {
    Ok(OutlierFields {
        consecutive_5xx: message.consecutive_5xx,
        interval: duration(message.interval, "interval")?,
        base_ejection_time: duration(message.base_ejection_time, "base_ejection_time")?,
        max_ejection_time: duration(message.max_ejection_time, "max_ejection_time")?,
        max_ejection_time_jitter: duration(
            message.max_ejection_time_jitter,
            "max_ejection_time_jitter",
        )?,
        max_ejection_percent: message.max_ejection_percent,
        enforcing_consecutive_5xx: message.enforcing_consecutive_5xx,
        enforcing_success_rate: message.enforcing_success_rate,
        success_rate_minimum_hosts: message.success_rate_minimum_hosts,
        success_rate_request_volume: message.success_rate_request_volume,
        success_rate_stdev_factor: message.success_rate_stdev_factor,
        enforcing_consecutive_gateway_failure: message.enforcing_consecutive_gateway_failure,
        split_external_local_origin_errors: message.split_external_local_origin_errors,
        failure_percentage_threshold: message.failure_percentage_threshold,
        enforcing_failure_percentage: message.enforcing_failure_percentage,
        failure_percentage_minimum_hosts: message.failure_percentage_minimum_hosts,
        failure_percentage_request_volume: message.failure_percentage_request_volume,
        always_eject_one_host: message.always_eject_one_host.unwrap_or(false),
        has_monitors: !message.monitors.is_empty(),
    })
}

fn tcp_keepalive(message: ConnectionOptionsMessage) -> Option<TcpKeepalive> {
    let seconds = |value: u32| Duration::from_secs(u64::from(value));
    message.tcp_keepalive.map(|keepalive| TcpKeepalive {
        probes: keepalive.keepalive_probes,
        time: keepalive.keepalive_time.map(seconds),
        interval: keepalive.keepalive_interval.map(seconds),
        _non_exhaustive: (),
    })
}

#[cfg(test)]
mod tests;
