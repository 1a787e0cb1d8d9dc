//! A misbehaving management server: valid resources stay in use, invalid ones are rejected with
//! their path, and nothing panics.
#![cfg(feature = "xds")]

use std::net::SocketAddr;

use crate::support::hostile::{Hostile, RawStream};
use crate::support::management::xds_options;
use crate::support::resources::{Made, assignment, cluster, listener, response, routes, whole};
use crate::support::{Backend, get, within};
use bytes::Bytes;
use plimsoll_client::{Client, TargetService, Variant, XdsOptions, XdsStatus};
use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};

const TYPES: [&str; 4] = [
    LISTENER,
    ROUTE_CONFIGURATION,
    CLUSTER,
    CLUSTER_LOAD_ASSIGNMENT,
];

/// A client with a working target, and its discovery stream.
struct Scene {
    server: Hostile,
    stream: RawStream,
    client: Client,
    service: TargetService,
    backend: Backend,
}

impl Scene {
    async fn start(variant: Variant) -> Self {
        let backend = Backend::start().await;
        let mut server = Hostile::start().await;
        let client = Client::builder()
            .xds(options(server.address, variant))
            .build()
            .unwrap();
        let asking = client.clone();
        let asking = tokio::spawn(async move { asking.target("xds:///orders").await });
        let mut stream = server.stream().await;
        assert_eq!(stream.variant, variant);
        send_all(&mut stream, backend.address, "first").await;
        let mut service = within(asking).await.unwrap().unwrap();
        within(get(&mut service, "/")).await.unwrap();
        Self {
            server,
            stream,
            client,
            service,
            backend,
        }
    }

    /// Asserts that requests still reach the backend.
    async fn assert_unharmed(&mut self, after: &str) {
        let (status, body) = within(get(&mut self.service, "/")).await.expect(after);
        assert_eq!((status, body), (200, self.backend.address.to_string()));
        let explained = self.client.explain("orders").await.expect(after);
        assert_eq!(explained.localities[0].hosts, 1, "{after}");
    }

    fn status(&self) -> XdsStatus {
        self.client.xds_status().unwrap()
    }
}

fn options(address: SocketAddr, variant: Variant) -> XdsOptions {
    xds_options(address, variant).max_message_size(1 << 20)
}

/// Sends valid resources in the order in which the client subscribes to them.
async fn send_all(stream: &mut RawStream, backend: SocketAddr, nonce: &str) {
    for made in whole("orders", &[("a", &[backend])]) {
        let (type_url, name, _) = &made;
        stream.wait_for_subscription(type_url, name).await;
        let nonce = format!("{nonce} {type_url}");
        stream.send(&response(
            stream.variant,
            type_url,
            &nonce,
            std::slice::from_ref(&made),
        ));
        // The fleet's assignment is optional and not sent.
    }
}

/// A name, a response, and text that the rejection must contain.
type Fault = (
    &'static str,
    &'static str,
    Vec<Made>,
    &'static [&'static str],
);

/// The same body under another type or name.
fn disguised(made: Made, type_url: &'static str, name: &str) -> Made {
    (type_url, name.to_owned(), made.2)
}

fn broken(type_url: &'static str, body: &'static [u8]) -> Made {
    (type_url, "orders".to_owned(), Bytes::from_static(body))
}

/// A cluster `orders` whose only other field is `lb_policy: 99`.
const UNKNOWN_POLICY: &[u8] = b"\x0a\x06orders\x30\x63";
/// Endpoints of `orders`: one locality with one endpoint without an address.
const NO_ADDRESS: &[u8] = b"\x0a\x06orders\x12\x02\x12\x00";
/// Endpoints of `orders` that end in the middle of a locality.
const TRUNCATED: &[u8] = b"\x0a\x06orders\x12\x7f\x12";

fn faults(backend: SocketAddr) -> Vec<Fault> {
    let good = || assignment("orders", &[("a", &[backend])]);
    let empty = || assignment("orders", &[]);
    vec![
        (
            "a cluster where endpoints belong",
            CLUSTER_LOAD_ASSIGNMENT,
            vec![cluster("orders", "")],
            &["orders", "type_url", "envoy.config.cluster.v3.Cluster"],
        ),
        (
            "endpoints where a cluster belongs",
            CLUSTER,
            vec![good()],
            &["orders", "type_url"],
        ),
        (
            "two of the same name",
            CLUSTER_LOAD_ASSIGNMENT,
            vec![good(), empty()],
            &["orders", "more than once"],
        ),
        (
            "two of the same name, the other way round",
            CLUSTER_LOAD_ASSIGNMENT,
            vec![empty(), good()],
            &["orders", "more than once"],
        ),
        (
            "two clusters of the same name",
            CLUSTER,
            vec![
                cluster("orders", ""),
                cluster("orders", "lb_policy: RANDOM"),
            ],
            &["orders", "more than once"],
        ),
        (
            "an endpoint without address",
            CLUSTER_LOAD_ASSIGNMENT,
            vec![broken(CLUSTER_LOAD_ASSIGNMENT, NO_ADDRESS)],
            &["orders: endpoints[0].lb_endpoints[0]"],
        ),
        (
            "an unknown policy",
            CLUSTER,
            vec![broken(CLUSTER, UNKNOWN_POLICY)],
            &["orders: lb_policy"],
        ),
        (
            // Only incremental responses have the name outside of the body.
            "a truncated body",
            CLUSTER_LOAD_ASSIGNMENT,
            vec![broken(CLUSTER_LOAD_ASSIGNMENT, TRUNCATED)],
            &[],
        ),
        ("no body", CLUSTER, vec![broken(CLUSTER, b"")], &["name"]),
        (
            "routes without a virtual host that can be read",
            ROUTE_CONFIGURATION,
            vec![broken(
                ROUTE_CONFIGURATION,
                b"\x0a\x06orders\x12\x02\x0a\x7f",
            )],
            &["orders: "],
        ),
        (
            "a listener without its connection manager",
            LISTENER,
            vec![broken(LISTENER, b"\x0a\x06orders")],
            &["orders: api_listener"],
        ),
    ]
}

#[tokio::test]
async fn faults_are_rejected_with_their_path() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut scene = Scene::start(variant).await;
        let faults = faults(scene.backend.address);
        for (index, (what, type_url, resources, words)) in faults.iter().enumerate() {
            let rejected = scene.status().rejected;
            let nonce = format!("fault {index}");
            scene
                .stream
                .send(&response(variant, type_url, &nonce, resources));
            let rejection = scene
                .stream
                .nack_error(&nonce)
                .await
                .unwrap_or_else(|| panic!("{what} was accepted"));
            for word in *words {
                assert!(rejection.contains(word), "{what}: {rejection}");
            }
            assert!(!rejection.contains("orders: orders"), "{what}: {rejection}");
            wait_until(what, async || scene.status().rejected == rejected + 1).await;
            assert_eq!(scene.status().last_rejection, Some(rejection), "{what}");
            scene.assert_unharmed(what).await;
        }
    }
}

#[tokio::test]
async fn incremental_resources_must_have_their_inner_name() {
    let mut scene = Scene::start(Variant::Delta).await;
    let elsewhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let wrong = [
        disguised(cluster("users", "lb_policy: RANDOM"), CLUSTER, "orders"),
        disguised(
            assignment("users", &[("a", &[elsewhere])]),
            CLUSTER_LOAD_ASSIGNMENT,
            "orders",
        ),
        disguised(routes("r", "users"), ROUTE_CONFIGURATION, "orders"),
        disguised(listener("users", "r"), LISTENER, "orders"),
    ];
    for made in wrong {
        let type_url = made.0;
        let bytes = response(Variant::Delta, type_url, type_url, &[made]);
        scene.stream.send(&bytes);
        let rejection = scene
            .stream
            .nack_error(type_url)
            .await
            .unwrap_or_else(|| panic!("{type_url} was accepted"));
        assert!(rejection.contains("name: "), "{rejection}");
        scene.assert_unharmed(type_url).await;
    }
}

#[tokio::test]
async fn unsubscribed_resources_are_ignored() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut scene = Scene::start(variant).await;
        let elsewhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
        // A type and names without subscription.
        let strange = (
            "type.googleapis.com/other.Type",
            "x".to_owned(),
            Bytes::new(),
        );
        scene.stream.send(&response(
            variant,
            strange.0,
            "s1",
            std::slice::from_ref(&strange),
        ));
        let uncalled = [assignment("users", &[("a", &[elsewhere])])];
        scene
            .stream
            .send(&response(variant, CLUSTER_LOAD_ASSIGNMENT, "s2", &uncalled));
        assert_eq!(scene.stream.nack_error("s2").await, None);
        scene.assert_unharmed("uncalled for").await;
        assert_eq!(&*scene.client.cluster_names()[0], "orders");
        assert_eq!(scene.client.cluster_names().len(), 1);
    }
}

#[tokio::test]
async fn arbitrary_nonces_and_versions_are_echoed() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut scene = Scene::start(variant).await;
        let good = [assignment("orders", &[("a", &[scene.backend.address])])];
        let long = "n".repeat(5000);
        for nonce in ["\u{1f980}", "-1", "the same", "the same", &long] {
            let bytes = response(variant, CLUSTER_LOAD_ASSIGNMENT, nonce, &good);
            scene.stream.send(&bytes);
            assert_eq!(scene.stream.nack_error(nonce).await, None);
            scene.assert_unharmed(nonce).await;
        }
        // A response without a nonce cannot be acknowledged, but its resources are used.
        let bytes = response(variant, CLUSTER_LOAD_ASSIGNMENT, "", &good);
        scene.stream.send(&bytes);
        scene.assert_unharmed("no nonce").await;
        assert_eq!(scene.status().rejected, 0);
    }
}

/// The server repeats a rejected response.
#[tokio::test]
async fn repeated_rejections_are_delayed() {
    let mut scene = Scene::start(Variant::Sotw).await;
    let fault = [broken(CLUSTER, UNKNOWN_POLICY)];
    for nonce in ["1", "2"] {
        scene
            .stream
            .send(&response(Variant::Sotw, CLUSTER, nonce, &fault));
    }
    assert!(scene.stream.nack_error("1").await.is_some());
    // The second NACK is delayed by a second; other responses are handled meanwhile.
    scene.assert_unharmed("stubborn").await;
    assert!(scene.stream.nack_error("2").await.is_some());
}

#[tokio::test]
async fn undecodable_messages_end_the_stream_and_the_client_reconnects() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut scene = Scene::start(variant).await;
        let backend = scene.backend.address;
        let whole = response(
            variant,
            CLUSTER_LOAD_ASSIGNMENT,
            "n",
            &[assignment("orders", &[])],
        );
        let cut = &whole[..whole.len() - 1];
        for round in 0..5 {
            match round {
                0 => scene.stream.send(b"\xff\xff\xff\xff\xff\xff"),
                1 => scene.stream.send(cut),
                // Longer than allowed.
                2 => scene.stream.send(&vec![0; (1 << 20) + 1]),
                3 => scene.stream.send_framed(u32::MAX, b"\x0a\x06orders"),
                // Ends in the middle of a message.
                _ => scene.stream.send_framed(1000, &whole),
            }
            let next = match round {
                4 => {
                    let old = scene.server.stream();
                    scene.stream.end("13");
                    old.await
                }
                _ => {
                    let old = scene.stream;
                    let next = scene.server.stream().await;
                    old.closed().await;
                    next
                }
            };
            scene.stream = next;
            scene.assert_unharmed("unreadable").await;
            send_all_reversed(&mut scene.stream, backend, round).await;
            scene.assert_unharmed("told again").await;
        }
        assert_eq!(scene.status().rejected, 0);
    }
}

/// Sends all resources on a new stream.
async fn send_all_reversed(stream: &mut RawStream, backend: SocketAddr, round: usize) {
    let all = whole("orders", &[("a", &[backend])]);
    let mut asked = Vec::new();
    while asked.len() < TYPES.len() {
        let request = stream.next_request().await;
        if request.nonce.is_empty() && TYPES.contains(&request.type_url.as_str()) {
            asked.push(request.type_url);
        }
    }
    // In reverse order: endpoints first, the listener last.
    for made in all.iter().rev() {
        let nonce = format!("{round} {}", made.0);
        stream.send(&response(
            stream.variant,
            made.0,
            &nonce,
            std::slice::from_ref(made),
        ));
        assert_eq!(stream.nack_error(&nonce).await, None);
    }
}
