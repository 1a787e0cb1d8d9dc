//! Our own discovery client against our own server, in both variants.

use super::ads_client::{AdsClientChannels, AdsClientEvent, AdsCommand};
use super::discovery::node_message;
use super::*;
use crate::ads::client::{Client, ClientEvent, ClientSettings};
use crate::ads::view::{Resource, TypeResources};
use crate::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};
use crate::wire;

const VARIANTS: [Variant; 2] = [Variant::Sotw, Variant::Delta];

/// What a subscriber holds of a client.
struct Subscriber {
    events: mpsc::Receiver<AdsClientEvent>,
    commands: mpsc::Sender<AdsCommand>,
    task: JoinHandle<()>,
}

impl Subscriber {
    /// Refuses resources whose body ends with `!`.
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
        let check = |type_url: &str, name: &str, body: &Bytes| match body.ends_with(b"!") {
            true => Err(format!("{type_url} {name} is too loud")),
            false => Ok(()),
        };
        let run = ads_client::run(servers, client, check, channels);
        Self {
            events,
            commands,
            task: tokio::spawn(run),
        }
    }

    async fn watch(&self, type_url: &str, name: &str) {
        let watch = AdsCommand::Watch {
            type_url: type_url.into(),
            name: name.into(),
        };
        within(self.commands.send(watch)).await.unwrap();
    }

    async fn event(&mut self) -> AdsClientEvent {
        within(self.events.recv()).await.unwrap()
    }

    /// The last byte of the next resource that arrives; other events are skipped.
    async fn updated(&mut self) -> u8 {
        loop {
            let event = self.event().await;
            if let AdsClientEvent::Resource(ClientEvent::Updated { resource, .. }) = event {
                break *resource.body.last().unwrap();
            }
        }
    }
}

/// One cluster and its assignment, whose bodies begin with the name as field 1 and end with `last`.
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
        subscriber.watch(CLUSTER, "*").await;
        assert_eq!(subscriber.updated().await, 1);
        let opened = Seen::AdsOpened("n1".into(), variant);
        assert_eq!(server.seen().await, opened);
        subscriber.watch(CLUSTER_LOAD_ASSIGNMENT, "orders").await;
        assert_eq!(subscriber.updated().await, 1);
        server.control.views.send_replace(view(2));
        assert_eq!(subscriber.updated().await, 2);
        assert_eq!(subscriber.updated().await, 2);
    }
}

#[tokio::test]
async fn a_refusal_reaches_the_server_with_its_reason() {
    for variant in VARIANTS {
        let mut server = Server::start().await;
        server.control.views.send_replace(view(b'!'));
        let mut subscriber = Subscriber::start(&server, variant);
        assert_eq!(subscriber.event().await, AdsClientEvent::Connected);
        subscriber.watch(CLUSTER, "*").await;
        let reason = loop {
            let event = subscriber.event().await;
            if let AdsClientEvent::Resource(ClientEvent::Rejected { reason, .. }) = event {
                break reason;
            }
        };
        let nacked = |seen| match seen {
            Seen::AdsEvent(StreamEvent::Nacked { refusal, .. }) => Some(refusal),
            _ => None,
        };
        let refusal = server.find(nacked).await;
        assert_eq!(refusal.detail.message, reason);
        assert!(reason.contains("orders is too loud"), "{reason}");
        server.control.views.send_replace(view(1));
        assert_eq!(subscriber.updated().await, 1);
    }
}

#[tokio::test]
async fn a_server_that_was_restarted_is_found_and_its_news_arrive() {
    for variant in VARIANTS {
        let server = Server::start().await;
        server.control.views.send_replace(view(1));
        let mut subscriber = Subscriber::start(&server, variant);
        assert_eq!(subscriber.event().await, AdsClientEvent::Connected);
        subscriber.watch(CLUSTER, "*").await;
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
async fn the_next_server_helps_until_the_first_is_back() {
    for variant in VARIANTS {
        let (first, second) = (Server::start().await, Server::start().await);
        let address = first.address.to_string();
        let (best, next) = (first.options().uri, second.options().uri);
        let servers = Servers::new(first.options(), [second.options()]);
        first.stop().await;
        second.control.views.send_replace(view(1));
        let mut subscriber = Subscriber::start_with(servers.clone(), variant);
        subscriber.watch(CLUSTER, "orders").await;
        assert_eq!(subscriber.updated().await, 1);
        assert_eq!(servers.current().uri, next);
        // Its content has the version of the other's, which it must not take for its own.
        let mut first = Server::start_with(ServerOptions::default(), &address).await;
        first.control.views.send_replace(view(1));
        let answered = |seen| match seen {
            Seen::AdsEvent(StreamEvent::Acked { .. }) => Some(()),
            _ => None,
        };
        while subscriber.event().await != AdsClientEvent::Connected {}
        first.find(answered).await;
        assert_eq!(servers.current().uri, best);
        first.control.views.send_replace(view(2));
        while subscriber.updated().await != 2 {}
        // What is known needs no other server.
        first.stop().await;
        let mut lost = 0;
        while lost < 3 {
            let event = subscriber.event().await;
            lost += u32::from(matches!(event, AdsClientEvent::Disconnected { .. }));
        }
        assert_eq!(servers.current().uri, best);
        // What is not does.
        subscriber.watch(CLUSTER_LOAD_ASSIGNMENT, "orders").await;
        assert_eq!(subscriber.updated().await, 1);
        assert_eq!(servers.current().uri, next);
    }
}

#[tokio::test]
async fn a_client_whose_owner_left_ends() {
    let server = Server::start().await;
    let subscriber = Subscriber::start(&server, Variant::Sotw);
    drop(subscriber.commands);
    within(subscriber.task).await.unwrap();
}
