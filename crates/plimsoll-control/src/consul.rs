//! Services of Consul: the task that turns what plimsoll-consul finds into services of the control
//! plane.

mod translate;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_consul::{Source, SourceOptions};
use plimsoll_serve::discovery::RemovalGuard;

use crate::config::{Consul, ControlConfig};
use crate::run::Context;
use crate::server::{Handle, Stopped};
use crate::sources::{Running, SourceId, SourceSettings};
use translate::Translator;

#[doc(hidden)]
pub use plimsoll_consul::LOG_LINES;

/// Time beyond the wait of a blocking query after which an agent counts as hanging.
const GRACE: Duration = Duration::from_secs(10);

/// Settings that the source is started with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DiscoverySettings {
    consul: Consul,
    max_removed_percent: u32,
}

impl DiscoverySettings {
    fn source(&self) -> SourceOptions {
        let Consul {
            access,
            datacenters,
            consistency,
            max_stale,
            merge,
            wait,
            max_connections,
            removal_delay,
            ..
        } = &self.consul;
        SourceOptions {
            access: access.clone(),
            datacenters: datacenters.clone(),
            consistency: *consistency,
            max_stale: *max_stale,
            wait: *wait,
            grace: GRACE,
            max_connections: *max_connections,
            merge: merge.clone(),
            guard: RemovalGuard {
                max_removed_percent: self.max_removed_percent,
                delay: *removal_delay,
            },
        }
    }
}

impl SourceSettings for DiscoverySettings {
    const ID: SourceId = SourceId::Consul;

    fn of(config: &ControlConfig) -> Option<Self> {
        Some(Self {
            consul: config.sources.consul.clone()?,
            max_removed_percent: config.operation.max_removed_percent,
        })
    }

    fn start(self, context: Context) -> Running {
        let handle = context.handle;
        let source = plimsoll_consul::start(self.source());
        let status = Arc::clone(source.status());
        let translator = Translator::new(self.consul);
        let applied = handle.clone();
        Running::spawn(Self::ID, handle, &status, async move {
            // It ends when the control plane is shutting down.
            let _ = run(source, translator, applied).await;
        })
    }
}

/// Applies batches until the control plane stops.
async fn run(
    mut source: Source,
    mut translator: Translator,
    handle: Handle,
) -> Result<(), Stopped> {
    loop {
        let batch = source.next().await.ok_or(Stopped)?;
        handle.discover(translator.handle_batch(batch)).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::driver::parse;

    #[test]
    fn the_source_is_started_with_the_settings_of_the_file() {
        assert_eq!(DiscoverySettings::of(&parse("{}")), None);
        let config = parse(
            "consul: {address: 'http://127.0.0.1:1', tags: [a], wait: 7s, max_connections: 3, \
             max_stale: 2s, removal_delay: 9s}\nreload: {max_removed_percent: 30}",
        );
        let options = DiscoverySettings::of(&config).unwrap().source();
        let consul = config.sources.consul.as_ref().unwrap();
        assert_eq!(options.access, consul.access);
        assert_eq!(options.merge, consul.merge);
        assert_eq!(options.wait, Duration::from_secs(7));
        assert_eq!(options.max_stale, Duration::from_secs(2));
        assert_eq!(options.max_connections, 3);
        let guard = RemovalGuard {
            max_removed_percent: 30,
            delay: Duration::from_secs(9),
        };
        assert_eq!(options.guard, guard);
    }
}
