//! Decoding and encoding of `xds.service.orca.v3.OrcaLoadReportRequest`, which sets the reporting
//! interval.
//!
//! `request_cost_names` is not sent, as in Envoy: hosts report all costs.

use std::time::Duration;

use crate::protobuf::{WireError, fields, put_bytes, put_uint};

/// Encodes a request for a report every `interval`, capped at protobuf's 10,000 years.
pub(super) fn encode(interval: Duration) -> Vec<u8> {
    /// Largest value of `google.protobuf.Duration`.
    const MAX_SECONDS: u64 = 315_576_000_000;
    let mut report_interval = Vec::new();
    put_uint(&mut report_interval, 1, interval.as_secs().min(MAX_SECONDS));
    put_uint(&mut report_interval, 2, interval.subsec_nanos().into());
    let mut request = Vec::new();
    put_bytes(&mut request, 1, &report_interval);
    request
}

/// Decodes the requested interval; `None` if it is missing or not positive.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<Duration>, WireError> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in fields(bytes) {
        let (1, report_interval) = field? else {
            continue;
        };
        for field in fields(report_interval.bytes()?) {
            match field? {
                (1, value) => seconds = value.varint()?.cast_signed(),
                (2, value) => nanos = value.varint()?.cast_signed(),
                _ => {}
            }
        }
    }
    Ok(positive(seconds, nanos))
}

/// Converts a positive duration. Nanoseconds beyond a second, which are malformed, are capped.
fn positive(seconds: i64, nanos: i64) -> Option<Duration> {
    let seconds = u64::try_from(seconds).ok()?;
    let nanos = u64::try_from(nanos).ok()?.min(999_999_999);
    let interval = Duration::new(seconds, u32::try_from(nanos).ok()?);
    (!interval.is_zero()).then_some(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_survives_a_round_trip() {
        for millis in [1, 250, 1_000, 10_000, 86_400_000] {
            let interval = Duration::from_millis(millis);
            assert_eq!(decode(&encode(interval)), Ok(Some(interval)));
        }
    }

    #[test]
    fn a_missing_interval_equals_one_that_is_not_positive() {
        let minus_one = [0xff; 9].into_iter().chain([1]);
        let negative: Vec<u8> = [0x0a, 11, 0x08]
            .into_iter()
            .chain(minus_one.clone())
            .collect();
        let backwards: Vec<u8> = [0x0a, 13, 0x08, 1, 0x10]
            .into_iter()
            .chain(minus_one)
            .collect();
        let zero = encode(Duration::ZERO);
        for bytes in [vec![], zero, negative, backwards] {
            assert_eq!(decode(&bytes), Ok(None), "{bytes:?}");
        }
        assert!(decode(&[0x0a, 9, 1]).is_err(), "cut in the middle");
    }

    #[test]
    fn request_cost_names_are_skipped() {
        let mut bytes = encode(Duration::from_secs(3));
        bytes.extend([0x12, 1, b'x']);
        assert_eq!(decode(&bytes), Ok(Some(Duration::from_secs(3))));
    }

    #[test]
    fn the_interval_is_field_one() {
        assert_eq!(encode(Duration::from_secs(10)), [0x0a, 2, 0x08, 10]);
        // 250,000,000 ns, seven bits at a time.
        let quarter = [0x0a, 5, 0x10, 0x80, 0xe5, 0x9a, 0x77];
        assert_eq!(encode(Duration::from_millis(250)), quarter);
        let both = [0x0a, 7, 0x08, 0xac, 0x02, 0x10, 0xc0, 0x84, 0x3d];
        assert_eq!(encode(Duration::new(300, 1_000_000)), both);
        assert_eq!(encode(Duration::ZERO), [0x0a, 0], "there, and zero");
    }

    #[test]
    fn intervals_beyond_the_protobuf_range_are_capped() {
        let longest = encode(Duration::from_secs(315_576_000_000));
        assert_eq!(encode(Duration::from_secs(315_576_000_001)), longest);
        assert_eq!(encode(Duration::from_secs(u64::MAX)), longest);
    }
}
