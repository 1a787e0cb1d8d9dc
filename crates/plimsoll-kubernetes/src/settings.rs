//! [`Settings`]: what the owner of a Service set, by annotations and by a ZoneRoutingPolicy.
//!
//! A policy wins over an annotation, and both over the defaults of the control plane's file. Values
//! are translated to the spelling of that file (`Enforce` to `ENFORCE`), and validated there by the
//! code that validates the file. Errors name the object and its field.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Number, Value, json};

use crate::objects::{ObjectKey, Service, ZoneRoutingPolicy};

/// Prefix of annotations that are settings.
pub const ANNOTATION_PREFIX: &str = "plimsoll.dev/";

/// Annotations that are settings, without their prefix, and the setting of the file.
const ANNOTATIONS: [(&str, &str); 4] = [
    ("mode", "mode"),
    ("ramp", "ramp"),
    ("delivery", "delivery"),
    ("policy", "cluster.lb_policy"),
];
/// Annotations that are numbers, without their prefix: the setting of the file, and the path of the
/// number in it.
const NUMBERS: [(&str, &str, &[&str]); 2] = [
    (
        "target-utilization",
        "objective",
        &["waterfall", "target_utilization"],
    ),
    ("requests-per-second", "capacity", &["requests_per_second"]),
];
/// Annotation that is `true` if capacity is to be learned.
const LEARNED_CAPACITY: &str = "learned-capacity";
/// Annotation with names of fleets, between commas.
const VISIBLE_TO: &str = "visible-to";
const IGNORE: &str = "ignore";
/// Fields of a policy's `spec`.
const SPEC_FIELDS: [&str; 8] = [
    "mode",
    "ramp",
    "delivery",
    "objective",
    "capacity",
    "cost",
    "cluster",
    "istio",
];

/// Settings of one port of a Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Values in the spelling of the control plane's file, by setting.
    pub values: BTreeMap<&'static str, Setting>,
    /// Whether weights are written to Istio's DestinationRule.
    pub distribute: Distribute,
    /// The policy that applies.
    pub policy: Option<Arc<ZoneRoutingPolicy>>,
    /// What cannot be used; the values are those of the others.
    pub errors: Vec<SettingError>,
}

/// A value and where it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    pub value: Value,
    pub origin: Origin,
}

/// Where a setting is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Kind and key of the object, such as `Service shop/orders`.
    pub object: String,
    /// Path of the field in the object.
    pub field: String,
}

/// Whether zone weights are written to Istio's DestinationRule of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribute {
    #[default]
    Off,
    /// Weights are shown in the status of the policy only.
    DryRun,
    Write,
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {}: {reason}", origin.object, origin.field)]
pub struct SettingError {
    pub origin: Origin,
    pub reason: String,
    /// The setting that has no value because of this; `None` if there is no such setting.
    pub setting: Option<&'static str>,
}

impl Origin {
    /// Place of an annotation of a Service.
    pub fn annotation(service: &ObjectKey, name: &str) -> Self {
        Self {
            object: format!("Service {service}"),
            field: format!("metadata.annotations[{ANNOTATION_PREFIX}{name}]"),
        }
    }

    /// Place of a field of a policy.
    pub fn policy(policy: &ObjectKey, field: &str) -> Self {
        Self {
            object: format!("ZoneRoutingPolicy {policy}"),
            field: format!("spec.{field}"),
        }
    }

    fn error(self, setting: Option<&'static str>, reason: impl Into<String>) -> SettingError {
        SettingError {
            origin: self,
            reason: reason.into(),
            setting,
        }
    }
}

/// Whether a Service is left out.
pub fn is_ignored(service: &Service) -> Result<bool, SettingError> {
    match service.annotations.get(IGNORE).map(String::as_str) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            let reason = format!("{other:?} is neither \"true\" nor \"false\"");
            Err(Origin::annotation(&service.key, IGNORE).error(None, reason))
        }
    }
}

/// Returns the settings of one port, from annotations and from the policy that applies. A value
/// that cannot be used leaves the others in force.
pub fn collect<'a>(
    service: &Service,
    port: &str,
    policies: impl Iterator<Item = &'a Arc<ZoneRoutingPolicy>>,
) -> Settings {
    let mut settings = Settings::default();
    for (name, value) in service
        .annotations
        .iter()
        .filter(|(name, _)| *name != IGNORE)
    {
        let origin = Origin::annotation(&service.key, name);
        match annotation(name, value) {
            Ok((setting, value)) => {
                settings.values.insert(setting, Setting { value, origin });
            }
            Err((setting, reason)) => settings.errors.push(origin.error(setting, reason)),
        }
    }
    let name = &service.key.name;
    let applies = policies.filter_map(|policy| Some((policy.rank(name, port)?, policy)));
    if let Some((_, policy)) = applies.min_by(|one, other| one.0.cmp(&other.0)) {
        settings.add_policy(policy);
    }
    settings
}

/// Returns the setting of an annotation; an error with the setting that it would be.
fn annotation(
    name: &str,
    text: &str,
) -> Result<(&'static str, Value), (Option<&'static str>, String)> {
    if let Some((_, setting, path)) = NUMBERS.iter().find(|(known, ..)| *known == name) {
        let value = number_at(path, text).map_err(|reason| (Some(*setting), reason))?;
        return Ok((setting, value));
    }
    if name == LEARNED_CAPACITY {
        return match text {
            "true" => Ok(("capacity", json!({"learned": {}}))),
            other => {
                let reason = format!("{other:?} is not \"true\"; remove it to learn nothing");
                Err((Some("capacity"), reason))
            }
        };
    }
    if name == VISIBLE_TO {
        let fleets: Vec<&str> = text.split(',').map(str::trim).collect();
        return Ok(("visible_to", Value::from(fleets)));
    }
    if let Some((_, setting)) = ANNOTATIONS.iter().find(|(known, _)| *known == name) {
        return Ok((setting, Value::String(file_spelling(text))));
    }
    let texts = ANNOTATIONS.iter().map(|(name, _)| name);
    let all = texts.chain(NUMBERS.iter().map(|(name, ..)| name));
    let names: Vec<_> = all
        .chain([&LEARNED_CAPACITY, &VISIBLE_TO, &IGNORE])
        .map(|name| format!("{ANNOTATION_PREFIX}{name}"))
        .collect();
    Err((None, format!("is unknown; there are {}", names.join(", "))))
}

impl Settings {
    /// Merges the cluster fields of the annotations and the policy into one object.
    pub fn cluster(&self) -> Map<String, Value> {
        let mut cluster = match self.values.get("cluster") {
            Some(Setting {
                value: Value::Object(fields),
                ..
            }) => fields.clone(),
            _ => Map::new(),
        };
        if let Some(policy) = self.values.get("cluster.lb_policy") {
            let entry = cluster.entry("lb_policy");
            entry.or_insert_with(|| policy.value.clone());
        }
        cluster
    }

    /// Returns where the setting is written that an error of the file's validation is about.
    pub fn origin_of(&self, path: &str) -> Option<&Origin> {
        let setting = self.setting_of(path)?;
        Some(&self.values.get(setting)?.origin)
    }

    /// Returns the setting that an error of the file's validation is about.
    pub fn setting_of(&self, path: &str) -> Option<&'static str> {
        let head = path.split(['.', '[']).next().unwrap_or_default();
        let policy = Some("cluster.lb_policy").filter(|_| head == "cluster");
        let names = [Some(path), Some(head), policy].into_iter().flatten();
        let mut known = names.filter_map(|name| self.values.get_key_value(name));
        known.next().map(|(setting, _)| *setting)
    }

    fn add_policy(&mut self, policy: &Arc<ZoneRoutingPolicy>) {
        for (field, value) in policy.settings.iter().filter(|(_, value)| !value.is_null()) {
            let origin = Origin::policy(&policy.key, field);
            let Some(setting) = SPEC_FIELDS.iter().find(|known| *known == field) else {
                self.errors.push(origin.error(None, "is unknown"));
                continue;
            };
            if *setting == "istio" {
                match distribute(policy, value) {
                    Ok(distribute) => self.distribute = distribute,
                    Err(error) => self.errors.push(error),
                }
                continue;
            }
            match field_of_spec(setting, value) {
                Ok(value) => {
                    self.values.insert(setting, Setting { value, origin });
                }
                Err(reason) => self.errors.push(origin.error(Some(setting), reason)),
            }
        }
        self.policy = Some(Arc::clone(policy));
    }
}

/// Returns a field of a policy's `spec` in the spelling of the file.
fn field_of_spec(setting: &str, value: &Value) -> Result<Value, String> {
    match (setting, value) {
        ("cluster" | "objective" | "capacity" | "cost", Value::Object(_))
        | ("ramp", Value::Number(_)) => Ok(value.clone()),
        ("cluster" | "objective" | "capacity" | "cost", _) => Err("is not an object".to_owned()),
        ("ramp", _) => Err("is not a number of percent".to_owned()),
        // `mode: Off` without quotes is a boolean in YAML 1.1, which kubectl reads.
        ("mode", Value::Bool(false)) => Ok(Value::String("OFF".to_owned())),
        (_, Value::String(text)) => Ok(Value::String(file_spelling(text))),
        (_, other) => Err(format!("{other} is not a string")),
    }
}

/// Returns an object that has a number at a path.
fn number_at(path: &[&str], text: &str) -> Result<Value, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number"))?;
    let number = Number::from_f64(number).ok_or_else(|| format!("{text:?} is not finite"))?;
    let nested = |inner, name: &&str| Value::Object(Map::from_iter([((*name).to_owned(), inner)]));
    Ok(path.iter().rev().fold(Value::Number(number), nested))
}

fn distribute(policy: &ZoneRoutingPolicy, istio: &Value) -> Result<Distribute, SettingError> {
    let error = |reason: String| {
        let origin = Origin::policy(&policy.key, "istio.distribute");
        Err(origin.error(Some("istio"), reason))
    };
    let written = istio.get("fleets").filter(|fleets| !fleets.is_null());
    let is_text = |fleet: &Value| fleet.as_str().is_some_and(|fleet| !fleet.is_empty());
    let is_list = |fleets: &Value| fleets.as_array().is_some_and(|all| all.iter().all(is_text));
    if written.is_some_and(|fleets| !is_list(fleets)) {
        let origin = Origin::policy(&policy.key, "istio.fleets");
        return Err(origin.error(Some("istio"), "is not a list of names"));
    }
    match istio.get("distribute") {
        // Without quotes, `Off` is a boolean in YAML 1.1.
        None | Some(Value::Null | Value::Bool(false)) => Ok(Distribute::Off),
        Some(Value::String(text)) => match text.as_str() {
            "Off" => Ok(Distribute::Off),
            "DryRun" => Ok(Distribute::DryRun),
            "Write" => Ok(Distribute::Write),
            other => error(format!("{other:?} is not Off, DryRun or Write")),
        },
        Some(other) => error(format!("{other} is not a string")),
    }
}

/// Converts `LeastRequest`, as enums are written in Kubernetes, to `LEAST_REQUEST`. Other values
/// stay as they are.
fn file_spelling(value: &str) -> String {
    let is_camel = value
        .chars()
        .next()
        .is_some_and(|first| first.is_ascii_uppercase())
        && value.chars().any(|letter| letter.is_ascii_lowercase())
        && value.chars().all(|letter| letter.is_ascii_alphanumeric());
    if !is_camel {
        return value.to_owned();
    }
    let mut spelled = String::with_capacity(value.len() + 4);
    for (index, letter) in value.chars().enumerate() {
        if index > 0 && letter.is_ascii_uppercase() {
            spelled.push('_');
        }
        spelled.push(letter.to_ascii_uppercase());
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Resource;

    fn service(annotations: Value) -> Service {
        let json = json!({"metadata": {"namespace": "shop", "name": "orders",
                                       "annotations": annotations}});
        Service::from_json(serde_json::from_value(json).unwrap())
    }

    fn policy(name: &str, created: &str, spec: Value) -> Arc<ZoneRoutingPolicy> {
        let json = json!({"metadata": {"namespace": "shop", "name": name,
                                       "creationTimestamp": created}, "spec": spec});
        let json = serde_json::from_value(json).unwrap();
        Arc::new(ZoneRoutingPolicy::from_json(json))
    }

    fn target(section: Option<&str>) -> Value {
        json!([{"group": "", "kind": "Service", "name": "orders", "sectionName": section}])
    }

    #[test]
    fn annotations_are_spelled_as_in_the_file() {
        let service = service(
            json!({"plimsoll.dev/mode": "Enforce", "plimsoll.dev/ramp": "20%",
            "plimsoll.dev/delivery": "FleetWeights", "plimsoll.dev/policy": "LEAST_REQUEST"}),
        );
        let settings = collect(&service, "http", [].iter());
        let value = |name: &str| settings.values[name].value.as_str().unwrap().to_owned();
        assert_eq!(value("mode"), "ENFORCE");
        assert_eq!(value("ramp"), "20%");
        assert_eq!(value("delivery"), "FLEET_WEIGHTS");
        assert_eq!(
            settings.cluster(),
            *json!({"lb_policy": "LEAST_REQUEST"}).as_object().unwrap()
        );
        let origin = settings.origin_of("cluster.lb_policy").unwrap();
        assert_eq!(origin.field, "metadata.annotations[plimsoll.dev/policy]");
        assert_eq!(settings.origin_of("overprovisioning_factor"), None);
    }

    #[test]
    fn objectives_are_annotations_or_objects_of_a_policy() {
        let annotated = json!({"plimsoll.dev/target-utilization": "0.8",
            "plimsoll.dev/requests-per-second": "30"});
        let settings = collect(&service(annotated.clone()), "http", [].iter());
        let value = |settings: &Settings, name: &str| settings.values[name].value.clone();
        let waterfall = json!({"waterfall": {"target_utilization": 0.8}});
        assert_eq!(value(&settings, "objective"), waterfall);
        let per_host = json!({"requests_per_second": 30.0});
        assert_eq!(value(&settings, "capacity"), per_host);
        let learned = collect(
            &service(json!({"plimsoll.dev/learned-capacity": "true"})),
            "http",
            [].iter(),
        );
        assert_eq!(value(&learned, "capacity"), json!({"learned": {}}));
        let refused = collect(
            &service(json!({"plimsoll.dev/learned-capacity": "yes"})),
            "http",
            [].iter(),
        );
        assert!(refused.errors[0].to_string().contains("is not \"true\""));
        let own = json!({"waterfall": {"targetUtilization": 0.6}});
        let spec = json!({"targetRefs": target(None), "objective": own});
        let policies = [policy("p", "", spec)];
        let settings = collect(&service(annotated), "http", policies.iter());
        assert_eq!(value(&settings, "objective"), own);
        assert_eq!(
            value(&settings, "capacity"),
            per_host,
            "from the annotation"
        );
        let cost = json!({"usdPerGigabyteBetweenRegions": 0.05});
        let spec = json!({"targetRefs": target(None), "cost": cost});
        let priced = collect(&service(json!({})), "http", [policy("p", "", spec)].iter());
        assert_eq!(value(&priced, "cost"), cost);
        let origin = settings.origin_of("objective.waterfall.target_utilization");
        assert_eq!(origin.unwrap().field, "spec.objective");
        for wrong in ["much", "inf"] {
            let service = service(json!({"plimsoll.dev/requests-per-second": wrong}));
            let error = collect(&service, "http", [].iter()).errors[0].to_string();
            assert!(
                error.contains("[plimsoll.dev/requests-per-second]: \""),
                "{error}"
            );
        }
    }

    #[test]
    fn a_policy_wins_over_annotations() {
        let service = service(json!({"plimsoll.dev/mode": "Off", "plimsoll.dev/ramp": "5"}));
        let spec = json!({"targetRefs": target(None), "mode": "Enforce",
            "cluster": {"lb_policy": "RANDOM"}, "istio": {"distribute": "DryRun"}});
        let policies = [policy("p", "", spec)];
        let settings = collect(&service, "http", policies.iter());
        assert_eq!(settings.values["mode"].value, "ENFORCE");
        assert_eq!(
            settings.values["mode"].origin.object,
            "ZoneRoutingPolicy shop/p"
        );
        assert_eq!(settings.values["ramp"].value, "5", "from the annotation");
        assert_eq!(settings.distribute, Distribute::DryRun);
        let origin = settings.origin_of("cluster.lb_policy").unwrap();
        assert_eq!(origin.field, "spec.cluster");
    }

    #[test]
    fn of_several_policies_that_of_the_port_and_then_the_oldest_applies() {
        let service = service(json!({}));
        let spec = |section, mode: &str| json!({"targetRefs": target(section), "mode": mode});
        let policies = [
            policy("a", "2026-02-01T00:00:00Z", spec(None, "Off")),
            policy("b", "2026-01-01T00:00:00Z", spec(None, "Shadow")),
            policy("c", "2026-03-01T00:00:00Z", spec(Some("grpc"), "Enforce")),
        ];
        let mode = |port: &str| {
            let settings = collect(&service, port, policies.iter());
            settings.values["mode"].value.as_str().unwrap().to_owned()
        };
        assert_eq!(mode("grpc"), "ENFORCE");
        assert_eq!(mode("http"), "SHADOW");
    }

    #[test]
    fn errors_name_the_object_and_the_field() {
        let settings = collect(&service(json!({"plimsoll.dev/mod": "x"})), "", [].iter());
        let text = settings.errors[0].to_string();
        let expected = "Service shop/orders metadata.annotations[plimsoll.dev/mod]: is unknown";
        assert!(text.starts_with(expected), "{text}");
        let bad = [
            (json!({"ramp": "20"}), "spec.ramp: is not a number"),
            (json!({"cluster": "x"}), "spec.cluster: is not an object"),
            (
                json!({"objective": "Level"}),
                "spec.objective: is not an object",
            ),
            (json!({"mode": 1}), "spec.mode: 1 is not a string"),
            (
                json!({"istio": {"distribute": "On"}}),
                "spec.istio.distribute: \"On\" is not",
            ),
            (
                json!({"istio": {"distribute": "Write", "fleets": ["a", ""]}}),
                "spec.istio.fleets: is not a list",
            ),
            (json!({"moed": "Off"}), "spec.moed: is unknown"),
        ];
        for (mut spec, expected) in bad {
            spec["targetRefs"] = target(None);
            let policies = [policy("p", "", spec)];
            let settings = collect(&service(json!({})), "", policies.iter());
            let [error] = &settings.errors[..] else {
                panic!("{settings:?}");
            };
            assert_eq!(error.origin.object, "ZoneRoutingPolicy shop/p");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn what_is_valid_beside_an_error_is_in_force() {
        let service = service(
            json!({"plimsoll.dev/mode": "Enforce", "plimsoll.dev/mod": "x",
            "plimsoll.dev/requests-per-second": "many"}),
        );
        let spec = json!({"targetRefs": target(None), "ramp": 20, "delivery": 5,
            "istio": {"distribute": "On"}});
        let policies = [policy("p", "", spec)];
        let settings = collect(&service, "http", policies.iter());
        assert_eq!(settings.values["mode"].value, "ENFORCE");
        assert_eq!(settings.values["ramp"].value, 20);
        assert_eq!(settings.values.len(), 2);
        assert_eq!(settings.policy.as_ref(), Some(&policies[0]));
        let errors = settings.errors.iter().map(|error| error.setting);
        let errors: Vec<_> = errors.collect();
        let expected = [None, Some("capacity"), Some("delivery"), Some("istio")];
        assert_eq!(errors, expected);
    }

    #[test]
    fn off_is_off_with_quotes_and_without() {
        for off in [json!("Off"), json!(false)] {
            let spec = json!({"targetRefs": target(None), "mode": off,
                "istio": {"distribute": off}});
            let policies = [policy("p", "", spec)];
            let settings = collect(&service(json!({})), "http", policies.iter());
            assert_eq!(settings.errors, []);
            assert_eq!(settings.values["mode"].value, "OFF");
            assert_eq!(settings.distribute, Distribute::Off);
        }
        let spec = json!({"targetRefs": target(None), "mode": true});
        let policies = [policy("p", "", spec)];
        let settings = collect(&service(json!({})), "http", policies.iter());
        assert_eq!(settings.errors[0].reason, "true is not a string");
    }

    #[test]
    fn services_can_be_left_out() {
        let ignore = |value: &str| is_ignored(&service(json!({"plimsoll.dev/ignore": value})));
        assert_eq!(ignore("true"), Ok(true));
        assert_eq!(ignore("false"), Ok(false));
        assert!(ignore("yes").is_err());
        assert_eq!(is_ignored(&service(json!({}))), Ok(false));
    }

    #[test]
    fn only_camel_case_is_converted() {
        assert_eq!(file_spelling("LocalityMetadata"), "LOCALITY_METADATA");
        assert_eq!(file_spelling("Auto"), "AUTO");
        for same in ["AUTO", "20%", "", "off", "LEAST_REQUEST"] {
            assert_eq!(file_spelling(same), same);
        }
    }
}
