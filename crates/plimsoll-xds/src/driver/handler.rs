//! Traits that a control plane implements: [`AdsHandler`] and [`LrsHandler`].
//!
//! Both open a session when a stream has identified its node; the session is dropped when the
//! stream ends. Awaiting in a handler blocks its own stream only. `server` runs the streams.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::load_report::{ClusterHostStats, ClusterStats, Node};
use tokio::sync::watch;
use tonic::Status;

use super::accept::{ClientIdentity, ClientInfo};
use super::request_limits::RequestLimit;
use crate::ads::Variant;
use crate::ads::message::NodeMessage;
use crate::ads::server::{ServerStream, StreamEvent};
use crate::ads::view::View;
use crate::lrs::{LrsSettings, LrsTraffic};
use crate::node::NodeInfo;

/// Decides what a discovery stream is served.
pub trait AdsHandler: Send + Sync + 'static {
    type Observer: AdsObserver;

    /// Opens a session on the first request of a stream. An error ends the stream.
    fn open(
        &self,
        opening: AdsOpening,
    ) -> impl Future<Output = Result<AdsSession<Self::Observer>, Status>> + Send;

    /// Learns that a request exceeded a limit, which ends its stream. Must not block.
    fn refused(&self, refusal: &Refusal<'_>) {
        let _ = refusal;
    }
}

/// A request that exceeds one of the [`RequestLimits`](super::RequestLimits).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refusal<'a> {
    pub limit: RequestLimit,
    pub peer: Option<SocketAddr>,
    /// Names the field; also the message of the status.
    pub reason: &'a str,
}

impl<'a> Refusal<'a> {
    pub(super) const fn new(
        limit: RequestLimit,
        peer: Option<SocketAddr>,
        reason: &'a str,
    ) -> Self {
        Self {
            limit,
            peer,
            reason,
        }
    }
}

/// First request of a discovery stream.
#[derive(Clone, Debug)]
pub struct AdsOpening {
    pub node: NodeMessage,
    pub variant: Variant,
    pub peer: Option<SocketAddr>,
    /// Names in the client's certificate.
    pub identity: Option<Arc<ClientIdentity>>,
    /// The client has resources from an earlier stream.
    pub returning: bool,
}

/// Session of one discovery stream.
#[derive(Debug)]
pub struct AdsSession<O> {
    /// Views to serve; many streams may share one sender. A slow stream skips to the newest view.
    /// The stream ends when the sender is dropped.
    pub views: watch::Receiver<Arc<View>>,
    /// Dropped when the stream ends.
    pub observer: O,
}

/// Observes one discovery stream.
pub trait AdsObserver: Send + 'static {
    /// Handles an event; `stream` is the state after it. Must not block.
    fn handle_event(&mut self, event: StreamEvent, stream: &ServerStream);

    /// Called when there is nothing to send until the client answers or the view changes. Must not
    /// block.
    fn handle_idle(&mut self, stream: &ServerStream) {
        let _ = stream;
    }

    /// Returns the part of a view that this client may read; all of it unless implemented.
    fn readable(&self, view: Arc<View>) -> Arc<View> {
        view
    }

    /// Resolves when the client may no longer be served, with the status that ends the stream;
    /// never unless implemented. The future may be dropped and created again.
    fn revoked(&mut self) -> impl Future<Output = Status> + Send {
        std::future::pending()
    }
}

/// Receives the load reports of all streams.
pub trait LrsHandler: Send + Sync + 'static {
    type Reporter: LrsReporter;

    /// Opens a session when a stream identifies its node. An error ends the stream.
    fn open(
        &self,
        node: &NodeInfo,
        client: &ClientInfo,
    ) -> impl Future<Output = Result<LrsSession<Self::Reporter>, Status>> + Send;

    /// Learns that a request exceeded a limit, which ends its stream. Must not block.
    fn refused(&self, refusal: &Refusal<'_>) {
        let _ = refusal;
    }
}

/// Session of one node on a load reporting stream.
#[derive(Debug)]
pub struct LrsSession<R> {
    /// Settings to send; many streams may share one sender, and end when the sender is dropped.
    pub instructions: watch::Receiver<LrsInstructions>,
    /// Dropped when the stream ends.
    pub reporter: R,
}

/// Settings and traffic data for a load reporting stream.
#[derive(Clone, Debug)]
pub struct LrsInstructions {
    pub settings: Arc<LrsSettings>,
    /// Measured demand of the fleet, sent to plimsoll data planes only.
    pub traffic: Arc<LrsTraffic>,
}

/// Receives the load reports of one node.
pub trait LrsReporter: Send + 'static {
    /// Handles a load report. The next report is not read before the future resolves, which is the
    /// way to apply backpressure.
    fn report(
        &mut self,
        node: &Node,
        cluster_stats: Vec<ClusterStats>,
    ) -> impl Future<Output = ()> + Send;

    /// Handles what a report says of single hosts, if clients are asked for it. Called right after
    /// [`Self::report`].
    fn report_hosts(
        &mut self,
        host_stats: Vec<ClusterHostStats>,
    ) -> impl Future<Output = ()> + Send {
        drop(host_stats);
        std::future::ready(())
    }

    /// Returns the part of the instructions that this client may read; all of it unless
    /// implemented.
    fn readable(&self, instructions: LrsInstructions) -> LrsInstructions {
        instructions
    }

    /// Resolves when the client may no longer report, with the status that ends the stream; never
    /// unless implemented. The future may be dropped and created again.
    fn revoked(&mut self) -> impl Future<Output = Status> + Send {
        std::future::pending()
    }
}
