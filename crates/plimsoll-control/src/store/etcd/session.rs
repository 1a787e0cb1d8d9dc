//! One session with a member of etcd.

use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use etcd_client::{
    Client, Compare, CompareOp, Error, EventType, GetOptions, KeyValue, LeaseKeepAliveStream,
    LeaseKeeper, PutOptions, ResponseHeader, Txn, TxnOp, WatchOptions, WatchStream,
};
use plimsoll_core::log_line;
use plimsoll_xds::replica::ReplicaRecord;
use plimsoll_xds::wire::encode_replica_record;
use tokio::time::{sleep, timeout};

use super::{EtcdStore, REQUEST_TIMEOUT, SessionError};
use super::{records, watch};
use crate::log_lines;
use crate::replicas::{NodeKey, PlanKey, StoreInput};
use crate::store::{PendingProposal, PendingWrite, Transactions};

/// Time in which writes are collected to batches.
const COALESCE: Duration = Duration::from_millis(200);
/// Interval at which a replica renews its own record.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(5);
/// Longest interval between two signs of life of the lease, which also show that etcd responds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which the bytes of the history are looked at.
const HISTORY_CHECK: Duration = Duration::from_secs(1);
/// Records in one response when all are read.
const PAGE: i64 = 500;
/// Most bytes of a response: a page of the largest records.
const MAX_MESSAGE: usize = 300 * 1024 * 1024;

type SessionResult = Result<Infallible, SessionError>;

impl EtcdStore {
    /// Connects to a member, reads all records and serves until an error.
    pub(super) async fn session(&mut self, endpoint: &str) -> SessionResult {
        let mut client = timeout(REQUEST_TIMEOUT, self.connect(endpoint)).await??;
        let had_lease = self.lease;
        let lease = timeout(REQUEST_TIMEOUT, self.lease(&mut client)).await??;
        let (keeper, responses, lease) = lease;
        let (snapshot, revision) = self.read(&client).await?;
        let watch = timeout(REQUEST_TIMEOUT, self.watch(&client, revision)).await??;
        for input in snapshot {
            self.input(input).await?;
        }
        if had_lease != Some(lease) {
            self.input(StoreInput::LeaseChanged).await?;
        }
        self.synced_at = Some(tokio::time::Instant::now());
        let this = &*self;
        tokio::select! {
            ended = this.read_changes(watch) => ended,
            ended = this.write(client.clone(), lease) => ended,
            ended = this.propose(client.clone(), lease) => ended,
            ended = this.write_orders(client.clone()) => ended,
            ended = this.keep_lease(keeper, responses) => ended,
            ended = this.announce(client.clone(), lease) => ended,
            ended = this.compact(client.clone()) => ended,
        }
    }

    /// Continues the lease, or gets another one if it has expired.
    async fn lease(
        &mut self,
        client: &mut Client,
    ) -> Result<(LeaseKeeper, LeaseKeepAliveStream, i64), SessionError> {
        if let Some(lease) = self.lease {
            match client.lease_keep_alive(lease).await {
                Ok((keeper, responses)) => return Ok((keeper, responses, lease)),
                Err(Error::LeaseKeepAliveError(_)) => self.lease = None,
                Err(error) => return Err(error.into()),
            }
        }
        let seconds = i64::try_from(self.settings.lease_ttl.as_secs()).unwrap_or(i64::MAX);
        let lease = client.lease_grant(seconds, None).await?.id();
        self.lease = Some(lease);
        let (keeper, responses) = client.lease_keep_alive(lease).await?;
        Ok((keeper, responses, lease))
    }

    /// Reads all records at one revision.
    async fn read(&self, client: &Client) -> Result<([StoreInput; 2], i64), SessionError> {
        let mut kv = client.kv_client().max_decoding_message_size(MAX_MESSAGE);
        let mut start = records::all_keys(&self.settings.prefix).into_bytes();
        let mut end = start.clone();
        if let Some(last) = end.last_mut() {
            // The prefix ends with a slash, so this is the first key after all of its keys.
            *last += 1;
        }
        let mut entries: Vec<KeyValue> = Vec::new();
        let mut revision = 0;
        loop {
            let options = GetOptions::new()
                .with_range(end.clone())
                .with_limit(PAGE)
                .with_revision(revision);
            let mut page = timeout(REQUEST_TIMEOUT, kv.get(start, Some(options))).await??;
            if revision == 0 {
                revision = page.header().map_or(0, ResponseHeader::revision);
            }
            let more = page.more();
            entries.append(&mut page.take_kvs());
            match entries.last() {
                Some(last) if more => start = [last.key(), &[0]].concat(),
                _ => break,
            }
        }
        let snapshot = records::snapshot(&self.settings.prefix, &entries);
        Ok((snapshot, revision))
    }

    /// Watches changes after a revision.
    async fn watch(&self, client: &Client, revision: i64) -> Result<WatchStream, SessionError> {
        let mut watches = client.watch_client().max_decoding_message_size(MAX_MESSAGE);
        let prefix = records::all_keys(&self.settings.prefix);
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(revision + 1);
        Ok(watches.watch(prefix, Some(options)).await?)
    }

    async fn read_changes(&self, mut watch: WatchStream) -> SessionResult {
        loop {
            let response = watch::next(&mut watch).await?;
            if response.canceled() {
                let reason = response.cancel_reason().to_owned();
                return Err(SessionError::WatchEnded(reason));
            }
            for event in response.events() {
                let Some(entry) = event.kv() else {
                    continue;
                };
                self.stats.watched(entry.key().len() + entry.value().len());
                let input = match event.event_type() {
                    EventType::Put => records::put(&self.settings.prefix, entry),
                    EventType::Delete => records::deleted(&self.settings.prefix, entry.key()),
                };
                if let Some(input) = input {
                    self.input(input).await?;
                }
            }
        }
    }

    /// Writes records that wait, in batches.
    async fn write(&self, mut client: Client, lease: i64) -> SessionResult {
        loop {
            let batch = self.stats.outbox.take();
            if batch.is_empty() {
                self.stats.changed.notified().await;
                sleep(COALESCE).await;
                continue;
            }
            let start = Instant::now();
            let operations: Vec<_> = batch
                .iter()
                .map(|(key, write)| self.operation(key, write, lease))
                .collect();
            let transaction = Txn::new().and_then(operations);
            match timeout(REQUEST_TIMEOUT, client.txn(transaction)).await {
                Ok(Ok(_)) => {
                    self.stats.wrote(batch.len(), start.elapsed());
                    let bytes = batch.iter().map(|(_, write)| write.len()).sum();
                    // Meanwhile newer reports replace those that wait.
                    sleep(self.settings.pause_after(bytes)).await;
                }
                failed => {
                    self.stats.write_failed();
                    self.stats.outbox.restore(batch);
                    failed??;
                }
            }
        }
    }

    /// Writes orders about zones, without a lease: they outlive every replica.
    async fn write_orders(&self, mut client: Client) -> SessionResult {
        loop {
            let (zone, order) = self.stats.orders.next().await;
            let key = records::order_key(&self.settings.prefix, &zone);
            match &order {
                Some(order) => {
                    timeout(REQUEST_TIMEOUT, client.put(key, order.clone(), None)).await??;
                }
                None => {
                    timeout(REQUEST_TIMEOUT, client.delete(key, None)).await??;
                }
            }
            self.stats.orders.written(&zone, order.as_ref());
        }
    }

    /// Writes plans at once, each if it follows the one in the store. The watch shows which one was
    /// taken.
    async fn propose(&self, mut client: Client, lease: i64) -> SessionResult {
        loop {
            let batch = self.stats.proposals.take();
            if batch.is_empty() {
                self.stats.proposed.notified().await;
                continue;
            }
            self.propose_batch(&mut client, batch, lease).await?;
        }
    }

    /// Proposes plans in one transaction, or in halves of it if it is too large for this etcd. A
    /// plan that is too large alone is delivered without the other replicas.
    async fn propose_batch(
        &self,
        client: &mut Client,
        batch: Vec<(PlanKey, PendingProposal)>,
        lease: i64,
    ) -> Result<(), SessionError> {
        let mut transactions = Transactions::new(batch);
        while let Some(batch) = transactions.pop() {
            let operations: Vec<_> = batch
                .iter()
                .map(|(key, proposal)| self.proposal(key, proposal, lease))
                .collect();
            let transaction = Txn::new().and_then(operations);
            match timeout(REQUEST_TIMEOUT, client.txn(transaction)).await? {
                Ok(_) => {}
                Err(error) if !is_too_large(&error) => return Err(error.into()),
                Err(_) => {
                    if let Some((key, proposal)) = transactions.divide(batch) {
                        let bytes = proposal.len();
                        self.input(StoreInput::PlanTooLarge { key, bytes }).await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn proposal(&self, key: &PlanKey, proposal: &PendingProposal, lease: i64) -> TxnOp {
        let key = records::plan_key(&self.settings.prefix, key);
        // A key that does not exist has revision 0.
        let follows = Compare::mod_revision(key.clone(), CompareOp::Equal, proposal.after);
        let change = match &proposal.record {
            Some(record) => {
                let options = PutOptions::new().with_lease(lease);
                TxnOp::put(key, record.clone(), Some(options))
            }
            None => TxnOp::delete(key, None),
        };
        TxnOp::txn(Txn::new().when([follows]).and_then([change]))
    }

    /// A deletion only takes place if the record is still the one of this replica; a record
    /// without a load report is only written then, or if there is none.
    fn operation(&self, key: &NodeKey, write: &PendingWrite, lease: i64) -> TxnOp {
        let key = records::node_key(&self.settings.prefix, key);
        let put = |value: &Vec<u8>| {
            let options = PutOptions::new().with_lease(lease);
            TxnOp::put(key.clone(), value.clone(), Some(options))
        };
        let if_own = |operation| {
            let is_own = Compare::lease(key.clone(), CompareOp::Equal, lease);
            TxnOp::txn(Txn::new().when([is_own]).and_then([operation]))
        };
        match write {
            PendingWrite::Put(value) => put(value),
            PendingWrite::PutIfOwn(value) => {
                let is_absent = Compare::version(key.clone(), CompareOp::Equal, 0);
                let branches = Txn::new().when([is_absent]).and_then([put(value)]);
                TxnOp::txn(branches.or_else([if_own(put(value))]))
            }
            PendingWrite::Delete => if_own(TxnOp::delete(key.clone(), None)),
        }
    }

    async fn keep_lease(
        &self,
        mut keeper: LeaseKeeper,
        mut responses: LeaseKeepAliveStream,
    ) -> SessionResult {
        let interval = (self.settings.lease_ttl / 3).min(KEEP_ALIVE_INTERVAL);
        loop {
            sleep(interval).await;
            keeper.keep_alive().await?;
            let response = timeout(REQUEST_TIMEOUT, responses.message()).await??;
            if response.is_none_or(|response| response.ttl() <= 0) {
                return Err(SessionError::LeaseExpired);
            }
        }
    }

    /// Writes the record of this replica, again and again.
    async fn announce(&self, mut client: Client, lease: i64) -> SessionResult {
        let key = records::replica_key(&self.settings.prefix, &self.replica.id);
        loop {
            let inspected = self.handle.inspect(|state, _| {
                let fleets = state.fleets().iter();
                let members = fleets.flat_map(|(_, members)| members.values());
                let nodes = members.filter(|member| member.has_stream()).count();
                (nodes as u64, state.fingerprint())
            });
            let (nodes, configuration) = inspected.await.map_err(|_| SessionError::Stopped)?;
            let record = ReplicaRecord {
                replica: self.replica.id.as_ref().to_owned(),
                instance: self.replica.instance,
                listen: self.listen.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                configuration,
                started_unix_ms: self.replica.started_unix_ms,
                nodes,
            };
            let options = PutOptions::new().with_lease(lease);
            let put = client.put(key.clone(), encode_replica_record(&record), Some(options));
            timeout(REQUEST_TIMEOUT, put).await??;
            sleep(ANNOUNCE_INTERVAL).await;
        }
    }

    /// Removes old revisions from the history of etcd, which else grows with every load report:
    /// those older than an interval, or sooner if there are many bytes of them.
    async fn compact(&self, mut client: Client) -> SessionResult {
        let Some(interval) = self.settings.compaction_interval else {
            return std::future::pending().await;
        };
        let prefix = records::all_keys(&self.settings.prefix);
        let mut previous = None;
        loop {
            let options = GetOptions::new().with_prefix().with_count_only();
            let counted = client.get(prefix.clone(), Some(options));
            let counted = timeout(REQUEST_TIMEOUT, counted).await??;
            let revision = counted.header().map(ResponseHeader::revision);
            if let Some(previous) = previous {
                match timeout(REQUEST_TIMEOUT, client.compact(previous, None)).await {
                    Ok(Ok(_)) => self.stats.compacted(),
                    // Another replica was faster.
                    Ok(Err(error)) if error.to_string().contains("has been compacted") => {}
                    Ok(Err(error)) => log_line!(log_lines::COMPACTION_FAILED, %error),
                    Err(error) => log_line!(log_lines::COMPACTION_FAILED, %error),
                }
            }
            previous = revision;
            self.wait_to_compact(interval).await;
        }
    }

    async fn wait_to_compact(&self, interval: Duration) {
        let since = tokio::time::Instant::now();
        let before = self.stats.watched.load(Relaxed);
        while since.elapsed() < interval {
            let written = self.stats.watched.load(Relaxed) - before;
            if written >= self.settings.max_history() {
                return;
            }
            sleep(HISTORY_CHECK.min(interval)).await;
        }
    }

    async fn input(&self, input: StoreInput) -> Result<(), SessionError> {
        let sent = self.handle.store(input).await;
        sent.map_err(|_| SessionError::Stopped)
    }
}

/// Whether etcd refused a request because of its size or the number of its operations.
fn is_too_large(error: &Error) -> bool {
    const REASONS: [&str; 3] = ["too large", "larger than max", "too many operations"];
    let Error::GRpcStatus(status) = error else {
        return false;
    };
    REASONS
        .iter()
        .any(|reason| status.message().contains(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::outbox::MAX_RECORD;

    #[test]
    fn only_requests_that_are_too_large_are_divided() {
        // As etcd 3.5 and its gRPC server say it.
        let refused = |text: &str| Error::GRpcStatus(tonic::Status::unknown(text));
        for text in [
            "etcdserver: request is too large",
            "grpc: received message larger than max (4688072 vs. 2097152)",
            "etcdserver: too many operations in txn request",
        ] {
            assert!(is_too_large(&refused(text)), "{text}");
        }
        assert!(!is_too_large(&refused(
            "etcdserver: mvcc: database space exceeded"
        )));
        assert!(!is_too_large(&Error::WatchError("too large".to_owned())));
    }

    #[test]
    fn a_response_has_room_for_a_page_of_the_largest_records() {
        let page = usize::try_from(PAGE).unwrap() * MAX_RECORD;
        assert!((page..2 * page).contains(&MAX_MESSAGE), "{MAX_MESSAGE}");
    }
}
