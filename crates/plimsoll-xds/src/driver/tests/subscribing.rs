//! Discovery client and server together, in both variants.

use super::ads_client::{AdsClientChannels, AdsClientEvent, AdsCommand};
use super::discovery::node_message;
use super::*;
use crate::ads::client::{Client, ClientEvent, ClientSettings};
use crate::ads::view::{Resource, TypeResources};
use crate::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};
use crate::error::DecodeError;
use crate::wire;

const VARIANTS: [Variant; 2] = [Variant::Sotw, Variant::Delta];

/// Owner's ends of a client's channels.
struct Subscriber {
    events: mpsc::Receiver<AdsClientEvent>,
    commands: mpsc::Sender<AdsCommand>,
    task: JoinHandle<()>,
}

impl Subscriber {
    /// Starts a client that rejects resources whose body ends with `!`.
    fn start(server: &Server, variant: Variant) -> Self {
        Self::start_with(server.options().into(), variant)
    }

    fn start_with(servers: Servers, variant: Variant) -> Self {
        let (tell, events) = mpsc::channel(1);
        let (commands, wanted) = mpsc::channel(1);
        let channels = AdsClientChannels {
            events: tell,
            commands: wanted,
        };
        let settings = ClientSettings::default();
        let client = Client::new(variant, node_message("n1"), wire::resource_name, settings);
        let check = |type_url: &str, name: &str, body: &Bytes| {
            if body.ends_with(b"!") {
                Err(DecodeError::new(
                    "",
                    format!("{type_url} {name} is too loud"),
                ))
            } else {
                Ok(body.clone())
            }
        };
        let run = ads_client::run(servers, client, check, channels);
        Self {
            events,
            commands,
            task: tokio::spawn(run),
        }
    }

    /// Starts a client of two servers of which the preferred one has stopped: the other one serves
    /// it. Also returns the address of the first.
    async fn start_failed_over(variant: Variant) -> (Self, Servers, Server, String) {
        let (first, second) = (Server::start().await, Server::start().await);
        let address = first.address.to_string();
        let servers = Servers::new(first.options(), [second.options()]);
        first.stop().await;
        second.control.views.send_replace(view(1));
        let mut subscriber = Self::start_with(servers.clone(), variant);
        subscriber.subscribe(CLUSTER, "orders").await;
        assert_eq!(subscriber.updated().await, 1);
        assert_eq!(servers.current().uri, second.options().uri);
        (subscriber, servers, second, address)
    }

    async fn subscribe(&self, type_url: &str, name: &str) {
        let watch = AdsCommand::Subscribe {
            type_url: type_url.into(),
            name: name.into(),
        };
        within(self.commands.send(watch)).await.unwrap();
    }

    async fn event(&mut self) -> AdsClientEvent {
        within(self.events.recv()).await.unwrap()
    }

    /// Returns the last byte of the next updated resource; other events are skipped.
    async fn updated(&mut self) -> u8 {
        loop {
            let event = self.event().await;
            if let AdsClientEvent::Resource(ClientEvent::Updated { resource, .. }) = event {
                break *resource.body.last().unwrap();
            }
        }
    }
}

/// One cluster and its assignment; bodies start with the name as field 1 and end with `last`.
fn view(last: u8) -> Arc<View> {
    let body = Bytes::from([&b"\x0a\x06orders"[..], &[0x78, last]].concat());
    let resources = Arc::new(TypeResources::new([Resource::new("orders", body)]));
    let view = View::new(last.into()).with(CLUSTER, Arc::clone(&resources));
    Arc::new(view.with(CLUSTER_LOAD_ASSIGNMENT, resources))
}

#[tokio::test]
async fn resources_arrive_and_follow_changes() {
    for variant in VARIANTS {
        let mut server = Server::start().await;
        server.control.views.send_replace(view(1));
        let mut subscriber = Subscriber::start(&server, variant);
        assert_eq!(subscriber.event().await, AdsClientEvent::Connected);
        subscriber.subscribe(CLUSTER, "*").await;
        assert_eq!(subscriber.updated().await, 1);
        let opened = Event::AdsOpened("n1".into(), variant);
        assert_eq!(server.seen().await, opened);
        subscriber
            .subscribe(CLUSTER_LOAD_ASSIGNMENT, "orders")
            .await;
        assert_eq!(subscriber.updated().await, 1);
        server.control.views.send_replace(view(2));
        assert_eq!(subscriber.updated().await, 2);
        assert_eq!(subscriber.updated().await, 2);
    }
}

#[tokio::test]
async fn a_nack_reaches_the_server_with_its_reason() {
    for variant in VARIANTS {
        let mut server = Server::start().await;
        server.control.views.send_replace(view(b'!'));
        let mut subscriber = Subscriber::start(&server, variant);
        assert_eq!(subscriber.event().await, AdsClientEvent::Connected);
        subscriber.subscribe(CLUSTER, "*").await;
        let reason = loop {
            let event = subscriber.event().await;
            if let AdsClientEvent::Resource(ClientEvent::Rejected { reason, .. }) = event {
                break reason;
            }
        };
        let nacked = |seen| match seen {
            Event::Ads(StreamEvent::Nacked { nack, .. }) => Some(nack),
            _ => None,
        };
        let nack = server.find(nacked).await;
        assert_eq!(nack.detail.message, reason);
        assert!(reason.contains("orders is too loud"), "{reason}");
        server.control.views.send_replace(view(1));
        assert_eq!(subscriber.updated().await, 1);
    }
}

#[tokio::test]
async fn the_client_reconnects_after_a_restart_and_gets_changes() {
    for variant in VARIANTS {
        let server = Server::start().await;
        server.control.views.send_replace(view(1));
        let mut subscriber = Subscriber::start(&server, variant);
        assert_eq!(subscriber.event().await, AdsClientEvent::Connected);
        subscriber.subscribe(CLUSTER, "*").await;
        assert_eq!(subscriber.updated().await, 1);
        let address = server.address.to_string();
        server.stop().await;
        let disconnected = loop {
            if let AdsClientEvent::Disconnected { code, .. } = subscriber.event().await {
                break code;
            }
        };
        assert_eq!(disconnected, i32::from(Code::Unavailable));
        let server = Server::start_with(ServerOptions::default(), &address).await;
        server.control.views.send_replace(view(2));
        assert_eq!(subscriber.updated().await, 2);
    }
}

#[tokio::test]
async fn the_client_fails_over_and_returns_to_the_preferred_server() {
    for variant in VARIANTS {
        let (mut subscriber, servers, second, address) =
            Subscriber::start_failed_over(variant).await;
        let next = second.options().uri;
        // The same version string from another server must not count as a version the client has.
        let mut first = Server::start_with(ServerOptions::default(), &address).await;
        first.control.views.send_replace(view(1));
        let answered = |seen| match seen {
            Event::Ads(StreamEvent::Acked { .. }) => Some(()),
            _ => None,
        };
        while subscriber.event().await != AdsClientEvent::Connected {}
        first.find(answered).await;
        let best = first.options().uri;
        assert_eq!(servers.current().uri, best);
        first.control.views.send_replace(view(2));
        while subscriber.updated().await != 2 {}
        // No failover while every resource is known.
        first.stop().await;
        let mut lost = 0;
        while lost < 3 {
            let event = subscriber.event().await;
            lost += u32::from(matches!(event, AdsClientEvent::Disconnected { .. }));
        }
        assert_eq!(servers.current().uri, best);
        // A missing resource triggers the failover.
        subscriber
            .subscribe(CLUSTER_LOAD_ASSIGNMENT, "orders")
            .await;
        assert_eq!(subscriber.updated().await, 1);
        assert_eq!(servers.current().uri, next);
    }
}

/// A server that accepts connections but refuses streams must not take clients away from a
/// fallback server that works.
#[tokio::test]
async fn a_preferred_server_is_used_again_once_it_answers() {
    for variant in VARIANTS {
        let (mut subscriber, servers, second, address) =
            Subscriber::start_failed_over(variant).await;
        let options = ServerOptions {
            max_streams: 0,
            ..ServerOptions::default()
        };
        let mut refusing = Server::start_with(options, &address).await;
        for _ in 0..3 {
            let refused = |seen| matches!(seen, Event::Refused(..)).then_some(());
            refusing.find(refused).await;
        }
        second.control.views.send_replace(view(2));
        assert_eq!(subscriber.updated().await, 2);
        assert_eq!(servers.current().uri, second.options().uri);
        refusing.stop().await;
        let first = Server::start_with(ServerOptions::default(), &address).await;
        first.control.views.send_replace(view(3));
        assert_eq!(subscriber.updated().await, 3);
        assert_eq!(servers.current().uri, first.options().uri);
    }
}

#[tokio::test]
async fn a_client_ends_when_its_owner_is_dropped() {
    let server = Server::start().await;
    let subscriber = Subscriber::start(&server, Variant::Sotw);
    drop(subscriber.commands);
    within(subscriber.task).await.unwrap();
}
