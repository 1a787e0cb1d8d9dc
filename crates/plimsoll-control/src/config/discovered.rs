//! Settings of services that are found beside the files: the defaults of their source, and what
//! they say themselves. Validated by the code that validates files.

use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{Named, ProtoEnum, WholePercent};
use plimsoll_xds::yaml::{ConfigError, Document};
use serde_json::{Map, Value, json};

use super::cost::CostYaml;
use super::service::{Delivery, Mode, Service};
use super::yaml::ServiceYaml;
use crate::delivery::refuse_without_effect;
use crate::settings::HTTP_PROTOCOL_OPTIONS;

/// Settings of a section of the file for the services of its source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    /// Name of the section.
    pub(super) section: &'static str,
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
            cost: CostYaml::default(),
        };
        defaults.checked()
    }

    fn checked(self) -> Result<Self, FieldError> {
        let built = self.service("default", false, &Map::new());
        let service = built.map_err(|error| FieldError::new(error.path(), error.reason()))?;
        refuse_without_effect(&service)?;
        Ok(self)
    }

    /// Adds the prices of the file.
    pub(super) fn with_general_cost(self, cost: &CostYaml) -> Result<Self, FieldError> {
        let cost = cost.clone();
        Self { cost, ..self }.checked()
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
        Ok(yaml.validate(&self.cost)?)
    }
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
