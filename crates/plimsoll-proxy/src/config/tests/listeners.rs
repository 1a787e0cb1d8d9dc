//! Tests of reading listeners: what is accepted and refused, with its error, in a file and from a
//! management server alike.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_xds::pb::listener::ListenerMessage;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::schema::{Described as _, Descriptor, Kind, by_name};
use serde_json::{Value, json};

use super::*;
use crate::lds::DynamicListener;

/// A listener with every field that is read.
fn everything() -> Value {
    Document::parse(include_str!("listener.yaml"))
        .unwrap()
        .json()
}

/// Reads a listener in a file; an error is path and reason, without the path of the listener.
fn from_file(listener: &Value) -> Result<Arc<ListenerConfig>, String> {
    let endpoint = json!({"endpoint": {"address": {"socket_address": {
        "address": "127.0.0.1", "port_value": 1,
    }}}});
    let text = json!({
        "static_resources": {
            "listeners": [listener],
            "clusters": [{"name": "server", "load_assignment": {
                "cluster_name": "server", "endpoints": [{"lb_endpoints": [endpoint]}],
            }}],
        },
        "dynamic_resources": {
            "ads_config": {"api_type": "GRPC", "grpc_services": [
                {"envoy_grpc": {"cluster_name": "server"}},
            ]},
            "cds_config": {"ads": {}},
        },
    });
    let config = ProxyConfig::parse(&text.to_string()).map_err(|error| {
        assert!(error.location().is_some(), "{error}");
        let path = error.path();
        let inside = path.strip_prefix("static_resources.listeners[0]").unwrap();
        format!("{}: {}", inside.trim_start_matches('.'), error.reason())
    })?;
    Ok(Arc::clone(&config.listeners[0]))
}

/// Reads a listener as one of a management server; `None` if it cannot be written as a message.
fn from_server(listener: &Value) -> Option<Result<Arc<ListenerConfig>, String>> {
    let document = Document::parse(&listener.to_string()).unwrap();
    let message: FileMessage<ListenerMessage> = document.read().ok()?;
    let read = DynamicListener::decode(message.bytes());
    Some(match read {
        Ok(listener) => Ok(listener.config.unwrap()),
        Err(error) => Err(format!("{}: {}", error.path(), error.reason())),
    })
}

/// Compares everything but the identity of routes, which every table has of its own.
fn assert_same(one: &ListenerConfig, other: &ListenerConfig, what: &str) {
    let routes = |listener: &ListenerConfig| {
        let chains = listener.chains.iter();
        let routes = chains.map(|chain| match &chain.routes {
            RouteSource::Inline(table) => Ok(Arc::clone(table.configuration())),
            RouteSource::Rds(name) => Err(Arc::clone(name)),
        });
        routes.collect::<Vec<_>>()
    };
    assert_eq!(routes(one), routes(other), "{what}");
    assert_eq!(one.address, other.address, "{what}");
    assert!(
        one.differs_only_in_routes(other),
        "{what}: {one:?}\n{other:?}"
    );
}

/// Messages that only listeners have.
const OWN: [&str; 6] = [
    "envoy.config.accesslog.",
    "envoy.config.listener.",
    "envoy.extensions.access_loggers.",
    "envoy.extensions.filters.http.",
    "envoy.extensions.filters.network.",
    "envoy.extensions.transport_sockets.tls.v3.Downstream",
];

/// Messages by name and title, with the fields that a document sets.
type Seen = BTreeMap<(&'static str, &'static str), (&'static Descriptor, BTreeSet<String>)>;

/// Collects the messages in a document.
fn visit(value: &Value, descriptor: &'static Descriptor, seen: &mut Seen) {
    let key = (descriptor.name, descriptor.title);
    seen.entry(key).or_insert((descriptor, BTreeSet::new()));
    let Value::Object(object) = value else {
        panic!("{} is {value}", descriptor.name)
    };
    for (name, value) in object {
        let Some(field) = descriptor.fields.iter().find(|field| field.name == name) else {
            continue;
        };
        seen.get_mut(&key).unwrap().1.insert(name.clone());
        let values = value
            .as_array()
            .map_or(std::slice::from_ref(value), |list| list);
        for value in values {
            match field.kind {
                Kind::Message(inner) => visit(value, inner(), seen),
                Kind::Any(_) => {
                    // The values of a map have no type of their own here.
                    let type_url = value["@type"].as_str().unwrap_or_default();
                    if let Some(inner) = type_url.rsplit('/').next().and_then(by_name) {
                        visit(value, inner, seen);
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn every_field_of_a_listener_is_read_from_files_and_from_servers() {
    let listener = everything();
    let file = from_file(&listener).unwrap();
    let server = from_server(&listener).unwrap().unwrap();
    assert_same(&file, &server, "from a file and from a server");
    let mut seen = Seen::new();
    visit(&listener, ListenerMessage::DESCRIPTOR, &mut seen);
    let is_own = |(name, title): &(&str, &str)| {
        OWN.iter().any(|own| name.starts_with(own)) || title.starts_with("Downstream")
    };
    let mut count = 0;
    for (descriptor, set) in seen
        .iter()
        .filter(|(key, _)| is_own(key))
        .map(|(_, own)| own)
    {
        for field in descriptor
            .fields
            .iter()
            .filter(|field| !field.doc.is_empty())
        {
            let is_set = set.contains(field.name);
            assert!(is_set, "{}.{} is not set", descriptor.name, field.name);
            count += 1;
        }
    }
    assert!(count > 75, "{count}");
}

/// Changes to [`everything`], one per line: an object, its field, the new value (null removes the
/// field), and the start of the error, in which `~` is the path of the object. `CHAIN`, `HTTP`,
/// `FILTERS`, `LOGS` and `TLS` are parts of the first filter chain, `REST` is the default one.
const REFUSED: &str = r#"
 | address | null | address.socket_address: must be set
 | api_listener | {} | api_listener: is not supported
 | transparent | true | transparent: is not supported and would change how requests are handled
 | lissten | 1 | lissten: unknown field
/listener_filters/0 | typed_config | null | ~.typed_config: must be set
/listener_filters/0 | typed_config | {"@type": "x/y.Z"} | ~.typed_config.@type: "x/y.Z" is not
CHAIN | filters | [] | ~.filters: must have exactly one entry, not 0
CHAIN | use_proxy_proto | true | ~.use_proxy_proto: is not supported and would change
CHAIN/filter_chain_match | transport_protocol | "quic" | ~.transport_protocol: "quic" is not
CHAIN/filter_chain_match | destination_port | 1 | ~.destination_port: is not supported and would
REST | filter_chain_match | {"server_names": ["a"]} | ~.filter_chain_match: must be empty
TLS | require_sni | true | ~.require_sni: is not supported and would change
TLS | common_tls_context | null | ~.common_tls_context.tls_certificates: must have exactly one
TLS/common_tls_context | tls_certificates | [{}, {}] | ~.tls_certificates: must have exactly one
TLS/common_tls_context | validation_context | {} | ~.validation_context.trusted_ca: must have
TLS/common_tls_context | tls_params | {} | ~.tls_params: is not supported
TLS/common_tls_context/validation_context | system_root_certs | {} | ~.system_root_certs: is not
TLS/common_tls_context/validation_context | match_typed_subject_alt_names | [{}] | ~.match_typed
TLS/common_tls_context/tls_certificates/0 | private_key | {} | ~.private_key: must have exactly one
TLS/common_tls_context/tls_certificates/0 | password | {} | ~.password: is not supported
TLS/common_tls_context/tls_certificates/0/private_key | inline_bytes | "YQ==" | ~: must have exactly
HTTP | stat_prefix | "" | ~.stat_prefix: must not be empty
HTTP | codec_type | "HTTP3" | ~.codec_type: unknown value HTTP3, expected one of AUTO, HTTP1, HTTP2
HTTP | server_header_transformation | "APPEND_IF_ABSENT" | ~.server_header_transformation: unknown
HTTP | route_config | null | ~: must have route_config or rds
HTTP | http_filters | {} | ~.http_filters: invalid type: map, expected a sequence
HTTP | http_filters | [] | ~.route_config: has typed_per_filter_config of envoy.filters.http.cors
HTTP | xff_num_trusted_hops | 1 | ~.xff_num_trusted_hops: is not supported
HTTP | skip_xff_append | true | ~.skip_xff_append: is not supported and would change
HTTP | scoped_routes | {} | ~.scoped_routes: is not supported
HTTP | original_ip_detection_extensions | [{}] | ~.original_ip_detection_extensions: is not
HTTP | via | "x" | ~.via: is not supported
HTTP | server_name | "\u0001" | ~.server_name: is not a valid header value
HTTP | strip_any_host_port | true | ~.strip_any_host_port: cannot be combined with
HTTP | max_request_headers_kb | 8193 | ~.max_request_headers_kb: must be from 1 to 8192, not 8193
HTTP | stream_idle_timeout | 1 | ~.stream_idle_timeout:
HTTP/common_http_protocol_options | max_requests_per_connection | -1 | ~.max_requests_per_con
HTTP/upgrade_configs/0 | upgrade_type | null | ~.upgrade_type: must be set
HTTP/upgrade_configs/0 | filters | [{}] | ~.filters: is not supported and would change
REST/filters/0/typed_config/rds | config_source | {"self": {}} | ~.config_source: only `ads: {}` is
REST/filters/0/typed_config | route_config | {} | ~.rds: cannot be combined with route_config
FILTERS/0 | name | "cors" | ~.name: must be envoy.filters.http.cors
FILTERS/0 | is_optional | true | ~.is_optional: is not supported
FILTERS/0 | disabled | true | ~.disabled: is not supported and would change
FILTERS/0 | typed_config | null | ~.typed_config: must be set
FILTERS/1/typed_config | pass_through_mode | true | ~.pass_through_mode: must be false
FILTERS/1/typed_config | cache_time | "1s" | ~.cache_time: is not supported
FILTERS/1/typed_config | headers | [{"name": ":path", "exact_match": "/"}] | ~.headers: must have
FILTERS/2/typed_config | token_bucket | null | ~.token_bucket: must be set
FILTERS/2/typed_config | filter_enabled | null | ~.filter_enabled: must be set, with 100 %
FILTERS/2/typed_config | descriptors | [{}] | ~.descriptors: is not supported and would change
FILTERS/2/typed_config/token_bucket | fill_interval | "0.049s" | ~.fill_interval: must be at least
FILTERS/3/typed_config | max_request_bytes | null | ~.max_request_bytes: must be set
FILTERS/4 | typed_config | {"@type": "x/y.Lua"} | ~.typed_config.@type: "x/y.Lua" is not supported
LOGS/0 | filter | {"x": 1} | ~.filter: is not supported and would change
LOGS/0/typed_config | path | null | ~.path: must be set
LOGS/0/typed_config/log_format/json_format | code | 1 | ~.code: must be a string
LOGS/0/typed_config/log_format | text_format | "a" | ~.json_format: cannot be combined with a text
LOGS/1/typed_config | path | "x" | ~.path: unknown field
LOGS/1/typed_config/log_format | text_format_source | {"filename": "x"} | ~.text_format_source: must
LOGS/2 | typed_config | {"@type": "x/y.FileAccessLog"} | ~.typed_config.@type: "x/y.FileAccessLog"
"#;

/// Replaces the short names of places in [`REFUSED`].
fn place(short: &str) -> String {
    let http = "/filter_chains/0/filters/0/typed_config";
    short
        .replace("FILTERS", &format!("{http}/http_filters"))
        .replace("LOGS", &format!("{http}/access_log"))
        .replace("TLS", "/filter_chains/0/transport_socket/typed_config")
        .replace("HTTP", http)
        .replace("CHAIN", "/filter_chains/0")
        .replace("REST", "/default_filter_chain")
}

/// Returns a JSON pointer in the form of an error path.
fn path(pointer: &str) -> String {
    let mut text = String::new();
    for part in pointer.split('/').skip(1) {
        if part.parse::<usize>().is_ok() {
            text.push_str(&format!("[{part}]"));
        } else {
            text.push_str(if text.is_empty() { "" } else { "." });
            text.push_str(part);
        }
    }
    text
}

#[test]
fn what_is_refused_is_named_alike_in_files_and_from_servers() {
    for line in REFUSED.lines().filter(|line| !line.is_empty()) {
        let mut cells = line.splitn(4, " | ");
        let (at, field) = (place(cells.next().unwrap()), cells.next().unwrap());
        let value: Value = serde_json::from_str(cells.next().unwrap()).unwrap();
        let expected = cells.next().unwrap().replace('~', &path(&at));
        let mut listener = everything();
        let object = listener.pointer_mut(&at).unwrap();
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(field)),
            value => object[field] = value,
        }
        let error = from_file(&listener).unwrap_err();
        assert!(error.starts_with(&expected), "{line}\n{error}");
        if let Some(read) = from_server(&listener) {
            assert_eq!(read.unwrap_err(), error, "{line}");
        }
    }
}

/// What Envoy's files have and the proxy does not need is accepted.
#[test]
fn fields_without_a_difference_are_accepted() {
    for (place, field, value) in [
        ("", "traffic_direction", json!("INBOUND")),
        (
            "/filter_chains/0",
            "metadata",
            json!({"filter_metadata": {}}),
        ),
        (
            "/filter_chains/0/filters/0/typed_config",
            "skip_xff_append",
            json!(false),
        ),
        (
            "/filter_chains/0/filters/0/typed_config/http_filters/0",
            "disabled",
            json!(false),
        ),
        (
            "/filter_chains/0/filters/0/typed_config/http_filters/4/typed_config",
            "dynamic_stats",
            json!(true),
        ),
    ] {
        let mut listener = everything();
        let expected = from_file(&listener).unwrap();
        listener.pointer_mut(place).unwrap()[field] = value;
        assert_same(&from_file(&listener).unwrap(), &expected, field);
        let server = from_server(&listener).unwrap();
        assert_same(&server.unwrap(), &expected, field);
    }
}
