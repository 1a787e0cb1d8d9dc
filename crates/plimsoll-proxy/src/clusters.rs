//! Clusters of the configuration: given to the client, kept up to date, taken away again.
//!
//! Names are looked up here, again and again as `dns_refresh_rate` says. Choosing hosts is the
//! client's.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use plimsoll_client::{Client, Error};
use plimsoll_core::units::FieldError;
use plimsoll_xds::upstream::{Discovery, DnsLookupFamily, DnsOptions, LoadAssignment};
use tokio::task::JoinHandle;

pub use plimsoll_xds::upstream::UpstreamCluster;
pub use plimsoll_xds::yaml::UpstreamClusterYaml;

/// Clusters that the client was told of.
#[derive(Debug)]
pub struct ClusterSource {
    client: Client,
    known: BTreeMap<Arc<str>, Known>,
}

#[derive(Debug)]
struct Known {
    options: plimsoll_xds::upstream::UpstreamOptions,
    assignment: Option<LoadAssignment>,
    /// Looks names up.
    lookups: Option<JoinHandle<()>>,
}

impl Drop for Known {
    fn drop(&mut self) {
        if let Some(lookups) = &self.lookups {
            lookups.abort();
        }
    }
}

/// What this proxy can get endpoints from.
pub fn check_discovery(cluster: &UpstreamCluster) -> Result<(), FieldError> {
    match &cluster.options.discovery {
        Discovery::Eds { .. } => {
            let reason = "EDS needs an xDS server, which this configuration does not have";
            Err(FieldError::new("type", reason))
        }
        _ => Ok(()),
    }
}

impl ClusterSource {
    /// No cluster yet.
    pub const fn new(client: Client) -> Self {
        Self {
            client,
            known: BTreeMap::new(),
        }
    }

    /// Adds and changes clusters; `fleet` is the one we are a host of.
    pub async fn set_all(
        &mut self,
        clusters: &[UpstreamCluster],
        fleet: Option<&str>,
    ) -> Result<(), Error> {
        for cluster in clusters {
            self.set(cluster, fleet == Some(cluster.config.name()))
                .await?;
        }
        Ok(())
    }

    /// Takes away all clusters but these: after no route names them any more.
    pub async fn retain(&mut self, clusters: &[UpstreamCluster]) -> Result<(), Error> {
        let gone: Vec<Arc<str>> = self
            .known
            .keys()
            .filter(|name| !clusters.iter().any(|one| one.config.name() == *name))
            .cloned()
            .collect();
        for name in gone {
            self.known.remove(&name);
            self.client.remove_cluster(&name).await?;
        }
        Ok(())
    }

    async fn set(&mut self, cluster: &UpstreamCluster, fleet: bool) -> Result<(), Error> {
        let name = Arc::clone(cluster.config.name());
        let (config, options) = (cluster.config.clone(), cluster.options.clone());
        self.client.set_cluster(config, options).await?;
        let same = self.known.get(&name).is_some_and(|known| {
            known.assignment == cluster.load_assignment
                && known.options.discovery == cluster.options.discovery
        });
        if same {
            return Ok(());
        }
        let mut lookups = None;
        if let Some(assignment) = cluster.load_assignment.clone() {
            let target = Target {
                client: self.client.clone(),
                assignment,
                fleet,
            };
            match &cluster.options.discovery {
                Discovery::StrictDns(dns) | Discovery::LogicalDns(dns) => {
                    let first = matches!(&cluster.options.discovery, Discovery::LogicalDns(_));
                    lookups = Some(tokio::spawn(target.look_up(*dns, first)));
                }
                _ => target.update(&BTreeMap::new()).await?,
            }
        }
        let known = Known {
            options: cluster.options.clone(),
            assignment: cluster.load_assignment.clone(),
            lookups,
        };
        self.known.insert(name, known);
        Ok(())
    }
}

/// Where endpoints go.
struct Target {
    client: Client,
    assignment: LoadAssignment,
    fleet: bool,
}

impl Target {
    async fn update(&self, found: &BTreeMap<String, Vec<IpAddr>>) -> Result<(), Error> {
        let lookup = |name: &str| found.get(name).map_or(&[] as &[IpAddr], Vec::as_slice);
        match self.assignment.resolve(lookup) {
            Ok(assignment) => {
                if self.fleet {
                    self.client.update_originating(assignment.clone()).await?;
                }
                self.client.update_endpoints(assignment).await
            }
            Err(error) => {
                let cluster = &self.assignment.cluster_name;
                tracing::error!(%cluster, %error, "endpoints are refused, the old ones stay");
                Ok(())
            }
        }
    }

    /// Looks names up until the client is gone. A name that cannot be looked up keeps what it had.
    async fn look_up(self, dns: DnsOptions, first_only: bool) {
        let names = self.assignment.names();
        let names: Vec<String> = names.into_iter().map(|(_, name)| name.to_owned()).collect();
        let mut found: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        let mut first = true;
        loop {
            let before = found.clone();
            for name in &names {
                match tokio::net::lookup_host((name.as_str(), 0)).await {
                    Ok(addresses) => {
                        let ips = addresses.map(|address| address.ip());
                        let mut ips = choose(ips.collect(), dns.lookup_family);
                        if first_only {
                            ips.truncate(1);
                        }
                        found.insert(name.clone(), ips);
                    }
                    Err(error) => tracing::warn!(%name, %error, "the name cannot be looked up"),
                }
            }
            if (first || found != before) && self.update(&found).await.is_err() {
                return;
            }
            first = false;
            tokio::time::sleep(dns.refresh_rate).await;
        }
    }
}

/// The addresses that are wanted, in order.
fn choose(mut ips: Vec<IpAddr>, family: DnsLookupFamily) -> Vec<IpAddr> {
    ips.sort_unstable();
    ips.dedup();
    let of = |v4: bool| {
        ips.iter()
            .copied()
            .filter(move |ip| ip.is_ipv4() == v4)
            .collect()
    };
    let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = (of(true), of(false));
    match family {
        DnsLookupFamily::V4Only => v4,
        DnsLookupFamily::V6Only => v6,
        DnsLookupFamily::Auto if !v6.is_empty() => v6,
        DnsLookupFamily::Auto => v4,
        DnsLookupFamily::V4Preferred if !v4.is_empty() => v4,
        DnsLookupFamily::V4Preferred => v6,
        DnsLookupFamily::All => ips,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_chosen_as_envoy_does() {
        let v4: IpAddr = [10, 0, 0, 1].into();
        let v6: IpAddr = [1, 0, 0, 0, 0, 0, 0, 1].into();
        let both = || vec![v6, v4, v6];
        assert_eq!(choose(both(), DnsLookupFamily::Auto), [v6]);
        assert_eq!(choose(both(), DnsLookupFamily::V4Preferred), [v4]);
        assert_eq!(choose(both(), DnsLookupFamily::All), [v4, v6]);
        assert_eq!(choose(vec![v4], DnsLookupFamily::Auto), [v4]);
        assert!(choose(vec![v4], DnsLookupFamily::V6Only).is_empty());
    }
}
