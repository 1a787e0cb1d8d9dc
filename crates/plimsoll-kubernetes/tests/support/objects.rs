//! Interpreter of byte strings as objects of a Kubernetes cluster, as tenants may write them: lines
//! of JSON, each after a letter for its kind (`s` Service, `e` EndpointSlice, `p`
//! ZoneRoutingPolicy; a capital letter deletes it). Used by the tests of this crate and by the fuzz
//! target `kubernetes_objects`.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;
use plimsoll_kubernetes::inventory::Inventory;
use plimsoll_kubernetes::objects::{EndpointSlice, Resource, Service, ZoneRoutingPolicy};
use plimsoll_kubernetes::reflector::Change;

/// Memory that an input may use at a time, in bytes, and more for each of its bytes: each port of a
/// Service gets all settings, and errors with names.
pub(crate) const MEMORY_BASE: u64 = 256 << 10;
pub(crate) const MEMORY_PER_BYTE: u64 = 16 << 10;

fn read<R: Resource>(json: &str) -> Option<Arc<R>> {
    let json = serde_json::from_str(json).ok()?;
    Some(Arc::new(R::from_json(json)))
}

fn change<R: Resource>(json: &str, is_deleted: bool) -> Option<Change<R>> {
    let object = read::<R>(json)?;
    Some(if is_deleted {
        Change::Deleted(object.key().clone())
    } else {
        Change::Applied(object)
    })
}

/// Returns how many ports were found and how many settings refused, so that tests can check
/// coverage.
pub(crate) fn run(bytes: &[u8]) -> (usize, usize) {
    let text = String::from_utf8_lossy(bytes);
    let mut inventory = Inventory::default();
    let (mut ports, mut refused) = (0, 0);
    for (index, line) in text.lines().take(32).enumerate() {
        let now = Instant::ORIGIN.saturating_add(Duration::from_secs(index as u64 * 6));
        let Some(kind) = line.chars().next() else {
            continue;
        };
        let json = &line[kind.len_utf8()..];
        let is_deleted = kind.is_ascii_uppercase();
        match kind.to_ascii_lowercase() {
            's' => {
                if let Some(change) = change::<Service>(json, is_deleted) {
                    inventory.handle_service(change, now);
                }
            }
            'e' => {
                if let Some(change) = change::<EndpointSlice>(json, is_deleted) {
                    inventory.handle_slice(change, now);
                }
            }
            'p' => {
                if let Some(change) = change::<ZoneRoutingPolicy>(json, is_deleted) {
                    inventory.handle_policy(change);
                }
            }
            _ => {}
        }
        inventory.handle_timeout(now);
        while let Some((_, found)) = inventory.poll_changed() {
            for port in found.iter().flat_map(|found| &found.ports) {
                ports += 1;
                refused += port.settings.errors.len();
                for error in &port.settings.errors {
                    assert!(!error.reason.is_empty());
                }
            }
        }
    }
    (ports, refused)
}
