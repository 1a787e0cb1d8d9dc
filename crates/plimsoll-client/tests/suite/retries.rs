//! Retries: conditions, choice of the next host, budgets and timeouts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::actor::{Actor, get, request};
use crate::support::held_time::HeldTime;
use crate::support::silent::Silent;
use crate::support::{assigned, client, endpoints, http2, refused_address, within};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use plimsoll_client::{
    Client, ClusterService, ErrorKind, RequestOptions, RetryOn, RetryPolicy, UpstreamOptions,
};
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::yaml::parse_cluster;
use tower_service::Service as _;

fn retrying(client: &Client, conditions: &str) -> ClusterService {
    let policy = RetryPolicy::new()
        .retry_on(RetryOn::parse(conditions).unwrap())
        .base_interval(Duration::from_millis(1));
    let options = RequestOptions::new().retry(policy);
    client.service("orders").unwrap().with_defaults(options)
}

fn set_unhealthy(actor: &Actor) {
    actor.seen.unhealthy.store(true, Ordering::Relaxed);
}

#[tokio::test]
async fn error_responses_are_retried_on_another_host() {
    for options in [UpstreamOptions::default(), http2()] {
        let actors = [Actor::start().await, Actor::start().await];
        set_unhealthy(&actors[0]);
        let client = client(&[&actors[0], &actors[1]], options);
        let mut patient = retrying(&client, "gateway-error");
        for _ in 0..10 {
            let (status, body) = get(&mut patient, "/maybe").await.unwrap();
            assert_eq!((status, body), (200, actors[1].address.to_string()));
        }
        let stats = client.drain_load_stats(true).await.unwrap();
        let stats = &stats[0].localities[0].stats;
        assert_eq!(stats.total_successful_requests, 10);
        assert_eq!(stats.total_error_requests, actors[0].requests());
        let mut plain = retrying(&client, "connect-failure,refused-stream");
        let mut bad = 0;
        for _ in 0..4 {
            bad += u32::from(get(&mut plain, "/maybe").await.unwrap().0 == 503);
        }
        assert_eq!(bad, 2);
    }
}

/// Unlike Envoy, which uses the first report of all attempts for the last host.
#[tokio::test]
async fn each_attempt_stores_the_load_report_of_its_host() {
    let actors = [Actor::start().await, Actor::start().await];
    set_unhealthy(&actors[0]);
    let addresses = [actors[0].address, actors[1].address];
    let text = "name: orders\nlb_policy: ROUND_ROBIN\n\
                lrs_report_endpoint_metrics: [cpu_utilization]";
    let client = Client::builder()
        .cluster(assigned(
            parse_cluster(text).unwrap(),
            endpoints("orders", &[("a", &addresses)]),
            UpstreamOptions::default(),
        ))
        .build()
        .unwrap();
    let mut service = retrying(&client, "gateway-error");
    for _ in 0..4 {
        let mut call = request(Method::GET, "/say");
        let report = "TEXT cpu_utilization=0.5".parse().unwrap();
        (call.headers_mut()).insert("say-endpoint-load-metrics", report);
        let response = service.call(call).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap();
    }
    assert!(actors[0].requests() > 0, "the first host got no attempt");
    let stats = client.drain_load_stats(true).await.unwrap();
    for endpoint in &stats[0].localities[0].endpoints {
        let cpu = endpoint.load_metric_stats["cpu_utilization"];
        let attempts = endpoint.total_issued_requests;
        assert_eq!(
            cpu.num_requests_finished_with_metric, attempts,
            "{endpoint:?}"
        );
    }
    assert_eq!(stats[0].localities[0].endpoints.len(), 2);
}

#[tokio::test]
async fn bodies_up_to_max_replay_bytes_are_sent_again() {
    let actors = [Actor::start().await, Actor::start().await];
    let client = client(&[&actors[0], &actors[1]], UpstreamOptions::default());
    let mut service = retrying(&client, "retriable-4xx,reset");
    let body = "x".repeat(1000);
    let call = |length: usize, limit: usize| {
        let policy = RetryPolicy::new()
            .retry_on(RetryOn::RETRIABLE_4XX)
            .max_replay_bytes(limit);
        let options = RequestOptions::new().retry(policy);
        let text = body[..length].to_owned();
        Request::post("http://backend/409")
            .extension(options)
            .body(Full::new(Bytes::from(text)))
            .unwrap()
    };
    // All three attempts end with 409, which is then returned.
    let response = service.call(call(1000, 1000)).await.unwrap();
    assert_eq!(response.status(), 409);
    assert_eq!(actors[0].requests() + actors[1].requests(), 3);
    let response = service.call(call(1000, 999)).await.unwrap();
    assert_eq!(response.status(), 409);
    assert_eq!(actors[0].requests() + actors[1].requests(), 4);
}

#[tokio::test]
async fn a_failed_connection_counts_as_a_reset() {
    let actor = Actor::start().await;
    let client = client(&[&actor], UpstreamOptions::default());
    let mut plain = retrying(&client, "");
    assert!(get(&mut plain, "/close").await.is_err());
    assert_eq!(actor.requests(), 1);
    let mut patient = retrying(&client, "reset");
    assert!(get(&mut patient, "/close").await.is_err());
    assert_eq!(actor.requests(), 4);
}

#[tokio::test]
async fn the_budget_bounds_retries_of_sent_requests() {
    let actor = Actor::start().await;
    let mut options = UpstreamOptions::default();
    options.circuit_breakers.max_retries = 0;
    let client = client(&[&actor], options);
    let mut service = retrying(&client, "5xx");
    assert_eq!(get(&mut service, "/503").await.unwrap().0, 503);
    assert_eq!(actor.requests(), 1);
}

/// A host that drops packets must not cost a request one `connect_timeout` per attempt.
#[tokio::test(start_paused = true)]
async fn a_silent_host_costs_one_connect_timeout() {
    let (silent, alive) = (Silent::never_accepting(), Actor::start().await);
    let time = HeldTime::start();
    for options in [UpstreamOptions::default(), http2()] {
        for hosts in [vec![silent.address], vec![silent.address, alive.address]] {
            let timeout = options.connect_timeout;
            let client = client(&hosts, options.clone());
            let mut service = client.service("orders").unwrap();
            let started = tokio::time::Instant::now();
            let calls: Vec<_> = hosts
                .iter()
                .map(|_| tokio::spawn(service.call(request(Method::GET, "/"))))
                .collect();
            let stat = |name| client.stats().get("orders", name).unwrap();
            let dialed = || stat("upstream_cx_total") == hosts.len() as u64;
            time.until("all hosts are dialed", dialed).await;
            // Timers have a resolution of one millisecond.
            tokio::time::advance(timeout + Duration::from_millis(1)).await;
            for call in calls {
                match within(call).await.unwrap() {
                    Ok(response) => assert_eq!(response.into_body().host(), alive.address),
                    Err(error) => {
                        assert_eq!(error.address(), Some(silent.address));
                        assert!(error.is_connect() && hosts.len() == 1, "{error:#}");
                    }
                }
            }
            assert!(started.elapsed() < timeout * 3 / 2);
            assert_eq!(stat("upstream_cx_connect_fail"), 1);
            assert_eq!(stat("upstream_cx_connect_timeout"), 1);
        }
    }
}

#[tokio::test]
async fn unsent_requests_are_retried_without_a_budget() {
    let alive = Actor::start().await;
    let mut options = UpstreamOptions::default();
    options.circuit_breakers.max_retries = 0;
    let hosts = [refused_address(), alive.address];
    let client = client(&hosts, options);
    // Also if a route names the condition that Envoy would need.
    for conditions in ["", "connect-failure", "5xx"] {
        let mut service = retrying(&client, conditions);
        for _ in 0..4 {
            assert_eq!(get(&mut service, "/").await.unwrap().0, 200, "{conditions}");
        }
    }
    let stats = client.stats();
    let value = |name: &str| {
        stats
            .iter()
            .find(|stat| stat.name == name)
            .map(|stat| stat.value)
    };
    assert_ne!(value("upstream_rq_retry"), Some(0));
    assert_eq!(value("upstream_rq_retry_overflow"), Some(0));
}

#[tokio::test(start_paused = true)]
async fn per_try_timeout_counts_as_an_error_of_the_host() {
    let time = HeldTime::start();
    for options in [UpstreamOptions::default(), http2()] {
        let actor = Actor::start().await;
        let client = client(&[&actor], options);
        let mut service = retrying(&client, "reset");
        let mut hanging = request(Method::GET, "/hang");
        let once = RetryPolicy::new().retry_on(RetryOn::RESET).num_retries(1);
        let options = RequestOptions::new()
            .per_try_timeout(Duration::from_millis(30))
            .retry(once);
        hanging.extensions_mut().insert(options);
        let hanging = tokio::spawn(service.call(hanging));
        let step = Duration::from_millis(1);
        time.until("it arrives", || actor.requests() == 1).await;
        // The timeout, and the backoff before the retry.
        while client.stats().get("orders", "upstream_rq_retry") == Some(0) {
            tokio::time::advance(step).await;
        }
        time.until("it arrives again", || actor.requests() == 2)
            .await;
        // Timers have a resolution of one millisecond.
        tokio::time::advance(Duration::from_millis(30) + step).await;
        let error = within(hanging).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let stats = client.drain_load_stats(false).await.unwrap();
        let stats = &stats[0].localities[0].stats;
        let counts = (stats.total_issued_requests, stats.total_error_requests);
        assert_eq!(counts, (2, 2));
    }
}

#[tokio::test]
async fn the_timeout_covers_all_attempts() {
    let actor = Actor::start().await;
    let client = client(&[&actor], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    let mut hanging = request(Method::GET, "/hang");
    let options = RequestOptions::new().timeout(Duration::from_millis(30));
    hanging.extensions_mut().insert(options);
    let error = service.call(hanging).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

/// All hosts of the local zone refuse connections, without a failed health check yet.
async fn client_of_a_dead_zone(alive: &Actor, options: UpstreamOptions) -> Client {
    let mut dead = Vec::new();
    for _ in 0..6 {
        dead.push(refused_address());
    }
    let fleet = ["10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap()];
    let config = "name: orders\nlb_policy: ROUND_ROBIN\n\
                  common_lb_config: {zone_aware_lb_config: {min_cluster_size: 1}}";
    Client::builder()
        .locality(Locality::zone_only("a"))
        .originating(endpoints(
            "fleet",
            &[("a", &fleet[..1]), ("b", &fleet[1..])],
        ))
        .cluster(assigned(
            parse_cluster(config).unwrap(),
            endpoints("orders", &[("a", &dead), ("b", &[alive.address])]),
            options,
        ))
        .seed(7)
        .build()
        .unwrap()
}

#[tokio::test]
async fn an_unreachable_zone_fails_no_request() {
    for options in [UpstreamOptions::default(), http2()] {
        let alive = Actor::start().await;
        let client = client_of_a_dead_zone(&alive, options).await;
        let why = format!("{:?}", client.explain("orders").await.unwrap());
        assert!(
            why.contains("Direct"),
            "zone a keeps all its requests: {why}"
        );
        let mut service = client.service("orders").unwrap();
        let calls: Vec<_> = (0..50)
            .map(|_| tokio::spawn(service.call(request(Method::GET, "/"))))
            .collect();
        for call in calls {
            let response = call.await.unwrap().unwrap();
            assert_eq!(response.status(), 200);
            response.into_body().collect().await.unwrap();
        }
        for _ in 0..20 {
            get(&mut service, "/").await.unwrap();
        }
        assert_eq!(alive.requests(), 70);
    }
}

/// All hosts of priority 0 refuse connections, without a failed health check yet.
async fn client_of_a_dead_priority(policy: &str, alive: &[&Actor]) -> Client {
    let mut dead = Vec::new();
    for _ in 0..8 {
        dead.push(refused_address());
    }
    let alive: Vec<_> = alive.iter().map(|actor| actor.address).collect();
    let zones = [("a", &dead[..4], 0), ("b", &dead[4..], 0), ("c", &alive, 1)].map(
        |(zone, addresses, priority)| LocalityParts {
            locality: Locality::zone_only(zone),
            lb_endpoints: addresses.iter().copied().map(LbEndpoint::new).collect(),
            priority,
            ..LocalityParts::default()
        },
    );
    let assignment = ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: "orders".into(),
        endpoints: zones.into(),
        ..AssignmentParts::default()
    });
    let config = parse_cluster(&format!("name: orders\nlb_policy: {policy}")).unwrap();
    Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(assigned(
            config,
            assignment.unwrap(),
            UpstreamOptions::default(),
        ))
        .seed(7)
        .build()
        .unwrap()
}

#[tokio::test]
async fn an_unreachable_priority_fails_no_request() {
    for policy in ["ROUND_ROBIN", "LEAST_REQUEST", "RANDOM", "MAGLEV"] {
        let alive = [Actor::start().await, Actor::start().await];
        let client = client_of_a_dead_priority(policy, &[&alive[0], &alive[1]]).await;
        let mut service = client.service("orders").unwrap();
        let calls: Vec<_> = (0..50)
            .map(|_| tokio::spawn(service.call(request(Method::GET, "/"))))
            .collect();
        for call in calls {
            let response = call.await.unwrap().unwrap();
            assert_eq!(response.status(), 200, "{policy}");
            response.into_body().collect().await.unwrap();
        }
        for _ in 0..50 {
            get(&mut service, "/").await.unwrap();
        }
        let seen = alive.each_ref().map(Actor::requests);
        assert_eq!(seen[0] + seen[1], 100, "{policy}");
        assert!(seen.iter().all(|seen| *seen > 20), "{policy}: {seen:?}");
        // Without retries there is only one attempt.
        let never = RequestOptions::new().retry(RetryPolicy::new().num_retries(0));
        let one = client_of_a_dead_priority(policy, &[&alive[0]]).await;
        let mut service = one.service("orders").unwrap().with_defaults(never);
        assert!(get(&mut service, "/").await.is_err(), "{policy}");
    }
}
