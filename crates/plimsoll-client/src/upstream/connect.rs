//! [`Dialer`]: dials the hosts of a cluster, with happy eyeballs, TCP keepalive and TLS.
//!
//! One dialer per cluster and set of options. `tls` verifies the host; `pool` speaks HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_xds::upstream::{HttpVersion, TcpKeepalive, UpstreamOptions};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::error::BoxError;
#[cfg(feature = "tls")]
use crate::upstream::tls_files::ReloadingTls;

/// Connection attempt delay of happy eyeballs (RFC 8305 §5), as in Envoy.
const ATTEMPT_DELAY: Duration = Duration::from_millis(300);

pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

#[derive(Debug)]
pub(crate) struct Dialer {
    timeout: Duration,
    keepalive: Option<TcpKeepalive>,
    #[cfg(feature = "tls")]
    tls: Option<ReloadingTls>,
    #[cfg(not(feature = "tls"))]
    tls: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct DialTarget {
    /// Addresses of the host, preferred one first.
    pub(crate) addresses: Arc<[SocketAddr]>,
    /// Host name from the assignment; may be empty.
    pub(crate) hostname: Arc<str>,
    /// TLS server name from the request, with `auto_sni`.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "read only by TLS"))]
    pub(crate) server_name: Option<Arc<str>>,
}

#[derive(Debug)]
pub(crate) struct DialError {
    pub(crate) timed_out: bool,
    pub(crate) source: BoxError,
}

impl Dialer {
    /// Creates a dialer. Certificates are read with the first dial, and again when they change.
    pub(crate) fn new(options: &UpstreamOptions) -> Self {
        Self {
            timeout: options.connect_timeout,
            keepalive: options.tcp_keepalive,
            #[cfg(feature = "tls")]
            tls: (options.tls.as_ref()).map(|settings| ReloadingTls::new(settings, options)),
            #[cfg(not(feature = "tls"))]
            tls: options.tls.is_some(),
        }
    }

    /// Connects within the connect timeout, including the TLS handshake.
    pub(crate) async fn dial(
        &self,
        target: &DialTarget,
        version: HttpVersion,
    ) -> Result<Box<dyn Transport>, DialError> {
        let dialed = tokio::time::timeout(self.timeout, self.open(target, version)).await;
        match dialed {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(source)) => Err(DialError {
                timed_out: false,
                source,
            }),
            Err(_) => Err(DialError {
                timed_out: true,
                source: format!("connect timeout of {:?} elapsed", self.timeout).into(),
            }),
        }
    }

    async fn open(
        &self,
        target: &DialTarget,
        version: HttpVersion,
    ) -> Result<Box<dyn Transport>, BoxError> {
        let stream = happy_eyeballs(&target.addresses).await?;
        // Disable Nagle's algorithm, so that small requests are not delayed.
        let _ = stream.set_nodelay(true);
        if let Some(keepalive) = &self.keepalive {
            SockRef::from(&stream).set_tcp_keepalive(&tcp_keepalive(keepalive))?;
        }
        self.tls_handshake(stream, target, version).await
    }

    #[cfg(feature = "tls")]
    async fn tls_handshake(
        &self,
        stream: TcpStream,
        target: &DialTarget,
        version: HttpVersion,
    ) -> Result<Box<dyn Transport>, BoxError> {
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(tls) => {
                let tls = tls.current().await?;
                Ok(Box::new(tls.handshake(stream, target, version).await?))
            }
        }
    }

    #[cfg(not(feature = "tls"))]
    async fn tls_handshake(
        &self,
        stream: TcpStream,
        _callee: &DialTarget,
        _version: HttpVersion,
    ) -> Result<Box<dyn Transport>, BoxError> {
        if self.tls {
            return Err(
                "TLS is not compiled in: enable the feature tls-ring, tls-aws-lc-rs or tls".into(),
            );
        }
        Ok(Box::new(stream))
    }
}

/// Connects to the first of `addresses` that accepts. Each attempt has a head start of
/// [`ATTEMPT_DELAY`]; a failed attempt starts the next one at once (RFC 8305).
async fn happy_eyeballs(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    if let [only] = addresses {
        return TcpStream::connect(*only).await;
    }
    let mut rest = interleave_families(addresses).into_iter();
    let mut attempts = JoinSet::new();
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
    loop {
        let next = rest.next();
        let more = next.is_some();
        if let Some(address) = next {
            attempts.spawn(TcpStream::connect(address));
        }
        loop {
            let head_start = tokio::time::sleep(ATTEMPT_DELAY);
            tokio::select! {
                ended = attempts.join_next() => match ended {
                    Some(Ok(Ok(stream))) => return Ok(stream),
                    Some(Ok(Err(error))) => {
                        last = error;
                        if more {
                            break;
                        }
                    }
                    Some(Err(_)) => {}
                    None => return Err(last),
                },
                () = head_start, if more => break,
            }
        }
    }
}

/// Interleaves the address families, beginning with the first address (RFC 8305 §4).
fn interleave_families(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else {
        return Vec::new();
    };
    let same = |address: &&SocketAddr| address.is_ipv6() == first.is_ipv6();
    let mut own = addresses.iter().filter(same);
    let mut other = addresses.iter().filter(|address| !same(address));
    let mut order = Vec::with_capacity(addresses.len());
    while order.len() < addresses.len() {
        order.extend(own.next());
        order.extend(other.next());
    }
    order
}

fn tcp_keepalive(settings: &TcpKeepalive) -> socket2::TcpKeepalive {
    let mut keepalive = socket2::TcpKeepalive::new();
    if let Some(time) = settings.time {
        keepalive = keepalive.with_time(time);
    }
    if let Some(interval) = settings.interval {
        keepalive = keepalive.with_interval(interval);
    }
    if let Some(probes) = settings.probes {
        keepalive = keepalive.with_retries(probes);
    }
    keepalive
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn dial_target(addresses: &[SocketAddr]) -> DialTarget {
        DialTarget {
            addresses: addresses.into(),
            hostname: "".into(),
            server_name: None,
        }
    }

    #[test]
    fn address_families_alternate_after_the_first_address() {
        let addresses: Vec<SocketAddr> =
            ["[::1]:1", "[::2]:1", "1.0.0.1:1", "1.0.0.2:1", "1.0.0.3:1"]
                .map(|text| text.parse().unwrap())
                .into();
        let order: Vec<_> = interleave_families(&addresses)
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = ["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "1.0.0.3:1"];
        assert_eq!(order, expected);
        assert_eq!(interleave_families(&[]), []);
    }

    #[tokio::test]
    async fn a_refused_attempt_starts_the_next_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = closed.local_addr().unwrap();
        drop(closed);
        let options = UpstreamOptions {
            tcp_keepalive: Some(TcpKeepalive {
                probes: Some(3),
                time: Some(Duration::from_secs(20)),
                interval: None,
                ..Default::default()
            }),
            ..Default::default()
        };
        let dialer = Dialer::new(&options);
        let last_accepts = dial_target(&[dead, dead, alive]);
        assert!(dialer.dial(&last_accepts, HttpVersion::Http1).await.is_ok());
        let failed = dialer
            .dial(&dial_target(&[dead, dead]), HttpVersion::Http1)
            .await;
        let error = failed.err().unwrap();
        assert!(!error.timed_out, "{error:?}");
        assert!(
            dialer
                .dial(&dial_target(&[]), HttpVersion::Http1)
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn an_unanswered_attempt_starts_the_next_address_after_its_head_start() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = listener.local_addr().unwrap();
        // Reserved for documentation (RFC 5737): packets are not answered.
        let silent = "192.0.2.1:9".parse().unwrap();
        let dialer = Dialer::new(&UpstreamOptions::default());
        let both = dial_target(&[silent, alive]);
        assert!(dialer.dial(&both, HttpVersion::Http1).await.is_ok());
    }
}
