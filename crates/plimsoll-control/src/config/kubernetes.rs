//! Services of a Kubernetes cluster: where its API server is, and defaults for what is found.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_kubernetes::ApiAccess;
use plimsoll_kubernetes::merge::AddressFamily;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, ProtoEnum, WholePercent};
use plimsoll_xds::yaml::{ConfigError, Document};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::service::{Delivery, Mode, Service};
use super::yaml::ServiceYaml;

/// Readable as the address of the Service in DNS, and as the target `xds:///` of gRPC clients.
const DEFAULT_CLUSTER_NAME: &str = "{service}.{namespace}:{port}";
const PLACEHOLDERS: [&str; 4] = ["{service}", "{namespace}", "{port}", "{port_name}"];
const DEFAULT_WATCH_TIMEOUT: Duration = Duration::from_secs(120);
const WATCH_TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);
const DEFAULT_REMOVAL_DELAY: Duration = Duration::from_secs(300);

/// Services of a Kubernetes cluster, one cluster for each TCP port. The settings are defaults:
/// annotations of a Service and a ZoneRoutingPolicy override them.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct KubernetesYaml {
    /// Namespaces whose Services are used. Default all.
    namespaces: Vec<String>,
    /// Label selector of the Services, such as `team=shop`. Default all.
    label_selector: Option<String>,
    /// Kubeconfig file. Default none: the service account of the Pod.
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig file. Default its current context.
    context: Option<String>,
    /// URL of the API server, instead of `kubeconfig`. Default that of the Pod's cluster.
    api_server: Option<String>,
    /// File with the certificate authority of `api_server`, in PEM format. Needed for `https`.
    ca_file: Option<PathBuf>,
    /// File with a bearer token for `api_server`, which is read for every request. Default none.
    token_file: Option<PathBuf>,
    /// Name of the cluster of a port, with `{service}`, `{namespace}`, `{port}` (the number) and
    /// `{port_name}`; a second port with the same name is refused. Default
    /// `{service}.{namespace}:{port}`. The names in Istio's sidecars are
    /// `outbound|{port}||{service}.{namespace}.svc.cluster.local`.
    cluster_name: Option<String>,
    /// `ENFORCE` demand, only measure and show it (`SHADOW`), or `OFF`. Default `SHADOW`: unlike
    /// the services of a file, these were not chosen one by one.
    mode: Option<Named<Mode>>,
    /// Percentage of the way from host counts to measured demand, 0 to 100. Default 100.
    ramp: Option<WholePercent>,
    /// How demand is delivered to data planes. Default `AUTO`.
    delivery: Option<Named<Delivery>>,
    /// Settings of all clusters, as in Envoy, without `name`. HTTP/2 is chosen by `appProtocol`.
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::cluster"))]
    cluster: Option<Map<String, Value>>,
    /// Region of all endpoints, as in the proxies' `node.locality`. Default empty.
    region: String,
    /// Zone of endpoints that have none. Default empty: they are in no zone.
    fallback_zone: String,
    /// Addresses of Services with two families: `IPV4`, `IPV6`, or `AUTO`, the first in the
    /// Service's `ipFamilies`. Default `AUTO`.
    address_family: Named<Family>,
    /// Longest time of a watch, 1s to 3600s. A connection that is open but dead is found after it.
    /// Default `120s`.
    watch_timeout: Option<ProtoDuration>,
    /// How long objects stay that a list lacks, if it lacks more than
    /// `reload.max_removed_percent`. Deletions that a watch reports take effect at once. Default
    /// `300s`.
    removal_delay: Option<ProtoDuration>,
}

/// Which addresses of a Service with two families are used, as written in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Family {
    #[default]
    Auto,
    Ipv4,
    Ipv6,
}

impl ProtoEnum for Family {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("AUTO", 0, Self::Auto),
        ("IPV4", 1, Self::Ipv4),
        ("IPV6", 2, Self::Ipv6),
    ];
}

/// Which Services of a cluster are used, and with which settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Kubernetes {
    pub access: ApiAccess,
    /// All namespaces if empty.
    pub namespaces: Vec<String>,
    pub label_selector: Option<String>,
    pub cluster_name: String,
    /// Settings of a service as in a file, without its name and endpoints.
    pub defaults: Map<String, Value>,
    pub region: String,
    pub fallback_zone: Option<Arc<str>>,
    pub address_family: AddressFamily,
    pub watch_timeout: Duration,
    pub removal_delay: Duration,
}

impl KubernetesYaml {
    pub(super) fn validate(&self) -> Result<Kubernetes, FieldError> {
        let name = self.cluster_name.as_deref().unwrap_or(DEFAULT_CLUSTER_NAME);
        check_cluster_name(name)?;
        let watch_timeout = self
            .watch_timeout
            .map_or(DEFAULT_WATCH_TIMEOUT, |time| time.0);
        if !WATCH_TIMEOUT.contains(&watch_timeout) {
            let reason = format!("{watch_timeout:?} is outside 1 s to 1 h");
            return Err(FieldError::new("watch_timeout", reason));
        }
        let removal_delay = self
            .removal_delay
            .map_or(DEFAULT_REMOVAL_DELAY, |time| time.0);
        let kubernetes = Kubernetes {
            access: self.access()?,
            namespaces: self.namespaces.clone(),
            label_selector: self.label_selector.clone(),
            cluster_name: name.to_owned(),
            defaults: self.defaults(),
            region: self.region.clone(),
            fallback_zone: Some(self.fallback_zone.as_str())
                .filter(|zone| !zone.is_empty())
                .map(Arc::from),
            address_family: match self.address_family.0 {
                Family::Auto => AddressFamily::Auto,
                Family::Ipv4 => AddressFamily::Ipv4,
                Family::Ipv6 => AddressFamily::Ipv6,
            },
            watch_timeout,
            removal_delay,
        };
        // The defaults must be valid by themselves.
        let built = kubernetes.service("default", false, &Map::new());
        built.map_err(|error| FieldError::new(error.path(), error.reason()))?;
        Ok(kubernetes)
    }

    fn access(&self) -> Result<ApiAccess, FieldError> {
        let explicit = [
            ("ca_file", self.ca_file.is_some()),
            ("token_file", self.token_file.is_some()),
        ];
        match (&self.kubeconfig, &self.api_server) {
            (Some(_), Some(_)) => Err(FieldError::new(
                "api_server",
                "cannot be combined with kubeconfig",
            )),
            (Some(path), None) => Ok(ApiAccess::Kubeconfig {
                path: path.clone(),
                context: self.context.clone(),
            }),
            (None, Some(server)) => Ok(ApiAccess::Explicit {
                server: server.clone(),
                ca_file: self.ca_file.clone(),
                token_file: self.token_file.clone(),
            }),
            (None, None) => match explicit.iter().find(|(_, is_set)| *is_set) {
                Some((field, _)) => Err(FieldError::new(*field, "requires api_server")),
                None if self.context.is_some() => {
                    Err(FieldError::new("context", "requires kubeconfig"))
                }
                None => Ok(ApiAccess::InCluster),
            },
        }
    }

    fn defaults(&self) -> Map<String, Value> {
        let mode = self.mode.map_or(Mode::Shadow, |mode| mode.0);
        let mut defaults = Map::new();
        defaults.insert("mode".to_owned(), json!(name_of(mode)));
        if let Some(ramp) = self.ramp {
            defaults.insert("ramp".to_owned(), json!(ramp.0));
        }
        if let Some(delivery) = self.delivery {
            defaults.insert("delivery".to_owned(), json!(name_of(delivery.0)));
        }
        let cluster = self.cluster.clone().unwrap_or_default();
        defaults.insert("cluster".to_owned(), Value::Object(cluster));
        defaults
    }
}

fn check_cluster_name(name: &str) -> Result<(), FieldError> {
    let error = |reason: String| Err(FieldError::new("cluster_name", reason));
    let mut rest = name.to_owned();
    for placeholder in PLACEHOLDERS {
        rest = rest.replace(placeholder, "");
    }
    if rest.contains(['{', '}']) {
        let known = PLACEHOLDERS.join(", ");
        return error(format!(
            "{name:?} has an unknown placeholder; there are {known}"
        ));
    }
    if !name.contains("{service}") {
        return error(format!("{name:?} lacks {{service}}"));
    }
    Ok(())
}

fn name_of<T: ProtoEnum + PartialEq + Copy>(value: T) -> &'static str {
    let mut values = T::VALUES.iter();
    values
        .find(|(_, _, known)| *known == value)
        .map_or("", |(name, ..)| name)
}

impl Kubernetes {
    /// Returns the name of the cluster of a port.
    pub fn name(&self, namespace: &str, service: &str, port: u16, port_name: &str) -> String {
        self.cluster_name
            .replace("{service}", service)
            .replace("{namespace}", namespace)
            .replace("{port_name}", port_name)
            .replace("{port}", &port.to_string())
    }

    /// Builds a service without endpoints from the defaults and `settings`, which have the shape of
    /// a service in a file. Validated by the code that validates files.
    pub fn service(
        &self,
        name: &str,
        is_http2: bool,
        settings: &Map<String, Value>,
    ) -> Result<Service, ConfigError> {
        let mut written = self.defaults.clone();
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
            let reason = "must not be set: kubernetes.cluster_name has the name";
            return Err(ConfigError::new("cluster.name", reason));
        }
        cluster["name"] = json!(name);
        if is_http2 && cluster.get("http2_protocol_options").is_none() {
            cluster["http2_protocol_options"] = json!({});
        }
        let document = Document::parse(&Value::Object(written).to_string())?;
        let yaml: ServiceYaml = document.read()?;
        Ok(yaml.validate()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigFile, ControlConfig};

    fn parse(text: &str) -> Result<Kubernetes, String> {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: format!("kubernetes: {text}"),
        };
        let config = ControlConfig::parse(&file, &[]).map_err(|error| error.to_string())?;
        Ok(config.kubernetes.expect("there is a section"))
    }

    #[test]
    fn an_empty_section_measures_all_services_of_the_pods_cluster() {
        let kubernetes = parse("{}").unwrap();
        assert_eq!(kubernetes.access, ApiAccess::InCluster);
        assert_eq!(
            kubernetes.name("shop", "orders", 80, "http"),
            "orders.shop:80"
        );
        let service = kubernetes
            .service("orders.shop:80", true, &Map::new())
            .unwrap();
        assert_eq!(service.mode, Mode::Shadow);
        assert!(service.http2.is_some() && service.assignment.endpoints().is_empty());
        assert_eq!(&**service.name(), "orders.shop:80");
    }

    #[test]
    fn settings_override_defaults() {
        let kubernetes = parse(
            "{mode: ENFORCE, ramp: 30, cluster: {lb_policy: RANDOM, connect_timeout: 1s},
              cluster_name: 'outbound|{port}||{service}.{namespace}.svc.cluster.local'}",
        )
        .unwrap();
        let name = kubernetes.name("shop", "orders", 80, "http");
        assert_eq!(name, "outbound|80||orders.shop.svc.cluster.local");
        let written = json!({"ramp": "50%", "cluster": {"lb_policy": "LEAST_REQUEST"}});
        let settings = written.as_object().unwrap();
        let service = kubernetes.service(&name, false, settings).unwrap();
        assert_eq!((service.mode, service.ramp), (Mode::Enforce, 50));
        assert_eq!(service.config.endpoint_policy().name(), "least_request");
        assert_eq!(service.connect_timeout, Duration::from_secs(1));
        assert!(service.http2.is_none());
        let bad = json!({"mode": "SOMETIMES"});
        let error = kubernetes
            .service(&name, false, bad.as_object().unwrap())
            .unwrap_err();
        assert_eq!(error.path(), "mode");
    }

    #[test]
    fn access_is_one_of_three() {
        let explicit = parse("{api_server: 'http://127.0.0.1:1', token_file: t}").unwrap();
        assert!(matches!(explicit.access, ApiAccess::Explicit { .. }));
        let file = parse("{kubeconfig: k, context: c}").unwrap();
        assert!(matches!(file.access, ApiAccess::Kubeconfig { .. }));
    }

    #[test]
    fn a_zone_for_endpoints_without_one_is_optional() {
        assert_eq!(parse("{}").unwrap().fallback_zone, None);
        let written = parse("{fallback_zone: z}").unwrap();
        assert_eq!(written.fallback_zone.as_deref(), Some("z"));
    }

    #[test]
    fn errors_name_the_field() {
        for (text, part) in [
            ("{kubeconfig: a, api_server: b}", "kubernetes.api_server"),
            (
                "{token_file: a}",
                "kubernetes.token_file: requires api_server",
            ),
            ("{context: a}", "kubernetes.context: requires kubeconfig"),
            ("{cluster_name: '{namespace}'}", "lacks {service}"),
            (
                "{cluster_name: '{service}.{namespace}:{prt}'}",
                "unknown placeholder",
            ),
            ("{cluster: {name: x}}", "kubernetes.cluster.name"),
            ("{cluster: {lb_policy: NO}}", "kubernetes.cluster.lb_policy"),
            ("{watch_timeout: 0s}", "kubernetes.watch_timeout"),
            ("{address_family: IPV5}", "kubernetes.address_family"),
            ("{modes: OFF}", "kubernetes.modes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let both = ConfigFile {
            name: "control.yaml".to_owned(),
            text: "{kubernetes: {}, relay: {address: 'a:1'}}".to_owned(),
        };
        let error = ControlConfig::parse(&both, &[]).unwrap_err().to_string();
        assert!(
            error.contains("kubernetes: cannot be combined with relay"),
            "{error}"
        );
    }
}
