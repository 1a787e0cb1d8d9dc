//! DNS discovery for clusters that list host names (STRICT_DNS, LOGICAL_DNS).
//!
//! One task per cluster queries the system resolver at the refresh rate. After a failed lookup the
//! endpoints of the last successful one stay in use.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::log_line;
use plimsoll_xds::error_chain::describe;
use plimsoll_xds::upstream::{Discovery, DnsLookupFamily, DnsOptions, UpstreamCluster};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::cluster::Cluster;
use crate::cluster::manager::Update;
use crate::log_lines;

/// Time limit of a lookup. The system resolver gives up on its own only after several attempts.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

type ResolvedHosts = BTreeMap<String, Vec<IpAddr>>;

#[derive(Debug, Default)]
pub(crate) struct DnsResolvers(BTreeMap<Arc<str>, AbortHandle>);

impl DnsResolvers {
    /// Resolves the host names of `cluster` periodically, replacing its previous task.
    pub(crate) fn watch(
        &mut self,
        cluster: &Arc<UpstreamCluster>,
        shared: Arc<Cluster>,
        updates: mpsc::WeakSender<Update>,
    ) {
        let name = Arc::clone(cluster.config.name());
        self.stop(&name);
        let (Discovery::StrictDns(options) | Discovery::LogicalDns(options)) =
            cluster.options.discovery
        else {
            return;
        };
        let task = tokio::spawn(run(Arc::clone(cluster), shared, options, updates));
        self.0.insert(name, task.abort_handle());
    }

    pub(crate) fn stop(&mut self, name: &str) {
        if let Some(task) = self.0.remove(name) {
            task.abort();
        }
    }
}

#[cfg(all(test, feature = "xds"))]
impl DnsResolvers {
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

impl Drop for DnsResolvers {
    fn drop(&mut self) {
        self.0.values().for_each(AbortHandle::abort);
    }
}

async fn run(
    cluster: Arc<UpstreamCluster>,
    shared: Arc<Cluster>,
    options: DnsOptions,
    updates: mpsc::WeakSender<Update>,
) {
    let name = cluster.config.name();
    let logical = matches!(cluster.options.discovery, Discovery::LogicalDns(_));
    let mut found = ResolvedHosts::new();
    let mut failures = Failures::default();
    loop {
        let Some(assignment) = &cluster.load_assignment else {
            return;
        };
        let mut names = assignment.names().into_iter();
        let unknown = names.find(|(_, host)| !found.contains_key(*host));
        if let Some((_, host)) = unknown.filter(|_| shared.problem().is_none()) {
            shared.set_problem(Some(format!("DNS name {host:?} is still being resolved")));
        }
        // All names at once: one that is not answered must not delay the others.
        let lookups = assignment
            .names()
            .into_iter()
            .map(|(_, host)| async move { (host, resolve(host, options.lookup_family).await) });
        for (host, resolved) in futures_util::future::join_all(lookups).await {
            let resolved = resolved.map(|mut addresses| {
                addresses.truncate(if logical { 1 } else { usize::MAX });
                addresses
            });
            learn(&mut found, &mut failures, name, host, resolved);
        }
        shared.set_problem(failures.describe());
        let addresses = |host: &str| found.get(host).map_or(&[][..], Vec::as_slice);
        match assignment.resolve(addresses) {
            Ok(endpoints) => {
                let Some(updates) = updates.upgrade() else {
                    return;
                };
                let update = Update::Endpoints(Arc::clone(name), endpoints);
                if updates.send(update).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                shared.set_problem(Some(format!("resolved addresses rejected: {error}")));
                log_line!(log_lines::DNS_ADDRESSES_REJECTED, cluster = %name, %error);
            }
        }
        tokio::time::sleep(options.refresh_rate.max(Duration::from_millis(1))).await;
    }
}

/// Learns the addresses of a name; those of the last successful lookup stay after a failed one.
fn learn(
    found: &mut ResolvedHosts,
    failures: &mut Failures,
    cluster: &str,
    host: &str,
    resolved: std::io::Result<Vec<IpAddr>>,
) {
    match resolved {
        Ok(addresses) => {
            failures.handle_success(cluster, host);
            found.insert(host.to_owned(), addresses);
        }
        Err(error) => failures.handle_failure(cluster, host, describe(&error)),
    }
}

/// Names that do not resolve at present, with the reason.
#[derive(Debug, Default)]
struct Failures(BTreeMap<String, String>);

impl Failures {
    /// Logs a failure once per reason as a warning.
    fn handle_failure(&mut self, cluster: &str, host: &str, error: String) {
        if self.0.get(host) == Some(&error) {
            log_line!(log_lines::DNS_LOOKUP_STILL_FAILING, cluster, host, error);
            return;
        }
        log_line!(log_lines::DNS_LOOKUP_FAILED, cluster, host, error);
        self.0.insert(host.to_owned(), error);
    }

    fn handle_success(&mut self, cluster: &str, host: &str) {
        if self.0.remove(host).is_some() {
            log_line!(log_lines::DNS_LOOKUP_RECOVERED, cluster, host);
        }
    }

    fn describe(&self) -> Option<String> {
        let names = self.0.iter();
        let texts =
            names.map(|(host, error)| format!("DNS name {host:?} does not resolve: {error}"));
        let all: Vec<String> = texts.collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

async fn resolve(host: &str, family: DnsLookupFamily) -> std::io::Result<Vec<IpAddr>> {
    let found = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, 0)))
        .await
        .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let addresses = filter_family(addresses, family);
    if addresses.is_empty() {
        return Err(std::io::Error::other(
            "no address of the configured dns_lookup_family",
        ));
    }
    Ok(addresses)
}

fn filter_family(addresses: Vec<IpAddr>, family: DnsLookupFamily) -> Vec<IpAddr> {
    let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = addresses.into_iter().partition(IpAddr::is_ipv4);
    match family {
        DnsLookupFamily::V4Only => v4,
        DnsLookupFamily::V6Only => v6,
        DnsLookupFamily::Auto if v6.is_empty() => v4,
        DnsLookupFamily::Auto => v6,
        DnsLookupFamily::V4Preferred if v4.is_empty() => v6,
        DnsLookupFamily::V4Preferred => v4,
        DnsLookupFamily::All => v4.into_iter().chain(v6).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_families_are_filtered_as_in_envoy() {
        let both: Vec<IpAddr> = ["10.0.0.1", "::1"].map(|ip| ip.parse().unwrap()).into();
        let (v4, v6) = (vec![both[0]], vec![both[1]]);
        let of = |family| filter_family(both.clone(), family);
        assert_eq!(of(DnsLookupFamily::Auto), v6);
        assert_eq!(of(DnsLookupFamily::V4Preferred), v4);
        assert_eq!(of(DnsLookupFamily::V4Only), v4);
        assert_eq!(of(DnsLookupFamily::V6Only), v6);
        assert_eq!(of(DnsLookupFamily::All), both);
        assert_eq!(filter_family(v4.clone(), DnsLookupFamily::Auto), v4);
        assert!(filter_family(v4, DnsLookupFamily::V6Only).is_empty());
    }

    #[test]
    fn failures_are_described_until_the_name_resolves() {
        let mut failures = Failures::default();
        assert_eq!(failures.describe(), None);
        failures.handle_failure("orders", "b", "refused".to_owned());
        failures.handle_failure("orders", "a", "timed out".to_owned());
        failures.handle_failure("orders", "b", "not found".to_owned());
        let both = "DNS name \"a\" does not resolve: timed out; \
                    DNS name \"b\" does not resolve: not found";
        assert_eq!(failures.describe().unwrap(), both);
        failures.handle_success("orders", "a");
        let one = "DNS name \"b\" does not resolve: not found";
        assert_eq!(failures.describe().unwrap(), one);
        failures.handle_success("orders", "b");
        assert_eq!(failures.describe(), None);
    }

    #[test]
    fn names_that_stop_resolving_keep_their_addresses() {
        let (mut found, mut failures) = (ResolvedHosts::new(), Failures::default());
        let mut learn = |resolved| {
            learn(&mut found, &mut failures, "orders", "a", resolved);
            (found.get("a").cloned(), failures.describe().is_some())
        };
        let timed_out = || Err(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let addresses: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap()];
        assert_eq!(learn(timed_out()), (None, true));
        assert_eq!(
            learn(Ok(addresses.clone())),
            (Some(addresses.clone()), false)
        );
        assert_eq!(learn(timed_out()), (Some(addresses), true));
        let moved: Vec<IpAddr> = vec!["10.0.0.2".parse().unwrap()];
        assert_eq!(learn(Ok(moved.clone())), (Some(moved), false));
    }

    #[tokio::test]
    async fn addresses_are_sorted_and_unique_and_of_the_family() {
        let address = async |family| resolve("127.0.0.1", family).await;
        let found = address(DnsLookupFamily::V4Only).await.unwrap();
        assert_eq!(found, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
        let error = address(DnsLookupFamily::V6Only).await.unwrap_err();
        let expected = "no address of the configured dns_lookup_family";
        assert_eq!(error.to_string(), expected);
    }
}
