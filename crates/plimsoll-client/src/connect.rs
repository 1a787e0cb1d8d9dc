//! [`Dialer`]: opens sockets to the hosts of a cluster, with happy eyeballs, keep-alive and TLS.
//!
//! One per cluster and set of options. What is spoken on the socket is `endpoint`'s business, how
//! TLS proves who is there is `tls`'s.

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
#[cfg(feature = "tls-ring")]
use crate::tls::Tls;

/// Head start of an address over the next one (RFC 8305 §5; Envoy has the same).
const ATTEMPT_DELAY: Duration = Duration::from_millis(300);

/// A socket, with or without TLS.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Opens sockets.
#[derive(Debug)]
pub(crate) struct Dialer {
    timeout: Duration,
    keepalive: Option<TcpKeepalive>,
    #[cfg(feature = "tls-ring")]
    tls: Option<Result<Tls, String>>,
    #[cfg(not(feature = "tls-ring"))]
    tls: bool,
}

/// Whom to call.
#[derive(Clone, Debug)]
pub(crate) struct Callee {
    /// The address, and others of the same host, best first.
    pub(crate) addresses: Arc<[SocketAddr]>,
    /// Name of the host in the assignment, may be empty.
    pub(crate) hostname: Arc<str>,
    /// Host of the request, where that decides the server name.
    #[cfg_attr(
        not(feature = "tls-ring"),
        expect(dead_code, reason = "only TLS asks for it")
    )]
    pub(crate) server_name: Option<Arc<str>>,
}

/// Why there is no socket.
#[derive(Debug)]
pub(crate) struct DialError {
    pub(crate) timed_out: bool,
    pub(crate) source: BoxError,
}

impl Dialer {
    /// A dialer for a cluster with `options`. Certificates are read here; if that fails, every
    /// connection will, and says why.
    pub(crate) fn new(options: &UpstreamOptions) -> Self {
        Self {
            timeout: options.connect_timeout,
            keepalive: options.tcp_keepalive,
            #[cfg(feature = "tls-ring")]
            tls: (options.tls.as_ref()).map(|settings| Tls::try_new(settings, options)),
            #[cfg(not(feature = "tls-ring"))]
            tls: options.tls.is_some(),
        }
    }

    /// Opens a socket within the connect timeout, TLS included.
    pub(crate) async fn dial(
        &self,
        callee: &Callee,
        version: HttpVersion,
    ) -> Result<Box<dyn Transport>, DialError> {
        let dialled = tokio::time::timeout(self.timeout, self.open(callee, version)).await;
        match dialled {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(source)) => Err(DialError {
                timed_out: false,
                source,
            }),
            Err(_) => Err(DialError {
                timed_out: true,
                source: format!("no connection within {:?}", self.timeout).into(),
            }),
        }
    }

    async fn open(
        &self,
        callee: &Callee,
        version: HttpVersion,
    ) -> Result<Box<dyn Transport>, BoxError> {
        let stream = happy_eyeballs(&callee.addresses).await?;
        // Small requests must not wait for more to send.
        let _ = stream.set_nodelay(true);
        if let Some(keepalive) = &self.keepalive {
            SockRef::from(&stream).set_tcp_keepalive(&probes(keepalive))?;
        }
        self.secure(stream, callee, version).await
    }

    #[cfg(feature = "tls-ring")]
    async fn secure(
        &self,
        stream: TcpStream,
        callee: &Callee,
        version: HttpVersion,
    ) -> Result<Box<dyn Transport>, BoxError> {
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(Err(reason)) => Err(reason.as_str().into()),
            Some(Ok(tls)) => Ok(Box::new(tls.handshake(stream, callee, version).await?)),
        }
    }

    #[cfg(not(feature = "tls-ring"))]
    async fn secure(
        &self,
        stream: TcpStream,
        _callee: &Callee,
        _version: HttpVersion,
    ) -> Result<Box<dyn Transport>, BoxError> {
        match self.tls {
            false => Ok(Box::new(stream)),
            true => Err("TLS is not part of this build: feature tls-ring".into()),
        }
    }
}

/// The first of `addresses` that answers. Each gets a head start over the next; one that fails lets
/// the next begin at once (RFC 8305).
async fn happy_eyeballs(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    if let [only] = addresses {
        return TcpStream::connect(*only).await;
    }
    let mut rest = by_turns(addresses).into_iter();
    let mut attempts = JoinSet::new();
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address");
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

/// The first address stays first; then both families take turns (RFC 8305 §4).
fn by_turns(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
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

fn probes(settings: &TcpKeepalive) -> socket2::TcpKeepalive {
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

    fn callee(addresses: &[SocketAddr]) -> Callee {
        Callee {
            addresses: addresses.into(),
            hostname: "".into(),
            server_name: None,
        }
    }

    #[test]
    fn families_take_turns_after_the_first_address() {
        let addresses: Vec<SocketAddr> =
            ["[::1]:1", "[::2]:1", "1.0.0.1:1", "1.0.0.2:1", "1.0.0.3:1"]
                .map(|text| text.parse().unwrap())
                .into();
        let order: Vec<_> = by_turns(&addresses)
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = ["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "1.0.0.3:1"];
        assert_eq!(order, expected);
        assert_eq!(by_turns(&[]), []);
    }

    #[tokio::test]
    async fn an_address_that_refuses_gives_way_to_the_next() {
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
            }),
            ..Default::default()
        };
        let dialer = Dialer::new(&options);
        let three = callee(&[dead, dead, alive]);
        assert!(dialer.dial(&three, HttpVersion::Http1).await.is_ok());
        let failed = dialer
            .dial(&callee(&[dead, dead]), HttpVersion::Http1)
            .await;
        let error = failed.err().unwrap();
        assert!(!error.timed_out, "{error:?}");
        assert!(dialer.dial(&callee(&[]), HttpVersion::Http1).await.is_err());
    }

    #[tokio::test]
    async fn an_address_that_is_silent_gives_way_after_its_head_start() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = listener.local_addr().unwrap();
        // Nobody is at addresses for documentation (RFC 5737).
        let silent = "192.0.2.1:9".parse().unwrap();
        let dialer = Dialer::new(&UpstreamOptions::default());
        let both = callee(&[silent, alive]);
        assert!(dialer.dial(&both, HttpVersion::Http1).await.is_ok());
    }
}
