//! Services of a Kubernetes cluster: where its API server is, and defaults for what is found.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_kubernetes::ApiAccess;
use plimsoll_kubernetes::merge::AddressFamily;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, ProtoEnum};

use super::cost::CostYaml;
use super::discovered::{self, ServiceDefaults, check_cluster_name, source_section};

/// Readable as the address of the Service in DNS, and as the target `xds:///` of gRPC clients.
const DEFAULT_CLUSTER_NAME: &str = "{service}.{namespace}:{port}";
const PLACEHOLDERS: [&str; 4] = ["{service}", "{namespace}", "{port}", "{port_name}"];
const DEFAULT_WATCH_TIMEOUT: Duration = Duration::from_secs(120);
const WATCH_TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

source_section! {
/// Services of a Kubernetes cluster, one cluster for each TCP port. The settings are defaults:
/// annotations of a Service and a ZoneRoutingPolicy override them. HTTP/2 is chosen by
/// `appProtocol`.
KubernetesYaml as "kubernetes" {
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
    /// `{port_name}`; a second port of a Service with the same name is refused. Services of two
    /// namespaces cannot have one name: `{namespace}` is required unless `namespaces` has exactly
    /// one entry, and between placeholders there is a character that names of Kubernetes do not
    /// have, such as `.`. Default `{service}.{namespace}:{port}`. The names in Istio's sidecars are
    /// `outbound|{port}||{service}.{namespace}.svc.cluster.local`.
    cluster_name: Option<String>,
    /// Fleets that get a Service, and whose demand for it counts, unless its annotation names
    /// others; `{namespace}` is the namespace of the Service, `*` is every fleet. Default all.
    visible_to: Option<Vec<String>>,
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
    pub defaults: ServiceDefaults,
    pub region: String,
    pub fallback_zone: Option<Arc<str>>,
    pub address_family: AddressFamily,
    pub watch_timeout: Duration,
    pub removal_delay: Duration,
    /// Fleets that get a Service, with `{namespace}` for its namespace.
    pub visible_to: Option<Vec<String>>,
}

impl KubernetesYaml {
    pub(super) fn validate(&self, cost: &CostYaml) -> Result<Kubernetes, FieldError> {
        let name = self.cluster_name.as_deref().unwrap_or(DEFAULT_CLUSTER_NAME);
        check_cluster_name(name, &PLACEHOLDERS)?;
        check_is_unambiguous(name, &self.namespaces)?;
        let watch_timeout = self
            .watch_timeout
            .map_or(DEFAULT_WATCH_TIMEOUT, |time| time.0);
        if !WATCH_TIMEOUT.contains(&watch_timeout) {
            let reason = format!("{watch_timeout:?} is outside 1 s to 1 h");
            return Err(FieldError::new("watch_timeout", reason));
        }
        Ok(Kubernetes {
            access: self.access()?,
            namespaces: self.namespaces.clone(),
            label_selector: self.label_selector.clone(),
            cluster_name: name.to_owned(),
            defaults: self.defaults(cost)?,
            region: self.region.clone(),
            fallback_zone: discovered::zone(&self.fallback_zone),
            address_family: match self.address_family.0 {
                Family::Auto => AddressFamily::Auto,
                Family::Ipv4 => AddressFamily::Ipv4,
                Family::Ipv6 => AddressFamily::Ipv6,
            },
            watch_timeout,
            removal_delay: discovered::removal_delay(self.removal_delay),
            visible_to: visible_to(self.visible_to.as_deref())?,
        })
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
}

/// Checks the fleets that get a Service by default.
fn visible_to(written: Option<&[String]>) -> Result<Option<Vec<String>>, FieldError> {
    let error = |reason: &str| Err(FieldError::new("visible_to", reason));
    let Some(fleets) = written else {
        return Ok(None);
    };
    if fleets.is_empty() || fleets.iter().any(String::is_empty) {
        return error("needs names of fleets, or `*` for all");
    }
    let mut rest = fleets.iter().map(|fleet| fleet.replace("{namespace}", ""));
    if rest.any(|fleet| fleet.contains(['{', '}'])) {
        return error("has an unknown placeholder; there is {namespace}");
    }
    Ok(Some(fleets.to_vec()))
}

/// Checks that Services of two namespaces never have one name: the owner of one could take the
/// requests to the other.
fn check_is_unambiguous(name: &str, namespaces: &[String]) -> Result<(), FieldError> {
    let error = |reason: String| Err(FieldError::new("cluster_name", reason));
    if namespaces.len() != 1 && !name.contains("{namespace}") {
        return error(format!(
            "{name:?} lacks {{namespace}}, which only one entry of `namespaces` makes unnecessary"
        ));
    }
    // What follows each placeholder, up to the next one.
    let texts = name.split('{').skip(1);
    let between = texts.filter_map(|text| text.split_once('}').map(|(_, after)| after));
    let mut between: Vec<&str> = between.collect();
    between.pop();
    // Names of Services, namespaces and ports are labels of DNS.
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if between.iter().any(|text| text.chars().all(is_of_names)) {
        return error(format!(
            "{name:?} needs a character between placeholders that names do not have, such as `.`"
        ));
    }
    Ok(())
}

impl Kubernetes {
    /// Returns the fleets that get the Services of a namespace by default.
    pub fn visible_to(&self, namespace: &str) -> Option<Vec<String>> {
        let fleets = self.visible_to.as_ref()?.iter();
        Some(
            fleets
                .map(|fleet| fleet.replace("{namespace}", namespace))
                .collect(),
        )
    }

    /// Returns the name of the cluster of a port.
    pub fn name(&self, namespace: &str, service: &str, port: u16, port_name: &str) -> String {
        self.cluster_name
            .replace("{service}", service)
            .replace("{namespace}", namespace)
            .replace("{port_name}", port_name)
            .replace("{port}", &port.to_string())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::yaml::Document;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::config::{ConfigFile, ControlConfig, Mode};

    fn parse(text: &str) -> Result<Kubernetes, String> {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: format!("kubernetes: {text}"),
        };
        let config = ControlConfig::parse(&file, &[]).map_err(|error| error.to_string())?;
        Ok(config.sources.kubernetes.expect("there is a section"))
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
            .defaults
            .service("orders.shop:80", true, &Map::new())
            .unwrap();
        assert_eq!(service.mode, Mode::Shadow);
        assert!(service.settings.is_http2() && service.assignment.endpoints().is_empty());
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
        let service = kubernetes.defaults.service(&name, false, settings).unwrap();
        assert_eq!((service.mode, service.ramp), (Mode::Enforce, 50));
        assert_eq!(service.config.endpoint_policy().name(), "least_request");
        let timeout = service.settings.written().connect_timeout;
        assert_eq!(timeout, Some(Duration::from_secs(1).into()));
        assert!(!service.settings.is_http2());
        let bad = json!({"mode": "SOMETIMES"});
        let error = kubernetes
            .defaults
            .service(&name, false, bad.as_object().unwrap())
            .unwrap_err();
        assert_eq!(error.path(), "mode");
    }

    #[test]
    fn typed_options_keep_the_protocol_of_a_port() {
        let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
        let typed = |protocol: &str| {
            format!(
                "typed_extension_protocol_options: {{{options}: {{'@type': \
                 type.googleapis.com/{options}, common_http_protocol_options: {{idle_timeout: \
                 30s}}{protocol}}}}}"
            )
        };
        let http1 = ", explicit_http_config: {http_protocol_options: {}}";
        let http2 = ", explicitHttpConfig: {http2ProtocolOptions: {maxConcurrentStreams: 7}}";
        for (protocol, is_http2) in [("", true), (http1, true), (http2, true), ("", false)] {
            let kubernetes = parse(&format!("{{cluster: {{{}}}}}", typed(protocol))).unwrap();
            let service = kubernetes
                .defaults
                .service("a", is_http2, &Map::new())
                .unwrap();
            assert_eq!(service.settings.is_http2(), is_http2, "{protocol}");
            let written = service.settings.written();
            assert_eq!(written.typed_extension_protocol_options.len(), 1);
            assert!(written.http2_protocol_options.is_none());
        }
        // What the Service itself says about the protocol is kept.
        let own: Value = Document::parse(&format!("{{{}}}", typed(http1)))
            .and_then(|document| document.read())
            .unwrap();
        let own = Map::from_iter([("cluster".to_owned(), own)]);
        let service = parse("{}")
            .unwrap()
            .defaults
            .service("a", true, &own)
            .unwrap();
        assert!(!service.settings.is_http2());
    }

    #[test]
    fn health_checks_of_the_defaults_are_delivered_and_replaced_as_a_whole() {
        let kubernetes = parse(
            "{cluster: {outlier_detection: {consecutive_5xx: 3, interval: 1s}, health_checks: \
             [{timeout: 1s, interval: 2s, unhealthy_threshold: 2, healthy_threshold: 1, \
             tcp_health_check: {}}]}}",
        )
        .unwrap();
        let own = json!({"cluster": {"outlier_detection": {"consecutive_5xx": 7}}});
        let found = kubernetes
            .defaults
            .service("a", false, own.as_object().unwrap());
        let service = found.unwrap();
        let written = service.settings.written();
        assert_eq!(written.health_checks.len(), 1);
        let outliers = written.outlier_detection.clone().unwrap();
        assert_eq!(
            (outliers.consecutive_5xx, outliers.interval),
            (Some(7), None)
        );
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
    fn services_of_two_namespaces_never_have_one_name() {
        let template = |template: &str, namespaces: &str| {
            parse(&format!(
                "{{cluster_name: '{template}', namespaces: [{namespaces}]}}"
            ))
        };
        for (text, namespaces) in [
            ("{service}", "shop"),
            ("{service}:{port}", "shop"),
            ("{service}.{namespace}", ""),
            ("x-{namespace}/a{service}-svc", "a, b"),
            (
                "outbound|{port}||{service}.{namespace}.svc.cluster.local",
                "",
            ),
        ] {
            assert!(template(text, namespaces).is_ok(), "{text}");
        }
        for (text, namespaces, part) in [
            ("{service}", "", "lacks {namespace}"),
            ("{service}:{port}", "a, b", "lacks {namespace}"),
            ("{service}-{namespace}", "", "between placeholders"),
            ("{service}{namespace}", "", "between placeholders"),
            (
                "{service}.{namespace}-{port_name}",
                "",
                "between placeholders",
            ),
            ("{service}-x-{port_name}", "shop", "between placeholders"),
        ] {
            let error = template(text, namespaces).unwrap_err();
            let field = "kubernetes.cluster_name: ";
            assert!(error.contains(field) && error.contains(part), "{error}");
        }
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
            ("{visible_to: []}", "kubernetes.visible_to: needs names"),
            (
                "{visible_to: ['{name}']}",
                "kubernetes.visible_to: has an unknown",
            ),
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
