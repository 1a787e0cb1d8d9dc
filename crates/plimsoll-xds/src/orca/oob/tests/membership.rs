//! Hosts that come, go and change, and changing settings.

use super::*;

/// Returns the hosts of opened and closed streams.
fn changes(bench: &mut Bench) -> (Vec<u8>, Vec<(u8, CloseReason)>) {
    let last = |address: SocketAddr| match address {
        SocketAddr::V4(address) => address.ip().octets()[3],
        SocketAddr::V6(_) => panic!("{address}"),
    };
    let (mut opened, mut closed) = (Vec::new(), Vec::new());
    for action in bench.actions() {
        match action {
            OobAction::Open(stream) => opened.push(last(stream.host)),
            OobAction::Close { host, reason, .. } => closed.push((last(host), reason)),
        }
    }
    (opened, closed)
}

#[test]
fn duplicate_hosts_share_one_session_in_any_order() {
    let mut bench = Bench::new(&[500, 300, 400, 7]);
    bench.hosts(&[3, 1, 2, 3, 1]);
    assert_eq!(bench.manager.stats().active_sessions, 3);
    // Host 1 has taken the first draw; then 2 and 3, in address order.
    let mut order = Vec::new();
    for _ in 0..3 {
        let now = bench.wake();
        order.push((now, changes(&mut bench).0));
    }
    assert_eq!(order, [(300, vec![2]), (400, vec![3]), (500, vec![1])]);
}

#[test]
fn repeating_the_hosts_changes_nothing() {
    let (mut bench, connection) = Bench::answered(&[]);
    bench.data(connection, &frame(&report()));
    let before = (bench.manager.stats(), bench.manager.poll_timeout());
    bench.now += 5;
    bench.hosts(&[1]);
    assert_eq!(
        (bench.manager.stats(), bench.manager.poll_timeout()),
        before
    );
    assert_eq!(bench.actions(), []);
}

#[test]
fn removed_hosts_are_closed_and_forgotten() {
    let mut bench = Bench::new(&[0, 9000]);
    bench.hosts(&[1, 2]);
    bench.wake();
    assert_eq!(changes(&mut bench), (vec![1], vec![]));
    // Host 1 has a stream, host 2 waits for its first attempt.
    bench.hosts(&[]);
    assert_eq!(
        changes(&mut bench),
        (vec![], vec![(1, CloseReason::HostRemoved)])
    );
    assert_eq!(
        bench.manager.stats(),
        OobStats::default(),
        "leaving is not a failure"
    );
    assert_eq!(bench.manager.poll_timeout(), None);
    bench.manager.handle_timeout(at(1_000_000));
    assert_eq!(bench.actions(), []);
}

#[test]
fn events_of_a_removed_host_are_ignored() {
    let (mut bench, connection) = Bench::answered(&[]);
    bench.hosts(&[]);
    bench.actions();
    bench.data(connection, &frame(&report()));
    bench.event(connection, OobEvent::Closed);
    assert_eq!((bench.reports(), bench.actions()), (vec![], vec![]));
    assert_eq!(bench.manager.stats(), OobStats::default());
    // The same address again: events of the old connection do not concern the new host.
    bench.hosts(&[1]);
    bench.next_open();
    bench.data(connection, &frame(&report()));
    assert_eq!(bench.reports(), []);
}

#[test]
fn a_host_with_a_changed_hostname_is_another_host() {
    let (mut bench, _) = Bench::answered(&[0, 40]);
    let renamed = OobHost {
        hostname: "renamed".into(),
        ..host(1)
    };
    bench.manager.handle_hosts([renamed.clone()], at(bench.now));
    assert_eq!(
        changes(&mut bench),
        (vec![], vec![(1, CloseReason::HostRemoved)])
    );
    assert_eq!(bench.manager.stats().active_sessions, 1);
    assert_eq!(&*bench.next_open().authority, "renamed");
    bench.manager.handle_hosts([renamed], at(bench.now));
    assert_eq!(bench.actions(), []);
}

#[test]
fn hosts_have_separate_backoff() {
    let mut bench = Bench::new(&[0, 0]);
    bench.hosts(&[1, 2]);
    bench.wake();
    let actions = bench.actions();
    let [OobAction::Open(one), OobAction::Open(two)] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    bench.event(one.connection, OobEvent::Closed);
    bench.data(two.connection, &frame(&report()));
    let sessions = &mut bench.manager.sessions;
    let mut pause = |last| {
        sessions
            .get_mut(&address(last))
            .unwrap()
            .backoff
            .next_bound()
    };
    assert_eq!(pause(1), Duration::from_secs(2));
    assert_eq!(pause(2), Duration::from_secs(1));
}

#[test]
fn changed_settings_restart_every_session() {
    let (mut bench, connection) = Bench::answered(&[0, 0, 700]);
    bench.hosts(&[1, 2]);
    let now = at(bench.now);
    bench.manager.handle_settings(OobReporting::default(), now);
    assert_eq!(bench.actions(), [], "nothing changed");
    bench
        .manager
        .handle_settings(reporting(2000, 9001, ""), now);
    bench.closed(connection, CloseReason::SettingsChanged);
    let stats = bench.manager.stats();
    assert_eq!((stats.stream_failures, stats.active_sessions), (0, 2));
    bench.wake();
    let actions = bench.actions();
    let [OobAction::Open(stream)] = actions.as_slice() else {
        panic!("host 2 has no draw and comes first: {actions:?}")
    };
    assert_eq!((stream.host, stream.dial.port()), (address(2), 9001));
    assert_eq!(*stream.request, [0, 0, 0, 0, 4, 0x0a, 2, 0x08, 2]);
    assert_eq!(
        bench.manager.poll_timeout(),
        Some(at(700)),
        "host 1, within the new period"
    );
}

#[test]
fn changed_settings_retry_a_terminated_host() {
    let (mut bench, connection) = Bench::answered(&[]);
    bench.event(
        connection,
        OobEvent::Trailers {
            grpc_status: Some(12),
        },
    );
    bench.actions();
    bench
        .manager
        .handle_settings(reporting(10_000, 9001, ""), at(bench.now));
    assert_eq!(bench.manager.stats().active_sessions, 1);
    assert_eq!(bench.next_open().dial.port(), 9001);
}

#[test]
fn many_hosts_do_not_dial_at_once() {
    let rng = Xoshiro256::from_seed(7);
    let mut manager = OobManager::new(OobReporting::default(), rng);
    let hosts = (0..1000).map(|n| OobHost {
        address: SocketAddr::from(([10, 0, 0, 1], n)),
        hostname: "".into(),
    });
    manager.handle_hosts(hosts, at(0));
    let mut seconds = [0; 10];
    while let Some(deadline) = manager
        .poll_timeout()
        .filter(|deadline| *deadline < at(10_000))
    {
        manager.handle_timeout(deadline);
        let second = usize::try_from(deadline.as_nanos() / 1_000_000_000).unwrap();
        while let Some(OobAction::Open(_)) = manager.poll_action() {
            seconds[second] += 1;
        }
    }
    assert_eq!(seconds.iter().sum::<u32>(), 1000);
    assert!(
        seconds.iter().all(|count| (60..140).contains(count)),
        "{seconds:?}"
    );
}
