//! Listeners encoded by another implementation, and errors.

use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::convert::encode_listener::encode_api_listener;
use crate::convert::hex::message;
use crate::route::{Action, ClusterSpecifier};
use plimsoll_schema::pb::listener::ApiListenerMessage;
use plimsoll_schema::pb::{AnyMessage, ConfigSourceMessage};

#[test]
fn a_listener_with_inline_routes() {
    let read = decode_listener(&message("listener_full")).unwrap();
    assert_eq!(read.name, "svc");
    assert_eq!(read.max_stream_duration, Some(Duration::from_secs(9)));
    let RouteSource::Inline(config) = read.routes else {
        panic!("{read:?}")
    };
    let Action::Forward(action) = &config.virtual_hosts()[0].routes[0].action else {
        panic!("{config:?}")
    };
    assert_eq!(action.target, ClusterSpecifier::Cluster("c".into()));
}

#[test]
fn a_listener_with_rds() {
    for bytes in [message("api"), encode_api_listener("svc", "rc").to_vec()] {
        let read = decode_listener(&bytes).unwrap();
        assert_eq!(read.routes, RouteSource::Rds("rc".into()));
        assert_eq!(read.max_stream_duration, None);
    }
    // A listener for servers is rejected.
    let error = decode_listener(&message("http")).unwrap_err();
    assert_eq!(error.path(), "api_listener");
}

fn filter(name: &str, type_name: &str, is_optional: bool) -> HttpFilterMessage {
    HttpFilterMessage {
        name: name.to_owned(),
        typed_config: Some(AnyMessage::pack(type_name, &())),
        is_optional,
    }
}

fn read(
    change: impl FnOnce(&mut HttpConnectionManagerMessage),
) -> Result<ApiListener, DecodeError> {
    let mut manager = HttpConnectionManagerMessage {
        rds: Some(RdsMessage {
            config_source: Some(ConfigSourceMessage::ads()),
            route_config_name: "rc".into(),
        }),
        http_filters: vec![filter("router", ROUTER, false)],
        ..Default::default()
    };
    change(&mut manager);
    let listener = ListenerMessage {
        api_listener: Some(ApiListenerMessage {
            api_listener: Some(AnyMessage::pack(HTTP_CONNECTION_MANAGER, &manager)),
        }),
        ..Default::default()
    };
    decode_listener(&listener.encode_to_vec())
}

#[test]
fn the_router_must_be_last_and_other_filters_optional() {
    assert!(read(|_| {}).is_ok());
    assert!(read(|m| m.http_filters.insert(0, filter("x", "a.B", true))).is_ok());
    assert!(read(|m| m.http_filters.push(filter("x", "a.B", true))).is_ok());
    let again = filter("again", ROUTER, false);
    type Change<'a> = &'a dyn Fn(&mut HttpConnectionManagerMessage);
    let cases: [(&str, Change<'_>); 5] = [
        (".http_filters", &|m| m.http_filters.clear()),
        (".http_filters[0].typed_config", &|m| {
            m.http_filters.insert(0, filter("x", "a.B", false));
        }),
        (".http_filters[1].typed_config", &|m| {
            m.http_filters.push(filter("x", "a.B", false));
        }),
        (".http_filters[1]", &|m| m.http_filters.push(again.clone())),
        (".http_filters[1].name", &|m| {
            m.http_filters.insert(0, filter("router", "a.B", true));
        }),
    ];
    for (path, change) in cases {
        let error = read(change).unwrap_err();
        assert_eq!(error.path(), format!("api_listener.api_listener{path}"));
    }
}

#[test]
fn unsupported_settings_are_rejected() {
    let rds = |change: fn(&mut RdsMessage)| read(|m| change(m.rds.as_mut().unwrap()));
    let cases = [
        (read(|m| m.rds = None), ""),
        (rds(|rds| rds.config_source = None), ".rds.config_source"),
        (
            rds(|rds| rds.route_config_name.clear()),
            ".rds.route_config_name",
        ),
        (read(|m| m.scoped_routes = Some(())), ".scoped_routes"),
        (
            read(|m| m.xff_num_trusted_hops = 1),
            ".xff_num_trusted_hops",
        ),
        (
            read(|m| {
                m.rds = None;
                let mut config = plimsoll_schema::pb::route::RouteConfigurationMessage::default();
                config.virtual_hosts.push(Default::default());
                m.route_config = Some(config);
            }),
            ".route_config.virtual_hosts[0].domains",
        ),
    ];
    for (read, path) in cases {
        let error = read.unwrap_err();
        assert_eq!(error.path(), format!("api_listener.api_listener{path}"));
    }
}

proptest! {
    #[test]
    fn damaged_bytes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = message("listener_full");
        for (place, byte) in changes {
            *place.get_mut(&mut bytes) = byte;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        if let Err(error) = decode_listener(&bytes) {
            prop_assert!(!error.reason().is_empty());
        }
    }
}
