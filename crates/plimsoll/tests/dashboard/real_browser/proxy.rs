//! The dashboard of one proxy: its own requests and reasons, live, and nothing that only the
//! control plane could know.

use serde_json::{Value, json};

use crate::support::backends::{Requests, backend};
use crate::support::control::Control;
use crate::support::data_plane::DataPlane;
use crate::support::page::{DESKTOP, PHONE, Page};
use crate::support::proxy::{Proxy, start};
use crate::support::wait_for;

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// What hosts of each zone say of themselves.
const BUSY: [f64; 3] = [0.9, 0.5, 0.25];
/// A policy that listens to that.
const LOAD_AWARE: &str = "load_balancing_policy: {policies: [{typed_extension_config: {\
    name: envoy.load_balancing_policies.load_aware_locality, typed_config: {\
    '@type': type.googleapis.com/envoy.extensions.load_balancing_policies.load_aware_locality.v3.\
    LoadAwareLocality, spill_controller: CONVERGENT, endpoint_picking_policy: {policies: [{\
    typed_extension_config: {name: envoy.load_balancing_policies.round_robin, typed_config: {\
    '@type': type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.\
    RoundRobin}}}]}}}}]}";

/// Three zones with hosts that answer, half of the demand in the first.
fn world() -> (Control, DataPlane) {
    let endpoints = || -> String {
        let zones = ZONES.iter().zip([3, 5, 2].into_iter().zip(BUSY));
        let zones = zones.map(|(zone, (hosts, busy))| {
            let hosts: Vec<String> = (0..hosts).map(|_| format!("'{}'", backend(busy))).collect();
            let hosts = hosts.join(", ");
            format!("  - {{locality: {{region: r1, zone: {zone}}}, lb_endpoints: [{hosts}]}}\n")
        });
        zones.collect()
    };
    let config = format!(
        "load_reporting: {{interval: 1s}}\ndemand: {{smoothing_time_constant: 0.001s}}\n\
         services:\n- cluster: {{name: orders}}\n  endpoints:\n{}\
         - cluster: {{name: billing, {LOAD_AWARE}}}\n  endpoints:\n{}",
        endpoints(),
        endpoints(),
    );
    let control = Control::start_with("proxy-page", &config);
    let loads = [("load-a", 30_000), ("load-b", 21_000), ("load-c", 9_000)];
    for (zone, (id, rate)) in ZONES.into_iter().zip(loads) {
        let sent = vec![(zone, rate)];
        let plimsoll = true;
        start(
            Proxy {
                id,
                zone,
                sent,
                plimsoll,
            },
            control.xds,
        );
    }
    let proxy = DataPlane::start("zone-a", control.xds);
    (control, proxy)
}

fn cell(table: &str, zone: &str, field: &str) -> String {
    format!("document.querySelector('#{table} tr[data-key=\"r1/{zone}\"] [data-field={field}]')")
}

fn value(page: &mut Page, table: &str, zone: &str, field: &str) -> Value {
    page.eval(&format!(
        "Number({}.dataset.value)",
        cell(table, zone, field)
    ))
}

#[test]
fn a_proxy_shows_its_own_requests_and_reasons() {
    let (control, proxy) = world();
    let address = format!("{}#c=gateway%1Forders", proxy.address());
    let mut page = Page::open("proxy-browser", &address, DESKTOP);
    page.wait(&format!(
        "{}?.dataset.value === '5000'",
        cell("routing", "zone-a", "delivered")
    ));
    page.wait("document.querySelector('#map-empty').textContent.includes('sends nothing')");
    let _requests = Requests::start(proxy.listener, "/");
    page.wait("document.querySelectorAll('#map path.ribbon.cross').length === 2");
    // All looks of the window have seen requests.
    for _ in 0..8 {
        page.next_document();
    }
    let explain = proxy.page("/explain?cluster=orders");
    assert_eq!(
        page.text(&format!(
            "{}.querySelector('span').textContent",
            cell("routing", "zone-a", "reason")
        )),
        explain["reason"].as_str().unwrap(),
    );
    assert_eq!(explain["state"], "LocalityResidual");
    let state = format!(
        "{}.querySelector('.badge').dataset.state",
        cell("routing", "zone-a", "state")
    );
    assert_eq!(page.text(&state), "LocalityResidual");
    for row in explain["localities"].as_array().unwrap() {
        let zone = row["zone"].as_str().unwrap();
        assert_eq!(
            value(&mut page, "zones", zone, "hosts").as_f64(),
            row["healthy"].as_f64()
        );
        assert_eq!(
            value(&mut page, "zones", zone, "proxies").as_f64(),
            row["fleet_hosts"].as_f64()
        );
        assert_eq!(
            value(&mut page, "zones", zone, "capacity").as_f64(),
            row["capacity_share"].as_f64()
        );
        assert_eq!(
            value(&mut page, "routing", zone, "delivered").as_f64(),
            row["observed_traffic_fraction_bp"].as_f64(),
        );
    }
    // Four of ten leave the zone, as explained; chance moves that a little.
    let kept = value(&mut page, "routing", "zone-a", "kept")
        .as_f64()
        .unwrap();
    assert!((kept - 0.6).abs() < 0.12, "{kept} stays");
    only_what_it_knows(&mut page);
    what_if_and_events(&mut page);
    looks(&mut page, "proxy");
    drop(control);
    page.wait("document.querySelector('#notices').textContent.includes('no management server')");
}

#[test]
fn a_proxy_shows_what_hosts_report_to_it() {
    let (_control, proxy) = world();
    let address = format!("{}#c=gateway%1Fbilling", proxy.address());
    let mut page = Page::open("proxy-busy-browser", &address, DESKTOP);
    let _requests = Requests::start(proxy.listener, "/billing");
    for (zone, busy) in ZONES.into_iter().zip(BUSY) {
        let shown = cell("zones", zone, "utilization");
        page.wait(&format!("{shown}?.dataset.value === '{busy}'"));
        page.wait(&format!("{shown}.textContent === '{} %'", busy * 100.0));
    }
    let basis = "document.querySelector('[data-tile=basis] dd').textContent";
    assert!(page.text(basis).contains("utilization"));
    looks(&mut page, "proxy-busy");
    page.close();
}

/// What arrives elsewhere is not known here, and no zone but its own is explained.
fn only_what_it_knows(page: &mut Page) {
    for zone in ["zone-b", "zone-c"] {
        let hidden = format!(
            "{}.querySelector('button').hidden",
            cell("routing", zone, "reason")
        );
        assert_eq!(page.eval(&hidden), true, "{zone}");
    }
    for hidden in [
        "#zones [data-field=served]",
        "#zones [data-field=demand]",
        "#nodes-card",
    ] {
        let seen = format!("document.querySelector('{hidden}').checkVisibility()");
        assert_eq!(page.eval(&seen), false, "{hidden}");
    }
    let arrivals = page.eval("document.querySelectorAll('#map rect.arrival').length");
    assert_eq!(
        arrivals, 1,
        "what others send is not nothing, it is not known"
    );
    let notices = page.text("document.querySelector('#notices').textContent");
    assert!(notices.contains("one proxy"), "{notices}");
    page.click("#routing tr[data-key=\"r1/zone-a\"] [data-field=reason] button");
    page.wait("document.querySelector('#detail').open");
    page.screenshot("proxy-explain");
    page.press("Escape");
}

/// Its own engine answers, and what happened to its routing is said.
fn what_if_and_events(page: &mut Page) {
    let head = "document.querySelector('#whatif-zones').tHead.textContent";
    assert!(page.text(head).contains("Demand, %"), "rates are not known");
    let asked = "#whatif-zones tr[data-key='r1/zone-a'] [data-field=hosts]";
    page.type_into(asked, "30");
    page.click("#whatif-ask");
    page.wait("document.querySelector('#whatif-shares')");
    let of = |field: &str| {
        format!("document.querySelector('#whatif-shares tr [data-field={field}]').dataset")
    };
    assert_eq!(page.eval(&format!("Number({}.value)", of("hosts"))), 30);
    let before = page.eval(&format!("Number({}.before)", of("kept")));
    assert_eq!(before.as_f64(), Some(0.6), "as it is");
    let after = page.eval(&format!("Number({}.value)", of("kept")));
    assert_eq!(after.as_f64(), Some(1.0), "with room for all");
    page.click("#whatif-reset");
    page.wait(&format!(
        "document.querySelector(\"{asked}\").value === '3'"
    ));
    let events = page.text("document.querySelector('#events').textContent");
    assert!(
        events.contains("orders: requests spill to other zones"),
        "{events}"
    );
    assert!(events.contains("hosts came"), "{events}");
}

/// What `plimsoll top` says of an admin address.
fn top(address: std::net::SocketAddr, args: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command
        .args(["top", &address.to_string(), "--once"])
        .args(args);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn top_shows_proxies_and_control_planes() {
    let (control, proxy) = world();
    for (address, title) in [
        (proxy.admin, "plimsoll proxy"),
        (control.admin, "plimsoll control"),
    ] {
        let page = wait_for("demand is known", || {
            let page = top(address, &["--cluster", "orders"]);
            page.contains("LocalityResidual").then_some(page)
        });
        assert!(page.starts_with(title) && page.contains("zone-a"), "{page}");
        let document: Value = serde_json::from_str(&top(address, &["--json"])).unwrap();
        assert_eq!(document["title"], title);
        assert_eq!(document["one_proxy"], title == "plimsoll proxy");
    }
}

/// Boxes that show a part only, though three zones are few.
const CUT: &str = "['zones', 'routing'].filter((id) => {
  const box = document.getElementById(`${id}-scroller`);
  return box.scrollHeight > box.clientHeight + 1;
})";

/// By day, by night and on a phone.
fn looks(page: &mut Page, name: &str) {
    page.screenshot(&format!("{name}-light"));
    page.assert_tidy();
    page.prefer("dark");
    page.next_document();
    page.screenshot(&format!("{name}-dark"));
    page.assert_tidy();
    page.resize(PHONE);
    page.next_document();
    page.screenshot(&format!("{name}-phone"));
    page.assert_tidy();
    assert_eq!(page.eval(CUT), json!([]), "everything is seen");
}
