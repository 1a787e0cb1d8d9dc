//! Finds settings of a cluster beside load balancing that receivers are not sent as written, such
//! as health checks for gRPC clients.
//!
//! Compares the printed messages, so that a setting needs no line here to be found.

use plimsoll_core::explain::ChangeExplanation;
use plimsoll_xds::pb::upstream::HttpProtocolOptionsMessage;
use plimsoll_xds::schema::Described as _;
use serde_json::{Map, Value};

use crate::config::Service;
use crate::delivery::NodeClass;
use crate::settings::printed;
use crate::view::SentResources;

/// Longest value in an explanation, in characters.
const MAX_VALUE: usize = 200;
/// Printed in place of a value that is not sent.
const NOTHING: &str = "nothing";

/// Returns the settings that nodes of `class` are not sent as written, or that they refuse.
pub(super) fn changes(
    service: &Service,
    sent: &SentResources,
    class: NodeClass,
) -> Vec<ChangeExplanation> {
    let Some(settings) = &sent.settings else {
        return Vec::new();
    };
    let mut written = printed(service.settings.written());
    if class == NodeClass::Grpc {
        without_http2(&mut written);
    }
    let mut found = Vec::new();
    compare("", &written, Some(&printed(settings)), class, &mut found);
    if let Some(refused) = &sent.refused {
        found.push(ChangeExplanation {
            setting: refused.path().to_owned(),
            written: Some("as in the file".to_owned()),
            sent: "written, and refused by the receiver".to_owned(),
            reason: refused.reason().to_owned(),
        });
    }
    found
}

/// Removes the choice of HTTP/2, which gRPC clients use in any case.
fn without_http2(written: &mut Value) {
    let options = "typed_extension_protocol_options";
    let Some(all) = written.get_mut(options).and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(Value::Object(http)) = all.get_mut(HttpProtocolOptionsMessage::DESCRIPTOR.name) {
        let http2 = serde_json::json!({ "http2_protocol_options": {} });
        if http.get("explicit_http_config") == Some(&http2) {
            http.remove("explicit_http_config");
        }
        http.remove("@type");
    }
    all.retain(|_, options| {
        options
            .as_object()
            .is_none_or(|options| !options.is_empty())
    });
    if all.is_empty()
        && let Some(fields) = written.as_object_mut()
    {
        fields.remove(options);
    }
}

fn compare(
    path: &str,
    written: &Value,
    sent: Option<&Value>,
    class: NodeClass,
    found: &mut Vec<ChangeExplanation>,
) {
    match (written, sent) {
        (Value::Object(written), Some(Value::Object(sent))) => {
            fields(path, written, sent, class, found);
        }
        (Value::Array(written), Some(Value::Array(sent))) if written.len() == sent.len() => {
            for (index, (written, sent)) in written.iter().zip(sent).enumerate() {
                let path = format!("{path}[{index}]");
                compare(&path, written, Some(sent), class, found);
            }
        }
        (written, Some(sent)) if written == sent => {}
        (written, sent) => found.push(ChangeExplanation {
            setting: path.to_owned(),
            written: Some(shortened(written)),
            sent: sent.map_or_else(|| NOTHING.to_owned(), shortened),
            reason: reason(path, class).to_owned(),
        }),
    }
}

fn fields(
    path: &str,
    written: &Map<String, Value>,
    sent: &Map<String, Value>,
    class: NodeClass,
    found: &mut Vec<ChangeExplanation>,
) {
    for (name, value) in written.iter().filter(|(name, _)| *name != "@type") {
        let path = match path {
            "" => name.clone(),
            path if name.contains('.') => format!("{path}[{name}]"),
            path => format!("{path}.{name}"),
        };
        compare(&path, value, sent.get(name), class, found);
    }
}

fn shortened(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    match text.char_indices().nth(MAX_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn reason(path: &str, class: NodeClass) -> &'static str {
    let field = path.split(['.', '[']).next().unwrap_or_default();
    match (class, field) {
        (NodeClass::Grpc, "health_checks") => {
            "gRPC clients have no active health checks: they follow the health in the assignment \
             and outlier_detection"
        }
        (NodeClass::Grpc, "outlier_detection") => {
            "gRPC clients eject hosts by success rate and failure percentage (gRFC A50)"
        }
        (NodeClass::Grpc, "circuit_breakers") => {
            "gRPC clients have max_requests of the default priority (gRFC A32)"
        }
        (NodeClass::Grpc, "transport_socket" | "transport_socket_matches") => {
            "gRPC clients take certificates from providers of their bootstrap file (gRFC A29); \
             without them, the application's credentials apply"
        }
        (NodeClass::Grpc, _) => "gRPC clients do not have this setting",
        (NodeClass::Plimsoll, _) => "Plimsoll's data planes do not have this setting",
        (NodeClass::Envoy | NodeClass::EnvoyModule, "transport_socket") => {
            "Envoys have no certificate providers: hosts are verified by the authorities of the \
             system"
        }
        (NodeClass::Envoy | NodeClass::EnvoyModule, _) => "the message has no field for it",
    }
}
