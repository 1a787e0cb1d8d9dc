//! Load reporting: raw messages against the server, and the client.

use super::*;
use crate::lrs::message::{ClusterLoadStats, ClusterTraffic, LoadStatsRequest};
use crate::lrs::{Client, ClientEvent, ClusterSelection, SUPPORTS_SEND_ALL_CLUSTERS};
use crate::node::PLIMSOLL_FEATURE;
use crate::wire;

fn stats(cluster: &str, dropped: u64) -> ClusterStats {
    ClusterStats {
        cluster_name: cluster.into(),
        upstream_locality_stats: Vec::new(),
        total_dropped_requests: dropped,
        load_report_interval: Duration::from_secs(1),
    }
}

pub(super) fn hello(id: &str, features: &[&str]) -> Vec<u8> {
    wire::encode_load_stats_request(&LoadStatsRequest {
        node: Some(node(id, features)),
        ..Default::default()
    })
}

pub(super) fn report(dropped: u64) -> Vec<u8> {
    wire::encode_load_stats_request(&LoadStatsRequest {
        node: None,
        cluster_stats: vec![stats("orders", dropped)],
        ..Default::default()
    })
}

#[tokio::test]
async fn a_node_gets_settings_and_its_reports_arrive() {
    let mut server = Server::start().await;
    let mut peer = server.dial(STREAM_LOAD_STATS).await;
    peer.send(hello("n1", &[SUPPORTS_SEND_ALL_CLUSTERS])).await;
    let wanted = wire::decode_load_stats_response(&peer.receive().await).unwrap();
    assert!(wanted.send_all_clusters);
    assert_eq!(wanted.load_reporting_interval, Duration::from_secs(60));
    assert_eq!(server.seen().await, Event::LrsOpened("n1".into()));
    for dropped in 1..=3 {
        peer.send(report(dropped)).await;
        let expected = ("n1".into(), vec![stats("orders", dropped)]);
        assert_eq!(server.report().await, expected);
    }
    server.control.instructions.send_replace(instructions(5));
    let changed = wire::decode_load_stats_response(&peer.receive().await).unwrap();
    assert_eq!(changed.load_reporting_interval, Duration::from_secs(5));
    drop(peer);
    assert_eq!(server.seen().await, Event::LrsClosed("n1".into()));
}

#[tokio::test]
async fn a_stream_reports_for_one_node_only() {
    let mut server = Server::start().await;
    let elsewhere = |change: fn(&mut Node)| {
        let mut info = node("n1", &[]);
        change(&mut info.node);
        let request = LoadStatsRequest {
            node: Some(info),
            ..Default::default()
        };
        wire::encode_load_stats_request(&request)
    };
    let others = [
        ("node.id", elsewhere(|node| node.id = "n2".into())),
        (
            "node.cluster",
            elsewhere(|node| node.cluster = "other".into()),
        ),
        (
            "node.locality",
            elsewhere(|node| node.locality = Locality::zone_only("b")),
        ),
    ];
    for (field, other) in others {
        let mut peer = server.dial(STREAM_LOAD_STATS).await;
        peer.send(hello("n1", &[])).await;
        peer.receive().await;
        assert_eq!(server.seen().await, Event::LrsOpened("n1".into()));
        peer.send(hello("n1", &["feature"])).await;
        peer.send(other).await;
        let status = peer.status().await;
        assert_eq!(status.code(), Code::InvalidArgument);
        let reason = format!("{field}: differs from the first message of the stream");
        assert_eq!(status.message(), reason);
        assert_eq!(server.seen().await, Event::LrsClosed("n1".into()));
    }
}

#[tokio::test]
async fn requests_beyond_a_limit_end_their_stream_and_are_told_to_the_handler() {
    let mut options = ServerOptions::default();
    options.requests.clusters_per_report = 2;
    options.requests.node_string_bytes = 8;
    let mut server = Server::start_with(options, "127.0.0.1:0").await;
    let mut peer = server.dial(STREAM_LOAD_STATS).await;
    peer.send(hello("n1", &[])).await;
    peer.receive().await;
    assert_eq!(server.seen().await, Event::LrsOpened("n1".into()));
    let request = LoadStatsRequest {
        node: None,
        cluster_stats: vec![stats("orders", 1); 3],
        ..Default::default()
    };
    peer.send(wire::encode_load_stats_request(&request)).await;
    let status = peer.status().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "cluster_stats: more than 2 entries");
    let refused = Event::Refused("clusters_per_report", status.message().to_owned());
    assert_eq!(server.seen().await, refused);
    assert_eq!(server.seen().await, Event::LrsClosed("n1".into()));
    let mut peer = server.dial(STREAM_LOAD_STATS).await;
    peer.send(hello("a-long-id", &[])).await;
    let status = peer.status().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "node.id: 9 bytes, at most 8 are accepted");
    let refused = Event::Refused("node_string_bytes", status.message().to_owned());
    assert_eq!(server.seen().await, refused);
}

/// Owner's ends of a client's channels.
struct Owner {
    events: mpsc::Receiver<ClientEvent>,
    stats: mpsc::Sender<Vec<ClusterLoadStats>>,
    _task: JoinHandle<()>,
}

impl Owner {
    fn start(server: &Server) -> Self {
        let (tell, events) = mpsc::channel(1);
        let (drained, stats) = mpsc::channel(1);
        let channels = lrs_client::LrsClientChannels {
            events: tell,
            stats,
            end: None,
        };
        let client = Client::new(node("n1", &[PLIMSOLL_FEATURE]));
        let task = lrs_client::run(server.options(), client, channels);
        Self {
            events,
            stats: drained,
            _task: tokio::spawn(task),
        }
    }

    /// Returns the next event, except selections of clusters.
    async fn event(&mut self) -> ClientEvent {
        loop {
            let event = within(self.events.recv()).await.unwrap();
            if !matches!(event, ClientEvent::Select(_)) {
                return event;
            }
        }
    }

    /// Waits for a collect event and answers it.
    async fn drain(&mut self, dropped: u64) {
        let ClientEvent::Collect { clusters, .. } = self.event().await else {
            panic!("expected a collect event");
        };
        assert_eq!(clusters, ClusterSelection::All);
        let message = ClusterLoadStats {
            cluster_name: "orders".into(),
            total_dropped_requests: dropped,
            load_report_interval: Duration::from_secs(1),
            ..Default::default()
        };
        within(self.stats.send(vec![message])).await.unwrap();
    }
}

#[tokio::test]
async fn the_client_reports_and_receives_fractions() {
    let mut server = Server::start().await;
    let mut soon = instructions(0);
    server.control.instructions.send_replace(soon.clone());
    let mut owner = Owner::start(&server);
    for dropped in 1..=3 {
        owner.drain(dropped).await;
        assert_eq!(server.report().await.1, [stats("orders", dropped)]);
    }
    let traffic = vec![ClusterTraffic {
        cluster_name: "orders".into(),
        fractions: Vec::new(),
        observation_time: Some(Duration::from_millis(1500)),
    }];
    soon.traffic = Arc::new(LrsTraffic {
        epoch: 1,
        clusters: traffic.clone(),
    });
    server.control.instructions.send_replace(soon);
    loop {
        match owner.event().await {
            ClientEvent::ObservedTraffic(observed) => {
                let observed: Vec<_> = observed.into_iter().map(|one| one.traffic).collect();
                break assert_eq!(observed, traffic);
            }
            ClientEvent::Collect { .. } | ClientEvent::Select(_) => {}
        }
    }
}

#[tokio::test]
async fn the_client_reconnects_after_a_restart_and_reports_at_once() {
    let mut server = Server::start().await;
    server.control.instructions.send_replace(instructions(0));
    let mut owner = Owner::start(&server);
    owner.drain(1).await;
    assert_eq!(server.report().await.1, [stats("orders", 1)]);
    let address = server.address.to_string();
    server.stop().await;

    let mut server = Server::start_with(ServerOptions::default(), &address).await;
    // Whether counters were requested before or after the outage, no count is lost.
    owner.drain(7).await;
    let (id, reported) = server.report().await;
    assert_eq!(&*id, "n1");
    assert_eq!(reported, [stats("orders", 7)]);
}
