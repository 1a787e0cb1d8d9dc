//! Bootstrap files with which Envoy and gRPC connect to this control plane.
//!
//! Pure functions that return JSON, which is also valid YAML; the binary prints it. The Envoy
//! bootstrap has what a stock Envoy needs for measured demand: a locality, a local cluster (never
//! connected to), discovery and load reporting.

use serde_json::{Value, json};

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
}

/// Options of the Envoy bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyOptions {
    pub delta: bool,
    /// Port of Envoy's admin interface; `None` disables it.
    pub admin_port: Option<u16>,
    pub local_cluster_name: String,
}

impl Bootstrap {
    /// Returns the bootstrap of a stock Envoy.
    pub fn envoy(&self, options: &EnvoyOptions) -> Value {
        let ads = json!({ "ads": {}, "resource_api_version": "V3" });
        let service = json!({
            "envoy_grpc": {
                "cluster_name": "plimsoll_control",
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
                    "grpc_services": [{ "envoy_grpc": { "cluster_name": "plimsoll_control" } }],
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
        if let Some(port) = options.admin_port {
            bootstrap["admin"] = json!({ "address": socket_address("127.0.0.1", port) });
        }
        bootstrap
    }

    /// Returns the bootstrap of a gRPC library, for `GRPC_XDS_BOOTSTRAP`.
    pub fn grpc(&self) -> Value {
        json!({
            "xds_servers": [{
                "server_uri": format!("{}:{}", self.control_host, self.control_port),
                "channel_creds": [{ "type": "insecure" }],
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

    fn control_cluster(&self) -> Value {
        let ip = self.control_host.parse::<std::net::IpAddr>().is_ok();
        let endpoint = socket_address(&self.control_host, self.control_port);
        json!({
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
                "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": endpoint } }] }],
            },
        })
    }
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
        }
    }

    fn options() -> EnvoyOptions {
        EnvoyOptions {
            delta: false,
            admin_port: None,
            local_cluster_name: "local_cluster".to_owned(),
        }
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
}
