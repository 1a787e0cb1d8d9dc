//! Random sequences of operations checked against a simple model.

use std::collections::BTreeSet;

use super::*;

/// Model of a driver: connections that were opened and not yet closed.
#[derive(Default)]
struct Driver {
    open: BTreeMap<ConnectionId, SocketAddr>,
    ever: BTreeSet<ConnectionId>,
}

impl Driver {
    fn drain(&mut self, manager: &mut OobManager<Xoshiro256>) {
        while let Some(action) = manager.poll_action() {
            match action {
                OobAction::Open(stream) => {
                    assert!(self.ever.insert(stream.connection), "an id is used once");
                    let open = self.open.values().all(|host| *host != stream.host);
                    assert!(open, "one connection per host");
                    self.open.insert(stream.connection, stream.host);
                }
                OobAction::Close {
                    connection, host, ..
                } => {
                    assert_eq!(self.open.remove(&connection), Some(host), "closed once");
                }
            }
        }
    }
}

/// Random event, with bytes that are valid, invalid or truncated.
fn random_event(
    rng: &mut Xoshiro256,
    manager: &mut OobManager<Xoshiro256>,
    connection: ConnectionId,
    now: Instant,
) {
    let good = frame(&report());
    let draw = rng.next_u64();
    let cut = usize::try_from(rng.next_u64() % good.len() as u64).unwrap();
    let headers = ResponseHeaders {
        status: [200, 404, 500][usize::try_from(draw >> 8).unwrap_or(0) % 3],
        grpc_status: draw.is_multiple_of(5).then_some(14),
        ..OK
    };
    let data = |bytes| OobEvent::Data {
        bytes,
        end_stream: false,
    };
    let event = match draw % 11 {
        0 => OobEvent::Closed,
        1 => OobEvent::ConnectFailed,
        2 => data(&[0, 0, 0, 0, 0]),
        3 => data(&good[..cut]),
        4 => OobEvent::GoAway { no_error: true },
        5 => OobEvent::Headers(headers),
        6 => OobEvent::Reset,
        7 => OobEvent::Trailers {
            grpc_status: Some(12 + u32::from(draw.is_multiple_of(3))),
        },
        _ => data(&good),
    };
    manager.handle_event(connection, event, now);
}

#[test]
fn actions_and_counters_stay_consistent() {
    for seed in 0..40 {
        let mut rng = Xoshiro256::from_seed(seed);
        let mut manager = OobManager::new(reporting(1000, 0, ""), Xoshiro256::from_seed(!seed));
        let (mut driver, mut now, mut members) = (Driver::default(), at(0), Vec::new());
        let mut delivered = 0;
        for step in 0..400 {
            match rng.next_u64() % 8 {
                0 => {
                    let mask = rng.next_u64();
                    members = (0..6).filter(|bit| mask >> bit & 1 == 1).collect();
                    manager.handle_hosts(members.iter().map(|&last| host(last)), now);
                }
                1..4 => {
                    if let Some(deadline) = manager.poll_timeout() {
                        now = now.max(deadline);
                        manager.handle_timeout(now);
                    }
                }
                _ => {
                    let known: Vec<_> = driver.ever.iter().rev().take(8).copied().collect();
                    if !known.is_empty() {
                        let pick = usize::try_from(rng.next_u64() % known.len() as u64).unwrap();
                        random_event(&mut rng, &mut manager, known[pick], now);
                    }
                }
            }
            driver.drain(&mut manager);
            while let Some((address, _)) = manager.poll_report() {
                assert!(members.iter().any(|&last| super::address(last) == address));
                delivered += 1;
            }
            let stats = manager.stats();
            assert_eq!(stats.reports_received, delivered, "seed {seed} step {step}");
            let live = manager
                .sessions
                .values()
                .filter(|session| !session.terminated)
                .count();
            assert_eq!(
                stats.active_sessions, live as u64,
                "seed {seed} step {step}"
            );
            assert_eq!(
                manager.timers.len(),
                live,
                "every live session has one deadline"
            );
            assert_eq!(manager.streams, driver.open, "seed {seed} step {step}");
            assert!(live <= members.len());
        }
        manager.handle_hosts([], now);
        driver.drain(&mut manager);
        assert!(
            driver.open.is_empty() && manager.timers.is_empty(),
            "seed {seed}"
        );
        assert_eq!(manager.stats().active_sessions, 0);
    }
}
