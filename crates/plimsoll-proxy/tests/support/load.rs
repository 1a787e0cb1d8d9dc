//! [`Load`]: clients that ask over and over, and what failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::net::TcpStream;

use super::client::Raw;
use super::{PATIENCE, eventually};

/// Clients that ask over and over, on connections that they keep as long as they may.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    failures: Arc<std::sync::Mutex<Vec<String>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    /// So many clients.
    pub(crate) fn start(address: std::net::SocketAddr, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicUsize::new(0));
        let failures = Arc::new(std::sync::Mutex::new(Vec::new()));
        let client = || {
            let (stop, done, failures) = (stop.clone(), done.clone(), failures.clone());
            async move {
                while !stop.load(Ordering::SeqCst) {
                    let Ok(stream) = TcpStream::connect(address).await else {
                        failures.lock().unwrap().push("no connection".to_owned());
                        continue;
                    };
                    let mut raw = Raw(stream);
                    loop {
                        raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
                        let answer = raw.answer().await;
                        if answer.status != 200 {
                            failures.lock().unwrap().push(format!("{answer:?}"));
                        }
                        done.fetch_add(1, Ordering::SeqCst);
                        let last = answer.head.contains("connection: close");
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
            failures,
            tasks,
        }
    }

    /// Waits for so many more requests.
    pub(crate) async fn more(&self, requests: usize) {
        let goal = self.done.load(Ordering::SeqCst) + requests;
        eventually("requests are answered", || async {
            self.done.load(Ordering::SeqCst) >= goal
        })
        .await;
    }

    /// Ends, and says what failed.
    pub(crate) async fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
        }
        self.failures.lock().unwrap().clone()
    }
}
