//! Services of a Kubernetes cluster: the task that turns what plimsoll-kubernetes finds into
//! services of the control plane. `translate` converts and `report` sums up, both without IO;
//! `write` writes the reports to the cluster.

mod report;
mod translate;
mod write;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_kubernetes::inventory::InventoryOptions;
use plimsoll_kubernetes::reflector::RemovalGuard;
use plimsoll_kubernetes::write::ApiWriter;
use plimsoll_kubernetes::{Source, SourceOptions};
use plimsoll_xds::driver::Clock;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::config::{ControlConfig, Kubernetes};
use crate::run::Context;
use crate::server::{Handle, Stopped};
use report::PolicyView;
use write::{ReportInputs, Reporter};

#[doc(hidden)]
pub use plimsoll_kubernetes::LOG_LINES;
pub use translate::{Refused, Translator};

/// Events about refused settings that wait to be written; further ones are dropped.
const MAX_EVENTS: usize = 100;

/// State of the mirror of a Kubernetes cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesState {
    /// Whether all kinds of objects have been listed since the start.
    pub is_synced: bool,
    /// For how long requests have failed, and why.
    pub failing: Option<(Duration, String)>,
    /// Objects that a list lacked and that stay for a while.
    pub held: usize,
}

impl Handle {
    /// Returns the state of the mirror of a Kubernetes cluster; `None` without one.
    pub fn kubernetes(&self) -> Option<KubernetesState> {
        let status = self.discovery().status()?;
        Some(KubernetesState {
            is_synced: status.is_synced(),
            failing: status.failing(),
            held: status.held(),
        })
    }
}

/// Settings that a mirror is started with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DiscoverySettings {
    kubernetes: Kubernetes,
    max_removed_percent: u32,
}

impl DiscoverySettings {
    /// Returns the settings of a configuration that has a cluster.
    pub(crate) fn of(config: &ControlConfig) -> Option<Self> {
        Some(Self {
            kubernetes: config.kubernetes.clone()?,
            max_removed_percent: config.max_removed_percent,
        })
    }

    fn source(&self) -> SourceOptions {
        let Kubernetes {
            access,
            namespaces,
            label_selector,
            fallback_zone,
            address_family,
            watch_timeout,
            removal_delay,
            ..
        } = &self.kubernetes;
        SourceOptions {
            access: access.clone(),
            namespaces: namespaces.clone(),
            label_selector: label_selector.clone(),
            inventory: InventoryOptions {
                address_family: *address_family,
                fallback_zone: fallback_zone.clone(),
            },
            guard: RemovalGuard {
                max_removed_percent: self.max_removed_percent,
                delay: *removal_delay,
            },
            watch_timeout: *watch_timeout,
            ..SourceOptions::default()
        }
    }
}

/// A running mirror of a Kubernetes cluster; dropping it stops it.
#[derive(Debug)]
pub(crate) struct Discovery {
    settings: DiscoverySettings,
    handle: Handle,
    task: JoinHandle<()>,
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.task.abort();
        self.handle.discovery().set_status(None);
    }
}

impl Discovery {
    /// Starts a mirror. Its first batch replaces all services that were discovered before.
    pub(crate) fn start(settings: DiscoverySettings, context: Context) -> Self {
        let handle = context.handle.clone();
        let source = Source::start(&settings.source());
        let status = Arc::clone(source.status());
        handle.discovery().set_status(Some(status));
        let translator = Translator::new(settings.kubernetes.clone());
        let (policies, received_policies) = watch::channel(Arc::default());
        let (refused, received_refused) = mpsc::channel(MAX_EVENTS);
        let inputs = ReportInputs {
            policies: received_policies,
            refused: received_refused,
            status: Arc::clone(source.status()),
        };
        let writer = ApiWriter::new(settings.kubernetes.access.clone());
        let reporter = Reporter::new(writer, context, inputs);
        let outputs = ReportOutputs { policies, refused };
        let applied = handle.clone();
        let task = tokio::spawn(async move {
            // Either ends when the control plane is shutting down.
            tokio::select! {
                _ = run(source, translator, applied, outputs) => {}
                _ = reporter.run() => {}
            }
        });
        Self {
            settings,
            handle,
            task,
        }
    }

    pub(crate) const fn settings(&self) -> &DiscoverySettings {
        &self.settings
    }
}

/// Applies batches until the control plane stops.
async fn run(
    mut source: Source,
    mut translator: Translator,
    handle: Handle,
    outputs: ReportOutputs,
) -> Result<(), Stopped> {
    let mut policies = Vec::new();
    loop {
        let batch = source.next().await.ok_or(Stopped)?;
        if let Some(changed) = &batch.policies {
            policies.clone_from(changed);
        }
        let have_changed = batch.policies.is_some();
        let (changes, refused) = translator.handle_batch(batch);
        for refused in refused {
            handle.counters().kubernetes_refused();
            let Refused { object, reason, .. } = &refused;
            handle.refuse(object, reason, Clock::system().now());
            if refused.service.is_some() {
                // A full queue drops events; the audit has all.
                let _ = outputs.refused.try_send(refused);
            }
        }
        if have_changed || !policies.is_empty() {
            let views = policies.iter().map(|policy| translator.view(policy));
            outputs.policies.send_replace(Arc::new(views.collect()));
        }
        handle.discover(changes).await?;
    }
}

/// What reports are made from.
struct ReportOutputs {
    policies: watch::Sender<Arc<Vec<PolicyView>>>,
    refused: mpsc::Sender<Refused>,
}

#[cfg(test)]
mod tests {
    use plimsoll_kubernetes::ApiAccess;
    use plimsoll_kubernetes::merge::AddressFamily;

    use super::*;
    use crate::state::tests::driver::parse;

    #[test]
    fn a_mirror_is_started_with_the_settings_of_the_file() {
        assert_eq!(DiscoverySettings::of(&parse("{}")), None);
        let config = parse(
            "kubernetes: {api_server: 'http://127.0.0.1:1', namespaces: [shop], \
             label_selector: team=a, fallback_zone: z, address_family: IPV6, watch_timeout: 7s, \
             removal_delay: 9s}\nreload: {max_removed_percent: 30}",
        );
        let settings = DiscoverySettings::of(&config).unwrap();
        let options = settings.source();
        assert_eq!(
            Some(&options.access),
            config.kubernetes.as_ref().map(|one| &one.access)
        );
        assert_ne!(options.access, ApiAccess::default());
        assert_eq!(options.namespaces, ["shop"]);
        assert_eq!(options.label_selector.as_deref(), Some("team=a"));
        assert_eq!(options.inventory.address_family, AddressFamily::Ipv6);
        assert_eq!(options.inventory.fallback_zone.as_deref(), Some("z"));
        let guard = RemovalGuard {
            max_removed_percent: 30,
            delay: Duration::from_secs(9),
        };
        assert_eq!(options.guard, guard);
        assert_eq!(options.watch_timeout, Duration::from_secs(7));
    }
}
