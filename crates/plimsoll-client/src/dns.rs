//! [`Lookups`]: endpoints of clusters that list names, not addresses (STRICT_DNS, LOGICAL_DNS).
//!
//! One task per cluster asks the system's resolver again and again and tells the cluster manager
//! what it found. A lookup that fails changes nothing: endpoints stay until a later one succeeds.
//! Endpoints that come by EDS have nothing to do with this file.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_xds::upstream::{Discovery, DnsLookupFamily, DnsOptions, UpstreamCluster};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::cluster_manager::Update;

/// Addresses by name.
type Found = BTreeMap<String, Vec<IpAddr>>;

/// The running tasks, by cluster.
#[derive(Debug, Default)]
pub(crate) struct Lookups(BTreeMap<Arc<str>, AbortHandle>);

impl Lookups {
    /// Looks up what `cluster` lists from now on, and nothing else for it.
    pub(crate) fn follow(
        &mut self,
        cluster: &Arc<UpstreamCluster>,
        updates: mpsc::WeakSender<Update>,
    ) {
        let name = Arc::clone(cluster.config.name());
        self.forget(&name);
        let (Discovery::StrictDns(options) | Discovery::LogicalDns(options)) =
            cluster.options.discovery
        else {
            return;
        };
        let task = tokio::spawn(run(Arc::clone(cluster), options, updates));
        self.0.insert(name, task.abort_handle());
    }

    /// Stops looking up names for a cluster.
    pub(crate) fn forget(&mut self, name: &str) {
        if let Some(task) = self.0.remove(name) {
            task.abort();
        }
    }
}

impl Drop for Lookups {
    fn drop(&mut self) {
        self.0.values().for_each(AbortHandle::abort);
    }
}

async fn run(
    cluster: Arc<UpstreamCluster>,
    options: DnsOptions,
    updates: mpsc::WeakSender<Update>,
) {
    let name = cluster.config.name();
    let logical = matches!(cluster.options.discovery, Discovery::LogicalDns(_));
    let mut found = Found::new();
    loop {
        let Some(assignment) = &cluster.load_assignment else {
            return;
        };
        for (_, host) in assignment.names() {
            match look_up(host, options.lookup_family).await {
                Ok(mut addresses) => {
                    addresses.truncate(if logical { 1 } else { usize::MAX });
                    found.insert(host.to_owned(), addresses);
                }
                Err(error) => tracing::warn!(cluster = %name, %host, %error, "no address"),
            }
        }
        let addresses = |host: &str| found.get(host).map_or(&[][..], Vec::as_slice);
        match assignment.resolve(addresses) {
            Ok(assignment) => {
                let Some(updates) = updates.upgrade() else {
                    return;
                };
                let update = Update::Assignment(Arc::clone(name), assignment);
                if updates.send(update).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(cluster = %name, %error, "addresses cannot be used"),
        }
        tokio::time::sleep(options.refresh_rate.max(Duration::from_millis(1))).await;
    }
}

async fn look_up(host: &str, family: DnsLookupFamily) -> std::io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((host, 0)).await?;
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let addresses = of_family(addresses, family);
    match addresses.is_empty() {
        true => Err(std::io::Error::other("no address of the wanted family")),
        false => Ok(addresses),
    }
}

fn of_family(addresses: Vec<IpAddr>, family: DnsLookupFamily) -> Vec<IpAddr> {
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
    fn families_are_chosen_as_envoy_does() {
        let both: Vec<IpAddr> = ["10.0.0.1", "::1"].map(|ip| ip.parse().unwrap()).into();
        let (v4, v6) = (vec![both[0]], vec![both[1]]);
        let of = |family| of_family(both.clone(), family);
        assert_eq!(of(DnsLookupFamily::Auto), v6);
        assert_eq!(of(DnsLookupFamily::V4Preferred), v4);
        assert_eq!(of(DnsLookupFamily::V4Only), v4);
        assert_eq!(of(DnsLookupFamily::V6Only), v6);
        assert_eq!(of(DnsLookupFamily::All), both);
        assert_eq!(of_family(v4.clone(), DnsLookupFamily::Auto), v4);
        assert!(of_family(v4, DnsLookupFamily::V6Only).is_empty());
    }
}
