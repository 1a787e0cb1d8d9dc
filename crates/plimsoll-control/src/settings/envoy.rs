//! The settings of a cluster for Envoys: as written, with one exception.
//!
//! Envoy ignores certificate providers (gRFC A29), which are for gRPC clients. Authorities that
//! only a provider has would leave an Envoy without any: it would encrypt and verify nobody. Such
//! a socket gets the authorities of the system instead, so that an unknown host is refused.

use std::borrow::Cow;

use plimsoll_xds::pb::AnyMessage;
use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::pb::tls::UpstreamTlsMessage;
use plimsoll_xds::pb::upstream::TransportSocketMessage;
use plimsoll_xds::schema::Described as _;

/// Returns `written`, with verification of hosts in every TLS socket that asks for it.
pub(super) fn part(written: &ClusterMessage) -> Cow<'_, ClusterMessage> {
    let mut part = Cow::Borrowed(written);
    if let Some(socket) = written.transport_socket.as_ref().and_then(verifying) {
        part.to_mut().transport_socket = Some(socket);
    }
    for (index, entry) in written.transport_socket_matches.iter().enumerate() {
        if let Some(socket) = entry.transport_socket.as_ref().and_then(verifying) {
            part.to_mut().transport_socket_matches[index].transport_socket = Some(socket);
        }
    }
    part
}

/// Returns the socket with the authorities of the system, if only a provider has authorities.
fn verifying(socket: &TransportSocketMessage) -> Option<TransportSocketMessage> {
    let name = UpstreamTlsMessage::DESCRIPTOR.name;
    let any = socket.typed_config.as_ref();
    let any = any.filter(|any| any.type_name() == name)?;
    let mut context: UpstreamTlsMessage = any.unpack().ok()?;
    let validation = context
        .common_tls_context
        .as_mut()?
        .validation_context
        .as_mut()?;
    if validation.trusted_ca.is_some() || validation.system_root_certs.is_some() {
        return None;
    }
    validation.ca_certificate_provider_instance.take()?;
    validation.system_root_certs = Some(());
    Some(TransportSocketMessage {
        typed_config: Some(AnyMessage::pack(name, &context)),
        ..socket.clone()
    })
}
