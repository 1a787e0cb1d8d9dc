//! `grpc.health.v1` to and from bytes: is a server serving?
//!
//! Asking and timing live in the client's health checks.

use prost::Message;

/// `:path` of a check.
pub const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// `HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Asks for one service; empty is the server as a whole.
pub fn encode_health_check_request(service: &str) -> Vec<u8> {
    let service = service.to_owned();
    HealthCheckRequest { service }.encode_to_vec()
}

/// Whether the answer is `SERVING`. What cannot be read is no such answer.
pub fn decode_health_check_response(bytes: &[u8]) -> bool {
    let response = HealthCheckResponse::decode(bytes);
    response.is_ok_and(|response| response.status == SERVING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_protocol() {
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
