//! Active health checks and outlier detection, on real sockets.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::actor::{Actor, get};
use crate::support::held_time::HeldTime;
use crate::support::{client, round_robin, with_extras};
use plimsoll_client::{Client, Cluster, ClusterService, UpstreamOptions};
use plimsoll_core::model::outlier_detection::{
    ConsecutiveErrors, FailurePercentageEjection, OutlierDetection, OutlierDetectionParts,
};
use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::upstream::{HealthCheck, HealthCheckKind, HealthCheckParts, HttpHealthCheck};
use tokio::net::TcpListener;

fn check(kind: HealthCheckKind) -> HealthCheck {
    let short = Some(Duration::from_millis(20));
    HealthCheck::try_new(HealthCheckParts {
        timeout: Some(Duration::from_secs(5)),
        interval: short,
        initial_jitter: None,
        interval_jitter: None,
        interval_jitter_percent: 0,
        unhealthy_threshold: Some(2),
        healthy_threshold: Some(2),
        alt_port: None,
        reuse_connection: None,
        no_traffic_interval: short,
        no_traffic_healthy_interval: None,
        unhealthy_interval: None,
        unhealthy_edge_interval: None,
        healthy_edge_interval: None,
        kind,
    })
    .unwrap()
}

/// Checks each host when it is added, and not again during a test.
fn checked_once() -> UpstreamOptions {
    let mut once = check(http(false));
    let never = Duration::from_secs(3600);
    (once.interval, once.no_traffic_interval) = (never, never);
    once.no_traffic_healthy_interval = never;
    UpstreamOptions {
        health_checks: vec![once],
        ..UpstreamOptions::default()
    }
}

fn http(http2: bool) -> HealthCheckKind {
    HealthCheckKind::Http(HttpHealthCheck {
        path: "/health".into(),
        http2,
        ..HttpHealthCheck::default()
    })
}

fn grpc() -> HealthCheckKind {
    HealthCheckKind::Grpc {
        service_name: "orders".into(),
        authority: String::new(),
        initial_metadata: Vec::new(),
    }
}

/// Whether `count` consecutive requests all go to `actor`.
async fn all_go_to(service: &mut ClusterService, actor: &Actor, count: usize) -> bool {
    for _ in 0..count {
        let Ok((_, body)) = get(service, "/").await else {
            return false;
        };
        if body != actor.address.to_string() {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn failed_checks_exclude_hosts_until_they_pass_again() {
    for kind in [http(false), http(true), grpc()] {
        let actors = [Actor::start().await, Actor::start().await];
        let options = UpstreamOptions {
            health_checks: vec![check(kind)],
            ..UpstreamOptions::default()
        };
        let client = client(&[&actors[0], &actors[1]], options);
        let mut service = client.service("orders").unwrap();
        let unhealthy = |value| actors[0].seen.unhealthy.store(value, Ordering::Relaxed);
        unhealthy(true);
        wait_until("the unhealthy host is out", async || {
            all_go_to(&mut service, &actors[1], 4).await
        })
        .await;
        unhealthy(false);
        wait_until("it is back", async || {
            !all_go_to(&mut service, &actors[1], 4).await
        })
        .await;
    }
}

#[tokio::test]
async fn hosts_are_healthy_once_their_checks_are_removed() {
    let actors = [Actor::start().await, Actor::start().await];
    actors[0].seen.unhealthy.store(true, Ordering::Relaxed);
    let options = UpstreamOptions {
        health_checks: vec![check(http(false))],
        ..UpstreamOptions::default()
    };
    let client = client(&[&actors[0], &actors[1]], options);
    let healthy = async |expected| {
        wait_until("health", async || {
            let why = client.explain("orders").await.unwrap();
            why.localities[0].healthy == expected
        })
        .await;
    };
    healthy(1).await;
    let unchecked = UpstreamOptions::default();
    client
        .set_cluster(Cluster::from(round_robin("orders")).options(unchecked))
        .await
        .unwrap();
    healthy(2).await;
}

#[tokio::test]
async fn an_accepted_connection_passes_a_tcp_check() {
    let actors = [Actor::start().await, Actor::start().await];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut check = check(HealthCheckKind::Tcp {
        send: None,
        receive: Vec::new(),
    });
    check.alt_port = Some(listener.local_addr().unwrap().port());
    let options = UpstreamOptions {
        health_checks: vec![check],
        ..UpstreamOptions::default()
    };
    let client = client(&[&actors[0], &actors[1]], options);
    let mut service = client.service("orders").unwrap();
    let healthy = async |client: &Client| {
        let why = client.explain("orders").await.unwrap();
        why.localities[0].healthy
    };
    wait_until("both are healthy", async || healthy(&client).await == 2).await;
    get(&mut service, "/").await.unwrap();
    drop(listener);
    wait_until("both are out", async || healthy(&client).await == 0).await;
}

#[tokio::test]
async fn endpoints_may_be_exempt_or_have_their_own_check_port() {
    let actors = [Actor::start().await, Actor::start().await];
    let closed = crate::support::refused_address();
    let options = UpstreamOptions {
        health_checks: vec![check(http(false))],
        ..UpstreamOptions::default()
    };
    let client = client(&[&actors[0], &actors[1]], options);
    let elsewhere = plimsoll_client::EndpointExtras {
        health_check_port: Some(closed.port()),
        ..Default::default()
    };
    let exempt = plimsoll_client::EndpointExtras {
        disable_active_health_check: true,
        ..elsewhere.clone()
    };
    let extras = [(actors[0].address, elsewhere), (actors[1].address, exempt)];
    let endpoints = with_extras("orders", extras);
    client.update_endpoints(endpoints).await.unwrap();
    let mut service = client.service("orders").unwrap();
    wait_until("only the exempt one is in", async || {
        all_go_to(&mut service, &actors[1], 4).await
    })
    .await;
}

#[tokio::test]
async fn changed_settings_of_one_endpoint_do_not_restart_other_checks() {
    let actors = [Actor::start().await, Actor::start().await];
    let client = client(&[&actors[0], &actors[1]], checked_once());
    let checked = async |expected: [u64; 2]| {
        wait_until("checks", async || actors[0].requests() == expected[0]).await;
        wait_until("checks", async || actors[1].requests() == expected[1]).await;
    };
    checked([1, 1]).await;
    for (round, name) in ["one", "two", "three"].into_iter().enumerate() {
        let extras = plimsoll_client::EndpointExtras {
            health_check_hostname: name.into(),
            ..Default::default()
        };
        let extras = [
            (actors[0].address, extras),
            (actors[1].address, Default::default()),
        ];
        let endpoints = with_extras("orders", extras);
        client.update_endpoints(endpoints).await.unwrap();
        checked([round as u64 + 2, 1]).await;
    }
    let stats = client.stats();
    let attempts = stats
        .iter()
        .find(|stat| stat.name == "health_check.attempt");
    assert_eq!(attempts.unwrap().value, 5);
}

#[tokio::test(start_paused = true)]
async fn hosts_without_traffic_are_checked_at_an_interval_of_their_own() {
    let actor = Actor::start().await;
    let time = HeldTime::start();
    let mut options = checked_once();
    let short = Duration::from_millis(20);
    let check = &mut options.health_checks[0];
    (check.no_traffic_interval, check.no_traffic_healthy_interval) = (short, short);
    let client = client(&[&actor], options);
    let stat = |name| client.stats().get("orders", name).unwrap();
    let passed = || stat("health_check.success");
    time.until("the first check passes", || passed() == 1).await;
    // The next one follows after the interval, in which no time passes otherwise.
    let next_interval = async || {
        let before = passed();
        // Timers have a resolution of one millisecond.
        tokio::time::advance(short + Duration::from_millis(1)).await;
        time.until("the next check passes", || passed() > before)
            .await;
    };
    for _ in 0..3 {
        next_interval().await;
    }
    let mut service = client.service("orders").unwrap();
    get(&mut service, "/").await.unwrap();
    // The check that is due already is the last one within an hour.
    next_interval().await;
    let last = stat("health_check.attempt");
    for _ in 0..10 {
        tokio::time::advance(short).await;
    }
    assert_eq!(stat("health_check.attempt"), last);
}

#[tokio::test]
async fn added_hosts_do_not_restart_the_checks_of_others() {
    let actors = [
        Actor::start().await,
        Actor::start().await,
        Actor::start().await,
    ];
    let at_own_port = |actor: &Actor| {
        let extras = plimsoll_client::EndpointExtras {
            health_check_port: Some(actor.address.port()),
            ..Default::default()
        };
        (actor.address, extras)
    };
    let client = client::<&Actor>(&[], checked_once());
    let healthy = async |expected| {
        wait_until("checks", async || {
            let why = client.explain("orders").await.unwrap();
            why.localities[0].healthy == expected as u64
        })
        .await;
    };
    for hosts in [1, 2, 3, 2, 3].map(|count| &actors[..count]) {
        let endpoints = with_extras("orders", hosts.iter().map(at_own_port));
        client.update_endpoints(endpoints).await.unwrap();
        healthy(hosts.len()).await;
    }
    let checks: Vec<u64> = actors.iter().map(Actor::requests).collect();
    assert_eq!(checks, [1, 1, 2], "only the last one came twice");
}

#[tokio::test]
async fn consecutive_errors_eject_a_host_at_once() {
    let actors = [Actor::start().await, Actor::start().await];
    actors[0].seen.unhealthy.store(true, Ordering::Relaxed);
    let detection = OutlierDetection::try_new(OutlierDetectionParts {
        max_ejection_percent: Some(50),
        consecutive_5xx: Some(ConsecutiveErrors {
            threshold: 3,
            enforcement_percentage: 100,
        }),
        ..OutlierDetectionParts::default()
    });
    let options = UpstreamOptions {
        outlier_detection: Some(detection.unwrap()),
        ..UpstreamOptions::default()
    };
    let client = client(&[&actors[0], &actors[1]], options);
    let mut service = client.service("orders").unwrap();
    for _ in 0..6 {
        get(&mut service, "/maybe").await.unwrap();
    }
    wait_until("it is out", async || {
        all_go_to(&mut service, &actors[1], 4).await
    })
    .await;
}

#[tokio::test]
async fn failure_percentage_ejects_a_host_after_the_interval() {
    let actors = [Actor::start().await, Actor::start().await];
    actors[0].seen.unhealthy.store(true, Ordering::Relaxed);
    let detection = OutlierDetection::try_new(OutlierDetectionParts {
        interval: Some(Duration::from_millis(100)),
        base_ejection_time: Some(Duration::from_millis(200)),
        max_ejection_percent: Some(50),
        failure_percentage_ejection: Some(FailurePercentageEjection {
            threshold: 50,
            enforcement_percentage: 100,
            minimum_hosts: 1,
            request_volume: 2,
        }),
        ..OutlierDetectionParts::default()
    });
    let options = UpstreamOptions {
        outlier_detection: Some(detection.unwrap()),
        ..UpstreamOptions::default()
    };
    let client = client(&[&actors[0], &actors[1]], options);
    let mut service = client.service("orders").unwrap();
    wait_until("it is out", async || {
        for _ in 0..10 {
            get(&mut service, "/maybe").await.unwrap();
        }
        all_go_to(&mut service, &actors[1], 4).await
    })
    .await;
    wait_until("it is back", async || {
        !all_go_to(&mut service, &actors[1], 4).await
    })
    .await;
}
