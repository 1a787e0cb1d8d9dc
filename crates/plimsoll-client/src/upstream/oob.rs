//! [`Connect`] of out-of-band ORCA reports: dials a host like requests do, with the cluster's TLS
//! and HTTP/2 settings. `plimsoll_xds::orca::oob` has the protocol and the task.

use std::sync::Arc;

use http::uri::Scheme;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_xds::orca::oob::{Connect, OobStream, RequestSender};
use plimsoll_xds::upstream::{HttpVersion, UpstreamOptions};

use crate::error::BoxError;
use crate::upstream::connect::{DialTarget, Dialer};
use crate::upstream::pool::{http2_builder, run};

#[derive(Clone, Debug)]
pub(crate) struct OobConnector {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) options: Arc<UpstreamOptions>,
}

impl Connect for OobConnector {
    fn scheme(&self) -> Scheme {
        match self.options.tls {
            Some(_) => Scheme::HTTPS,
            None => Scheme::HTTP,
        }
    }

    async fn connect(
        &self,
        stream: &OobStream,
        hostname: Arc<str>,
    ) -> Result<RequestSender, BoxError> {
        let target = DialTarget {
            addresses: [stream.dial].into(),
            hostname,
            server_name: None,
        };
        let dialed = self.dialer.dial(&target, HttpVersion::Http2).await;
        let socket = TokioIo::new(dialed.map_err(|error| error.source)?);
        let builder = http2_builder(&self.options, TokioExecutor::new());
        let (sender, connection) = builder.handshake(socket).await?;
        tokio::spawn(run(connection));
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::model::client_side_weighted_round_robin::OobReporting;

    use crate::{Cluster, Policy};

    fn reporting(policy: impl Into<Policy>) -> Option<OobReporting> {
        let cluster = Cluster::new("orders").endpoints(["127.0.0.1:1"]);
        let built = cluster.policy(policy).build().unwrap();
        built.config.oob_reporting()
    }

    #[test]
    fn one_stream_serves_weights_and_localities() {
        let seconds = Duration::from_secs;
        let weights = |period| Policy::client_side_weighted_round_robin().out_of_band(period);
        let localities = |period| Policy::load_aware().out_of_band(period).oob_port(9000);
        assert_eq!(reporting(Policy::round_robin()), None);
        assert_eq!(reporting(Policy::load_aware()), None);
        let in_band = Policy::client_side_weighted_round_robin();
        assert_eq!(reporting(in_band.clone()), None);
        let only_weights = reporting(weights(seconds(20))).unwrap();
        assert_eq!(
            (only_weights.period(), only_weights.port()),
            (seconds(20), None)
        );
        let only_localities = reporting(localities(seconds(30)).over(in_band)).unwrap();
        let found = (only_localities.period(), only_localities.port());
        assert_eq!(found, (seconds(30), Some(9000)));
        // The shorter period, and the port of either.
        for (of_weights, of_localities) in [(20, 30), (30, 20)] {
            let policy = localities(seconds(of_localities)).over(weights(seconds(of_weights)));
            let both = reporting(policy).unwrap();
            assert_eq!((both.period(), both.port()), (seconds(20), Some(9000)));
        }
    }
}
