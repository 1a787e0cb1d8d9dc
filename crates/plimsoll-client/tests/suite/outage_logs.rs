//! What an operator reads during an outage of the management server: one warning per reason with
//! the server and the delay until the next attempt, one line when it is over.
#![cfg(feature = "xds")]

use crate::support::management::{Management, xds_options};
use crate::support::resources::whole;
use crate::support::{Backend, get, within};
use plimsoll_client::{Client, LoadReporting, Variant};
use plimsoll_testing::CapturedLogs;
use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::yaml::parse_upstream_cluster;
use tracing::Level;

#[tokio::test]
async fn an_outage_is_one_warning_per_reason_and_one_line_when_it_is_over() {
    let lines = CapturedLogs::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let backend = Backend::start().await;
    let mut server = Management::start(&whole("orders", &[("a", &[backend.address])]));
    let mut options = xds_options(server.address, Variant::Sotw);
    options = options.load_reporting(LoadReporting::Always);
    let client = Client::builder().xds(options).build().unwrap();
    let mut target = within(client.target("xds:///orders")).await.unwrap();
    get(&mut target, "/").await.unwrap();
    wait_until("load is reported", async || server.reports() > 0).await;
    assert_eq!(lines.count(Level::WARN, &[]), 0);

    for outage in 1..=2 {
        server.kill();
        let refused = format!(
            "server=\"http://{}\" error=\"tcp connect error",
            server.address
        );
        let closed = |stream: &str| [format!("{stream} stream closed"), refused.clone()];
        let logged = |stream: &str| {
            let words = closed(stream);
            lines.count(Level::WARN, &[&words[0], &words[1], "retry_in_ms="])
        };
        let failures = |lines: &CapturedLogs| lines.count(Level::WARN, &["stream closed"]);
        wait_until("both streams are refused", async || {
            logged("xDS") == outage && logged("LRS") == outage
        })
        .await;
        let before = failures(&lines);
        let attempts = || lines.count(Level::DEBUG, &["still cannot be reached", &refused]);
        let seen = attempts();
        wait_until("more attempts", async || attempts() > seen + 10).await;
        assert_eq!(
            failures(&lines),
            before,
            "{:?}",
            lines.with(Level::WARN, &[])
        );

        server.restart();
        wait_until("both streams are restored", async || {
            ["xDS stream restored", "LRS stream restored"]
                .iter()
                .all(|message| lines.count(Level::INFO, &[message, "outage_s="]) == outage)
        })
        .await;
        get(&mut target, "/").await.unwrap();
    }
    for line in lines.with(Level::WARN, &["stream closed"]) {
        assert!(line.matches("tcp connect error").count() <= 1, "{line}");
    }
}

/// Paused time: lookups follow each other without waiting.
#[tokio::test(start_paused = true)]
async fn a_name_that_does_not_resolve_is_one_warning_and_part_of_the_error() {
    let lines = CapturedLogs::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let cluster = parse_upstream_cluster(
        "{name: orders, type: STRICT_DNS, dns_refresh_rate: 1s, load_assignment: {cluster_name:
         orders, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address:
         orders.invalid, port_value: 80}}}}]}]}}",
    );
    let client = Client::builder().cluster(cluster.unwrap()).build().unwrap();
    let mut orders = client.service("orders").unwrap();
    let error = within(get(&mut orders, "/")).await.unwrap_err();
    let start = "cluster orders: no host available; DNS name \"orders.invalid\" does not resolve: ";
    assert!(error.to_string().starts_with(start), "{error}");
    assert_eq!(error.kind(), plimsoll_client::ErrorKind::NoHost);
    let repeated = || lines.count(Level::DEBUG, &["DNS lookup still fails", "orders.invalid"]);
    wait_until("several refreshes", async || repeated() >= 3).await;
    assert_eq!(
        lines.count(Level::WARN, &["DNS lookup failed", "orders.invalid"]),
        1
    );
}
