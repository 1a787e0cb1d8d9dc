//! [`EtcdStore`]: the task that connects the control plane with etcd.
//!
//! A session uses one member of the cluster: it reads all records at a revision, watches what
//! changes after it, writes the records of this replica in batches under a lease, and keeps the
//! lease alive. After any error the next session uses the next member. It reads all records again,
//! so that nothing can be lost between two sessions, even if the history was compacted.

mod records;
mod session;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, Error};
use plimsoll_core::backoff::BackoffBounds;
use plimsoll_core::log_line;
use plimsoll_serve::{CancellationToken, TlsError};
use plimsoll_xds::driver::{Clock, Sockets};
use tokio::time::Instant;
use tonic::transport::Endpoint;

use super::{ReplicaIdentity, StoreLink};
use crate::config::Store;
use crate::log_lines;
use crate::replicas::StoreInput;
use crate::server::Handle;
use crate::tls_dialer::TlsDialer;

/// Time limit of one request. An election of etcd takes one to two seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bounds of the pause between two sessions.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);
/// A session that served for less did not work. Each begins with a read of all records, which an
/// etcd that reads but does not write, for example without space, must not get again and again.
const WORKING_SESSION: Duration = Duration::from_secs(10);

/// The task that connects the control plane with etcd.
#[derive(Debug)]
pub(crate) struct EtcdStore {
    settings: Store,
    connector: Option<Arc<TlsDialer>>,
    replica: ReplicaIdentity,
    listen: String,
    handle: Handle,
    stats: Arc<StoreLink>,
    lease: Option<i64>,
    /// When the current session had read the records; `None` if it has not.
    synced_at: Option<Instant>,
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
    #[error("the watch does not answer")]
    WatchStalled,
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
        stats: Arc<StoreLink>,
    ) -> Result<Self, TlsError> {
        let tls = settings.tls.clone();
        let connector = tls.map(|tls| TlsDialer::start("store", tls));
        let connector = connector.transpose()?.map(Arc::new);
        if let Some(connector) = connector.clone() {
            let expiries = move || connector.expiries();
            handle.certificates().watch("store", expiries);
        }
        Ok(Self {
            connector,
            settings,
            replica,
            listen,
            handle,
            stats,
            lease: None,
            synced_at: None,
        })
    }

    /// Runs one session after the other until `stopping` is canceled.
    pub(crate) async fn run(mut self, stopping: CancellationToken) {
        let endpoints = self.settings.endpoints.clone();
        // Replicas start with different members.
        let seed = usize::try_from(self.replica.instance % endpoints.len() as u64);
        let mut next = seed.unwrap_or_default();
        let mut backoff = BackoffBounds::new(FIRST_BACKOFF, LONGEST_BACKOFF);
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
            next += 1;
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(self.pause(&mut backoff)) => {}
            }
        }
    }

    /// Returns the pause after a session that ended now.
    fn pause(&mut self, backoff: &mut BackoffBounds) -> Duration {
        let served = self.synced_at.take().map(|at| at.elapsed());
        if served.is_some_and(|served| served >= WORKING_SESSION) {
            backoff.reset();
        }
        backoff.next_bound()
    }

    async fn handle_end(&mut self, endpoint: &str, error: &SessionError) -> Result<(), ()> {
        if matches!(error, SessionError::LeaseExpired) {
            self.lease = None;
        }
        self.stats.failed();
        let reason = format!("{endpoint}: {error}");
        if self.synced_at.is_none()
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
                let connecting = builder.connect_with_connector(Sockets(connector));
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
    use crate::server::{Writer, start};
    use crate::state::tests::driver::config;
    use plimsoll_testing::CapturedLogs;

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
            max_bytes: 512 << 20,
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
        let members: Vec<_> = lines
            .with(Level::WARN, &[])
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

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_a_session_has_served_for_ten_seconds() {
        let (mut store, ..) = unreachable();
        let mut backoff = BackoffBounds::new(FIRST_BACKOFF, LONGEST_BACKOFF);
        let mut pause_after = async |seconds: f64| {
            store.synced_at = Some(Instant::now());
            tokio::time::advance(Duration::from_secs_f64(seconds)).await;
            store.pause(&mut backoff).as_millis()
        };
        for pause in [100, 200, 400, 800, 1000, 1000] {
            assert_eq!(pause_after(9.9).await, pause);
        }
        assert_eq!(pause_after(10.0).await, 100);
        assert_eq!(pause_after(0.0).await, 200);
        assert_eq!(store.synced_at, None);
        assert_eq!(store.pause(&mut backoff).as_millis(), 400, "not read");
    }

    #[tokio::test]
    async fn the_end_of_a_session_is_passed_on_and_an_expired_lease_is_forgotten() {
        let lines = CapturedLogs::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let (mut store, handle, writer) = unreachable();
        store.lease = Some(7);
        store.synced_at = Some(Instant::now());
        let ended = SessionError::WatchEnded("closed".to_owned());
        assert_eq!(store.handle_end("a:1", &ended).await, Ok(()));
        assert_eq!((store.lease, handle.queued()), (Some(7), 1));
        assert_eq!(
            lines.with(Level::WARN, &[]),
            [""; 0],
            "the writer logs that the store is lost"
        );
        store.synced_at = None;
        let expired = SessionError::LeaseExpired;
        assert_eq!(store.handle_end("a:1", &expired).await, Ok(()));
        assert_eq!((store.lease, store.stats.failures()), (None, 2));
        let expected = "message=store cannot be reached; demand of other replicas is unknown \
                        reason=\"a:1: the lease expired\" suppressed=0 ";
        assert_eq!(lines.with(Level::WARN, &[]), [expected]);
        drop(writer);
        assert_eq!(store.handle_end("a:1", &expired).await, Err(()));
    }
}
