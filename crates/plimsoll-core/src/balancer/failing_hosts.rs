//! What became of the requests to each locality since the last tick of load_aware_locality or
//! OBSERVED_LOAD. Called by `load_aware` and `observed_load`;
//! `locality_picking::failing_localities` judges the result.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::host::{Host, RequestCounts};
use crate::host_source::HostSource;
use crate::locality_picking::failing_localities::{Requests, Sample};
use crate::model::load_aware_locality::LoadAwareLocality;
use crate::model::locality::Locality;
use crate::snapshot::{HostList, PriorityTable};
use crate::time::Instant;

/// Request counts of the hosts of one priority at the last tick.
#[derive(Debug, Default)]
pub(super) struct HostCounts {
    latched: BTreeMap<SocketAddr, (Arc<Host>, RequestCounts)>,
}

impl HostCounts {
    /// Returns the samples of all slots, with the errors that hosts report. Hosts of localities in
    /// `full` reported lately that they are full.
    pub(super) fn samples(
        &mut self,
        table: &PriorityTable,
        full: &BTreeSet<Locality>,
        settings: &LoadAwareLocality,
        now: Instant,
    ) -> Vec<Sample> {
        let slots = table.hosts_by_slot(HostSource::AllHosts);
        let reported = slots.map(|hosts| reported(hosts, settings, now));
        let slots = table.counts.localities.iter();
        let is_full = slots.map(|slot| full.contains(&slot.locality));
        let samples = self.ended(table).zip(reported).zip(is_full);
        let sample = |((own, reported), is_full)| Sample {
            own,
            reported,
            is_full,
        };
        samples.map(sample).collect()
    }

    /// Returns the requests of all slots that ended since the last call. Earlier requests of a host
    /// that is new here do not count.
    pub(super) fn ended(&mut self, table: &PriorityTable) -> impl Iterator<Item = Requests> {
        let latch = |host: &Arc<Host>| {
            let counts = host.request_counts();
            (host.address(), (Arc::clone(host), counts))
        };
        let latched: BTreeMap<_, _> = table.hosts().map(latch).collect();
        let earlier = std::mem::replace(&mut self.latched, latched);
        let ended = |host: &Arc<Host>| {
            let now = self.latched[&host.address()].1;
            let before = earlier
                .get(&host.address())
                .filter(|(known, _)| Arc::ptr_eq(known, host))
                .map_or(now, |(_, before)| *before);
            let failed = now.failed.saturating_sub(before.failed);
            let succeeded = now.succeeded.saturating_sub(before.succeeded);
            requests(succeeded.saturating_add(failed), failed)
        };
        let slots = table.hosts_by_slot(HostSource::AllHosts);
        let sum = |hosts: HostList<'_>| {
            hosts
                .iter()
                .map(ended)
                .fold(Requests::default(), Requests::plus)
        };
        let sums: Vec<Requests> = slots.map(sum).collect();
        sums.into_iter()
    }
}

/// Returns the sum of the requests and errors per second that hosts report.
fn reported(hosts: HostList<'_>, settings: &LoadAwareLocality, now: Instant) -> Requests {
    let expiration = settings.weight_expiration_period();
    let rates = hosts.iter().filter_map(|host| {
        let (rates, at) = host.reported_rates()?;
        let age = now.saturating_duration_since(at);
        let is_valid = expiration.is_none_or(|expiration| age <= expiration);
        is_valid.then_some(rates)
    });
    let requests = rates.map(|(requests, errors)| Requests {
        ended: f64::from(requests),
        failed: f64::from(errors),
    });
    requests.fold(Requests::default(), Requests::plus)
}

#[expect(clippy::cast_precision_loss, reason = "requests of a tick")]
const fn requests(ended: u64, failed: u64) -> Requests {
    Requests {
        ended: ended as f64,
        failed: failed as f64,
    }
}
