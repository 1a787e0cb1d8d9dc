//! Runs one server-side ADS stream.
//!
//! `ads::ServerStream` decides what to send; the handler provides the views.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tonic::{Code, Status};

use super::{Ending, ReadError, Shared, Stream, malformed, unread};
use crate::ads::message::NodeMessage;
use crate::ads::server::{ProtocolError, ServerStream};
use crate::ads::{Request, Response, Variant};
use crate::clock::Clock;
use crate::convert::discovery::{delta_discovery_response_parts, discovery_response_parts};
use crate::driver::accept::ClientInfo;
use crate::driver::handler::{AdsHandler, AdsObserver, AdsOpening, AdsSession, Refusal};
use crate::driver::request_limits::Refused;
use crate::driver::session::OutgoingMessage;
use crate::wire;

/// Runs until the client closes the stream, an error occurs or the server shuts down.
pub(super) async fn run<A: AdsHandler, L>(
    mut stream: Stream,
    variant: Variant,
    shared: Arc<Shared<A, L>>,
) -> Result<(), Status> {
    let timeout = shared.options.first_message_timeout;
    let peer = stream.client.peer;
    let refused = |refusal: &Refusal<'_>| shared.ads.refused(refusal);
    let first = stream.first(timeout).await;
    let Some(bytes) = first.map_err(|error| unread(error, peer, refused))? else {
        return Ok(());
    };
    let clock = Clock::system();
    let mut state = ServerStream::new(variant, shared.options.ads);
    let mut request = decode(variant, bytes, &shared, stream.client.peer)?;
    // Boxed, so that the stream does not keep room for it.
    let opening = open(&shared.ads, &mut request, variant, &stream.client);
    let mut session = Box::pin(opening).await?;
    // Names of the first request are shared with the view.
    set_newest(&mut state, &mut session);
    let mut handle = |state: &mut ServerStream, request| {
        let handled = state.handle_request(request, clock.now());
        handled.map_err(read_error)?;
        Ok(stream.subscribed.set(state.subscription_bytes())?)
    };
    let failed = |error| unread(error, peer, refused);
    handle(&mut state, request).map_err(failed)?;
    loop {
        while let Some(event) = state.poll_event() {
            session.observer.handle_event(event, &state);
        }
        // Sending may have taken long: use the newest view for the next response.
        if session.views.has_changed().unwrap_or_default() {
            set_newest(&mut state, &mut session);
        }
        if let Some(response) = state.poll_transmit() {
            stream.outbox.send(encode(response)).await;
            continue;
        }
        session.observer.handle_idle(&state);
        tokio::select! {
            message = stream.messages.next() => {
                let message = message.map_err(|error| unread(error, peer, refused))?;
                let Some(bytes) = message else {
                    return Ok(());
                };
                let mut request = decode(variant, bytes, &shared, stream.client.peer)?;
                take_node(&mut request);
                handle(&mut state, request).map_err(failed)?;
            }
            changed = session.views.changed() => {
                changed.map_err(|_| Status::unavailable("discovery has ended"))?;
                set_newest(&mut state, &mut session);
            }
            status = session.observer.revoked() => return Err(status),
            status = Ending::wait(&mut stream.ending) => return Err(status),
        }
    }
}

fn set_newest<O: AdsObserver>(state: &mut ServerStream, session: &mut AdsSession<O>) {
    let newest = Arc::clone(&session.views.borrow_and_update());
    state.set_view(session.observer.readable(newest));
}

/// Opens the session with the full node of the first request. The state machine gets the parsed
/// part only: an Envoy's node has 61 KB, which must not be kept for the life of the stream.
async fn open<A: AdsHandler>(
    handler: &A,
    request: &mut Request,
    variant: Variant,
    client: &ClientInfo,
) -> Result<AdsSession<A::Observer>, Status> {
    let missing = || Status::invalid_argument("node: missing in the first request of the stream");
    let returning = match request {
        Request::Sotw(request) => !request.version_info.is_empty(),
        Request::Delta(request) => !request.initial_resource_versions.is_empty(),
    };
    let node = node_of(request).as_mut().ok_or_else(missing)?;
    let raw = std::mem::take(&mut node.raw);
    let opening = AdsOpening {
        node: NodeMessage {
            info: node.info.clone(),
            raw,
        },
        variant,
        peer: client.peer,
        identity: client.identity.clone(),
        returning,
    };
    handler.open(opening).await
}

/// Drops the node, which Envoy repeats in every request unless configured otherwise.
fn take_node(request: &mut Request) {
    *node_of(request) = None;
}

fn node_of(request: &mut Request) -> &mut Option<NodeMessage> {
    match request {
        Request::Sotw(request) => &mut request.node,
        Request::Delta(request) => &mut request.node,
    }
}

/// Decodes a request within its limits. Features that nobody asks for are dropped from its node.
fn decode<A: AdsHandler, L>(
    variant: Variant,
    bytes: Bytes,
    shared: &Shared<A, L>,
    peer: Option<SocketAddr>,
) -> Result<Request, Status> {
    let limits = &shared.options.requests;
    let refused = |refusal: &Refusal<'_>| shared.ads.refused(refusal);
    limits
        .check_discovery(variant, &bytes)
        .map_err(|error| unread(ReadError::Refused(error), peer, refused))?;
    let request = match variant {
        Variant::Sotw => wire::decode_discovery_request(bytes).map(Request::Sotw),
        Variant::Delta => wire::decode_delta_discovery_request(bytes).map(Request::Delta),
    };
    let mut request = request.map_err(|error| malformed(&error))?;
    if let Some(node) = node_of(&mut request) {
        node.info.drop_unused_features();
    }
    let error = match &mut request {
        Request::Sotw(request) => &mut request.error_detail,
        Request::Delta(request) => &mut request.error_detail,
    };
    if let Some(detail) = error {
        detail.cut(limits.text_bytes);
    }
    Ok(request)
}

fn encode(response: Response) -> OutgoingMessage {
    match response {
        Response::Sotw(response) => {
            let (length, parts) = discovery_response_parts(response);
            OutgoingMessage::new(length, parts)
        }
        Response::Delta(response) => {
            let (length, parts) = delta_discovery_response_parts(response);
            OutgoingMessage::new(length, parts)
        }
    }
}

fn read_error(error: ProtocolError) -> ReadError {
    match error.limit {
        Some(limit) => ReadError::Refused(Refused::Limit {
            limit: limit.into(),
            text: error.message,
        }),
        None => Status::new(Code::from_i32(error.code.number()), error.message).into(),
    }
}
