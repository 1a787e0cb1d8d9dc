//! [`ClusterSettings`]: what a service's cluster says beside load balancing, such as health checks,
//! outlier detection, circuit breakers and TLS.
//!
//! The control plane does not act on these settings: it checks them, and delivers them. Envoys get
//! the message as it is written (`envoy`); gRPC clients and Plimsoll's data planes get the part
//! that they understand (`grpc`, `plimsoll`). `explain` compares what is written with what is sent.

mod check;
mod envoy;
mod grpc;
mod plimsoll;

use std::borrow::Cow;

use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::AnyMessage;
use plimsoll_xds::pb::cluster::{ClusterMessage, CommonLbConfigMessage};
use plimsoll_xds::pb::upstream::{
    CommonHttpMessage, ExplicitHttpConfigMessage, HttpProtocolOptionsMessage,
};
use plimsoll_xds::schema::{Described as _, json, unsupported};
use plimsoll_xds::yaml::ClusterYaml;
use prost::Message as _;
use serde_json::{Map, Value};

use crate::delivery::NodeClass;

/// Fields of a cluster that choose hosts, which `delivery` rewrites for each receiver, and fields
/// that are not Envoy's.
pub(crate) const LOAD_BALANCING: [&str; 10] = [
    "common_lb_config",
    "lb_policy",
    "lb_subset_config",
    "least_request_lb_config",
    "load_balancing_policy",
    "maglev_lb_config",
    "name",
    "plimsoll",
    "ring_hash_lb_config",
    "round_robin_lb_config",
];

/// Declared fields of a cluster that the control plane writes itself, or that only clusters with
/// endpoints from elsewhere have.
pub(crate) const NOT_DELIVERED: [&str; 5] = [
    "dns_lookup_family",
    "dns_refresh_rate",
    "eds_cluster_config",
    "load_assignment",
    "lrs_server",
];

const NOT_DELIVERED_REASON: &str =
    "is not delivered by this control plane; a relay passes it through";

pub(crate) const WITHOUT_EFFECT_BEHIND_A_RELAY: &str =
    "has no effect with a relay: clusters and endpoints come from the relayed server";

/// Protobuf value of `Cluster.DiscoveryType.EDS`.
const EDS: i32 = 3;

/// Key and type of the HTTP options in `typed_extension_protocol_options`.
pub(crate) const HTTP_PROTOCOL_OPTIONS: &str = HttpProtocolOptionsMessage::DESCRIPTOR.name;

/// Settings of a cluster beside load balancing, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterSettings {
    message: ClusterMessage,
}

impl ClusterSettings {
    /// Reads and checks the settings; error paths start at the cluster.
    pub(crate) fn read(written: &ClusterYaml) -> Result<Self, FieldError> {
        let is_setting =
            |field: &str| field == "common_lb_config" || !LOAD_BALANCING.contains(&field);
        let written = written.part(is_setting);
        let mut names = written.field_names();
        if let Some(field) = names.find(|field| NOT_DELIVERED.contains(field)) {
            return Err(FieldError::new(field, NOT_DELIVERED_REASON));
        }
        let bytes = written.bytes();
        let descriptor = ClusterMessage::DESCRIPTOR;
        unsupported::refuse_undeclared(bytes, descriptor, NOT_DELIVERED_REASON)?;
        let mut message = ClusterMessage::decode(bytes.clone())
            .map_err(|error| FieldError::new("", error.to_string()))?;
        if !matches!(message.discovery_type.take(), None | Some(EDS)) {
            let reason = "must be EDS: endpoints are configured in services[].endpoints";
            return Err(FieldError::new("type", reason));
        }
        message.common_lb_config = message.common_lb_config.and_then(beside_load_balancing);
        complete_protocol(&mut message)?;
        check::check(&message)?;
        type_protocol(&mut message)?;
        Ok(Self { message })
    }

    /// Returns the settings with backend metrics that load reports aggregate, beside those that are
    /// written.
    pub(crate) fn with_endpoint_metrics(mut self, names: &[&str]) -> Self {
        let metrics = &mut self.message.lrs_report_endpoint_metrics;
        for name in names {
            if !metrics.iter().any(|known| known == name) {
                metrics.push((*name).to_owned());
            }
        }
        self
    }

    /// Returns the settings as they are written, with HTTP options in their typed form.
    pub fn written(&self) -> &ClusterMessage {
        &self.message
    }

    /// Returns the settings that nodes of `class` are sent.
    pub(crate) fn for_class(&self, class: NodeClass) -> Cow<'_, ClusterMessage> {
        match class {
            NodeClass::Envoy | NodeClass::EnvoyModule => envoy::part(&self.message),
            NodeClass::Grpc => Cow::Owned(grpc::part(&self.message)),
            NodeClass::Plimsoll => Cow::Owned(plimsoll::part(&self.message)),
        }
    }

    /// Rejects settings, which have no effect where clusters come from a relayed server.
    pub(crate) fn check_relayed(&self) -> Result<(), FieldError> {
        match self.differing(&Self::default()).first() {
            Some(name) => Err(FieldError::new(name.clone(), WITHOUT_EFFECT_BEHIND_A_RELAY)),
            None => Ok(()),
        }
    }

    /// Returns settings by which hosts that left the assignment get no requests any more, if these
    /// differ.
    pub(crate) fn for_removed_hosts(&self) -> Option<Self> {
        if !self.has_health_checks() || self.message.ignore_health_on_host_removal {
            return None;
        }
        let mut settings = self.clone();
        settings.message.ignore_health_on_host_removal = true;
        Some(settings)
    }

    /// Whether proxies check the hosts, whatever becomes of their requests.
    pub(crate) const fn has_health_checks(&self) -> bool {
        !self.message.health_checks.is_empty()
    }

    /// Whether hosts are contacted with HTTP/2.
    pub fn is_http2(&self) -> bool {
        let options = http_options(&self.message).unwrap_or_default();
        let explicit = options.unwrap_or_default().explicit_http_config;
        explicit.is_some_and(|explicit| explicit.http2_protocol_options.is_some())
    }

    /// Returns the names of the settings that differ from `other`.
    pub(crate) fn differing(&self, other: &Self) -> Vec<String> {
        let fields = |settings: &Self| match printed(&settings.message) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let [one, two] = [self, other].map(fields);
        let mut names: Vec<_> = one.keys().chain(two.keys()).cloned().collect();
        names.sort();
        names.dedup();
        names.retain(|name| one.get(name) != two.get(name));
        if names.is_empty() && self != other {
            // Private keys are not printed.
            names.push("transport_socket".to_owned());
        }
        names
    }
}

/// Prints settings as JSON, with private keys redacted.
pub(crate) fn printed(settings: &ClusterMessage) -> Value {
    // Settings have been decoded from these bytes, or are built from such.
    json::message(&settings.encode_to_vec(), ClusterMessage::DESCRIPTOR).unwrap_or_default()
}

/// Returns `sent`, an encoded cluster, without load balancing, discovery and load reporting.
pub(crate) fn of_cluster(mut sent: ClusterMessage) -> ClusterMessage {
    sent.common_lb_config = sent.common_lb_config.and_then(beside_load_balancing);
    ClusterMessage {
        name: String::new(),
        discovery_type: None,
        eds_cluster_config: None,
        lb_policy: 0,
        lb_subset_config: None,
        ring_hash_lb_config: None,
        least_request_lb_config: None,
        load_balancing_policy: None,
        lrs_server: None,
        maglev_lb_config: None,
        round_robin_lb_config: None,
        plimsoll: None,
        ..sent
    }
}

/// Removes the load-balancing fields of `common_lb_config`.
fn beside_load_balancing(common: CommonLbConfigMessage) -> Option<CommonLbConfigMessage> {
    let rest = CommonLbConfigMessage {
        healthy_panic_threshold: None,
        zone_aware_lb_config: None,
        locality_weighted_lb_config: None,
        consistent_hashing_lb_config: None,
        ..common
    };
    (rest != CommonLbConfigMessage::default()).then_some(rest)
}

fn http_options(
    cluster: &ClusterMessage,
) -> Result<Option<HttpProtocolOptionsMessage>, FieldError> {
    let any = cluster
        .typed_extension_protocol_options
        .get(HTTP_PROTOCOL_OPTIONS);
    any.map(AnyMessage::unpack).transpose()
}

fn put_http_options(cluster: &mut ClusterMessage, options: &HttpProtocolOptionsMessage) {
    let any = AnyMessage::pack(HTTP_PROTOCOL_OPTIONS, options);
    let all = &mut cluster.typed_extension_protocol_options;
    all.insert(HTTP_PROTOCOL_OPTIONS.to_owned(), any);
}

/// Gives typed HTTP options that name no protocol that of the deprecated fields beside them, by
/// default HTTP/1.1. Envoy refuses options without protocol, and ignores the fields beside them.
fn complete_protocol(cluster: &mut ClusterMessage) -> Result<(), FieldError> {
    let path = format!("typed_extension_protocol_options[{HTTP_PROTOCOL_OPTIONS}]");
    let options = http_options(cluster).map_err(|error| error.under(&path))?;
    let Some(options) = options else {
        return Ok(());
    };
    let has_protocol = options.explicit_http_config.is_some()
        || options.use_downstream_protocol_config.is_some()
        || options.auto_config.is_some();
    if has_protocol {
        return Ok(());
    }
    let explicit = explicit(cluster);
    let options = HttpProtocolOptionsMessage {
        explicit_http_config: Some(explicit),
        ..options
    };
    put_http_options(cluster, &options);
    Ok(())
}

/// Takes the protocol of the deprecated fields, by default HTTP/1.1.
fn explicit(cluster: &mut ClusterMessage) -> ExplicitHttpConfigMessage {
    let http1 = cluster.http_protocol_options.take();
    match cluster.http2_protocol_options.take() {
        Some(http2) => ExplicitHttpConfigMessage {
            http2_protocol_options: Some(http2),
            http_protocol_options: None,
        },
        None => ExplicitHttpConfigMessage {
            http_protocol_options: Some(http1.unwrap_or_default()),
            http2_protocol_options: None,
        },
    }
}

/// Moves deprecated HTTP options to their typed form, which Envoy prefers and the filter of the
/// module needs.
fn type_protocol(cluster: &mut ClusterMessage) -> Result<(), FieldError> {
    let is_deprecated = cluster.http_protocol_options.is_some()
        || cluster.http2_protocol_options.is_some()
        || cluster.common_http_protocol_options.is_some()
        || cluster.upstream_http_protocol_options.is_some()
        || cluster.max_requests_per_connection.is_some();
    if http_options(cluster)?.is_some() || !is_deprecated {
        return Ok(());
    }
    let mut common = cluster.common_http_protocol_options.take();
    if let Some(requests) = cluster.max_requests_per_connection.take() {
        let common = common.get_or_insert_with(CommonHttpMessage::default);
        common.max_requests_per_connection.get_or_insert(requests);
    }
    let options = HttpProtocolOptionsMessage {
        common_http_protocol_options: common,
        upstream_http_protocol_options: cluster.upstream_http_protocol_options.take(),
        explicit_http_config: Some(explicit(cluster)),
        ..Default::default()
    };
    put_http_options(cluster, &options);
    Ok(())
}

#[cfg(test)]
mod tests;
