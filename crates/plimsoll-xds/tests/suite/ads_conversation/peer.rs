//! Hand-driven client, and a short notation of views: `view(&[(CLUSTER, &[("a", "1")])])`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::message::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, ErrorDetail,
};
use plimsoll_xds::ads::server::{Limits, ProtocolError, ServerStream, StreamEvent, TypeStatus};
use plimsoll_xds::ads::view::{Resource, TypeResources, View};
use plimsoll_xds::ads::{Request, Response, Variant};

use super::node::node;

/// Name and body of a resource.
pub(crate) type Short<'a> = (&'a str, &'a str);

/// Creates a resource whose body is `name=text`, so that responses can be parsed.
pub(crate) fn resource(&(name, text): &Short<'_>) -> Resource {
    Resource::new(name, Bytes::from(format!("{name}={text}")))
}

pub(crate) fn complete(resources: &[Short<'_>]) -> Arc<TypeResources> {
    Arc::new(TypeResources::new(resources.iter().map(resource)))
}

pub(crate) fn view(types: &[(&str, &[Short<'_>])]) -> Arc<View> {
    let add =
        |view: View, (url, resources): &(&str, &[Short<'_>])| view.with(*url, complete(resources));
    Arc::new(types.iter().fold(View::new(1), add))
}

/// Client end of a stream, connected to the server state machine.
pub(crate) struct Peer {
    pub(crate) stream: ServerStream,
}

impl Peer {
    pub(crate) fn new(variant: Variant) -> Self {
        Self {
            stream: ServerStream::new(variant, Limits::default()),
        }
    }

    /// Returns the status of the only type.
    pub(crate) fn status(&self) -> TypeStatus {
        let mut all = self.stream.status();
        let status = all.next().expect("one type");
        assert!(all.next().is_none(), "several types");
        status
    }

    pub(crate) fn sotw(view: &Arc<View>) -> Self {
        let mut peer = Self::new(Variant::Sotw);
        peer.stream.set_view(Arc::clone(view));
        peer
    }

    pub(crate) fn delta(view: &Arc<View>) -> Self {
        let mut peer = Self::new(Variant::Delta);
        peer.stream.set_view(Arc::clone(view));
        peer
    }

    pub(crate) fn handle(&mut self, request: Request) -> Result<(), ProtocolError> {
        self.stream.handle_request(request, Instant::ORIGIN)
    }

    /// Sends a SotW request: version, nonce, names.
    pub(crate) fn ask(&mut self, type_url: &str, version: &str, nonce: &str, names: &[&str]) {
        let request = sotw_request(type_url, version, nonce, names);
        self.handle(Request::Sotw(request)).expect("valid");
    }

    pub(crate) fn ack(&mut self, response: &DiscoveryResponse, names: &[&str]) {
        let (version, nonce) = (&response.version_info, &response.nonce);
        self.ask(&response.type_url, version, nonce, names);
    }

    pub(crate) fn nack(&mut self, response: &DiscoveryResponse, version: &str, names: &[&str]) {
        let mut request = sotw_request(&response.type_url, version, &response.nonce, names);
        request.error_detail = Some(nack_detail());
        self.handle(Request::Sotw(request)).expect("valid");
    }

    /// Returns the next response, which must be SotW.
    pub(crate) fn next_sotw(&mut self) -> Option<DiscoveryResponse> {
        match self.stream.poll_transmit()? {
            Response::Sotw(response) => Some(response),
            Response::Delta(response) => unreachable!("{response:?}"),
        }
    }

    /// Asserts the type and exact content of the next response.
    pub(crate) fn expect(&mut self, type_url: &str, resources: &[Short<'_>]) -> DiscoveryResponse {
        let response = self.next_sotw().expect("a response");
        assert_eq!(&*response.type_url, type_url);
        let bodies: Vec<_> = response
            .resources
            .iter()
            .map(|any| text(&any.value))
            .collect();
        let expected: Vec<_> = resources
            .iter()
            .map(|(name, text)| format!("{name}={text}"))
            .collect();
        assert_eq!(bodies, expected);
        response
    }

    /// Expects a response and ACKs it.
    pub(crate) fn expect_ack(&mut self, type_url: &str, resources: &[Short<'_>], names: &[&str]) {
        let response = self.expect(type_url, resources);
        self.ack(&response, names);
    }

    pub(crate) fn expect_nothing(&mut self) {
        assert_eq!(self.stream.poll_transmit(), None);
    }

    pub(crate) fn change(&mut self, type_url: &str, subscribe: &[&str], unsubscribe: &[&str]) {
        let request = delta_request(type_url, subscribe, unsubscribe);
        self.handle(Request::Delta(request)).expect("valid");
    }

    /// Sends a first incremental request with the versions the client has.
    pub(crate) fn resume(&mut self, type_url: &str, subscribe: &[&str], has: &[Short<'_>]) {
        let mut request = delta_request(type_url, subscribe, &[]);
        let versions = has.iter().map(|short| {
            let resource = resource(short);
            (resource.name, resource.version.to_string())
        });
        request.initial_resource_versions = versions.collect::<BTreeMap<_, _>>();
        self.handle(Request::Delta(request)).expect("valid");
    }

    pub(crate) fn answer(&mut self, response: &DeltaDiscoveryResponse, error: Option<ErrorDetail>) {
        let request = DeltaDiscoveryRequest {
            type_url: Arc::clone(&response.type_url),
            response_nonce: response.nonce.clone(),
            error_detail: error,
            ..DeltaDiscoveryRequest::default()
        };
        self.handle(Request::Delta(request)).expect("valid");
    }

    /// Asserts the type, resources and removals of the next incremental response.
    pub(crate) fn expect_delta(
        &mut self,
        type_url: &str,
        resources: &[Short<'_>],
        removed: &[&str],
    ) -> DeltaDiscoveryResponse {
        let Some(Response::Delta(response)) = self.stream.poll_transmit() else {
            unreachable!("no incremental response");
        };
        assert_eq!(&*response.type_url, type_url);
        let bodies: Vec<_> = response
            .resources
            .iter()
            .map(|resource| text(&resource.resource.as_ref().expect("a body").value))
            .collect();
        let expected: Vec<_> = resources
            .iter()
            .map(|(name, text)| format!("{name}={text}"))
            .collect();
        assert_eq!(bodies, expected);
        let gone: Vec<_> = response
            .removed_resources
            .iter()
            .map(|name| &**name)
            .collect();
        assert_eq!(gone, removed);
        response
    }

    pub(crate) fn expect_delta_ack(
        &mut self,
        type_url: &str,
        resources: &[Short<'_>],
        removed: &[&str],
    ) {
        let response = self.expect_delta(type_url, resources, removed);
        self.answer(&response, None);
    }

    pub(crate) fn events(&mut self) -> Vec<StreamEvent> {
        std::iter::from_fn(|| self.stream.poll_event()).collect()
    }

    pub(crate) fn set(&mut self, types: &[(&str, &[Short<'_>])]) {
        self.stream.set_view(view(types));
    }
}

pub(crate) fn nack_detail() -> ErrorDetail {
    ErrorDetail {
        code: 3,
        message: "weight 0".to_owned(),
    }
}

pub(crate) fn sotw_request(
    url: &str,
    version: &str,
    nonce: &str,
    names: &[&str],
) -> DiscoveryRequest {
    DiscoveryRequest {
        node: Some(node()),
        type_url: url.into(),
        version_info: version.to_owned(),
        response_nonce: nonce.to_owned(),
        resource_names: names.iter().map(|&name| name.into()).collect(),
        error_detail: None,
    }
}

pub(crate) fn delta_request(
    url: &str,
    subscribe: &[&str],
    unsubscribe: &[&str],
) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(node()),
        type_url: url.into(),
        resource_names_subscribe: subscribe.iter().map(|&name| name.into()).collect(),
        resource_names_unsubscribe: unsubscribe.iter().map(|&name| name.into()).collect(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn text(body: &Bytes) -> String {
    String::from_utf8(body.to_vec()).expect("text")
}
