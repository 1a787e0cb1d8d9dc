//! [`wait`]: waits until the clusters and targets of a client can serve requests, for
//! `Client::ready`.

#[cfg(feature = "xds")]
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER};
#[cfg(feature = "xds")]
use plimsoll_xds::upstream::Discovery;
use tokio::time::Instant;

use super::Client;
use crate::cluster::Cluster;
use crate::cluster::initial_fetch::until;
use crate::error::{Error, ErrorKind};
#[cfg(feature = "xds")]
use crate::xds::subscriber::{XdsHandle, problem_of};

/// Something that has not arrived yet.
struct Missing {
    text: String,
    /// When to stop waiting; `None` is never.
    deadline: Option<Instant>,
}

#[cfg(feature = "xds")]
impl Missing {
    /// Something that does not exist: there is nothing to wait for.
    fn absent(text: String) -> Self {
        Self {
            text,
            deadline: Some(Instant::now()),
        }
    }
}

pub(super) async fn wait(client: &Client) -> Result<(), Error> {
    let initial_fetch = &client.0.initial_fetch;
    loop {
        let changed = initial_fetch.changed.notified();
        tokio::pin!(changed);
        // Changes after this line end the wait below.
        changed.as_mut().enable();
        initial_fetch.lifecycle.check_open()?;
        let missing = missing(client);
        if missing.is_empty() {
            return Ok(());
        }
        let unlimited = missing.iter().any(|missing| missing.deadline.is_none());
        let last = missing.iter().filter_map(|missing| missing.deadline).max();
        if until(last.filter(|_| !unlimited), changed).await.is_none() {
            let texts: Vec<String> = missing.into_iter().map(|missing| missing.text).collect();
            let message = format!("not ready: {}", texts.join(", "));
            let message = match initial_fetch.server() {
                Some(server) => format!("{message}; {server}"),
                None => message,
            };
            return Err(Error::new(ErrorKind::Discovery, message));
        }
    }
}

fn missing(client: &Client) -> Vec<Missing> {
    let mut all = Vec::new();
    #[cfg(feature = "xds")]
    if let Some(xds) = &client.0.xds {
        all.extend(missing_clusters(client, xds));
        all.extend(missing_routes(xds));
    }
    let clusters = client.0.clusters.load();
    let unready = clusters.values().filter(|cluster| !cluster.is_ready());
    all.extend(unready.map(|cluster| missing_endpoints(client, cluster)));
    all
}

/// Clusters of `XdsOptions` that the management server has not sent.
#[cfg(feature = "xds")]
fn missing_clusters(client: &Client, xds: &XdsHandle) -> Vec<Missing> {
    let known = client.0.clusters.load();
    let status = xds.status.borrow();
    let deadline = xds.started_until;
    let unknown = xds.roots.clusters.iter();
    let mut all: Vec<Missing> = unknown
        .filter(|name| !known.contains_key(*name))
        .map(|name| match problem_of(&status, CLUSTER, name) {
            Some(problem) => Missing::absent(format!("cluster {name}: {problem}")),
            None => Missing {
                text: format!("cluster {name}: unknown"),
                deadline,
            },
        })
        .collect();
    if xds.roots.all_clusters && !status.clusters_complete {
        let text = "no list of clusters".to_owned();
        all.push(Missing { text, deadline });
    }
    all
}

#[cfg(feature = "xds")]
fn missing_routes(xds: &XdsHandle) -> Vec<Missing> {
    let (routes, status) = (xds.routes.load(), xds.status.borrow());
    let targets = xds.targets.borrow();
    let unrouted = targets
        .iter()
        .filter(|(listener, _)| !routes.targets.contains_key(*listener));
    let missing =
        unrouted.map(
            |(listener, &deadline)| match problem_of(&status, LISTENER, listener) {
                Some(problem) => Missing::absent(format!("listener {listener:?}: {problem}")),
                None => Missing {
                    text: format!("listener {listener:?}: no routes"),
                    deadline,
                },
            },
        );
    missing.collect()
}

fn missing_endpoints(client: &Client, cluster: &Cluster) -> Missing {
    let name = &cluster.name;
    #[cfg(feature = "xds")]
    if let Some(problem) = eds_problem(client, cluster) {
        return Missing::absent(format!("cluster {name}: its endpoints: {problem}"));
    }
    #[cfg(not(feature = "xds"))]
    let _ = client;
    let text = match cluster.problem() {
        Some(problem) => format!("cluster {name}: no endpoints: {problem}"),
        None => format!("cluster {name}: no endpoints"),
    };
    Missing {
        text,
        deadline: cluster.fetch_deadline(),
    }
}

/// Why the management server has no endpoints for a cluster.
#[cfg(feature = "xds")]
fn eds_problem(client: &Client, cluster: &Cluster) -> Option<String> {
    let options = cluster.options.load();
    let Discovery::Eds { service_name, .. } = &options.discovery else {
        return None;
    };
    let eds_name = service_name.as_deref().unwrap_or(&cluster.name);
    let status = client.0.xds.as_ref()?.status.borrow();
    problem_of(&status, CLUSTER_LOAD_ASSIGNMENT, eds_name)
}
