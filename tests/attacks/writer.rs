//! The writer of the control plane panics or hangs while clients are connected. No message is known
//! that makes it, so the fault is injected into a control plane inside the test; what clients and
//! a supervisor see of it is observed over sockets.

use std::fs;
use std::net::SocketAddr;
use std::sync::mpsc;

use plimsoll_control::run::{Bound, Context, Control, Options, RunError};
use plimsoll_serve::AdminOptions;
use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::driver::STREAM_LOAD_STATS;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::support::{Peer, Stream, TIMEOUT, exchange, field, node};

/// A control plane in this process with one client.
struct Local {
    context: Context,
    running: JoinHandle<Result<(), RunError>>,
    stream: Stream,
    _peer: Peer,
    _directory: tempfile::TempDir,
}

impl Local {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("control.yaml");
        fs::write(&config, "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n").unwrap();
        let options = Options {
            config,
            ..Options::default()
        };
        let control = Control::start(options).await.unwrap();
        let context = control.context().clone();
        let running = tokio::spawn(control.run(AdminOptions::default()));
        let mut peer = Peer::connect(context.bound.xds).await;
        let mut stream = peer.open(STREAM_LOAD_STATS).await;
        stream.send(&field(1, &node("1", "edge", "zone-a"))).await;
        stream.response().await;
        Self {
            context,
            running,
            stream,
            _peer: peer,
            _directory: directory,
        }
    }
}

async fn health(admin: SocketAddr) -> (u16, String) {
    let socket = TcpStream::connect(admin).await.unwrap();
    exchange(socket, admin, "GET", "/healthz", String::new()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_panics_ends_the_process() {
    let mut local = Local::start().await;
    let Bound { xds, admin, .. } = local.context.bound;
    let admin = admin.expect("an admin address");
    assert_eq!(health(admin).await, (200, "ok\n".to_owned()));
    let panicked = local.context.handle.inspect(|_, _| -> () {
        panic!("injected by a test");
    });
    assert!(panicked.await.is_err());
    let ended = tokio::time::timeout(TIMEOUT, local.running).await;
    let error = ended.expect("the control plane ends").unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the writer has ended");
    // A client learns at once that it has to find another control plane.
    let end = local.stream.end().await;
    assert!(!end.starts_with("0: "), "{end}");
    for address in [xds, admin] {
        wait_until("the sockets are closed", async || {
            TcpStream::connect(address).await.is_err()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_writer_that_hangs_is_unhealthy_until_it_goes_on() {
    let mut local = Local::start().await;
    let admin = local.context.bound.admin.expect("an admin address");
    let (go_on, wait) = mpsc::channel::<()>();
    let (hangs, hanging) = tokio::sync::oneshot::channel();
    let handle = local.context.handle.clone();
    let hang = tokio::spawn(async move {
        let hang = move |_: &_, _| {
            hangs.send(()).unwrap();
            // Ends with the sender.
            let _ = wait.recv();
        };
        handle.inspect(hang).await
    });
    hanging.await.unwrap();
    let (status, body) = health(admin).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("the writer does not respond"), "{body}");
    drop(go_on);
    hang.await.unwrap().unwrap();
    assert_eq!(health(admin).await, (200, "ok\n".to_owned()));
    assert_eq!(local.stream.response_if_any().await, None, "it is open");
    local.context.stopping.cancel();
    drop(local.context);
    local.stream.end().await;
    local.running.await.unwrap().unwrap();
}
