//! The configuration in `examples/envoy-module` splits requests as its README says.

use std::collections::{BTreeMap, HashMap};

use crate::support::envoy::Envoy;
use crate::support::{RELEASES, scratch, wait_until};
use plimsoll_testing::free_address;
use plimsoll_testing::http::Connection;

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/envoy-module/envoy.yaml"
);

/// Returns the file with free ports instead of those in it; port 80 belongs to addresses that
/// nothing connects to.
fn with_free_ports(text: &str) -> String {
    let mut free = HashMap::new();
    let mut parts = text.split("port_value: ");
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap();
        let port = free
            .entry(&part[..end])
            .or_insert_with(|| free_address().port());
        let port = if &part[..end] == "80" { 80 } else { *port };
        replaced.push_str(&format!("port_value: {port}{}", &part[end..]));
    }
    replaced
}

#[test]
fn the_example_keeps_two_thirds_in_its_zone() {
    let text = with_free_ports(&std::fs::read_to_string(FILE).unwrap());
    for release in RELEASES {
        let envoy = Envoy::start_text(release, &scratch("example"), &text);
        let zones = |requests: u32| {
            let mut connection = Connection::open(envoy.listener).unwrap();
            let mut zones: BTreeMap<String, u32> = BTreeMap::new();
            for _ in 0..requests {
                let head = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
                let (status, body) = connection.request(head).unwrap();
                assert_eq!(status, 200);
                let zone = String::from_utf8(body).unwrap().trim().to_owned();
                *zones.entry(zone).or_default() += 1;
            }
            zones
        };
        wait_until("requests follow the fleet", || {
            let local = zones(60).get("zone-a").copied().unwrap_or_default();
            (30..=50).contains(&local)
        });
        // 800, 200 and 200 with standard deviations of 16 and 13: each limit is 7 of them away.
        // Without zones it would be 400 each, if all stayed 1200.
        let zones = zones(1200);
        eprintln!("{release}: {zones:?}");
        assert!((685..=915).contains(&zones["zone-a"]), "{zones:?}");
        assert!(zones["zone-b"] > 105 && zones["zone-c"] > 105, "{zones:?}");
    }
}
