//! [`ApiWriter`]: the few writes of the control plane: status of policies, events of Services, and
//! Istio's DestinationRules.
//!
//! Every write is idempotent and names the field manager `plimsoll`. Fields of others are never
//! taken over: DestinationRules are applied on the server without `force`, and a conflict is
//! returned with the name of the manager that owns the field.

use std::time::{Duration, SystemTime};

use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::access::ApiAccess;
use crate::objects::{ObjectKey, ObjectMeta, PolicyStatus};
use crate::reflector::Failure;
use crate::session::Session;

/// Name under which the API server records our fields.
pub const FIELD_MANAGER: &str = "plimsoll";
const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Connection for writes to the API server.
#[derive(Debug)]
pub struct ApiWriter {
    session: Session,
}

/// Istio's DestinationRule, as far as it is read.
#[derive(Clone, Debug, PartialEq)]
pub struct DestinationRule {
    pub name: String,
    pub host: String,
    /// `localityLbSetting.distribute` of its traffic policy; null if it has none.
    pub distribute: Value,
}

/// What a warning event says.
#[derive(Clone, Copy, Debug)]
pub struct Warning<'a> {
    /// One word, such as `InvalidSetting`.
    pub reason: &'a str,
    pub message: &'a str,
}

#[derive(Debug, Deserialize)]
struct RuleJson {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
}

#[derive(Default, Deserialize)]
struct CountedEvent {
    #[serde(default)]
    count: i32,
}

impl ApiWriter {
    /// Creates a writer, which connects when something is written.
    pub fn new(access: ApiAccess) -> Self {
        Self {
            session: Session::new(access),
        }
    }

    /// Replaces the status of a policy.
    pub async fn patch_status(
        &mut self,
        policy: &ObjectKey,
        status: &PolicyStatus,
    ) -> Result<(), Failure> {
        let ObjectKey { namespace, name } = policy;
        let target = format!(
            "/apis/plimsoll.dev/v1alpha1/namespaces/{namespace}/zoneroutingpolicies/{name}/status\
             ?fieldManager={FIELD_MANAGER}"
        );
        let body = json!({ "status": status }).to_string().into_bytes();
        let body = Some((MERGE_PATCH, body));
        self.session
            .send_and_read(Method::PATCH, &target, body)
            .await?;
        Ok(())
    }

    /// Writes a warning event about a Service. An event with the same text has the same name, so
    /// that the API server keeps it once. If it is there, `repeats` says whether to count it once
    /// more: replicas write the same events, and one of them counts.
    pub async fn warn_service(
        &mut self,
        service: &ObjectKey,
        uid: &str,
        warning: Warning<'_>,
        repeats: bool,
    ) -> Result<(), Failure> {
        let ObjectKey { namespace, name } = service;
        let Warning { reason, message } = warning;
        let time = rfc3339(SystemTime::now());
        let event_name = format!("{name}.{:016x}", hash(&[uid, reason, message]));
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": &**namespace, "name": event_name},
            "involvedObject": {"apiVersion": "v1", "kind": "Service", "namespace": &**namespace,
                               "name": &**name, "uid": uid},
            "type": "Warning", "reason": reason, "message": message, "count": 1,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER, "reportingInstance": FIELD_MANAGER,
            "firstTimestamp": time, "lastTimestamp": time,
        });
        let target = format!("/api/v1/namespaces/{namespace}/events?fieldManager={FIELD_MANAGER}");
        let body = Some(("application/json", event.to_string().into_bytes()));
        let sent = self
            .session
            .send_and_read(Method::POST, &target, body)
            .await;
        match sent {
            Err(Failure::Status { status, .. }) if status.code == 409 => {}
            other => return other.map(drop),
        }
        if repeats {
            self.count_again(namespace, &event_name, &time).await?;
        }
        Ok(())
    }

    /// Counts an event that is there once more, with the time of now.
    async fn count_again(
        &mut self,
        namespace: &str,
        name: &str,
        time: &str,
    ) -> Result<(), Failure> {
        let target = format!("/api/v1/namespaces/{namespace}/events/{name}");
        let before = self
            .session
            .send_and_read(Method::GET, &target, None)
            .await?;
        let before: CountedEvent = serde_json::from_slice(&before).unwrap_or_default();
        let count = before.count.max(1).saturating_add(1);
        let body = json!({"count": count, "lastTimestamp": time});
        let target = format!("{target}?fieldManager={FIELD_MANAGER}");
        let body = Some((MERGE_PATCH, body.to_string().into_bytes()));
        self.session
            .send_and_read(Method::PATCH, &target, body)
            .await?;
        Ok(())
    }

    /// Returns the DestinationRules of a namespace.
    pub async fn destination_rules(
        &mut self,
        namespace: &str,
    ) -> Result<Vec<DestinationRule>, Failure> {
        let target = format!(
            "/apis/networking.istio.io/v1/namespaces/{namespace}/destinationrules?limit=500"
        );
        let page = self.session.list(&target).await?;
        let rule = |item: &RawValue| {
            let json: RuleJson = serde_json::from_str(item.get()).ok()?;
            let distribute = json
                .spec
                .pointer("/trafficPolicy/loadBalancer/localityLbSetting/distribute");
            Some(DestinationRule {
                name: json.metadata.name,
                host: json.spec["host"].as_str().unwrap_or_default().to_owned(),
                distribute: distribute.cloned().unwrap_or_default(),
            })
        };
        let items = page.items.iter();
        Ok(items.filter_map(|item| rule(item)).collect())
    }

    /// Applies the distribution of a DestinationRule; a field that another manager owns is an
    /// error with code 409.
    pub async fn apply_distribute(
        &mut self,
        rule: &ObjectKey,
        host: &str,
        distribute: &Value,
    ) -> Result<(), Failure> {
        let ObjectKey { namespace, name } = rule;
        let target = format!(
            "/apis/networking.istio.io/v1/namespaces/{namespace}/destinationrules/{name}\
             ?fieldManager={FIELD_MANAGER}"
        );
        let object = json!({
            "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
            "metadata": {"namespace": &**namespace, "name": &**name},
            "spec": {"host": host, "trafficPolicy": {"loadBalancer": {"localityLbSetting": {
                "enabled": true, "distribute": distribute,
            }}}},
        });
        let body = Some((APPLY_PATCH, object.to_string().into_bytes()));
        self.session
            .send_and_read(Method::PATCH, &target, body)
            .await?;
        Ok(())
    }
}

/// FNV-1a: the same in all replicas, so that equal events have equal names.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Formats a time in UTC as the API server does.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.unwrap_or(Duration::ZERO).as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Converts days since 1970 to year, month and day. Counts from 1 March of year 0, so that leap
/// days are at the end of years, in cycles of 400 years.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let cycle = days / 146_097;
    let day_of_cycle = days % 146_097;
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_cycle + cycle * 400 + (month <= 2) as u64;
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_164_800), "2024-02-29T00:00:00Z");
        assert_eq!(at(4_102_444_800), "2100-01-01T00:00:00Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
    }

    #[test]
    fn equal_events_have_equal_names() {
        assert_eq!(hash(&["a", "b"]), hash(&["a", "b"]));
        assert_ne!(hash(&["ab", ""]), hash(&["a", "b"]));
    }
}
