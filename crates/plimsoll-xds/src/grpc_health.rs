//! Encoding and decoding of `grpc.health.v1` health checks.
//!
//! Sending and timing checks is up to the data plane.

use crate::protobuf::{WireError, fields, put_string};

/// `:path` of the health check RPC.
pub const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// Number of `SERVING` in `HealthCheckResponse.ServingStatus`.
const SERVING: u64 = 1;

/// Encodes a request for one gRPC service; an empty name is the whole server.
pub fn encode_health_check_request(service: &str) -> Vec<u8> {
    let mut request = Vec::new();
    put_string(&mut request, 1, service);
    request
}

/// Returns whether the response is `SERVING`. A response that cannot be decoded counts as not
/// serving.
pub fn decode_health_check_response(bytes: &[u8]) -> bool {
    status(bytes) == Ok(SERVING)
}

fn status(bytes: &[u8]) -> Result<u64, WireError> {
    let mut status = 0;
    for field in fields(bytes) {
        if let (1, value) = field? {
            status = value.varint()?;
        }
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_matches_the_protocol() {
        assert_eq!(encode_health_check_request(""), b"");
        assert_eq!(encode_health_check_request("ab"), b"\x0a\x02ab");
        assert!(decode_health_check_response(b"\x08\x01"));
        for other in [
            &b""[..],
            b"\x08\x00",
            b"\x08\x02",
            b"\x08\x03",
            b"\x08",
            b"junk",
        ] {
            assert!(!decode_health_check_response(other), "{other:?}");
        }
    }
}
