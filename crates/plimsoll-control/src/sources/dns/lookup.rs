//! [`Resolver`]: SRV records of a name, with the addresses of their targets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record};

/// Time until a name is asked for again that has no records.
const WITHOUT_RECORDS: Duration = Duration::from_secs(5);

/// Largest number of records of a name: each may cost a query of its own, of a server that is
/// asked every second.
const MAX_RECORDS: usize = 1000;

/// Addresses with their weights.
pub(super) type Targets = BTreeMap<SocketAddr, u32>;

/// Records of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) targets: Targets,
    /// How long they are valid.
    pub(super) ttl: Duration,
}

pub(super) struct Resolver {
    /// Those of the machine if empty.
    servers: Vec<SocketAddr>,
    /// Made when it is used first, and then again and again until the system's settings can be
    /// read.
    inner: Mutex<Option<TokioResolver>>,
}

/// Whether a text is a domain name.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && parse(text).is_ok()
}

impl Resolver {
    pub(super) const fn new(servers: Vec<SocketAddr>) -> Self {
        let inner = Mutex::new(None);
        Self { servers, inner }
    }

    /// Looks up the records with the lowest priority value; those with others are for clients that
    /// cannot reach the first (RFC 2782), which the control plane does not know. A name without
    /// records is no error.
    pub(super) async fn lookup(&self, name: &str) -> Result<Found, String> {
        let resolver = self.resolver().map_err(|error| error.to_string())?;
        let name = parse(name)?;
        let answer = match resolver.srv_lookup(name).await {
            Ok(answer) => answer,
            Err(error) if error.is_no_records_found() => return Ok(Found::none()),
            Err(error) => return Err(error.to_string()),
        };
        let records = first(answer.answers());
        if records.len() > MAX_RECORDS {
            return Err(format!(
                "{} SRV records; at most {MAX_RECORDS}",
                records.len()
            ));
        }
        let mut found = Found::none();
        let mut ttl = u32::MAX;
        for (record, srv) in records {
            ttl = ttl.min(record.ttl);
            // A service that is "decidedly not available at this domain".
            if srv.target.is_root() {
                continue;
            }
            let (addresses, of_addresses) = addresses(&resolver, &answer, &srv.target).await?;
            ttl = ttl.min(of_addresses);
            let weight = u32::from(srv.weight).max(1);
            for address in addresses.into_iter().filter(|_| srv.port > 0) {
                let target = SocketAddr::new(address, srv.port);
                found.targets.insert(target, weight);
            }
        }
        if !found.targets.is_empty() {
            found.ttl = Duration::from_secs(ttl.into());
        }
        Ok(found)
    }

    fn resolver(&self) -> Result<TokioResolver, NetError> {
        // The critical section leaves the data consistent, so poisoning can be ignored.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(resolver) = &*inner {
            return Ok(resolver.clone());
        }
        let mut builder = if self.servers.is_empty() {
            TokioResolver::builder_tokio()?
        } else {
            let provider = TokioRuntimeProvider::default();
            TokioResolver::builder_with_config(config(&self.servers), provider)
        };
        let options = builder.options_mut();
        // Every lookup asks for what there is now; `follow` keeps to the time that records live.
        options.cache_size = 0;
        options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
        let resolver = builder.build()?;
        *inner = Some(resolver.clone());
        Ok(resolver)
    }
}

impl Found {
    const fn none() -> Self {
        Self {
            targets: Targets::new(),
            ttl: WITHOUT_RECORDS,
        }
    }
}

/// Reads a name, which is not relative to the domains that the system searches.
fn parse(text: &str) -> Result<Name, String> {
    let mut name = Name::from_ascii(text).map_err(|error| error.to_string())?;
    name.set_fqdn(true);
    Ok(name)
}

fn config(servers: &[SocketAddr]) -> ResolverConfig {
    let server = |address: &SocketAddr| {
        let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
        for connection in &mut connections {
            connection.port = address.port();
        }
        NameServerConfig::new(address.ip(), true, connections)
    };
    ResolverConfig::from_name_servers(servers.iter().map(server).collect())
}

/// Returns the SRV records with the lowest priority value.
fn first(records: &[Record]) -> Vec<(&Record, &SRV)> {
    let mut all = Vec::new();
    for record in records {
        if let RData::SRV(srv) = &record.data {
            all.push((record, srv));
        }
    }
    let lowest = all.iter().map(|(_, srv)| srv.priority).min();
    all.retain(|(_, srv)| Some(srv.priority) == lowest);
    all
}

/// Returns the addresses of a target, and how many seconds they are valid: those that the answer
/// brought along, or else those of a query of their own.
async fn addresses(
    resolver: &TokioResolver,
    answer: &Lookup,
    target: &Name,
) -> Result<(Vec<IpAddr>, u32), String> {
    let named = answer
        .additionals()
        .iter()
        .filter(|one| one.name == *target);
    let (along, ttls): (Vec<IpAddr>, Vec<u32>) = named
        .filter_map(|one| Some((one.data.ip_addr()?, one.ttl)))
        .unzip();
    if let Some(ttl) = ttls.into_iter().min() {
        return Ok((along, ttl));
    }
    match resolver.lookup_ip(target.clone()).await {
        Ok(found) => {
            let valid = found
                .valid_until()
                .saturating_duration_since(Instant::now());
            let ttl = u32::try_from(valid.as_secs()).unwrap_or(u32::MAX);
            Ok((found.iter().collect(), ttl))
        }
        // The others of the name may have addresses.
        Err(error) if error.is_no_records_found() => Ok((Vec::new(), u32::MAX)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_domain_names() {
        for name in ["_orders._tcp.example.com", "_a._b.service.consul.", "a"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a..b", "a b", &"x".repeat(64), &"abcdefg.".repeat(40)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn records_with_the_lowest_priority_value_count() {
        let name = parse("_orders._tcp.example.com").unwrap();
        let target = parse("a.example.com").unwrap();
        let srv = |priority, port| {
            let srv = SRV::new(priority, 5, port, target.clone());
            Record::from_rdata(name.clone(), 30, RData::SRV(srv))
        };
        let records = [srv(20, 1), srv(10, 2), srv(10, 3)];
        let ports: Vec<u16> = first(&records).iter().map(|(_, srv)| srv.port).collect();
        assert_eq!(ports, [2, 3]);
        assert!(first(&[]).is_empty());
    }
}
