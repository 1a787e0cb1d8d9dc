//! [`EtcdStore`]: the task that connects the control plane with etcd.
//!
//! A session uses one member of the cluster: it reads all records at a revision, watches what
//! changes after it, writes the records of this replica in batches under a lease, and keeps the
//! lease alive. After any error the next session uses the next member. It reads all records again,
//! so that nothing can be lost between two sessions, even if the history was compacted.

mod records;
mod session;

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, Error};
use plimsoll_core::log_line;
use plimsoll_serve::{CancellationToken, TlsError};
use plimsoll_xds::driver::Clock;
use tonic::transport::Endpoint;

use super::{ReplicaIdentity, StoreStats};
use crate::config::Store;
use crate::log_lines;
use crate::relay::{RelayConnector, dialer};
use crate::replicas::StoreInput;
use crate::server::Handle;

/// Time limit of one request. An election of etcd takes one to two seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Range of the pause between two sessions.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The task that connects the control plane with etcd.
#[derive(Debug)]
pub(crate) struct EtcdStore {
    settings: Store,
    connector: Option<Arc<RelayConnector>>,
    replica: ReplicaIdentity,
    listen: String,
    handle: Handle,
    stats: Arc<StoreStats>,
    lease: Option<i64>,
    /// Whether the current session has read the records.
    is_synced: bool,
}

/// Reason why a session ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("{0}")]
    Etcd(#[from] Error),
    #[error("no answer within {REQUEST_TIMEOUT:?}")]
    Timeout(#[from] tokio::time::error::Elapsed),
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("the lease expired")]
    LeaseExpired,
    #[error("the watch ended: {0}")]
    WatchEnded(String),
    #[error("the control plane is shutting down")]
    Stopped,
}

impl EtcdStore {
    /// Loads the certificates and starts to watch their files.
    pub(crate) fn new(
        settings: Store,
        replica: ReplicaIdentity,
        listen: String,
        handle: Handle,
        stats: Arc<StoreStats>,
    ) -> Result<Self, TlsError> {
        let tls = settings.tls.clone();
        let connector = tls.map(|tls| RelayConnector::start("store", tls));
        Ok(Self {
            connector: connector.transpose()?.map(Arc::new),
            settings,
            replica,
            listen,
            handle,
            stats,
            lease: None,
            is_synced: false,
        })
    }

    /// Runs one session after the other until `stopping` is canceled.
    pub(crate) async fn run(mut self, stopping: CancellationToken) {
        let endpoints = self.settings.endpoints.clone();
        // Replicas start with different members.
        let seed = usize::try_from(self.replica.instance % endpoints.len() as u64);
        let mut next = seed.unwrap_or_default();
        let mut pause = BACKOFF.0;
        loop {
            let endpoint = &endpoints[next % endpoints.len()];
            let ended = tokio::select! {
                () = stopping.cancelled() => return self.leave(endpoint).await,
                ended = self.session(endpoint) => ended,
            };
            let error = match ended {
                Err(SessionError::Stopped) => return,
                Err(error) => error,
            };
            if self.handle_end(endpoint, &error).await.is_err() {
                return;
            }
            pause = if self.is_synced {
                BACKOFF.0
            } else {
                (pause * 2).min(BACKOFF.1)
            };
            self.is_synced = false;
            next += 1;
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn handle_end(&mut self, endpoint: &str, error: &SessionError) -> Result<(), ()> {
        if matches!(error, SessionError::LeaseExpired) {
            self.lease = None;
        }
        self.stats.failed();
        let reason = format!("{endpoint}: {error}");
        if !self.is_synced
            && let Some(suppressed) = self.handle.admit("store", Clock::system().now())
        {
            log_line!(log_lines::STORE_UNREACHABLE, reason, suppressed);
        }
        let lost = self.handle.store(StoreInput::Disconnected(reason)).await;
        lost.map_err(drop)
    }

    async fn connect(&self, endpoint: &str) -> Result<Client, SessionError> {
        let failed = |error: tonic::transport::Error| {
            SessionError::Connect(plimsoll_serve::error_chain(&error))
        };
        let builder = Endpoint::from_shared(format!("http://{endpoint}"))
            .map_err(failed)?
            .connect_timeout(CONNECT_TIMEOUT);
        let channel = match self.connector.clone() {
            None => builder.connect().await.map_err(failed)?,
            Some(connector) => {
                let origin = format!("https://{endpoint}").parse().map_err(Error::from)?;
                let builder = builder.origin(origin);
                let connecting = builder.connect_with_connector(dialer(connector));
                connecting.await.map_err(failed)?
            }
        };
        let options = ConnectOptions::new().with_require_leader(true);
        Ok(Client::from_channel(Channel::Tonic(channel), Some(options)).await?)
    }

    /// Removes the record of this replica. Those of its nodes expire with the lease, so that nodes
    /// that move to another replica count without interruption.
    async fn leave(&self, endpoint: &str) {
        let leaving = async {
            let mut client = self.connect(endpoint).await?;
            let key = records::replica_key(&self.settings.prefix, &self.replica.id);
            client.delete(key, None).await?;
            Ok::<(), SessionError>(())
        };
        // The record expires with the lease, too.
        let _ = tokio::time::timeout(Duration::from_secs(1), leaving).await;
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::server::tests::captured_logs::CapturedLogs;
    use crate::server::{Writer, start};
    use crate::state::tests::driver::config;

    /// A store whose members have addresses that cannot be dialed.
    fn unreachable() -> (EtcdStore, Handle, Writer) {
        let (writer, handle) = start(config(""));
        let settings = Store {
            endpoints: ["no host 0", "no host 1", "no host 2"]
                .map(ToOwned::to_owned)
                .into(),
            tls: None,
            prefix: "/plimsoll".to_owned(),
            lease_ttl: Duration::from_secs(30),
            compaction_interval: None,
        };
        let replica = ReplicaIdentity {
            id: "r0".into(),
            instance: 5,
            started_unix_ms: 0,
        };
        let stats = Arc::default();
        let store = EtcdStore::new(settings, replica, String::new(), handle.clone(), stats);
        (store.unwrap(), handle, writer)
    }

    fn logged(lines: &CapturedLogs) -> Vec<String> {
        let lines = lines.0.lock().unwrap();
        let warnings = lines.iter().filter(|(level, _)| *level == Level::WARN);
        warnings.map(|(_, text)| text.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn members_are_tried_in_turn_with_growing_pauses() {
        let lines = CapturedLogs::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let (store, handle, _writer) = unreachable();
        let stats = Arc::clone(&store.stats);
        let stopping = CancellationToken::new();
        let running = tokio::spawn(store.run(stopping.clone()));
        // Attempts at 0, 0.1, 0.3, 0.7, 1.5 and 2.5 s of simulated time.
        tokio::time::sleep(Duration::from_secs(3)).await;
        stopping.cancel();
        running.await.unwrap();
        assert_eq!((stats.failures(), handle.queued()), (6, 6));
        let members: Vec<_> = logged(&lines)
            .iter()
            .map(|line| {
                assert!(
                    line.starts_with("message=store cannot be reached;"),
                    "{line}"
                );
                let (_, member) = line.split_once("no host ").unwrap();
                member[..1].parse::<u8>().unwrap()
            })
            .collect();
        assert_eq!(members, [2, 0, 1, 2, 0, 1]);
    }

    #[tokio::test]
    async fn the_end_of_a_session_is_passed_on_and_an_expired_lease_is_forgotten() {
        let lines = CapturedLogs::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let (mut store, handle, writer) = unreachable();
        store.lease = Some(7);
        store.is_synced = true;
        let ended = SessionError::WatchEnded("closed".to_owned());
        assert_eq!(store.handle_end("a:1", &ended).await, Ok(()));
        assert_eq!((store.lease, handle.queued()), (Some(7), 1));
        assert_eq!(
            logged(&lines),
            [""; 0],
            "the writer logs that the store is lost"
        );
        store.is_synced = false;
        let expired = SessionError::LeaseExpired;
        assert_eq!(store.handle_end("a:1", &expired).await, Ok(()));
        assert_eq!((store.lease, store.stats.failures()), (None, 2));
        let expected = "message=store cannot be reached; demand of other replicas is unknown \
                        reason=\"a:1: the lease expired\" suppressed=0 ";
        assert_eq!(logged(&lines), [expected]);
        drop(writer);
        assert_eq!(store.handle_end("a:1", &expired).await, Err(()));
    }
}
