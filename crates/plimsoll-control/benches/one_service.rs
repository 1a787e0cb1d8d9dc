//! CPU time of the writer and bytes for a proxy when one of 10,000 services changes, by an edit of
//! the file and by discovery: `cargo bench -p plimsoll-control --bench one_service`.
//!
//! Measured is the state machine from the parsed configuration to the changed view, and the
//! responses of two discovery streams that have everything, one of each variant of xDS. The best
//! round counts. Parsing, and finding out which services are the same as before, is not on the
//! writer's path; its time is printed. As a test it runs once with few services.
#![allow(clippy::unwrap_used, reason = "a bench")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_control::config::{ConfigFile, ControlConfig};
use plimsoll_control::fleet::{Peer, StreamKind};
use plimsoll_control::services::{Found, ServiceChanges};
use plimsoll_control::sources::SourceId;
use plimsoll_control::state::State;
use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::message::{DeltaDiscoveryRequest, DiscoveryRequest, NodeMessage};
use plimsoll_xds::ads::server::{Limits, ServerStream};
use plimsoll_xds::ads::view::View;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, Request, Response, Variant};
use plimsoll_xds::node::NodeInfo;
use rustix::time::{ClockId, clock_gettime};

const SERVICES: usize = 10_000;
/// A document has at most 250,000 nodes.
const PER_FILE: usize = 1000;
const ROUNDS: usize = 10;
const ZONES: [&str; 3] = ["a", "b", "c"];

/// CPU time of an edit at 5e01b9f, which built all plans, resources and views of all services, on a
/// 2-core 2.8 GHz machine.
const BEFORE: [(&str, f64); 2] = [("mode SHADOW -> ENFORCE", 354.5), ("an endpoint", 345.4)];

fn main() {
    let measures = std::env::args().any(|argument| argument == "--bench");
    let (services, rounds) = if measures {
        (SERVICES, ROUNDS)
    } else {
        (20, 1)
    };
    let texts = [
        files(services, "SHADOW", 1),
        files(services, "ENFORCE", 1),
        files(services, "ENFORCE", 2),
    ];
    let begun = cpu_time();
    let [shadow, enforced, larger] = texts.each_ref().map(|files| parse(files));
    let parsed = (cpu_time() - begun) / 3;
    println!("reading the file: {:.1} ms of CPU", millis(parsed));
    let begun = cpu_time();
    let enforced = enforced.sharing_services(&shadow);
    let larger = larger.sharing_services(&enforced);
    let compared = (cpu_time() - begun) / 2;
    println!("comparing its services: {:.1} ms of CPU", millis(compared));
    let configs = [shadow, enforced, larger].map(Arc::new);
    let edits = [(&configs[0], &configs[1]), (&configs[1], &configs[2])];
    for ((name, before), (old, new)) in BEFORE.into_iter().zip(edits) {
        let by_edit = best(
            rounds,
            || Served::new(old),
            |state, now| state.handle_config(Arc::clone(new), now),
        );
        let nothing = Arc::new(parse(&[]));
        let found = |config: &ControlConfig| Served::discovered(&nothing, config);
        let change = discovered(new, |name| name == "service-7", false);
        let by_discovery = best(
            rounds,
            || found(old),
            |state, now| state.handle_services(change.clone(), now),
        );
        println!(
            "{name}: {:.2} ms of CPU by an edit (before: {before:.2}), {:.2} ms by discovery",
            millis(by_edit.time),
            millis(by_discovery.time)
        );
        println!(
            "  bytes by an edit: {:?}, by discovery: {:?}",
            by_edit.bytes, by_discovery.bytes
        );
        assert_eq!(by_edit.bytes, by_discovery.bytes);
        // What remains is to look at 10,000 addresses.
        let limit = by_discovery.time * 3 + Duration::from_millis(10);
        assert!(!measures || by_edit.time <= limit, "an edit costs more");
    }
    println!("Success");
}

/// What a change costs.
struct Cost {
    time: Duration,
    /// Bytes of the resources in the responses, by variant.
    bytes: BTreeMap<&'static str, usize>,
}

/// Applies a change `rounds` times to a new state and returns the lowest cost.
fn best(rounds: usize, start: impl Fn() -> Served, change: impl Fn(&mut State, Instant)) -> Cost {
    let costs = (0..rounds).map(|_| {
        let mut served = start();
        let begun = cpu_time();
        change(&mut served.state, served.now);
        let view = served.drain();
        let time = cpu_time() - begun;
        Cost {
            time,
            bytes: served.push(view),
        }
    });
    costs.min_by_key(|cost| cost.time).unwrap()
}

/// A state, and two streams of one Envoy that have all resources.
struct Served {
    state: State,
    now: Instant,
    names: Vec<Arc<str>>,
    streams: BTreeMap<&'static str, ServerStream>,
}

impl Served {
    fn new(config: &Arc<ControlConfig>) -> Self {
        Self::with_state(State::new(Arc::clone(config), Instant::ORIGIN))
    }

    fn discovered(settings: &Arc<ControlConfig>, services: &ControlConfig) -> Self {
        let mut state = State::new(Arc::clone(settings), Instant::ORIGIN);
        state.handle_services(discovered(services, |_| true, true), Instant::ORIGIN);
        Self::with_state(state)
    }

    fn with_state(mut state: State) -> Self {
        let now = Instant::ORIGIN;
        let key = state
            .handle_open(&node(), StreamKind::Ads, false, &Peer::default(), now)
            .unwrap();
        let names = state.config().services.keys().cloned().collect();
        let mut served = Self {
            state,
            now,
            names,
            streams: BTreeMap::new(),
        };
        served.drain();
        let names = &served.names;
        let view = Arc::clone(served.state.view(&key).unwrap());
        let streams = [("delta", Variant::Delta), ("sotw", Variant::Sotw)];
        served.streams = streams
            .map(|(name, variant)| {
                let mut stream = ServerStream::new(variant, Limits::default());
                stream.set_view(Arc::clone(&view));
                for kind in [CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER] {
                    stream
                        .handle_request(subscribe(variant, kind, names), now)
                        .unwrap();
                    transmit(&mut stream, names, now);
                }
                (name, stream)
            })
            .into();
        served
    }

    /// Drains all outputs, as the writer does; returns the last view.
    fn drain(&mut self) -> Option<Arc<View>> {
        let mut last = None;
        while let Some((_, output)) = self.state.poll_output() {
            last = output.complete().cloned();
        }
        while self.state.poll_traffic().is_some() {}
        while self.state.poll_event().is_some() {}
        last
    }

    /// Gives the view to the streams and accepts what they send.
    fn push(&mut self, view: Option<Arc<View>>) -> BTreeMap<&'static str, usize> {
        let Some(view) = view else {
            return BTreeMap::new();
        };
        let mut pushed = BTreeMap::new();
        for (name, stream) in &mut self.streams {
            stream.set_view(Arc::clone(&view));
            pushed.insert(*name, transmit(stream, &self.names, self.now));
        }
        pushed
    }
}

/// Accepts all responses of a stream and returns their size.
fn transmit(stream: &mut ServerStream, names: &[Arc<str>], now: Instant) -> usize {
    let mut bytes = 0;
    while let Some(response) = stream.poll_transmit() {
        bytes += size(&response);
        stream.handle_request(ack(&response, names), now).unwrap();
    }
    bytes
}

fn size(response: &Response) -> usize {
    match response {
        Response::Sotw(response) => response.resources.iter().map(|one| one.value.len()).sum(),
        Response::Delta(response) => {
            let bodies = response
                .resources
                .iter()
                .filter_map(|one| one.resource.as_ref());
            bodies.map(|one| one.value.len()).sum()
        }
    }
}

/// Subscribes to all resources; assignments have no wildcard.
fn subscribe(variant: Variant, kind: &str, names: &[Arc<str>]) -> Request {
    let node = Some(NodeMessage {
        info: node(),
        raw: Bytes::new(),
    });
    let names = names_of(kind, names);
    match variant {
        Variant::Sotw => Request::Sotw(DiscoveryRequest {
            node,
            type_url: kind.into(),
            resource_names: names,
            ..DiscoveryRequest::default()
        }),
        Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
            node,
            type_url: kind.into(),
            resource_names_subscribe: names,
            ..DeltaDiscoveryRequest::default()
        }),
    }
}

fn names_of(kind: &str, names: &[Arc<str>]) -> Vec<Arc<str>> {
    let names = if kind == CLUSTER_LOAD_ASSIGNMENT {
        names
    } else {
        &[]
    };
    names.to_vec()
}

fn ack(response: &Response, names: &[Arc<str>]) -> Request {
    match response {
        Response::Sotw(response) => Request::Sotw(DiscoveryRequest {
            type_url: Arc::clone(&response.type_url),
            version_info: response.version_info.clone(),
            response_nonce: response.nonce.clone(),
            resource_names: names_of(&response.type_url, names),
            ..DiscoveryRequest::default()
        }),
        Response::Delta(response) => Request::Delta(DeltaDiscoveryRequest {
            type_url: Arc::clone(&response.type_url),
            response_nonce: response.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        }),
    }
}

fn node() -> NodeInfo {
    NodeInfo {
        node: Node {
            id: "1".into(),
            cluster: "gateway".into(),
            locality: Locality::zone_only("a"),
        },
        user_agent_name: "envoy".to_owned(),
        user_agent_version: String::new(),
        client_features: Vec::new(),
    }
}

/// The services of a configuration as a source finds them.
fn discovered(
    config: &ControlConfig,
    wanted: impl Fn(&str) -> bool,
    is_complete: bool,
) -> ServiceChanges {
    let services = config.services.iter().filter(|(name, _)| wanted(name));
    let found = |service: &Arc<_>| Found {
        service: Arc::clone(service),
        object: Some("Service bench/x@1".into()),
    };
    ServiceChanges {
        source: SourceId::Kubernetes,
        is_complete,
        services: services
            .map(|(name, one)| (Arc::clone(name), Some(found(one))))
            .collect(),
    }
}

/// Included files, of which service 7 has this mode and this number of endpoints per zone.
fn files(services: usize, mode: &str, hosts: usize) -> Vec<ConfigFile> {
    let firsts = (0..services).step_by(PER_FILE);
    let file = |first| ConfigFile {
        name: format!("services-{first}.yaml"),
        text: text(first..services.min(first + PER_FILE), mode, hosts),
    };
    firsts.map(file).collect()
}

fn text(numbers: Range<usize>, mode: &str, hosts: usize) -> String {
    let mut text = "services:\n".to_owned();
    for number in numbers {
        let (mode, hosts) = if number == 7 {
            (mode, hosts)
        } else {
            ("ENFORCE", 1)
        };
        let _ = write!(
            text,
            "- cluster: {{name: service-{number}}}\n  mode: {mode}\n  endpoints:\n"
        );
        for (zone_number, zone) in ZONES.iter().enumerate() {
            let host = |host| {
                format!(
                    "'10.{zone_number}.{}.{}:{}'",
                    number / 250,
                    number % 250,
                    80 + host
                )
            };
            let hosts: Vec<_> = (0..hosts).map(host).collect();
            let _ = writeln!(
                text,
                "  - {{locality: {{zone: {zone}}}, lb_endpoints: [{}]}}",
                hosts.join(", ")
            );
        }
    }
    text
}

fn parse(included: &[ConfigFile]) -> ControlConfig {
    let main = ConfigFile {
        name: "control.yaml".to_owned(),
        text: "{}".to_owned(),
    };
    ControlConfig::parse(&main, included).unwrap()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u64::try_from(time.tv_nsec).unwrap();
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap()) + Duration::from_nanos(nanos)
}
