//! A management server that breaks every rule: what is good stays in use, what is not is refused
//! with the place of the fault, and nothing panics.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::net::SocketAddr;

use bytes::Bytes;
use plimsoll_client::{Client, TargetService, Variant, XdsOptions, XdsStatus};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};
use support::hostile::{Hostile, RawStream};
use support::management::xds_options;
use support::resources::{Made, assignment, cluster, listener, response, routes, whole};
use support::{Backend, get, wait_until, within};

const TYPES: [&str; 4] = [
    LISTENER,
    ROUTE_CONFIGURATION,
    CLUSTER,
    CLUSTER_LOAD_ASSIGNMENT,
];

/// A client whose target works, and the stream on which it was told all it knows.
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
            .build();
        let asking = client.clone();
        let asking = tokio::spawn(async move { asking.target("xds:///orders").await });
        let mut stream = server.stream().await;
        assert_eq!(stream.variant, variant);
        tell_all(&mut stream, backend.address, "first").await;
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

    /// Whether requests still arrive where they did.
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
    let mut options = xds_options(address, variant);
    options.server.max_message_size = 1 << 20;
    options
}

/// Good resources in the order in which a client asks for them.
async fn tell_all(stream: &mut RawStream, backend: SocketAddr, nonce: &str) {
    for made in whole("orders", &[("a", &[backend])]) {
        let (type_url, name, _) = &made;
        stream.wanted(type_url, name).await;
        let nonce = format!("{nonce} {type_url}");
        stream.send(&response(
            stream.variant,
            type_url,
            &nonce,
            std::slice::from_ref(&made),
        ));
        // A fleet that nobody knows is nothing unusual: no answer is waited for.
    }
}

/// A name, a response of a type, and words that the refusal must hold.
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
            // Whose it is can be read in one variant only.
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
async fn faults_are_refused_with_their_place_and_harm_nothing() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut scene = Scene::start(variant).await;
        let faults = faults(scene.backend.address);
        for (index, (what, type_url, resources, words)) in faults.iter().enumerate() {
            let rejected = scene.status().rejected;
            let nonce = format!("fault {index}");
            scene
                .stream
                .send(&response(variant, type_url, &nonce, resources));
            let refusal = scene.stream.answer(&nonce).await;
            let refusal = refusal.unwrap_or_else(|| panic!("{what} was accepted"));
            for word in *words {
                assert!(refusal.contains(word), "{what}: {refusal}");
            }
            assert!(!refusal.contains("orders: orders"), "{what}: {refusal}");
            wait_until(what, async || scene.status().rejected == rejected + 1).await;
            assert_eq!(scene.status().last_rejection, Some(refusal), "{what}");
            scene.assert_unharmed(what).await;
        }
    }
}

#[tokio::test]
async fn incremental_resources_must_be_what_they_are_called() {
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
        let refusal = scene.stream.answer(type_url).await;
        let refusal = refusal.unwrap_or_else(|| panic!("{type_url} was accepted"));
        assert!(refusal.contains("name: "), "{refusal}");
        scene.assert_unharmed(type_url).await;
    }
}

#[tokio::test]
async fn what_was_never_asked_for_is_ignored() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut scene = Scene::start(variant).await;
        let elsewhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
        // Of a type that nobody asked for, and of names that nobody asked for.
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
        assert_eq!(scene.stream.answer("s2").await, None);
        scene.assert_unharmed("uncalled for").await;
        assert_eq!(&*scene.client.cluster_names()[0], "orders");
        assert_eq!(scene.client.cluster_names().len(), 1);
    }
}

#[tokio::test]
async fn nonsense_of_nonces_and_versions_is_repeated_and_does_no_harm() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut scene = Scene::start(variant).await;
        let good = [assignment("orders", &[("a", &[scene.backend.address])])];
        let long = "n".repeat(5000);
        for nonce in ["\u{1f980}", "-1", "the same", "the same", &long] {
            let bytes = response(variant, CLUSTER_LOAD_ASSIGNMENT, nonce, &good);
            scene.stream.send(&bytes);
            assert_eq!(scene.stream.answer(nonce).await, None);
            scene.assert_unharmed(nonce).await;
        }
        // Without a nonce nothing can be answered, but the resources count.
        let bytes = response(variant, CLUSTER_LOAD_ASSIGNMENT, "", &good);
        scene.stream.send(&bytes);
        scene.assert_unharmed("no nonce").await;
        assert_eq!(scene.status().rejected, 0);
    }
}

/// A server that answers a refusal with the same again.
#[tokio::test]
async fn a_stubborn_server_is_not_answered_in_a_loop() {
    let mut scene = Scene::start(Variant::Sotw).await;
    let fault = [broken(CLUSTER, UNKNOWN_POLICY)];
    for nonce in ["1", "2"] {
        scene
            .stream
            .send(&response(Variant::Sotw, CLUSTER, nonce, &fault));
    }
    assert!(scene.stream.answer("1").await.is_some());
    // The second refusal waits a second; meanwhile everything else goes on.
    scene.assert_unharmed("stubborn").await;
    assert!(scene.stream.answer("2").await.is_some());
}

#[tokio::test]
async fn messages_that_cannot_be_read_end_the_stream_and_the_next_one_is_good() {
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
                // Longer than it may be, and longer than anything is.
                2 => scene.stream.send(&vec![0; (1 << 20) + 1]),
                3 => scene.stream.send_framed(u32::MAX, b"\x0a\x06orders"),
                // In the middle of a message.
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
                    old.hung_up().await;
                    next
                }
            };
            scene.stream = next;
            scene.assert_unharmed("unreadable").await;
            tell_again(&mut scene.stream, backend, round).await;
            scene.assert_unharmed("told again").await;
        }
        assert_eq!(scene.status().rejected, 0);
    }
}

/// On a new stream everything is asked for again, in any order.
async fn tell_again(stream: &mut RawStream, backend: SocketAddr, round: usize) {
    let all = whole("orders", &[("a", &[backend])]);
    let mut asked = Vec::new();
    while asked.len() < TYPES.len() {
        let request = stream.asked().await;
        if request.nonce.is_empty() && TYPES.contains(&request.type_url.as_str()) {
            asked.push(request.type_url);
        }
    }
    // Endpoints first, the listener last: the wrong way round.
    for made in all.iter().rev() {
        let nonce = format!("{round} {}", made.0);
        stream.send(&response(
            stream.variant,
            made.0,
            &nonce,
            std::slice::from_ref(made),
        ));
        assert_eq!(stream.answer(&nonce).await, None);
    }
}
