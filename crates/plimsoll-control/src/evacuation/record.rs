//! [`OrderRecord`]: an order as JSON, in the store, in the state file and in the API.

use plimsoll_core::evacuation::{Order, Origin, ZoneName};
use plimsoll_core::units::FieldError;

/// An order to take a zone out of use.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OrderRecord {
    pub zone: String,
    /// `operator`, `file`, `practice` or `automatic`.
    pub origin: String,
    /// Caller of the API, or what in the control plane gave the order.
    pub by: String,
    pub reason: String,
    pub started_unix_ms: u64,
    /// Percent of the hosts that were out of use when it started.
    pub from_percent: u32,
    /// Percent of the hosts that it takes out of use.
    pub limit_percent: u32,
    /// Time between two steps of ten percent, of the drain and of the return.
    pub step_ms: u64,
    pub return_step_ms: u64,
    /// When the zone returns by itself, if it does.
    pub until_unix_ms: Option<u64>,
    /// Since when it returns, if somebody said so.
    pub returned_unix_ms: Option<u64>,
    /// Whether the check was overruled.
    pub forced: bool,
}

impl From<&Order> for OrderRecord {
    fn from(order: &Order) -> Self {
        Self {
            zone: order.zone.to_string(),
            origin: order.origin.name().to_owned(),
            by: order.by.to_string(),
            reason: order.reason.to_string(),
            started_unix_ms: order.started_unix_ms,
            from_percent: order.from,
            limit_percent: order.limit,
            step_ms: order.step_ms,
            return_step_ms: order.return_step_ms,
            until_unix_ms: order.until_unix_ms,
            returned_unix_ms: order.returned_unix_ms,
            forced: order.forced,
        }
    }
}

impl TryFrom<OrderRecord> for Order {
    type Error = FieldError;

    fn try_from(record: OrderRecord) -> Result<Self, FieldError> {
        let mut origins = Origin::ALL.into_iter();
        let origin = origins.find(|origin| origin.name() == record.origin);
        let unknown = || FieldError::new("origin", format!("unknown value {:?}", record.origin));
        let order = Self {
            zone: ZoneName::try_new(&record.zone)?,
            origin: origin.ok_or_else(unknown)?,
            by: record.by.into(),
            reason: record.reason.into(),
            started_unix_ms: record.started_unix_ms,
            from: record.from_percent,
            limit: record.limit_percent,
            step_ms: record.step_ms,
            return_step_ms: record.return_step_ms,
            until_unix_ms: record.until_unix_ms,
            returned_unix_ms: record.returned_unix_ms,
            forced: record.forced,
        };
        order.checked()
    }
}

/// Encodes an order for the store.
pub(crate) fn encode(order: &Order) -> Vec<u8> {
    // A struct of strings and numbers can always be encoded.
    serde_json::to_vec(&OrderRecord::from(order)).unwrap_or_default()
}

#[cfg(any(test, feature = "etcd"))]
/// Decodes an order of the store; the error says what is wrong.
pub(crate) fn decode(bytes: &[u8]) -> Result<Order, String> {
    let record: OrderRecord = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    Order::try_from(record).map_err(|error| error.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn order(zone: &str, started_unix_ms: u64) -> Order {
        Order {
            zone: ZoneName::try_new(zone).unwrap(),
            origin: Origin::Operator,
            by: "ada".into(),
            reason: "power".into(),
            started_unix_ms,
            from: 0,
            limit: 100,
            step_ms: 10_000,
            return_step_ms: 30_000,
            until_unix_ms: None,
            returned_unix_ms: None,
            forced: false,
        }
    }

    #[test]
    fn orders_survive_and_wrong_ones_are_refused() {
        let order = order("eu/b", 1_700_000_000_000);
        let bytes = encode(&order);
        assert_eq!(decode(&bytes), Ok(order));
        let text = String::from_utf8(bytes).unwrap();
        for (from, to, error) in [
            ("\"operator\"", "\"nobody\"", "unknown value"),
            (
                "\"limit_percent\":100",
                "\"limit_percent\":101",
                "at most 100",
            ),
            ("\"eu/b\"", "\"\"", "neither ZONE nor REGION/ZONE"),
            ("\"step_ms\":10000", "\"step_ms\":3600001", "above 3600000"),
        ] {
            let wrong = text.replace(from, to);
            assert_ne!(wrong, text, "{from}");
            let found = decode(wrong.as_bytes()).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
        assert!(decode(b"{").is_err());
    }
}
