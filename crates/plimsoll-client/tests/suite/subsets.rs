//! Subset load balancing: criteria of requests, services and routes choose hosts by metadata.
#![cfg(feature = "xds")]

use std::collections::BTreeSet;

use crate::support::management::{Management, xds_options};
use crate::support::resources::{Made, cluster, listener, routed};
use crate::support::{Backend, within};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use plimsoll_client::{Client, ErrorKind, MatchCriteria, Metadata, RequestOptions, Variant};
use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::CLUSTER_LOAD_ASSIGNMENT;
use plimsoll_xds::wire::{self, AssignmentOut, LocalityOut};
use plimsoll_xds::yaml::parse_upstream_cluster;
use tower_service::Service;

const SUBSETS: &str = "lb_subset_config: {fallback_policy: DEFAULT_SUBSET, default_subset: \
                       {version: stable}, subset_selectors: [{keys: [version]}, {keys: \
                       [stage, version]}, {keys: [color], fallback_policy: NO_FALLBACK}]}\n";

/// Metadata of three hosts.
const HOSTS: [&[(&str, &str)]; 3] = [
    &[("version", "stable")],
    &[("version", "canary")],
    &[("version", "canary"), ("stage", "prod")],
];

fn metadata(pairs: &[(&str, &str)]) -> Metadata {
    let pairs = pairs.iter();
    pairs.map(|&(key, value)| (key, value.into())).collect()
}

fn criteria(pairs: &[(&str, &str)]) -> MatchCriteria {
    MatchCriteria::new(metadata(pairs))
}

async fn backends() -> [Backend; 3] {
    [
        Backend::start().await,
        Backend::start().await,
        Backend::start().await,
    ]
}

/// A client with the cluster `orders` of these hosts.
fn client(backends: &[Backend; 3]) -> Client {
    let endpoints = HOSTS.iter().zip(backends).map(|(pairs, backend)| {
        let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}: {v}")).collect();
        let port = backend.address.port();
        format!(
            "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: \
             {port}}}}}}}, metadata: {{filter_metadata: {{envoy.lb: {{{}}}}}}}}}",
            pairs.join(", ")
        )
    });
    let endpoints: Vec<String> = endpoints.collect();
    let text = format!(
        "name: orders\n{SUBSETS}load_assignment: {{cluster_name: orders, endpoints: \
         [{{lb_endpoints: [{}]}}]}}\n",
        endpoints.join(", ")
    );
    Client::builder()
        .cluster(parse_upstream_cluster(&text).unwrap())
        .build()
        .unwrap()
}

fn request(own: Option<MatchCriteria>) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = "http://orders/".parse().unwrap();
    if let Some(own) = own {
        request.extensions_mut().insert(own);
    }
    request
}

/// Sends six requests and returns the indices of the hosts that responded.
async fn answering<S, B>(
    service: &mut S,
    own: Option<&MatchCriteria>,
    backends: &[Backend; 3],
) -> BTreeSet<usize>
where
    S: Service<Request<Empty<Bytes>>, Response = http::Response<B>>,
    S::Error: std::fmt::Debug,
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        let response = within(service.call(request(own.cloned()))).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let place = |backend: &Backend| body == backend.address.to_string();
        seen.insert(backends.iter().position(place).unwrap());
    }
    seen
}

#[tokio::test]
async fn criteria_of_a_request_select_its_subset() {
    let backends = backends().await;
    let client = client(&backends);
    let mut service = client.service("orders").unwrap();
    let canary = criteria(&[("version", "canary")]);
    let prod = criteria(&[("version", "canary"), ("stage", "prod")]);
    let nobody = criteria(&[("version", "9")]);
    for (own, expected) in [
        (None, &[0][..]),
        (Some(&canary), &[1, 2]),
        (Some(&prod), &[2]),
        (Some(&nobody), &[0]),
    ] {
        let seen = answering(&mut service, own, &backends).await;
        assert_eq!(seen, expected.iter().copied().collect(), "{own:?}");
    }
    let error = service.call(request(Some(criteria(&[("color", "red")]))));
    assert_eq!(error.await.unwrap_err().kind(), ErrorKind::NoHost);
    // Criteria of the service apply to every request; those of a request override them.
    let stable = criteria(&[("stage", "prod"), ("version", "stable")]);
    let defaults = RequestOptions::new().metadata_match(stable);
    let mut service = service.with_defaults(defaults);
    assert_eq!(answering(&mut service, None, &backends).await, [0].into());
    let seen = answering(&mut service, Some(&canary), &backends).await;
    assert_eq!(seen, [2].into());
    let stats = client.stats();
    let value = |name: &str| {
        let own = stats.iter().find(|stat| stat.name == name);
        own.map(|stat| stat.value)
    };
    assert_eq!(value("lb_subsets_selected"), Some(18));
    assert_eq!(value("lb_subsets_fallback"), Some(18));
    assert_eq!(value("lb_subsets_active"), Some(3));
}

#[tokio::test]
async fn a_retry_stays_in_the_subset() {
    let backends = backends().await;
    let client = client(&backends);
    // One of the two canaries stops; its requests are retried on the other one.
    let [stable, gone, left] = backends;
    let address = gone.address;
    drop(gone);
    let mut service = client.service("orders").unwrap();
    let canary = criteria(&[("version", "canary")]);
    for _ in 0..6 {
        let response = within(service.call(request(Some(canary.clone())))).await;
        let body = response
            .unwrap()
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes();
        assert_eq!(body, left.address.to_string(), "{address} is gone");
    }
    assert_eq!(stable.seen(), 0);
}

#[tokio::test]
async fn a_layer_uses_the_criteria_of_its_requests() {
    use tower_layer::Layer as _;
    let backends = backends().await;
    let client = client(&backends);
    let connector = hyper_util::client::legacy::connect::HttpConnector::new();
    let executor = hyper_util::rt::TokioExecutor::new();
    let http = hyper_util::client::legacy::Client::builder(executor).build(connector);
    let mut service = client.layer("orders").unwrap().layer(http);
    let prod = criteria(&[("version", "canary"), ("stage", "prod")]);
    let seen = answering(&mut service, Some(&prod), &backends).await;
    assert_eq!(seen, [2].into());
    assert_eq!(answering(&mut service, None, &backends).await, [0].into());
}

/// Routes of the listener `orders`: the first to a weighted cluster, the rest to a plain one.
fn routes() -> Made {
    let matching =
        |pairs: &str| format!("metadata_match: {{filter_metadata: {{envoy.lb: {pairs}}}}}");
    let canary = matching("{version: canary}");
    let stable = matching("{stage: prod, version: stable}");
    let weighted = format!(
        "{{match: {{prefix: /weighted}}, route: {{{stable}, weighted_clusters: {{clusters: \
         [{{name: orders, weight: 1, {canary}}}]}}}}}}"
    );
    let plain = format!("{{match: {{prefix: ''}}, route: {{cluster: orders, {canary}}}}}");
    routed("orders", &[&weighted, &plain])
}

fn assignment(backends: &[Backend; 3]) -> Made {
    let endpoints = HOSTS
        .iter()
        .zip(backends)
        .map(|(pairs, backend)| LbEndpoint {
            metadata: metadata(pairs),
            ..LbEndpoint::new(backend.address)
        });
    let body = wire::encode_assignment(&AssignmentOut {
        cluster_name: "orders".into(),
        localities: vec![LocalityOut {
            locality: Locality::zone_only("a"),
            endpoints: endpoints.collect(),
            ..LocalityOut::default()
        }],
        ..AssignmentOut::default()
    });
    (CLUSTER_LOAD_ASSIGNMENT, "orders".to_owned(), body)
}

#[tokio::test]
async fn routes_select_subsets_and_requests_override_them() {
    let backends = backends().await;
    let server = Management::start(&[
        listener("orders", "orders"),
        routes(),
        cluster("orders", SUBSETS),
        assignment(&backends),
    ]);
    for variant in [Variant::Sotw, Variant::Delta] {
        let client = Client::builder()
            .xds(xds_options(server.address, variant))
            .build()
            .unwrap();
        let mut service = within(client.target("xds:///orders")).await.unwrap();
        let seen = answering(&mut service, None, &backends).await;
        assert_eq!(seen, [1, 2].into(), "{variant:?}");
        let stable = criteria(&[("version", "stable")]);
        let seen = answering(&mut service, Some(&stable), &backends).await;
        assert_eq!(seen, [0].into(), "{variant:?}");
        // Criteria of the weighted cluster override those of the route.
        let mut weighted = request(None);
        *weighted.uri_mut() = "http://orders/weighted".parse().unwrap();
        let response = within(service.call(weighted)).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, backends[2].address.to_string(), "{variant:?}");
    }
    assert_eq!(server.rejections(), Vec::<String>::new());
}

#[tokio::test]
async fn each_balanced_subset_can_be_explained() {
    let backends = backends().await;
    let client = client(&backends);
    client.ready().await.unwrap();
    let canary = client.explain_subset("orders", &metadata(&[("version", "canary")]));
    let localities = canary.unwrap().localities;
    assert_eq!(localities.iter().map(|row| row.hosts).sum::<u64>(), 2);
    for (cluster, subset, expected) in [
        (
            "orders",
            &[("version", "9")][..],
            "cluster \"orders\" has no balanced subset",
        ),
        (
            "users",
            &[("version", "canary")],
            "unknown cluster \"users\"",
        ),
    ] {
        let error = client
            .explain_subset(cluster, &metadata(subset))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownCluster);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
