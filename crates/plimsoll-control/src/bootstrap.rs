//! Bootstrap files with which Envoy and gRPC connect to this control plane.
//!
//! Pure functions that return JSON, which is also valid YAML; the binary prints it. The Envoy
//! bootstrap has what a stock Envoy needs for measured demand: a locality, a local cluster (never
//! connected to), discovery and load reporting.

use plimsoll_xds::node::ENVOY_MODULE_FEATURE;
use serde_json::{Value, json};

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const UPSTREAM_TLS: &str =
    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";

/// Identity of the proxy and address of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    pub id: String,
    pub fleet: String,
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
    pub control_host: String,
    pub control_port: u16,
    /// Addresses of further replicas of the control plane. Envoy only: gRPC has one name for all.
    pub replicas: Vec<(String, u16)>,
    /// `None` for plain text.
    pub tls: Option<BootstrapTls>,
}

/// Files with which a client checks the control plane and shows who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootstrapTls {
    pub ca: String,
    /// Certificate chain and private key of the client.
    pub certificate: Option<(String, String)>,
    /// Name in the certificate of the control plane, if not the host of its address. Envoy only:
    /// gRPC always uses the host.
    pub server_name: Option<String>,
    /// Directory with the outputs of [`BootstrapTls::envoy_secret`]; without it, Envoy reads the
    /// files above at its start only.
    pub envoy_secrets: Option<String>,
}

/// What a file of secrets has: Envoy accepts one secret in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvoySecret {
    /// Certificate authorities, in `ca.json`.
    Ca,
    /// Certificate and key of the client, in `certificate.json`.
    Certificate,
}

/// Options of the Envoy bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyOptions {
    pub delta: bool,
    /// Port of Envoy's admin interface; `None` disables it.
    pub admin_port: Option<u16>,
    pub local_cluster_name: String,
    /// Load balancing in Plimsoll's module (docs/envoy-module.md).
    pub module: bool,
    /// Port of the module's explanations on loopback; `None` disables them.
    pub module_admin_port: Option<u16>,
}

impl Bootstrap {
    /// Returns the bootstrap of a stock Envoy.
    pub fn envoy(&self, options: &EnvoyOptions) -> Value {
        let ads = json!({ "ads": {}, "resource_api_version": "V3" });
        let service = json!({
            "envoy_grpc": {
                "cluster_name": "plimsoll_control",
                // Otherwise Envoy sends the name of the cluster.
                "authority": self.server_name(),
                // Envoy's default retry policy backs off up to 30 s.
                "retry_policy": {
                    "retry_back_off": { "base_interval": "0.25s", "max_interval": "2s" },
                },
            },
        });
        let mut bootstrap = json!({
            "node": self.node(),
            "cluster_manager": {
                "local_cluster_name": options.local_cluster_name,
                "load_stats_config": {
                    "api_type": "GRPC",
                    "transport_api_version": "V3",
                    "grpc_services": [{ "envoy_grpc": {
                        "cluster_name": "plimsoll_control",
                        "authority": self.server_name(),
                    } }],
                },
            },
            "dynamic_resources": {
                "ads_config": {
                    "api_type": if options.delta { "DELTA_GRPC" } else { "GRPC" },
                    "transport_api_version": "V3",
                    "set_node_on_first_message_only": true,
                    "grpc_services": [service],
                },
                "cds_config": ads,
                "lds_config": ads,
            },
            "static_resources": { "clusters": [self.control_cluster(), {
                "name": options.local_cluster_name,
                "type": "EDS",
                "connect_timeout": "1s",
                "eds_cluster_config": { "eds_config": ads },
                // By default, Envoys before 1.40 delay a second update of weights by 1 s.
                "common_lb_config": { "update_merge_window": "0s" },
            }] },
        });
        if options.module {
            let local_cluster = &mut bootstrap["static_resources"]["clusters"][1];
            local_cluster["load_balancing_policy"] = self.module_policy(options);
            // Lets the control plane send clusters that the module balances.
            bootstrap["node"]["client_features"] = json!([ENVOY_MODULE_FEATURE]);
        }
        if let Some(port) = options.admin_port {
            bootstrap["admin"] = json!({ "address": socket_address("127.0.0.1", port) });
        }
        bootstrap
    }

    /// Returns the policy of clusters that the module balances by measured demand. On the local
    /// cluster it observes the hosts of the fleet.
    fn module_policy(&self, options: &EnvoyOptions) -> Value {
        let mut server = self.plain_control_cluster();
        if let Some(tls) = &self.tls {
            server["transport_socket"] = tls.module_transport_socket(self.server_name());
        }
        let policies = "type.googleapis.com/envoy.extensions.load_balancing_policies";
        let rules = json!({ "locality_basis": "LRS_REPORTED_RATE", "min_cluster_size": 1 });
        let endpoints = json!({
            "@type": format!("{policies}.round_robin.v3.RoundRobin"),
            "locality_lb_config": { "zone_aware_lb_config": rules },
        });
        let policy = |name: &str, config: Value| {
            let name = format!("envoy.load_balancing_policies.{name}");
            let extension = json!({ "name": name, "typed_config": config });
            json!({ "policies": [{ "typed_extension_config": extension }] })
        };
        let mut config = json!({
            "node": self.node(),
            "cluster_manager": { "local_cluster_name": options.local_cluster_name },
            "management_server": server,
            "cluster": { "load_balancing_policy": policy("round_robin", endpoints) },
        });
        if let Some(port) = options.module_admin_port {
            config["admin"] = json!({ "address": socket_address("127.0.0.1", port) });
        }
        let message = "dynamic_modules.v3.DynamicModulesLoadBalancerConfig";
        policy(
            "dynamic_modules",
            json!({
                "@type": format!("{policies}.{message}"),
                "dynamic_module_config": { "name": "plimsoll_envoy" },
                "lb_policy_name": "plimsoll",
                "lb_policy_config": {
                    "@type": "type.googleapis.com/google.protobuf.Struct",
                    "value": config,
                },
            }),
        )
    }

    /// Returns the bootstrap of a gRPC library, for `GRPC_XDS_BOOTSTRAP`.
    pub fn grpc(&self) -> Value {
        json!({
            "xds_servers": [{
                "server_uri": format!("{}:{}", self.control_host, self.control_port),
                "channel_creds": [self.channel_creds()],
                "server_features": ["xds_v3"],
            }],
            "node": self.node(),
        })
    }

    fn node(&self) -> Value {
        let mut locality = json!({ "zone": self.zone });
        for (part, value) in [("region", &self.region), ("sub_zone", &self.sub_zone)] {
            if !value.is_empty() {
                locality[part] = json!(value);
            }
        }
        json!({ "id": self.id, "cluster": self.fleet, "locality": locality })
    }

    fn server_name(&self) -> &str {
        let name = self.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
        name.unwrap_or(&self.control_host)
    }

    /// Credentials of gRFC A65. The files are read again at every interval.
    fn channel_creds(&self) -> Value {
        let Some(tls) = &self.tls else {
            return json!({ "type": "insecure" });
        };
        let mut config = json!({ "ca_certificate_file": tls.ca, "refresh_interval": "60s" });
        if let Some((certificate, key)) = &tls.certificate {
            config["certificate_file"] = json!(certificate);
            config["private_key_file"] = json!(key);
        }
        json!({ "type": "tls", "config": config })
    }

    fn control_cluster(&self) -> Value {
        let mut cluster = self.plain_control_cluster();
        if let Some(tls) = &self.tls {
            cluster["transport_socket"] = tls.transport_socket(self.server_name());
        }
        cluster
    }

    fn plain_control_cluster(&self) -> Value {
        let first = (self.control_host.clone(), self.control_port);
        let all: Vec<_> = std::iter::once(&first).chain(&self.replicas).collect();
        let is_ip = |(host, _): &&(String, u16)| host.parse::<std::net::IpAddr>().is_ok();
        let ip = all.iter().all(is_ip);
        let endpoints = all
            .iter()
            .map(|(host, port)| json!({ "endpoint": { "address": socket_address(host, *port) } }));
        let endpoints: Vec<_> = endpoints.collect();
        let mut cluster = json!({
            "name": "plimsoll_control",
            "type": if ip { "STATIC" } else { "STRICT_DNS" },
            "connect_timeout": "1s",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/\
                              envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": { "http2_protocol_options": {
                        // Detects a lost connection to the control plane within seconds.
                        "connection_keepalive": { "interval": "10s", "timeout": "5s" },
                    } },
                },
            },
            "load_assignment": {
                "cluster_name": "plimsoll_control",
                "endpoints": [{ "lb_endpoints": endpoints }],
            },
        });
        if !self.replicas.is_empty() {
            // A load reporting stream is retried after 5 s: not at a replica that is gone.
            cluster["outlier_detection"] = json!({
                "split_external_local_origin_errors": true,
                "consecutive_local_origin_failure": 1,
                "interval": "1s",
                "base_ejection_time": "10s",
                "max_ejection_percent": 100,
            });
        }
        cluster
    }
}

impl BootstrapTls {
    /// Returns a file with a secret: Envoy reads certificates of the bootstrap itself at its start
    /// only. It notices a change if a file is moved into the directory of the certificates, also a
    /// symbolic link. `None` if there is no certificate.
    pub fn envoy_secret(&self, secret: EnvoySecret) -> Option<Value> {
        let (field, path, content) = match secret {
            EnvoySecret::Ca => {
                let content = json!({ "trusted_ca": file(&self.ca) });
                ("validation_context", &self.ca, content)
            }
            EnvoySecret::Certificate => {
                let (certificate, key) = self.certificate.as_ref()?;
                let content =
                    json!({ "certificate_chain": file(certificate), "private_key": file(key) });
                ("tls_certificate", certificate, content)
            }
        };
        let mut resource = json!({ "@type": SECRET, "name": secret.name() });
        resource[field] = watched(path, content);
        Some(json!({ "resources": [resource] }))
    }

    /// TLS settings of the module, which verifies the name itself and reads files for every
    /// connection.
    fn module_transport_socket(&self, server_name: &str) -> Value {
        let mut common = json!({ "validation_context": { "trusted_ca": file(&self.ca) } });
        if let Some((certificate, key)) = &self.certificate {
            let pair = json!({ "certificate_chain": file(certificate), "private_key": file(key) });
            common["tls_certificates"] = json!([pair]);
        }
        let mut context = json!({ "@type": UPSTREAM_TLS, "common_tls_context": common });
        if server_name.parse::<std::net::IpAddr>().is_err() {
            context["sni"] = json!(server_name);
        }
        json!({ "name": "envoy.transport_sockets.tls", "typed_config": context })
    }

    fn transport_socket(&self, server_name: &str) -> Value {
        let kind = match server_name.parse::<std::net::IpAddr>() {
            Ok(_) => "IP_ADDRESS",
            Err(_) => "DNS",
        };
        let names = json!([{ "san_type": kind, "matcher": { "exact": server_name } }]);
        let mut common = json!({ "alpn_protocols": ["h2"] });
        match &self.envoy_secrets {
            Some(directory) => {
                let secret = |secret: EnvoySecret| {
                    let path = format!("{directory}/{}", secret.file_name());
                    json!({ "name": secret.name(), "sds_config": {
                        "path_config_source": { "path": path },
                        "resource_api_version": "V3",
                    } })
                };
                common["combined_validation_context"] = json!({
                    "default_validation_context": { "match_typed_subject_alt_names": names },
                    "validation_context_sds_secret_config": secret(EnvoySecret::Ca),
                });
                if self.certificate.is_some() {
                    common["tls_certificate_sds_secret_configs"] =
                        json!([secret(EnvoySecret::Certificate)]);
                }
            }
            None => {
                common["validation_context"] = json!({
                    "trusted_ca": file(&self.ca),
                    "match_typed_subject_alt_names": names,
                });
                if let Some((certificate, key)) = &self.certificate {
                    let pair =
                        json!({ "certificate_chain": file(certificate), "private_key": file(key) });
                    common["tls_certificates"] = json!([pair]);
                }
            }
        }
        let mut context = json!({ "@type": UPSTREAM_TLS, "common_tls_context": common });
        if kind == "DNS" {
            context["sni"] = json!(server_name);
        }
        json!({ "name": "envoy.transport_sockets.tls", "typed_config": context })
    }
}

impl EnvoySecret {
    const fn name(self) -> &'static str {
        match self {
            Self::Ca => "plimsoll_control_ca",
            Self::Certificate => "plimsoll_client",
        }
    }

    /// Returns the name of its file in the directory of secrets.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Ca => "ca.json",
            Self::Certificate => "certificate.json",
        }
    }
}

fn file(path: &str) -> Value {
    json!({ "filename": path })
}

/// Adds the directory of a file, whose changes Envoy watches.
fn watched(path: &str, mut secret: Value) -> Value {
    let directory = std::path::Path::new(path).parent();
    let directory = directory.filter(|directory| !directory.as_os_str().is_empty());
    let directory =
        directory.map_or_else(|| ".".into(), |directory| directory.display().to_string());
    secret["watched_directory"] = json!({ "path": directory });
    secret
}

fn socket_address(host: &str, port: u16) -> Value {
    json!({ "socket_address": { "address": host, "port_value": port } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bootstrap(host: &str) -> Bootstrap {
        Bootstrap {
            id: "gateway-1".to_owned(),
            fleet: "gateway".to_owned(),
            region: String::new(),
            zone: "zone-a".to_owned(),
            sub_zone: String::new(),
            control_host: host.to_owned(),
            control_port: 18000,
            replicas: Vec::new(),
            tls: None,
        }
    }

    fn tls() -> BootstrapTls {
        BootstrapTls {
            ca: "/certs/ca.crt".to_owned(),
            certificate: Some(("/certs/tls.crt".to_owned(), "/certs/tls.key".to_owned())),
            ..BootstrapTls::default()
        }
    }

    fn options() -> EnvoyOptions {
        EnvoyOptions {
            delta: false,
            admin_port: None,
            local_cluster_name: "local_cluster".to_owned(),
            module: false,
            module_admin_port: None,
        }
    }

    #[test]
    fn envoy_knows_all_replicas() {
        let one = bootstrap("10.0.0.1");
        let several = Bootstrap {
            replicas: vec![("10.0.0.2".to_owned(), 18000), ("10.0.0.3".to_owned(), 7)],
            ..one.clone()
        };
        let cluster = |bootstrap: &Bootstrap| {
            bootstrap.envoy(&options())["static_resources"]["clusters"][0].clone()
        };
        assert_eq!(cluster(&one)["outlier_detection"], Value::Null);
        let cluster = cluster(&several);
        assert_eq!(cluster["type"], "STATIC");
        let endpoints = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"];
        let address = |index: usize| {
            let address = &endpoints[index]["endpoint"]["address"]["socket_address"];
            (address["address"].clone(), address["port_value"].clone())
        };
        let expected = [("10.0.0.1", 18000), ("10.0.0.2", 18000), ("10.0.0.3", 7)];
        for (index, (host, port)) in expected.into_iter().enumerate() {
            assert_eq!(address(index), (json!(host), json!(port)));
        }
        let detection = &cluster["outlier_detection"];
        assert_eq!(detection["consecutive_local_origin_failure"], 1);
    }

    #[test]
    fn the_envoy_bootstrap_has_zone_fleet_and_control_plane() {
        let json = bootstrap("127.0.0.1").envoy(&options());
        assert_eq!(json["node"]["locality"], json!({ "zone": "zone-a" }));
        assert_eq!(json["node"]["cluster"], "gateway");
        assert_eq!(
            json["cluster_manager"]["local_cluster_name"],
            "local_cluster"
        );
        assert_eq!(json["dynamic_resources"]["ads_config"]["api_type"], "GRPC");
        assert_eq!(json["static_resources"]["clusters"][0]["type"], "STATIC");
        assert_eq!(
            json["static_resources"]["clusters"][1]["name"],
            "local_cluster"
        );
        assert!(json.get("admin").is_none());
    }

    #[test]
    fn options_are_applied() {
        let json = bootstrap("control.example").envoy(&EnvoyOptions {
            delta: true,
            admin_port: Some(9901),
            ..options()
        });
        assert_eq!(
            json["dynamic_resources"]["ads_config"]["api_type"],
            "DELTA_GRPC"
        );
        assert_eq!(
            json["admin"]["address"]["socket_address"]["port_value"],
            9901
        );
        assert_eq!(
            json["static_resources"]["clusters"][0]["type"],
            "STRICT_DNS"
        );
    }

    #[test]
    fn the_grpc_bootstrap_has_its_own_format() {
        let json = bootstrap("127.0.0.1").grpc();
        assert_eq!(json["xds_servers"][0]["server_uri"], "127.0.0.1:18000");
        assert_eq!(json["node"]["id"], "gateway-1");
    }

    #[test]
    fn the_authority_is_the_host_and_not_the_name_of_the_cluster() {
        let json = bootstrap("control.example").envoy(&options());
        for service in [
            &json["dynamic_resources"]["ads_config"]["grpc_services"][0],
            &json["cluster_manager"]["load_stats_config"]["grpc_services"][0],
        ] {
            assert_eq!(service["envoy_grpc"]["authority"], "control.example");
        }
        assert!(
            json["static_resources"]["clusters"][0]
                .get("transport_socket")
                .is_none()
        );
    }

    #[test]
    fn envoy_checks_the_control_plane_and_presents_its_certificate() {
        let with = |host: &str, tls: BootstrapTls| {
            let json = Bootstrap {
                tls: Some(tls),
                ..bootstrap(host)
            }
            .envoy(&options());
            json["static_resources"]["clusters"][0]["transport_socket"]["typed_config"].clone()
        };
        let context = with("control.example", tls());
        assert_eq!(context["sni"], "control.example");
        let common = &context["common_tls_context"];
        assert_eq!(
            common["validation_context"],
            json!({
                "trusted_ca": { "filename": "/certs/ca.crt" },
                "match_typed_subject_alt_names": [
                    { "san_type": "DNS", "matcher": { "exact": "control.example" } },
                ],
            })
        );
        let key = &common["tls_certificates"][0]["private_key"]["filename"];
        assert_eq!(key, "/certs/tls.key");
        let context = with("127.0.0.1", tls());
        assert!(context.get("sni").is_none());
        let names = &context["common_tls_context"]["validation_context"];
        assert_eq!(
            names["match_typed_subject_alt_names"][0]["san_type"],
            "IP_ADDRESS"
        );
        let named = BootstrapTls {
            server_name: Some("control".to_owned()),
            certificate: None,
            ..tls()
        };
        let context = with("127.0.0.1", named);
        assert_eq!(context["sni"], "control");
        assert!(
            context["common_tls_context"]
                .get("tls_certificates")
                .is_none()
        );
    }

    #[test]
    fn envoy_watches_certificates_in_files_of_one_secret_each() {
        let tls = BootstrapTls {
            envoy_secrets: Some("/etc/secrets".to_owned()),
            ..tls()
        };
        let socket = tls.transport_socket("control");
        let common = &socket["typed_config"]["common_tls_context"];
        let combined = &common["combined_validation_context"];
        let ca = &combined["validation_context_sds_secret_config"];
        let client = &common["tls_certificate_sds_secret_configs"][0];
        for (used, secret, file) in [
            (ca, EnvoySecret::Ca, "/etc/secrets/ca.json"),
            (
                client,
                EnvoySecret::Certificate,
                "/etc/secrets/certificate.json",
            ),
        ] {
            assert_eq!(used["sds_config"]["path_config_source"]["path"], file);
            let written = tls.envoy_secret(secret).unwrap();
            assert_eq!(written["resources"].as_array().unwrap().len(), 1);
            assert_eq!(used["name"], written["resources"][0]["name"]);
        }
        let written = tls.envoy_secret(EnvoySecret::Certificate).unwrap();
        let pair = &written["resources"][0]["tls_certificate"];
        assert_eq!(pair["private_key"]["filename"], "/certs/tls.key");
        assert_eq!(pair["watched_directory"]["path"], "/certs");
        let written = tls.envoy_secret(EnvoySecret::Ca).unwrap();
        let ca = &written["resources"][0]["validation_context"]["trusted_ca"];
        assert_eq!(ca["filename"], "/certs/ca.crt");
        assert_eq!(
            watched("tls.crt", json!({}))["watched_directory"]["path"],
            "."
        );
        let alone = BootstrapTls {
            certificate: None,
            ..tls
        };
        assert_eq!(alone.envoy_secret(EnvoySecret::Certificate), None);
    }

    #[test]
    fn grpc_has_the_credentials_of_a65() {
        let json = Bootstrap {
            tls: Some(tls()),
            ..bootstrap("control.example")
        }
        .grpc();
        let creds = &json["xds_servers"][0]["channel_creds"][0];
        assert_eq!(creds["type"], "tls");
        assert_eq!(creds["config"]["ca_certificate_file"], "/certs/ca.crt");
        assert_eq!(creds["config"]["certificate_file"], "/certs/tls.crt");
        assert_eq!(creds["config"]["private_key_file"], "/certs/tls.key");
        let json = bootstrap("control.example").grpc();
        assert_eq!(
            json["xds_servers"][0]["channel_creds"][0],
            json!({ "type": "insecure" })
        );
    }

    #[test]
    fn the_module_gets_node_demand_and_certificates() {
        let mut bootstrap = bootstrap("control.internal");
        bootstrap.tls = Some(BootstrapTls {
            ca: "ca.crt".to_owned(),
            certificate: Some(("tls.crt".to_owned(), "tls.key".to_owned())),
            ..BootstrapTls::default()
        });
        let json = bootstrap.envoy(&EnvoyOptions {
            delta: false,
            admin_port: None,
            local_cluster_name: "local_cluster".to_owned(),
            module: true,
            module_admin_port: Some(9902),
        });
        let policy = &json["static_resources"]["clusters"][1]["load_balancing_policy"];
        let module = &policy["policies"][0]["typed_extension_config"]["typed_config"];
        assert_eq!(module["lb_policy_name"], "plimsoll");
        let config = &module["lb_policy_config"]["value"];
        for field in ["id", "cluster", "locality"] {
            assert_eq!(config["node"][field], json["node"][field]);
        }
        let port = &config["admin"]["address"]["socket_address"]["port_value"];
        assert_eq!(*port, 9902);
        let features = &json["node"]["client_features"];
        assert_eq!(*features, json!(["plimsoll.envoy_module"]));
        let context = &config["management_server"]["transport_socket"]["typed_config"];
        assert_eq!(context["sni"], "control.internal");
        let common = &context["common_tls_context"];
        assert_eq!(
            common["validation_context"],
            json!({ "trusted_ca": { "filename": "ca.crt" } })
        );
        let key = &common["tls_certificates"][0]["private_key"];
        assert_eq!(*key, json!({ "filename": "tls.key" }));
    }
}
