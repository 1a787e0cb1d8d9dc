//! Hash of a request for consistent hashing, from the `hash_policy` entries of its route.

use http::{HeaderMap, HeaderValue};

use crate::router::{HashPolicy, HashSource};

/// Computes the hash, combining the entries as Envoy does; `None` if the request has none of their
/// values.
pub(crate) fn hash(
    policies: &[HashPolicy],
    headers: &HeaderMap,
    peer_ip: &HeaderValue,
) -> Option<u64> {
    let mut hash: Option<u64> = None;
    for HashPolicy { source, terminal } in policies {
        let value = match source {
            HashSource::Header(name) => headers.get(name).map(HeaderValue::as_bytes),
            HashSource::SourceIp => Some(peer_ip.as_bytes()),
        };
        if let Some(value) = value {
            hash = Some(combine(hash, value));
            if *terminal {
                break;
            }
        }
    }
    hash
}

/// Adds a value of a request to the hash of the values before it.
fn combine(before: Option<u64>, value: &[u8]) -> u64 {
    let new = xxhash_rust::xxh64::xxh64(value, 0);
    before.map_or(new, |before| before.rotate_left(1) ^ new)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn hashes_are_combined_as_in_envoy() {
        // XXH64 of the empty text and of "a", with seed 0.
        let (empty, a) = (0xef46_db37_51d8_e999_u64, 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(combine(None, b""), empty);
        assert_eq!(combine(None, b"a"), a);
        assert_eq!(combine(Some(0b101), b"a"), a ^ 0b1010);
        assert_eq!(combine(Some(1 << 63), b"a"), a ^ 1);
        assert_ne!(combine(Some(a), b"a"), combine(None, b"a"));
    }

    #[test]
    fn entries_with_a_value_are_combined_up_to_a_terminal_one() {
        let header = |name: &'static str, terminal| HashPolicy {
            source: HashSource::Header(HeaderName::from_static(name)),
            terminal,
        };
        let address = |terminal| HashPolicy {
            source: HashSource::SourceIp,
            terminal,
        };
        let mut headers = HeaderMap::new();
        headers.insert("x-user", HeaderValue::from_static("a"));
        let peer = HeaderValue::from_static("10.0.0.1");
        let of = |policies: &[HashPolicy]| hash(policies, &headers, &peer);
        let user = combine(None, b"a");
        let ip = combine(None, b"10.0.0.1");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[header("x-other", true)]), None);
        assert_eq!(of(&[header("x-user", false)]), Some(user));
        assert_eq!(of(&[address(false)]), Some(ip));
        let both = Some(combine(Some(user), b"10.0.0.1"));
        assert_eq!(of(&[header("x-user", false), address(true)]), both);
        assert_eq!(of(&[header("x-user", true), address(true)]), Some(user));
        assert_eq!(of(&[header("x-other", true), address(false)]), Some(ip));
    }
}
