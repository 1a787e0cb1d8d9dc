//! Every field of every message, read from a file and from bytes alike.
//!
//! The bytes are encoded by this test (`wire_format`), independently of the file reader.

use std::collections::BTreeSet;
use std::fmt::Debug;

use plimsoll_schema::file::FileMessage;
use plimsoll_schema::pb::access_log::{FileAccessLogMessage, StdoutAccessLogMessage};
use plimsoll_schema::pb::cluster::ClusterMessage;
use plimsoll_schema::pb::endpoint::AssignmentMessage;
use plimsoll_schema::pb::http_filter::{
    BufferMessage, HealthCheckFilterMessage, LocalRateLimitMessage, RouterMessage,
};
use plimsoll_schema::pb::listener::{HttpConnectionManagerMessage, ListenerMessage};
use plimsoll_schema::pb::policy::{
    ClientSideWeightedRoundRobinMessage, LeastRequestMessage, LoadAwareLocalityMessage,
    MaglevMessage, RandomMessage, RingHashMessage, RoundRobinMessage, WrrLocalityMessage,
};
use plimsoll_schema::pb::route::RouteConfigurationMessage;
use plimsoll_schema::pb::subset::SubsetMessage;
use plimsoll_schema::pb::tls::{DownstreamTlsMessage, RawBufferMessage, UpstreamTlsMessage};
use plimsoll_schema::pb::upstream::HttpProtocolOptionsMessage;
use plimsoll_schema::{Described, json};
use serde_json::Value;

use crate::documents::{Maker, Spelling, redacted};
use crate::reachable::reach;
use crate::{file, wire_format};

/// Names of messages and their fields.
type Fields = BTreeSet<(&'static str, &'static str)>;

/// Compares every field of `M` and of nested messages through both readers.
fn compare<M: Described + PartialEq + Debug>(covered: &mut Fields) {
    let make = |spelling| {
        let mut maker = Maker::new(spelling);
        let document = Value::Object(maker.message(M::DESCRIPTOR));
        (document, maker.covered)
    };
    let (printed, fields) = make(Spelling::Printed);
    let (other, _) = make(Spelling::Other);
    covered.extend(fields);
    let name = M::DESCRIPTOR.name;

    let wire = wire_format::message(M::DESCRIPTOR, &printed);
    let from_wire = M::decode(&wire[..]).unwrap_or_else(|error| panic!("{name}: {error}"));
    let printed_file: FileMessage<M> = file(&printed.to_string());
    // `message` refuses declared fields that our data planes do not read.
    let from_file = M::decode(&printed_file.bytes()[..]);
    assert_eq!(from_file, Ok(from_wire), "{name}");
    let other_file: FileMessage<M> = file(&other.to_string());
    // Messages inside an `Any` are bytes in document order.
    for bytes in [&wire[..], printed_file.bytes(), other_file.bytes()] {
        let shown = json::message(bytes, M::DESCRIPTOR).unwrap();
        assert_eq!(shown, redacted(&printed, M::DESCRIPTOR), "{name}");
    }
}

/// Calls [`compare`] for messages, and returns their descriptors.
macro_rules! compare_all {
    ($covered:expr, $($message:ty),* $(,)?) => {{
        $(compare::<$message>($covered);)*
        [$(<$message>::DESCRIPTOR),*]
    }};
}

#[test]
fn every_field_of_every_message_is_decoded_alike() {
    let mut covered = Fields::new();
    let roots = compare_all!(
        &mut covered,
        ClusterMessage,
        RouteConfigurationMessage,
        AssignmentMessage,
        ListenerMessage,
        BufferMessage,
        DownstreamTlsMessage,
        FileAccessLogMessage,
        HealthCheckFilterMessage,
        LocalRateLimitMessage,
        RouterMessage,
        StdoutAccessLogMessage,
        ClientSideWeightedRoundRobinMessage,
        HttpConnectionManagerMessage,
        HttpProtocolOptionsMessage,
        LeastRequestMessage,
        LoadAwareLocalityMessage,
        MaglevMessage,
        RandomMessage,
        RawBufferMessage,
        RingHashMessage,
        RoundRobinMessage,
        SubsetMessage,
        UpstreamTlsMessage,
        WrrLocalityMessage,
    );
    let mut reachable = Vec::new();
    for root in roots {
        reach(root, &mut reachable);
    }
    assert!(reachable.len() > 90, "only {} messages", reachable.len());
    for descriptor in reachable {
        for field in descriptor.fields {
            let place = (descriptor.name, field.name);
            assert!(covered.contains(&place), "{place:?} was not read");
        }
    }
}
