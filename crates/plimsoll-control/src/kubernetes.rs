//! Services of a Kubernetes cluster: the task that turns what plimsoll-kubernetes finds into
//! services of the control plane. `translate` converts and `report` sums up, both without IO;
//! `write` writes the reports to the cluster.

mod report;
mod translate;
mod write;

use std::sync::Arc;

use plimsoll_kubernetes::budget::NamespaceLimits;
use plimsoll_kubernetes::inventory::InventoryOptions;
use plimsoll_kubernetes::reflector::RemovalGuard;
use plimsoll_kubernetes::write::ApiWriter;
use plimsoll_kubernetes::{Source, SourceOptions};
use plimsoll_xds::driver::Clock;
use tokio::sync::{mpsc, watch};

use crate::config::{ControlConfig, Kubernetes};
use crate::run::Context;
use crate::server::{Handle, Stopped};
use crate::sources::{Running, SourceId, SourceSettings};
use report::PolicyView;
use write::{ReportInputs, Reporter};

#[doc(hidden)]
pub use plimsoll_kubernetes::LOG_LINES;
pub use translate::{Refused, Translator};

/// Events about refused settings that wait to be written; further ones are dropped.
const MAX_EVENTS: usize = 100;

/// Settings that a mirror is started with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DiscoverySettings {
    kubernetes: Kubernetes,
    limits: NamespaceLimits,
    max_removed_percent: u32,
}

impl DiscoverySettings {
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
                limits: self.limits,
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

impl SourceSettings for DiscoverySettings {
    const ID: SourceId = SourceId::Kubernetes;

    fn of(config: &ControlConfig) -> Option<Self> {
        Some(Self {
            kubernetes: config.sources.kubernetes.clone()?,
            limits: config.operation.limits.namespaces(),
            max_removed_percent: config.operation.max_removed_percent,
        })
    }

    fn start(self, context: Context) -> Running {
        let handle = context.handle.clone();
        let source = plimsoll_kubernetes::start(&self.source());
        let status = Arc::clone(source.status());
        let (policies, received_policies) = watch::channel(Arc::default());
        let (refused, received_refused) = mpsc::channel(MAX_EVENTS);
        let inputs = ReportInputs {
            policies: received_policies,
            refused: received_refused,
            status: Arc::clone(&status),
        };
        let writer = ApiWriter::new(self.kubernetes.access.clone());
        let translator = Translator::new(self.kubernetes);
        let reporter = Reporter::new(writer, context, inputs);
        let outputs = ReportOutputs { policies, refused };
        let applied = handle.clone();
        Running::spawn(Self::ID, handle, &status, async move {
            // Either ends when the control plane is shutting down.
            tokio::select! {
                _ = run(source, translator, applied, outputs) => {}
                _ = reporter.run() => {}
            }
        })
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
            let Refused { object, reason, .. } = &refused;
            if let Some(limit) = refused.limit {
                handle.beyond_budget(limit, object, reason);
            } else {
                handle.counters().setting_refused(SourceId::Kubernetes);
                handle.refuse(object, reason, Clock::system().now());
            }
            if refused.service.is_some() {
                // A full queue drops events; the audit has all.
                let _ = outputs.refused.try_send(refused);
            }
        }
        while let Some(one) = translator.poll_without_effect() {
            // The state logs it.
            let _ = outputs.refused.try_send(one);
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
    use std::time::Duration;

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
            config.sources.kubernetes.as_ref().map(|one| &one.access)
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
