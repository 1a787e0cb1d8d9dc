//! A control plane that only measures demand: it answers load reporting streams with the same
//! shares again and again, as new observations, until it is stopped.

use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;
use plimsoll_xds::driver::STREAM_LOAD_STATS;
use plimsoll_xds::grpc_frame::frame;
use plimsoll_xds::lrs::message::{ClusterTraffic, LoadStatsResponse};
use plimsoll_xds::wire::encode_load_stats_response;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Time between two observations.
const INTERVAL: Duration = Duration::from_millis(250);

/// Management server that sends observed traffic; stops when dropped.
pub(crate) struct DemandServer {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl DemandServer {
    /// Starts a server with the demand for one cluster, in basis points by zone.
    pub(crate) fn start(
        address: SocketAddr,
        cluster: &'static str,
        demand: &'static [(&'static str, u64)],
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, cluster, demand) => {}
                }
            });
            // Dropping the runtime closes all connections.
        });
        Self {
            address,
            stop,
            thread,
        }
    }

    /// Closes the listener and all connections; returns the address.
    pub(crate) fn stop(self) -> SocketAddr {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
        self.address
    }
}

async fn accept(
    listener: TcpListener,
    cluster: &'static str,
    demand: &'static [(&'static str, u64)],
) {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        tokio::spawn(serve(socket, cluster, demand));
    }
}

async fn serve(socket: TcpStream, cluster: &'static str, demand: &'static [(&'static str, u64)]) {
    let Ok(mut connection) = h2::server::handshake(socket).await else {
        return;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!(request.uri().path(), STREAM_LOAD_STATS);
        let head = http::Response::builder().header("content-type", "application/grpc");
        let mut body = respond
            .send_response(head.body(()).unwrap(), false)
            .unwrap();
        tokio::spawn(async move {
            // Reports are not read; dropping their stream would reset it.
            let _reports = request.into_body();
            let mut clock = tokio::time::interval(INTERVAL);
            for number in 1.. {
                clock.tick().await;
                let message = encode_load_stats_response(&response(cluster, demand, number));
                if body.send_data(frame(&message), false).is_err() {
                    return;
                }
            }
        });
    }
}

fn response(cluster: &str, demand: &[(&str, u64)], number: u32) -> LoadStatsResponse {
    let shares = demand.iter().map(|(zone, share)| {
        let share = BasisPoints::new(*share, "share").unwrap();
        (Locality::zone_only(zone), share)
    });
    LoadStatsResponse {
        load_reporting_interval: Duration::from_secs(10),
        observed_traffic: vec![ClusterTraffic {
            cluster_name: cluster.into(),
            fractions: shares.collect(),
            observation_time: Some(INTERVAL * number),
        }],
        ..Default::default()
    }
}
