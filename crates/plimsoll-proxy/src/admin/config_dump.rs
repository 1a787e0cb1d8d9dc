//! `/config_dump` in Envoy's format: the bootstrap file and resources of the management server.
//!
//! The file is shown as written, without private keys. Routes are shown as their protobuf messages.
//! Clusters of the management server are missing, because the proxy keeps their settings but not
//! their messages; `/clusters` lists them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State as Extracted};
use axum::http::StatusCode;
use plimsoll_xds::pb::listener::ListenerMessage;
use plimsoll_xds::pb::route::RouteConfigurationMessage;
use plimsoll_xds::route::RouteConfiguration;
use plimsoll_xds::schema::{self, Described as _};
use plimsoll_xds::yaml::proto_json::snake_case;
use serde_json::{Value, json};

use super::Admin;
use super::endpoints::endpoint_config;
use crate::access_log::time::Rfc3339;
use crate::config::RouteSource;
use crate::lds::DynamicListener;
use crate::source::Loaded;
use crate::state::State;

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DumpQuery {
    resource: Option<String>,
    /// `?include_eds` is a flag: its value is ignored.
    include_eds: Option<String>,
}

/// Name of a list in Envoy's message, message type of the list's entries, and the entries.
type Part = (&'static str, &'static str, Vec<Value>);

/// Dumps all lists, or one list with `?resource=`; endpoints only with `?include_eds`.
pub(super) async fn config_dump(
    Extracted(admin): Extracted<Admin>,
    Query(query): Query<DumpQuery>,
) -> Result<Json<Value>, (StatusCode, String)> {
    let loaded = redacted(&admin.state.loaded());
    let clusters = [static_clusters(&loaded)];
    let endpoints = match query.include_eds {
        Some(_) => endpoints(&admin.state).await,
        None => Vec::new(),
    };
    let listeners = [static_listeners(&loaded), dynamic_listeners(&admin.state)];
    let routes = [static_routes(&loaded), dynamic_routes(&admin.state)];
    let ignored = [ignored_fields(&admin.state)];
    if let Some(resource) = query.resource {
        let parts = clusters.into_iter().chain(endpoints);
        let mut parts = parts.chain(listeners).chain(routes).chain(ignored);
        let found = parts.find(|(name, ..)| *name == resource);
        let Some((_, kind, entries)) = found else {
            let reason = format!("{resource} not found in config dump\n");
            return Err((StatusCode::NOT_FOUND, reason));
        };
        let typed = entries.into_iter().map(|entry| with_type(entry, kind));
        return Ok(Json(json!({ "configs": typed.collect::<Vec<_>>() })));
    }
    let bootstrap = json!({
        "bootstrap": loaded.json,
        "last_updated": Rfc3339(loaded.last_updated).to_string(),
    });
    let mut configs = vec![
        with_type(bootstrap, "envoy.admin.v3.BootstrapConfigDump"),
        dump("envoy.admin.v3.ClustersConfigDump", clusters),
    ];
    if !endpoints.is_empty() {
        configs.push(dump("envoy.admin.v3.EndpointsConfigDump", endpoints));
    }
    configs.extend([
        dump("envoy.admin.v3.ListenersConfigDump", listeners),
        dump("envoy.admin.v3.RoutesConfigDump", routes),
    ]);
    if !ignored[0].2.is_empty() {
        configs.push(dump("plimsoll.admin.IgnoredFieldsDump", ignored));
    }
    Ok(Json(json!({ "configs": configs })))
}

fn redacted(loaded: &Loaded) -> Loaded {
    let mut json = loaded.json.clone();
    redact(&mut json);
    Loaded {
        config: Arc::clone(&loaded.config),
        json,
        last_updated: loaded.last_updated,
    }
}

/// Fields whose values are secret, in the spelling of files: a `DataSource`, a list of them, or a
/// message. `filename` and `environment_variable` inside them only say where a secret is.
const SECRET_FIELDS: [&str; 6] = [
    "private_key",
    "password",
    "pkcs12",
    "session_ticket_keys",
    "private_key_provider",
    "generic_secret",
];

fn redact(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(redact),
        Value::Object(fields) => {
            for (name, value) in fields {
                if SECRET_FIELDS.contains(&&*snake_case(name)) {
                    redact_secret(value);
                } else {
                    redact(value);
                }
            }
        }
        _ => {}
    }
}

/// Replaces every value below a secret field, however it is written, except names of files and
/// environment variables.
fn redact_secret(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(redact_secret),
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_place = matches!(&*snake_case(name), "filename" | "environment_variable");
                if !(is_place && value.is_string()) {
                    redact_secret(value);
                }
            }
        }
        Value::Null => {}
        value => *value = json!("[redacted]"),
    }
}

/// Builds a dump message from its lists; empty lists are omitted.
fn dump(kind: &str, parts: impl IntoIterator<Item = Part>) -> Value {
    let parts = parts.into_iter().filter(|(.., list)| !list.is_empty());
    let fields = parts.map(|(name, _, list)| (name.to_owned(), Value::Array(list)));
    with_type(Value::Object(fields.collect()), kind)
}

fn with_type(mut message: Value, kind: &str) -> Value {
    message["@type"] = json!(format!("type.googleapis.com/{kind}"));
    message
}

/// Wraps each entry of the file in a message as `field`, with the time of the last reload.
fn entries<'a>(
    loaded: &'a Loaded,
    field: &'a str,
    kind: &'a str,
    found: impl Iterator<Item = Value>,
) -> Vec<Value> {
    let last_updated = Rfc3339(loaded.last_updated).to_string();
    let entry = |found: Value| {
        let message = with_type(found, kind);
        json!({ field: message, "last_updated": last_updated })
    };
    found.map(entry).collect()
}

fn static_clusters(loaded: &Loaded) -> Part {
    let clusters = list(&loaded.json["static_resources"]["clusters"]);
    let kind = "envoy.config.cluster.v3.Cluster";
    (
        "static_clusters",
        "envoy.admin.v3.ClustersConfigDump.StaticCluster",
        entries(loaded, "cluster", kind, clusters.cloned()),
    )
}

async fn endpoints(state: &State) -> Vec<Part> {
    let clusters = state.client.cluster_statuses().await.unwrap_or_default();
    let endpoints = |added_via_api: bool| {
        clusters
            .iter()
            .filter(|cluster| cluster.added_via_api == added_via_api)
            .map(endpoint_config)
            .collect()
    };
    vec![
        (
            "static_endpoint_configs",
            "envoy.admin.v3.EndpointsConfigDump.StaticEndpointConfig",
            endpoints(false),
        ),
        (
            "dynamic_endpoint_configs",
            "envoy.admin.v3.EndpointsConfigDump.DynamicEndpointConfig",
            endpoints(true),
        ),
    ]
}

fn static_listeners(loaded: &Loaded) -> Part {
    let listeners = list(&loaded.json["static_resources"]["listeners"]);
    let kind = "envoy.config.listener.v3.Listener";
    (
        "static_listeners",
        "envoy.admin.v3.ListenersConfigDump.StaticListener",
        entries(loaded, "listener", kind, listeners.cloned()),
    )
}

/// Returns the listeners of the management server, with the state of each that is in use.
fn dynamic_listeners(state: &State) -> Part {
    let kind = ListenerMessage::DESCRIPTOR.name;
    let listeners = state.client.compiled_listeners::<DynamicListener>();
    let entries = listeners
        .into_iter()
        .filter_map(|(name, version, listener)| {
            let config = listener.config.as_ref()?;
            let mut running = state.listeners().into_iter();
            let in_use = running.any(|one| Arc::ptr_eq(&one.listener.runtime().config, config));
            let state = if in_use {
                "active_state"
            } else {
                "warming_state"
            };
            Some(json!({
                "name": name,
                state: {
                    "version_info": version,
                    "listener": with_type(listener.json.clone(), kind),
                },
            }))
        });
    (
        "dynamic_listeners",
        "envoy.admin.v3.ListenersConfigDump.DynamicListener",
        entries.collect(),
    )
}

fn static_routes(loaded: &Loaded) -> Part {
    let listeners = loaded.config.listeners.iter();
    let chains = listeners.flat_map(|listener| &listener.chains);
    let routes = chains.filter_map(|chain| match &chain.routes {
        RouteSource::Inline(table) => Some(route_json(table.configuration())),
        RouteSource::Rds(_) => None,
    });
    let kind = RouteConfigurationMessage::DESCRIPTOR.name;
    (
        "static_route_configs",
        "envoy.admin.v3.RoutesConfigDump.StaticRouteConfig",
        entries(loaded, "route_config", kind, routes),
    )
}

fn route_json(routes: &RouteConfiguration) -> Value {
    let message = schema::json::message(&routes.message.0, RouteConfigurationMessage::DESCRIPTOR);
    // The client has decoded this message before, so this cannot fail.
    message.unwrap_or_default()
}

/// Returns the route configurations of the management server that are active.
fn dynamic_routes(state: &State) -> Part {
    let status = state.client.xds_status();
    let followed = status.into_iter().flat_map(|status| status.routes);
    let entries = followed.filter_map(|(name, status)| {
        let (version, since) = status.in_force?;
        let routes = state.client.route_configuration(&name)?;
        let kind = RouteConfigurationMessage::DESCRIPTOR.name;
        Some(json!({
            "version_info": version,
            "route_config": with_type(route_json(&routes), kind),
            "last_updated": Rfc3339(since).to_string(),
        }))
    });
    (
        "dynamic_route_configs",
        "envoy.admin.v3.RoutesConfigDump.DynamicRouteConfig",
        entries.collect(),
    )
}

/// Returns fields of dynamic resources that have no effect. Not part of Envoy's dump.
fn ignored_fields(state: &State) -> Part {
    let status = state.client.xds_status().unwrap_or_default();
    let entries = status
        .ignored_fields
        .into_iter()
        .map(|((type_url, name), ignored)| {
            json!({
                "type_url": type_url,
                "name": name,
                "version_info": ignored.version,
                "paths": ignored.paths,
            })
        });
    (
        "ignored_fields",
        "plimsoll.admin.IgnoredFieldsDump.Resource",
        entries.collect(),
    )
}

fn list(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map_or(&[][..], Vec::as_slice).iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_keys_are_redacted_however_they_are_written() {
        let mut tls = json!({ "chains": [{ "tls_certificates": [
            {
                "certificate_chain": { "inline_string": "public" },
                "private_key": { "inline_string": "secret" },
            },
            { "private_key": { "filename": "key.pem" } },
            { "private_key": { "inline_bytes": "c2VjcmV0" } },
            { "privateKey": { "inlineBytes": "c2VjcmV0", "inlineString": "secret" } },
            { "password": { "inline_string": "secret" } },
            { "private_key": { "environment_variable": "KEY_VARIABLE" } },
            { "private_key": { "filename": ["secret"] } },
            { "private_key_provider": { "provider_name": "n", "typed_config": { "x": "secret" } } },
        ], "session_ticket_keys": { "keys": [{ "inline_bytes": "c2VjcmV0" }] } }] });
        redact(&mut tls);
        let text = tls.to_string();
        assert!(
            !text.contains("secret") && !text.contains("c2VjcmV0"),
            "{text}"
        );
        for kept in ["public", "key.pem", "KEY_VARIABLE"] {
            assert!(text.contains(kept), "{text}");
        }
    }

    #[test]
    fn dumps_have_a_type_and_omit_empty_lists() {
        let parts = [
            ("some", "t.Some", vec![json!(1)]),
            ("none", "t.None", vec![]),
        ];
        let expected = json!({ "@type": "type.googleapis.com/t.Dump", "some": [1] });
        assert_eq!(dump("t.Dump", parts), expected);
    }
}
