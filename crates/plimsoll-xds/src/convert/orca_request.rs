//! Decoding and encoding of `xds.service.orca.v3.OrcaLoadReportRequest`, which sets the reporting
//! interval.
//!
//! `request_cost_names` is not sent, as in Envoy: hosts report all costs. Called by `orca::oob`.

use std::time::Duration;

use prost::{DecodeError, Message};

/// The fields of the message that are sent.
#[derive(Clone, PartialEq, Message)]
struct RequestMessage {
    #[prost(message, optional, tag = "1")]
    report_interval: Option<DurationMessage>,
}

/// The well-known type `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
struct DurationMessage {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// Encodes a request for a report every `interval`, capped at protobuf's 10,000 years.
pub(crate) fn encode(interval: Duration) -> Vec<u8> {
    /// Largest value of `google.protobuf.Duration`.
    const MAX_SECONDS: i64 = 315_576_000_000;
    let seconds = i64::try_from(interval.as_secs()).unwrap_or(MAX_SECONDS);
    let message = RequestMessage {
        report_interval: Some(DurationMessage {
            seconds: seconds.min(MAX_SECONDS),
            nanos: interval.subsec_nanos().cast_signed(),
        }),
    };
    message.encode_to_vec()
}

/// Decodes the requested interval; `None` if it is missing or not positive.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Duration>, DecodeError> {
    let message = RequestMessage::decode(bytes)?;
    Ok(message.report_interval.and_then(positive))
}

/// Converts a positive duration. Nanoseconds beyond a second, which are malformed, are capped.
fn positive(interval: DurationMessage) -> Option<Duration> {
    let seconds = u64::try_from(interval.seconds).ok()?;
    let nanos = u32::try_from(interval.nanos).ok()?.min(999_999_999);
    let interval = Duration::new(seconds, nanos);
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
        let negative = RequestMessage {
            report_interval: Some(DurationMessage {
                seconds: -1,
                nanos: 0,
            }),
        };
        let backwards = RequestMessage {
            report_interval: Some(DurationMessage {
                seconds: 1,
                nanos: -1,
            }),
        };
        let zero = encode(Duration::ZERO);
        for bytes in [
            vec![],
            zero,
            negative.encode_to_vec(),
            backwards.encode_to_vec(),
        ] {
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
