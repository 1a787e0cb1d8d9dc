//! [`PendingOrders`]: orders about zones that wait to be written to the store.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_core::evacuation::{Order, ZoneName};
use tokio::sync::Notify;

use crate::evacuation::encode;

/// Orders by zone: encoded, or `None` to delete one. A newer one replaces one that still waits.
#[derive(Debug, Default)]
pub(crate) struct PendingOrders {
    waiting: Mutex<BTreeMap<ZoneName, Option<Vec<u8>>>>,
    changed: Notify,
}

impl PendingOrders {
    /// Adds an order, or the end of one.
    pub(crate) fn push(&self, zone: ZoneName, order: Option<&Order>) {
        self.lock().insert(zone, order.map(encode));
        self.changed.notify_one();
    }

    /// Returns the next one without taking it out; waits for one.
    pub(crate) async fn next(&self) -> (ZoneName, Option<Vec<u8>>) {
        loop {
            let first = self
                .lock()
                .first_key_value()
                .map(|(zone, order)| (zone.clone(), order.clone()));
            if let Some(first) = first {
                return first;
            }
            self.changed.notified().await;
        }
    }

    /// Takes out one that has been written, unless it has changed meanwhile.
    pub(crate) fn written(&self, zone: &ZoneName, order: Option<&Vec<u8>>) {
        let mut waiting = self.lock();
        if waiting
            .get(zone)
            .is_some_and(|waiting| waiting.as_ref() == order)
        {
            waiting.remove(zone);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ZoneName, Option<Vec<u8>>>> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_order_waits_until_it_is_written() {
        let orders = PendingOrders::default();
        let zone = ZoneName::try_new("b").unwrap();
        orders.push(zone.clone(), None);
        let (next, order) = orders.next().await;
        assert_eq!((&next, &order), (&zone, &None));
        orders.written(&zone, Some(&vec![1]));
        assert_eq!(orders.next().await.0, zone, "another one was written");
        orders.written(&zone, None);
        assert!(orders.lock().is_empty());
    }
}
