//! Tests of listeners with worker threads and sockets: addresses, warming and origins.

use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use plimsoll_client::Client;

use super::*;
use crate::config::{ProxyConfig, RouteSource};
use crate::connection::tests::listener_config;
use crate::source::Loaded;
use crate::worker::Worker;

const WORKERS: usize = 2;

fn manager(inherited: Vec<StdListener>, handed_over: Vec<StdListener>) -> ListenerManager {
    let client = Client::builder().build().unwrap();
    let loaded = Loaded {
        config: Arc::new(ProxyConfig::parse("static_resources: {}").unwrap()),
        json: serde_json::Value::Null,
        last_updated: SystemTime::now(),
    };
    let state = Arc::new(State::new(client.clone(), WORKERS, loaded, 0));
    let thread = |index| {
        let worker = Worker::new(index, client.clone(), Arc::default(), 1);
        WorkerThread::start(worker, Arc::clone(&state.connection_limit)).unwrap()
    };
    let threads = (0..WORKERS).map(thread).collect();
    ListenerManager::new(state, threads, inherited.into(), handed_over)
}

/// A listener whose routes no management server sends.
fn unrouted(name: &str, port: u16) -> Arc<ListenerConfig> {
    with(listener_config(name, port), |config| {
        config.chains[0].routes = RouteSource::Rds("routes".into());
    })
}

fn with(
    mut config: Arc<ListenerConfig>,
    change: impl FnOnce(&mut ListenerConfig),
) -> Arc<ListenerConfig> {
    change(Arc::get_mut(&mut config).unwrap());
    config
}

/// A listener that differs from that of [`listener_config`] in more than its routes.
fn changed(name: &str) -> Arc<ListenerConfig> {
    with(listener_config(name, 0), |config| {
        config.chains[0].http.stat_prefix = "changed".to_owned();
    })
}

fn names(manager: &ListenerManager) -> Vec<String> {
    let listeners = manager.state.listeners().into_iter();
    listeners.map(|one| one.name).collect()
}

fn port_of(manager: &ListenerManager, name: &str) -> u16 {
    let mut listeners = manager.state.listeners().into_iter();
    let found = listeners.find(|one| one.name == name).unwrap();
    found.address.port()
}

fn activate(manager: &mut ListenerManager, configs: &[Arc<ListenerConfig>], warmed: bool) {
    let prepared = manager.prepare(configs, Origin::File).unwrap();
    manager.activate(prepared, Origin::File, warmed);
}

#[tokio::test]
async fn every_worker_has_a_socket_of_the_address() {
    let manager = manager(Vec::new(), Vec::new());
    let sockets = manager.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let addresses: Vec<_> = sockets
        .iter()
        .map(|one| one.local_addr().unwrap())
        .collect();
    assert_eq!(addresses.len(), WORKERS);
    assert_ne!(addresses[0].port(), 0);
    assert_eq!(addresses[0], addresses[1]);
    manager.drain(Drain::default()).await;
}

#[tokio::test]
async fn given_sockets_are_used_for_their_address() {
    let socket = || StdListener::bind("127.0.0.1:0").unwrap();
    let first = socket();
    let [second, third] = [(); 2].map(|()| first.try_clone().unwrap());
    let (one, other) = (socket(), socket());
    let [one_address, other_address, three_address] =
        [&one, &other, &first].map(|one| one.local_addr().unwrap());
    let mut manager = manager(vec![one], vec![first, second, other, third]);
    let count = |manager: &ListenerManager, address| manager.bind(address).unwrap().len();
    assert_eq!(
        count(&manager, one_address),
        WORKERS,
        "shared by the workers"
    );
    assert_eq!(count(&manager, three_address), 3, "none is forgotten");
    assert_eq!(count(&manager, other_address), WORKERS);
    manager.forget_handed_over();
    assert!(manager.handed_over.is_empty());
    assert_eq!(count(&manager, one_address), WORKERS, "inherited ones stay");
    manager.drain(Drain::default()).await;
}

#[tokio::test]
async fn a_listener_keeps_its_sockets_while_its_address_stays() {
    let mut manager = manager(Vec::new(), Vec::new());
    activate(&mut manager, &[listener_config("a", 0)], false);
    let port = port_of(&manager, "a");
    let handles = manager.sockets();
    assert_eq!(handles.len(), WORKERS);
    TcpStream::connect(("127.0.0.1", port)).unwrap();
    activate(&mut manager, &[changed("a")], false);
    assert_eq!(
        (names(&manager), port_of(&manager, "a")),
        (vec!["a".to_owned()], port)
    );
    assert_eq!(manager.sockets().len(), WORKERS);
    activate(&mut manager, &[listener_config("b", 0)], false);
    assert_eq!(names(&manager), ["b"]);
    assert_ne!(port_of(&manager, "b"), port);
    assert_eq!(manager.sockets().len(), WORKERS, "those of a are closed");
    manager.drain(Drain::default()).await;
}

#[tokio::test(start_paused = true)]
async fn listeners_wait_a_limited_time_for_their_routes() {
    let mut manager = manager(Vec::new(), Vec::new());
    for origin in [Origin::File, Origin::Lds] {
        match origin {
            Origin::File => activate(&mut manager, &[unrouted("file", 0)], false),
            Origin::Lds => manager.set_dynamic(&[unrouted("lds", 0)]),
        }
        let step = Duration::from_millis(1);
        tokio::time::advance(INITIAL_FETCH_TIMEOUT - step).await;
        manager.activate_warmed();
        assert_eq!(manager.warming.len(), 1, "{origin:?}");
        assert_eq!(names(&manager).len(), usize::from(origin == Origin::Lds));
        tokio::time::advance(step).await;
        manager.activate_warmed();
        assert!(manager.warming.is_empty());
    }
    assert_eq!(names(&manager), ["file", "lds"]);
    // At startup, routes were awaited before.
    activate(
        &mut manager,
        &[unrouted("file", 0), unrouted("more", 0)],
        true,
    );
    assert!(manager.warming.is_empty());
    let mut all = names(&manager);
    all.sort_unstable();
    assert_eq!(all, ["file", "lds", "more"]);
    manager.drain(Drain::default()).await;
}

#[tokio::test]
async fn an_edit_replaces_what_waits_of_its_origin_only() {
    let mut manager = manager(Vec::new(), Vec::new());
    manager.set_dynamic(&[unrouted("lds", 0)]);
    activate(&mut manager, &[unrouted("file", 0)], false);
    assert_eq!(manager.warming.len(), 2);
    activate(&mut manager, &[], false);
    assert_eq!(manager.warming.len(), 1);
    activate(&mut manager, &[unrouted("file", 0)], false);
    manager.set_dynamic(&[]);
    assert_eq!(manager.warming.len(), 1);
    let left = &manager.warming[0].prepared;
    assert_eq!(
        (left.name_and_address().0.as_str(), left.origin),
        ("file", Origin::File)
    );
    manager.drain(Drain::default()).await;
}

#[tokio::test]
async fn listeners_of_the_server_yield_to_those_of_the_file() {
    let mut manager = manager(Vec::new(), Vec::new());
    activate(&mut manager, &[listener_config("file", 0)], false);
    let port = port_of(&manager, "file");
    let of_file = listener_config("file", port);
    let conflict = "name or address is used by listener \"file\" of the configuration file";
    let refusal = |manager: &ListenerManager, config: &Arc<ListenerConfig>, earlier: &[_]| {
        manager.prepare_dynamic(config, earlier).err()
    };
    assert_eq!(refusal(&manager, &of_file, &[]).as_deref(), Some(conflict));
    let free = listener_config("free", 0);
    assert_eq!(refusal(&manager, &free, &[]), None);
    // Two listeners may each have a free port, but not the same fixed one.
    assert_eq!(
        refusal(&manager, &free, &[listener_config("other", 0)]),
        None
    );
    let unused = manager.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let fixed = unused[0].local_addr().unwrap().port();
    let [one, two] = ["one", "two"].map(|name| listener_config(name, fixed));
    let same = "address is used by listener \"one\"";
    assert_eq!(refusal(&manager, &two, &[one]).as_deref(), Some(same));
    manager.set_dynamic(&[Arc::clone(&free), of_file]);
    assert_eq!(names(&manager), ["file", "free"]);
    assert_eq!(port_of(&manager, "file"), port);
    // A changed listener of the server keeps its port; one that is gone is removed.
    let before = port_of(&manager, "free");
    manager.set_dynamic(&[changed("free")]);
    assert_eq!(port_of(&manager, "free"), before);
    manager.set_dynamic(&[]);
    assert_eq!(names(&manager), ["file"]);
    assert!(!manager.dynamic_files_changed());
    manager.drain(Drain::default()).await;
}
