//! Settings of services that are found beside the files: the defaults of their source, and what
//! they say themselves. Validated by the code that validates files.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, ProtoEnum, WholePercent};
use plimsoll_xds::yaml::{ConfigError, Document};
use serde_json::{Map, Value, json};

use super::cost::CostYaml;
use super::service::{Delivery, Mode, Service};
use super::yaml::ServiceYaml;
use crate::delivery::{refuse_without_effect, shortest_staleness_threshold};
use crate::settings::HTTP_PROTOCOL_OPTIONS;

/// How long services and endpoints stay that a source has lost, by default.
const DEFAULT_REMOVAL_DELAY: Duration = Duration::from_secs(300);

/// Declares the section of a source: fields of its own, and those that all sources have.
macro_rules! source_section {
    (
        $(#[$attribute:meta])*
        $name:ident as $section:literal { $($own:tt)* }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct $name {
            $($own)*
            /// `ENFORCE` demand, only measure and show it (`SHADOW`), or `OFF`. Default `SHADOW`:
            /// unlike the services of a file, these were not chosen one by one.
            mode: Option<plimsoll_xds::yaml::proto_json::Named<crate::config::Mode>>,
            /// Percentage of requests sent by measured demand; the others go as with `OFF`. Default
            /// 100.
            ramp: Option<plimsoll_xds::yaml::proto_json::WholePercent>,
            /// How demand is delivered to data planes. Default `AUTO`.
            delivery: Option<plimsoll_xds::yaml::proto_json::Named<crate::config::Delivery>>,
            /// Settings of all clusters, as in Envoy, without `name`.
            #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::cluster"))]
            cluster: Option<serde_json::Map<String, serde_json::Value>>,
        }

        impl $name {
            /// Returns the defaults of services; `cost` has the prices of the file.
            fn defaults(
                &self,
                cost: &super::cost::CostYaml,
            ) -> Result<super::discovered::ServiceDefaults, plimsoll_core::units::FieldError> {
                super::discovered::ServiceDefaults::new(super::discovered::Written {
                    section: $section,
                    mode: self.mode,
                    ramp: self.ramp,
                    delivery: self.delivery,
                    cluster: self.cluster.as_ref(),
                    cost,
                })
            }
        }
    };
}
pub(super) use source_section;

/// Settings of a section of the file for the services of its source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    /// Name of the section.
    pub(super) section: &'static str,
    /// Prices of the file, for services without their own.
    pub(super) cost: &'a CostYaml,
    pub(super) mode: Option<Named<Mode>>,
    pub(super) ramp: Option<WholePercent>,
    pub(super) delivery: Option<Named<Delivery>>,
    pub(super) cluster: Option<&'a Map<String, Value>>,
}

/// Settings of all services of a source, unless they have their own.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceDefaults {
    section: &'static str,
    /// Settings of a service as in a file, without its name and endpoints.
    written: Map<String, Value>,
    /// Shortest `staleness_threshold` that a service may have.
    shortest_threshold: Duration,
    /// Prices of the file, for services without their own.
    cost: CostYaml,
}

impl ServiceDefaults {
    /// Reads the defaults, which must be valid by themselves. Unlike the services of a file, these
    /// were not chosen one by one, so demand is only shown unless the section says otherwise.
    pub(super) fn new(from: Written<'_>) -> Result<Self, FieldError> {
        let mode = from.mode.map_or(Mode::Shadow, |mode| mode.0);
        let mut written = Map::new();
        written.insert("mode".to_owned(), json!(name_of(mode)));
        if let Some(ramp) = from.ramp {
            written.insert("ramp".to_owned(), json!(ramp.0));
        }
        if let Some(delivery) = from.delivery {
            written.insert("delivery".to_owned(), json!(name_of(delivery.0)));
        }
        let cluster = from.cluster.cloned().unwrap_or_default();
        written.insert("cluster".to_owned(), Value::Object(cluster));
        let defaults = Self {
            section: from.section,
            written,
            shortest_threshold: Duration::ZERO,
            cost: from.cost.clone(),
        };
        let built = defaults.service("default", false, &Map::new());
        let service = built.map_err(|error| FieldError::new(error.path(), error.reason()))?;
        refuse_without_effect(&service)?;
        Ok(defaults)
    }

    /// Refuses services whose `staleness_threshold` would need a shorter heartbeat than the files
    /// do: it is that of all fleets. The defaults themselves are of the operator.
    pub(super) fn keep_heartbeat(&mut self, heartbeat: Duration) {
        let own = self.service("default", false, &Map::new()).ok();
        let own = shortest_staleness_threshold(own.iter()).map(|(_, threshold)| threshold);
        let longest = heartbeat.saturating_mul(3);
        self.shortest_threshold = own.map_or(longest, |own| own.min(longest));
    }

    /// Builds a service without endpoints from the defaults and `settings`, which have the shape of
    /// a service in a file. Validated by the code that validates files.
    pub fn service(
        &self,
        name: &str,
        is_http2: bool,
        settings: &Map<String, Value>,
    ) -> Result<Service, ConfigError> {
        let mut written = self.written.clone();
        for (field, value) in settings {
            match (written.get_mut(field), value) {
                (Some(Value::Object(defaults)), Value::Object(own)) => {
                    defaults.extend(own.clone());
                }
                _ => drop(written.insert(field.clone(), value.clone())),
            }
        }
        let cluster = written.entry("cluster").or_insert_with(|| json!({}));
        if cluster.get("name").is_some() {
            let reason = format!(
                "must not be set: {}.cluster_name has the name",
                self.section
            );
            return Err(ConfigError::new("cluster.name", reason));
        }
        cluster["name"] = json!(name);
        if is_http2 {
            let own = settings.get("cluster");
            set_http2(cluster, own.is_some_and(|own| typed_options(own).is_some()));
        }
        let document = Document::parse(&Value::Object(written).to_string())?;
        let yaml: ServiceYaml = document.read()?;
        let service = yaml.validate(&self.cost)?;
        let shortest = self.shortest_threshold;
        match shortest_staleness_threshold([&service].into_iter()) {
            Some((_, threshold)) if threshold < shortest => {
                let reason = format!(
                    "staleness_threshold {threshold:?} is less than {shortest:?}, three heartbeats \
                     of demand"
                );
                Err(ConfigError::new("cluster", reason))
            }
            _ => Ok(service),
        }
    }
}

/// Returns how long things stay that the source has lost.
pub(super) fn removal_delay(written: Option<ProtoDuration>) -> Duration {
    written.map_or(DEFAULT_REMOVAL_DELAY, |delay| delay.0)
}

/// Returns the name of a zone, unless it is empty.
pub(super) fn zone(written: &str) -> Option<Arc<str>> {
    Some(written).filter(|zone| !zone.is_empty()).map(Arc::from)
}

/// Checks the template of the names of clusters.
pub(super) fn check_cluster_name(name: &str, placeholders: &[&str]) -> Result<(), FieldError> {
    let error = |reason: String| Err(FieldError::new("cluster_name", reason));
    let mut rest = name.to_owned();
    for placeholder in placeholders {
        rest = rest.replace(placeholder, "");
    }
    if rest.contains(['{', '}']) {
        let known = placeholders.join(", ");
        return error(format!(
            "{name:?} has an unknown placeholder; there are {known}"
        ));
    }
    if !name.contains("{service}") {
        return error(format!("{name:?} lacks {{service}}"));
    }
    Ok(())
}

/// Returns the name of an enum's value in files.
pub(super) fn name_of<T: ProtoEnum + PartialEq + Copy>(value: T) -> &'static str {
    let mut values = T::VALUES.iter();
    values
        .find(|(_, _, known)| *known == value)
        .map_or("", |(name, ..)| name)
}

/// Returns the typed HTTP options of a cluster.
fn typed_options(cluster: &Value) -> Option<&Value> {
    let spellings = [
        "typed_extension_protocol_options",
        "typedExtensionProtocolOptions",
    ];
    let all = spellings.iter().find_map(|name| cluster.get(name))?;
    all.get(HTTP_PROTOCOL_OPTIONS)
}

/// Chooses HTTP/2 for a port whose `appProtocol` says so, whatever protocol typed options in the
/// defaults name. Typed options of the port itself that name a protocol are kept.
fn set_http2(cluster: &mut Value, is_own: bool) {
    let protocols = [
        "explicit_http_config",
        "use_downstream_protocol_config",
        "auto_config",
        "explicitHttpConfig",
        "useDownstreamProtocolConfig",
        "autoConfig",
    ];
    let typed = typed_options(cluster).and_then(Value::as_object);
    let names_protocol =
        typed.is_some_and(|typed| protocols.iter().any(|name| typed.contains_key(*name)));
    if is_own && names_protocol {
        return;
    }
    let Some(fields) = cluster.as_object_mut() else {
        return;
    };
    let name = [
        "typed_extension_protocol_options",
        "typedExtensionProtocolOptions",
    ]
    .into_iter()
    .find(|name| fields.contains_key(*name));
    let typed = name.and_then(|name| fields.get_mut(name)?.get_mut(HTTP_PROTOCOL_OPTIONS));
    if let Some(Value::Object(typed)) = typed {
        // Other settings of HTTP/2 in the defaults apply to it.
        let has_http2 = protocols.iter().any(|name| {
            let spellings = ["http2_protocol_options", "http2ProtocolOptions"];
            let chosen = typed.get(*name).and_then(Value::as_object);
            let only_http2 = |chosen: &Map<String, Value>| {
                chosen.len() == 1 && spellings.iter().any(|name| chosen.contains_key(*name))
            };
            chosen.is_some_and(only_http2)
        });
        if !has_http2 {
            typed.retain(|name, _| !protocols.contains(&name.as_str()));
            let http2 = json!({ "http2_protocol_options": {} });
            typed.insert("explicit_http_config".to_owned(), http2);
        }
        return;
    }
    let spellings = ["http2_protocol_options", "http2ProtocolOptions"];
    if !spellings.iter().any(|name| fields.contains_key(*name)) {
        fields.insert("http2_protocol_options".to_owned(), json!({}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigFile, ControlConfig};

    fn parse(text: &str) -> ControlConfig {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: text.to_owned(),
        };
        ControlConfig::parse(&file, &[]).unwrap()
    }

    fn with_threshold(seconds: u64) -> Map<String, Value> {
        let zone_aware = json!({"locality_basis": "LRS_REPORTED_RATE",
            "lrs_rate_config": {"staleness_threshold": format!("{seconds}s")}});
        let policy = json!({"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies\
            .round_robin.v3.RoundRobin",
            "locality_lb_config": {"zone_aware_lb_config": zone_aware}});
        let policies = json!([{"typed_extension_config": {"name": "x", "typed_config": policy}}]);
        let cluster = json!({"load_balancing_policy": {"policies": policies}});
        Map::from_iter([
            ("mode".to_owned(), json!("ENFORCE")),
            ("cluster".to_owned(), cluster),
        ])
    }

    #[test]
    fn a_tenant_does_not_shorten_the_heartbeat_of_all_fleets() {
        let found = |text: &str, seconds| {
            let config = parse(text);
            let section = config.sources.kubernetes.unwrap();
            section
                .defaults
                .service("a", false, &with_threshold(seconds))
        };
        let written = "{demand: {heartbeat: 10s}, kubernetes: {}}";
        let error = found(written, 29).unwrap_err();
        assert_eq!(error.path(), "cluster");
        assert!(error.reason().contains("29s is less than 30s"), "{error}");
        assert!(found(written, 30).is_ok());
        assert!(found("kubernetes: {}", 59).is_err(), "by default 20 s");
        assert!(found("kubernetes: {}", 60).is_ok());
        // A service of the files shortens the heartbeat, which others then may use.
        let own = json!({"services": [{"cluster": {"name": "own"}}], "kubernetes": {}});
        let mut own = own;
        own["services"][0]["mode"] = json!("ENFORCE");
        let policy = with_threshold(9)["cluster"]["load_balancing_policy"].clone();
        own["services"][0]["cluster"]["load_balancing_policy"] = policy;
        assert!(found(&own.to_string(), 8).is_err());
        assert!(found(&own.to_string(), 9).is_ok());
    }
}
