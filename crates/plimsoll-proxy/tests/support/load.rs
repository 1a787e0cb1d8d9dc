//! [`Load`]: clients that send requests continuously and record failures.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::net::TcpStream;

use super::client::Raw;
use super::{TIMEOUT, wait_until};

/// New connections that the kernel may reset while sockets of one address close, because their
/// handshake ends at that moment (docs/proxy.md, restart). More are failures.
const RESETS_BY_THE_KERNEL: usize = 2;

/// Clients that send requests continuously, reusing connections until they are asked to close.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    /// New connections that were reset before their first response.
    resets: Arc<AtomicUsize>,
    failures: Arc<std::sync::Mutex<Vec<String>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    /// Starts the given number of clients.
    pub(crate) fn start(address: std::net::SocketAddr, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicUsize::new(0));
        let resets = Arc::new(AtomicUsize::new(0));
        let failures = Arc::new(std::sync::Mutex::new(Vec::new()));
        let client = || {
            let (stop, done, failures) = (stop.clone(), done.clone(), failures.clone());
            let resets = resets.clone();
            async move {
                while !stop.load(Ordering::SeqCst) {
                    let stream = match TcpStream::connect(address).await {
                        Ok(stream) => stream,
                        Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                            resets.fetch_add(1, Ordering::SeqCst);
                            continue;
                        }
                        Err(_) => {
                            failures.lock().unwrap().push("no connection".to_owned());
                            continue;
                        }
                    };
                    let mut raw = Raw(stream);
                    let mut answered = false;
                    loop {
                        let request = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
                        let Some(response) = raw.exchange(request).await else {
                            if answered {
                                failures.lock().unwrap().push("no response".to_owned());
                            } else {
                                resets.fetch_add(1, Ordering::SeqCst);
                            }
                            break;
                        };
                        answered = true;
                        if response.status != 200 {
                            failures.lock().unwrap().push(format!("{response:?}"));
                        }
                        done.fetch_add(1, Ordering::SeqCst);
                        let last = response.head.contains("connection: close");
                        if last || stop.load(Ordering::SeqCst) {
                            break;
                        }
                    }
                }
            }
        };
        let tasks = (0..clients).map(|_| tokio::spawn(client())).collect();
        Self {
            stop,
            done,
            resets,
            failures,
            tasks,
        }
    }

    /// Waits until the given number of further requests have been answered.
    pub(crate) async fn wait_for(&self, requests: usize) {
        let goal = self.done.load(Ordering::SeqCst) + requests;
        wait_until("requests are answered", || async {
            self.done.load(Ordering::SeqCst) >= goal
        })
        .await;
    }

    /// Stops the clients and returns the failures.
    pub(crate) async fn stop(self) -> Vec<String> {
        self.stop_with(RESETS_BY_THE_KERNEL).await
    }

    /// Like `stop`, for sockets that are handed over: the kernel has no reason to reset anything.
    pub(crate) async fn stop_without_resets(self) -> Vec<String> {
        self.stop_with(0).await
    }

    async fn stop_with(self, allowed_resets: usize) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            tokio::time::timeout(TIMEOUT, task).await.unwrap().unwrap();
        }
        let mut failures = self.failures.lock().unwrap().clone();
        let resets = self.resets.load(Ordering::SeqCst);
        if resets > allowed_resets {
            failures.push(format!("{resets} new connections were reset"));
        }
        failures
    }
}
