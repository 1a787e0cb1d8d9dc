//! gRPC xDS bootstrap configuration (gRFC A27 and its successors).
//!
//! Parses the JSON that `GRPC_XDS_BOOTSTRAP` names or `GRPC_XDS_BOOTSTRAP_CONFIG` holds. The caller
//! reads the environment and the file. Fields unknown to gRPC are ignored, as the gRFC asks; gRPC
//! fields that are not supported here are rejected.

use std::fmt;

use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use crate::yaml::{ConfigError, Document};

const SUPPORTED: &str = "insecure, tls";

/// Bootstrap configuration of an xDS client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bootstrap {
    /// Management servers in order of preference; at least one.
    pub xds_servers: Vec<XdsServer>,
    pub node: Node,
    /// `node.metadata` with its keys as written.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Template of listener names; `%s` is replaced by the target.
    pub client_default_listener_resource_name_template: String,
}

/// Connection settings of one management server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdsServer {
    /// `host:port`, or a URI in gRPC's target syntax.
    pub server_uri: String,
    /// The first supported credentials of the list.
    pub channel_creds: ChannelCreds,
    /// Features such as `xds_v3`.
    pub server_features: Vec<String>,
}

/// Channel credentials of a management server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelCreds {
    Insecure,
    /// TLS channel credentials of gRFC A65.
    Tls {
        /// CA bundle; unset means the system's.
        ca_certificate_file: Option<String>,
        certificate_file: Option<String>,
        private_key_file: Option<String>,
    },
}

impl Bootstrap {
    /// Parses a bootstrap configuration.
    ///
    /// ```
    /// use plimsoll_xds::bootstrap::{Bootstrap, ChannelCreds};
    ///
    /// let text = r#"{
    ///     "xds_servers": [{"server_uri": "xds:18000", "channel_creds": [{"type": "insecure"}]}],
    ///     "node": {"id": "client-1"}
    /// }"#;
    /// let bootstrap = Bootstrap::parse(text).unwrap();
    /// assert_eq!(bootstrap.xds_servers[0].channel_creds, ChannelCreds::Insecure);
    /// assert_eq!(bootstrap.listener_name("orders"), "orders");
    /// ```
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let document = Document::parse(text)?;
        let json: BootstrapJson = document.read()?;
        let bootstrap = json.checked().map_err(|error| document.locate(error))?;
        Ok(Self {
            metadata: metadata(text)?,
            ..bootstrap
        })
    }

    /// Checks a document as [`Self::parse`] does, for tools that look for all faults of a file with
    /// [`all_faults`](crate::yaml::all_faults).
    pub fn check(document: &Document) -> Result<(), ConfigError> {
        let json: BootstrapJson = document.read()?;
        json.checked()
            .map(drop)
            .map_err(|error| document.locate(error))
    }

    /// Returns the listener name for the target `xds:///target`.
    pub fn listener_name(&self, target: &str) -> String {
        let template = &self.client_default_listener_resource_name_template;
        template.replace("%s", target)
    }
}

/// Reads `node.metadata` separately: its keys are not field names, so they stay as written.
fn metadata(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, ConfigError> {
    #[derive(Deserialize)]
    struct Outer {
        #[serde(default)]
        node: Inner,
    }
    #[derive(Default, Deserialize)]
    struct Inner {
        #[serde(default)]
        metadata: serde_json::Map<String, serde_json::Value>,
    }
    match serde_json::from_str::<Outer>(text) {
        Ok(outer) => Ok(outer.node.metadata),
        Err(error) => Err(ConfigError::new("", error.to_string())),
    }
}

/// JSON shape of the bootstrap. Unknown fields are allowed.
#[derive(Clone, Debug, Deserialize)]
struct BootstrapJson {
    xds_servers: Vec<XdsServerJson>,
    #[serde(default)]
    node: NodeJson,
    #[serde(default)]
    authorities: Authorities,
    client_default_listener_resource_name_template: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct XdsServerJson {
    server_uri: String,
    channel_creds: Vec<ChannelCredsJson>,
    #[serde(default)]
    server_features: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct ChannelCredsJson {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    config: TlsJson,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TlsJson {
    ca_certificate_file: Option<String>,
    certificate_file: Option<String>,
    private_key_file: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeJson {
    id: String,
    cluster: String,
    locality: LocalityJson,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LocalityJson {
    region: String,
    zone: String,
    sub_zone: String,
}

/// Names of the `authorities`; their content is not read.
#[derive(Clone, Debug, Default)]
struct Authorities(Vec<String>);

impl<'de> Deserialize<'de> for Authorities {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamesVisitor;

        impl<'de> Visitor<'de> for NamesVisitor {
            type Value = Authorities;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of authorities")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Authorities, A::Error> {
                let mut names = Vec::new();
                while let Some((name, _)) = map.next_entry::<String, IgnoredAny>()? {
                    names.push(name);
                }
                Ok(Authorities(names))
            }
        }

        deserializer.deserialize_map(NamesVisitor)
    }
}

impl BootstrapJson {
    fn checked(self) -> Result<Bootstrap, FieldError> {
        if !self.authorities.0.is_empty() {
            let names = self.authorities.0.join(", ");
            let reason = format!("federation is not supported; remove {names:?}");
            return Err(FieldError::new("authorities", reason));
        }
        if self.xds_servers.is_empty() {
            let reason = "must have at least one server";
            return Err(FieldError::new("xds_servers", reason));
        }
        let servers = self
            .xds_servers
            .into_iter()
            .enumerate()
            .map(|(index, server)| {
                let path = format!("xds_servers[{index}]");
                server.checked().map_err(|error| error.under(&path))
            });
        let template = self
            .client_default_listener_resource_name_template
            .unwrap_or_else(|| "%s".to_owned());
        if template.starts_with("xdstp:") {
            let path = "client_default_listener_resource_name_template";
            let reason = "names of federation (xdstp:) are not supported";
            return Err(FieldError::new(path, reason));
        }
        let at = &self.node.locality;
        Ok(Bootstrap {
            xds_servers: servers.collect::<Result<_, _>>()?,
            node: Node {
                locality: Locality::new(&at.region, &at.zone, &at.sub_zone),
                id: self.node.id.into(),
                cluster: self.node.cluster.into(),
            },
            metadata: serde_json::Map::new(),
            client_default_listener_resource_name_template: template,
        })
    }
}

impl XdsServerJson {
    fn checked(self) -> Result<XdsServer, FieldError> {
        if self.server_uri.is_empty() {
            return Err(FieldError::new("server_uri", "must not be empty"));
        }
        let mut others = Vec::new();
        for (index, creds) in self.channel_creds.into_iter().enumerate() {
            let channel_creds = match creds.kind.as_str() {
                "insecure" => ChannelCreds::Insecure,
                "tls" => creds
                    .config
                    .checked()
                    .map_err(|error| error.under(&format!("channel_creds[{index}].config")))?,
                _ => {
                    others.push(creds.kind);
                    continue;
                }
            };
            return Ok(XdsServer {
                server_uri: self.server_uri,
                channel_creds,
                server_features: self.server_features,
            });
        }
        let reason = format!("none of {others:?} is supported; supported are {SUPPORTED}");
        Err(FieldError::new("channel_creds", reason))
    }
}

impl TlsJson {
    fn checked(self) -> Result<ChannelCreds, FieldError> {
        match (&self.certificate_file, &self.private_key_file) {
            (Some(_), None) => Err(FieldError::new(
                "private_key_file",
                "must be set with certificate_file",
            )),
            (None, Some(_)) => Err(FieldError::new(
                "certificate_file",
                "must be set with private_key_file",
            )),
            _ => Ok(ChannelCreds::Tls {
                ca_certificate_file: self.ca_certificate_file,
                certificate_file: self.certificate_file,
                private_key_file: self.private_key_file,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
