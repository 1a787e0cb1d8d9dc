//! Every way in leads to the client: metrics, explanations, readiness. And one crate is enough.

use std::sync::atomic::Ordering;

use crate::support::actor::Actor;
use crate::support::{Backend, within};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
#[cfg(feature = "tonic")]
use plimsoll_client::Channel;
#[cfg(feature = "reqwest")]
use plimsoll_client::ReqwestService;
use plimsoll_client::http::StatusCode;
use plimsoll_client::{Bytes, Client, Cluster, ErrorKind, Policy, Request, RequestBody};
use tower_layer::Layer as _;

#[tokio::test]
async fn every_way_in_has_the_client() {
    let backend = Backend::start().await;
    let orders = Cluster::new("orders").endpoints([backend.address]);
    let client = Client::builder().cluster(orders).build().unwrap();
    let service = client.service("orders").unwrap();
    let http = legacy::Client::builder(TokioExecutor::new());
    let layer = client.layer("orders").unwrap();
    let balanced = layer.layer(http.build_http::<RequestBody>());
    let mut handles = vec![service.client(), layer.client(), balanced.client()];
    #[cfg(feature = "tonic")]
    let channel = Channel::from(service.clone());
    #[cfg(feature = "tonic")]
    handles.push(channel.client());
    #[cfg(feature = "reqwest")]
    let reqwest = ReqwestService::from(service.clone());
    #[cfg(feature = "reqwest")]
    handles.push(reqwest.client());
    let send = |path: &str| service.send(Request::get(path).body(()).unwrap());
    assert_eq!(send("/").await.unwrap().status(), StatusCode::OK);
    for handle in handles {
        handle.ready().await.unwrap();
        handle.explain("orders").await.unwrap();
        assert_eq!(handle.stats().get("orders", "upstream_rq_total"), Some(1));
    }
}

#[tokio::test]
async fn bodies_need_no_other_crate() {
    let actor = Actor::start().await;
    let orders = Cluster::new("orders").endpoints([actor.address]);
    let client = Client::builder().cluster(orders).build().unwrap();
    let orders = client.service("orders").unwrap();
    let echo = async |body: RequestBody| {
        let request = Request::post("/echo").body(body).unwrap();
        let response = within(orders.send(request)).await.unwrap();
        response.into_body().text().await.unwrap()
    };
    assert_eq!(echo(().into()).await, "");
    assert_eq!(echo(RequestBody::empty()).await, "");
    assert_eq!(echo("text".into()).await, "text");
    assert_eq!(echo(String::from("owned").into()).await, "owned");
    assert_eq!(echo(vec![b'v'].into()).await, "v");
    assert_eq!(echo(Bytes::from_static(b"bytes").into()).await, "bytes");

    let response = async || {
        let request = Request::post("/echo").body("four").unwrap();
        within(orders.send(request)).await.unwrap().into_body()
    };
    let all = response().await.bytes_within(4).await.unwrap();
    assert_eq!(all, "four");
    let error = response().await.bytes_within(3).await.unwrap_err();
    let text = format!("the response of {} is longer than 3 bytes", actor.address);
    assert_eq!(error.to_string(), text);
    assert_eq!(error.address(), Some(actor.address));
    let error = orders.send(Request::get("/close").body(()).unwrap()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Transport);
    assert_eq!(actor.seen.good.load(Ordering::Relaxed), 8);
}

/// A cluster that names no hosts changes settings only; one that names some has these.
#[tokio::test]
async fn one_way_to_set_a_cluster() {
    let client = Client::builder().build().unwrap();
    let hosts = |client: &Client| {
        let snapshot = client.snapshot("orders").unwrap();
        snapshot.hosts().map(|host| host.address().port()).collect()
    };
    let orders = || Cluster::new("orders");
    let none: [u16; 0] = [];
    for (cluster, expected) in [
        (orders().endpoints(["127.0.0.1:1"]), vec![1]),
        (orders().policy(Policy::least_request()), vec![1]),
        (
            orders().endpoints(["127.0.0.1:2", "127.0.0.1:3"]),
            vec![2, 3],
        ),
        (
            orders().endpoints(["127.0.0.1:4"]).build().unwrap().into(),
            vec![4],
        ),
        (orders().zone("a", [] as [&str; 0]), none.to_vec()),
    ] {
        client.set_cluster(cluster).await.unwrap();
        let found: Vec<u16> = hosts(&client);
        assert_eq!(found, expected);
    }
    let error = client.set_cluster(orders().endpoints(["orders"])).await;
    let text = "clusters[orders].endpoints: \"orders\" has no port; write host:port";
    assert_eq!(error.unwrap_err().to_string(), text);
}
