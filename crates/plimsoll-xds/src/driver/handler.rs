//! What a control plane implements to be served: [`AdsHandler`] and [`LrsHandler`].
//!
//! Both open a session when a stream says who it is, and drop it when the stream is over. Whatever
//! a handler awaits holds up its own stream only. Streams themselves are in `server`.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::load_report::{ClusterStats, Node};
use tokio::sync::watch;
use tonic::Status;

use crate::ads::Variant;
use crate::ads::message::NodeMessage;
use crate::ads::server::{ServerStream, StreamEvent};
use crate::ads::view::View;
use crate::lrs::{LrsSettings, LrsTraffic};
use crate::node::NodeInfo;

/// Decides what a discovery stream sees.
pub trait AdsHandler: Send + Sync + 'static {
    /// Watches one stream.
    type Observer: AdsObserver;

    /// The first request of a stream arrived. An error ends the stream.
    fn open(
        &self,
        node: NodeMessage,
        variant: Variant,
        peer: Option<SocketAddr>,
    ) -> impl Future<Output = Result<AdsSession<Self::Observer>, Status>> + Send;
}

/// One discovery stream.
#[derive(Debug)]
pub struct AdsSession<O> {
    /// What it sees; many streams may share one sender. A slow stream skips to the newest. The
    /// stream ends when the sender is dropped.
    pub views: watch::Receiver<Arc<View>>,
    /// Is told what happens, and is dropped when the stream is over.
    pub observer: O,
}

/// Is told what happens on one discovery stream.
pub trait AdsObserver: Send + 'static {
    /// Something happened; `stream` is as it is after that. Must not block.
    fn handle_event(&mut self, event: StreamEvent, stream: &ServerStream);
}

/// Takes load reports.
pub trait LrsHandler: Send + Sync + 'static {
    /// Takes those of one node.
    type Reporter: LrsReporter;

    /// A stream said who it is, or that it is somebody else now. An error ends the stream.
    fn open(
        &self,
        node: &NodeInfo,
        peer: Option<SocketAddr>,
    ) -> impl Future<Output = Result<LrsSession<Self::Reporter>, Status>> + Send;
}

/// One node on a load reporting stream.
#[derive(Debug)]
pub struct LrsSession<R> {
    /// What it is told; many streams may share one sender. The stream ends when that is dropped.
    pub instructions: watch::Receiver<LrsInstructions>,
    /// Takes the reports, and is dropped when the stream is over or another node speaks on it.
    pub reporter: R,
}

/// What a load reporting stream is told. The second part reaches plimsoll data planes only.
#[derive(Clone, Debug)]
pub struct LrsInstructions {
    /// What is wanted.
    pub settings: Arc<LrsSettings>,
    /// The demand of the fleet.
    pub traffic: Arc<LrsTraffic>,
}

/// Takes the load reports of one node.
pub trait LrsReporter: Send + 'static {
    /// One report. The next one is not read before this is done: wait here when overloaded.
    fn report(
        &mut self,
        node: &Node,
        cluster_stats: Vec<ClusterStats>,
    ) -> impl Future<Output = ()> + Send;
}
