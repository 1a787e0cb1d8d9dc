//! HTTP/2 clients that send requests continuously and follow GOAWAY.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// Clients on a thread of their own.
pub(crate) struct Http2Load {
    stop: Arc<AtomicBool>,
    figures: Arc<Mutex<Figures>>,
    thread: JoinHandle<()>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) answered: u64,
    pub(crate) connections: u64,
    pub(crate) failures: Vec<String>,
}

type BoxError = Box<dyn std::error::Error>;

impl Http2Load {
    /// Starts clients that have one connection each.
    pub(crate) fn start(address: SocketAddr, clients: usize) -> Self {
        let (stop, figures) = <(Arc<AtomicBool>, Arc<Mutex<Figures>>)>::default();
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&figures));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async {
                let client =
                    || tokio::task::spawn_local(client(address, stopped.clone(), counted.clone()));
                let tasks: Vec<_> = (0..clients).map(|_| client()).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
        Self {
            stop,
            figures,
            thread,
        }
    }

    /// Stops the clients when their requests are answered.
    pub(crate) fn stop(self) -> Figures {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        self.figures.lock().unwrap().clone()
    }
}

async fn client(address: SocketAddr, stop: Arc<AtomicBool>, figures: Arc<Mutex<Figures>>) {
    while !stop.load(Ordering::SeqCst) {
        let limit = Duration::from_secs(60);
        let serving = connection(address, &stop, &figures);
        let served = tokio::time::timeout(limit, serving)
            .await
            .unwrap_or_else(|elapsed| Err(elapsed.into()));
        if let Err(error) = served {
            figures.lock().unwrap().failures.push(format!("{error:?}"));
        }
    }
}

/// Whether a request was not sent because GOAWAY arrived before. Every client may send it again.
fn went_away(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error);
    source
        .and_then(|source| source.downcast_ref::<h2::Error>())
        .is_some_and(|error| error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR))
}

/// Sends requests until the server goes away.
async fn connection(
    address: SocketAddr,
    stop: &AtomicBool,
    figures: &Mutex<Figures>,
) -> Result<(), BoxError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, serving) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::task::spawn_local(serving);
    figures.lock().unwrap().connections += 1;
    while !stop.load(Ordering::SeqCst) && sender.ready().await.is_ok() {
        let request = Request::get(format!("http://{address}/bytes/20000"));
        let response = match sender
            .send_request(request.body(Empty::<Bytes>::new())?)
            .await
        {
            Ok(response) => response,
            Err(error) if error.is_canceled() || went_away(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if (status.as_u16(), body.len()) != (200, 20_000) {
            return Err(format!("{status} with {} bytes", body.len()).into());
        }
        figures.lock().unwrap().answered += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
