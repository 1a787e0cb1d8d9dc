//! Servers that can be killed, restarted and made unhealthy while requests run.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};

/// Duration of a request, so that some are in flight when a server is killed.
const WORK: Duration = Duration::from_millis(2);

/// Servers on loopback with their own runtime.
pub(crate) struct Hosts {
    runtime: Runtime,
    hosts: Vec<Host>,
}

struct Host {
    address: SocketAddr,
    state: Arc<State>,
    serving: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    unhealthy: AtomicBool,
    requests: AtomicU64,
}

impl Hosts {
    pub(crate) fn start(count: usize) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), count)
    }

    /// Starts servers on another address of this machine.
    pub(crate) fn start_on(address: IpAddr, count: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let any = SocketAddr::new(address, 0);
        let mut hosts = Self {
            runtime,
            hosts: Vec::new(),
        };
        for _ in 0..count {
            let state = Arc::default();
            let (address, serving) = hosts.listen(any, &state);
            hosts.hosts.push(Host {
                address,
                state,
                serving: Some(serving),
            });
        }
        hosts
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.hosts.iter().map(|host| host.address).collect()
    }

    /// Number of requests to a server, without health checks.
    pub(crate) fn request_count(&self, host: usize) -> u64 {
        self.hosts[host].state.requests.load(Ordering::SeqCst)
    }

    /// Lets health checks of a server fail or pass; it serves requests in either case.
    pub(crate) fn set_unhealthy(&self, host: usize, unhealthy: bool) {
        self.hosts[host]
            .state
            .unhealthy
            .store(unhealthy, Ordering::SeqCst);
    }

    /// Aborts a server with its connections and requests in flight.
    pub(crate) fn kill(&mut self, host: usize) {
        if let Some(serving) = self.hosts[host].serving.take() {
            serving.abort();
            // The task was aborted, so the join error is expected.
            let _ = self.runtime.block_on(serving);
        }
    }

    /// Restarts a server on the same address.
    pub(crate) fn restart(&mut self, host: usize) {
        let (address, state) = (self.hosts[host].address, &self.hosts[host].state);
        let (_, serving) = self.listen(address, state);
        self.hosts[host].serving = Some(serving);
    }

    fn listen(&self, address: SocketAddr, state: &Arc<State>) -> (SocketAddr, JoinHandle<()>) {
        let listener = self.runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = self.runtime.spawn(serve(listener, Arc::clone(state)));
        (address, serving)
    }
}

/// Accepts connections until the task is aborted, which also ends the connections.
async fn serve(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        let service = service_fn(move |request| respond(Arc::clone(&state), request));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // The connection ends when the peer closes it.
        connections.spawn(async move { drop(connection.await) });
    }
}

async fn respond(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"ok")));
    if request.uri().path() == "/health" {
        if state.unhealthy.load(Ordering::SeqCst) {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        return Ok(response);
    }
    state.requests.fetch_add(1, Ordering::SeqCst);
    // Read the body to its end, or the connection cannot be reused.
    let _ = request.into_body().collect().await;
    tokio::time::sleep(WORK).await;
    Ok(response)
}
