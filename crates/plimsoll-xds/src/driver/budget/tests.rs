//! Who ends when streams hold too much, and when.

use std::task::{Context, Waker};

use http_body::Body as _;

use super::super::session::{self, Refused};
use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A stream that never ends by itself.
struct Stream {
    account: Option<Account>,
    refused: Arc<Mutex<Vec<RequestLimit>>>,
    response: http::Response<tonic::body::Body>,
}

impl Stream {
    fn open(budget: &Arc<Budget>, address: &str) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let refused = Arc::<Mutex<Vec<_>>>::default();
        let list = Arc::clone(&refused);
        let tell: Refused = Box::new(move |limit, _| list.lock().unwrap().push(limit));
        let mut account = None;
        let response = session::respond(tell, None, |_, session| {
            account = Some(budget.account(Some(address), session));
            std::future::pending()
        });
        Self {
            account,
            refused,
            response,
        }
    }

    fn set(&mut self, bytes: usize) -> bool {
        self.account.as_mut().unwrap().set(bytes).is_ok()
    }

    fn is_evicted(&self) -> bool {
        !self.refused.lock().unwrap().is_empty()
    }
}

fn budget(bytes: usize) -> Arc<Budget> {
    Arc::new(Budget::new(
        RequestLimit::UnfinishedBytes,
        "unfinished messages",
        bytes,
    ))
}

/// Bytes, streams and peers that count.
fn held(budget: &Budget) -> (usize, usize, usize) {
    let held = budget.lock();
    assert_eq!(held.peers.len(), held.largest.len());
    let sum: usize = held.largest.iter().map(|(bytes, _)| bytes).sum();
    assert_eq!(sum, held.bytes);
    (held.bytes, held.streams.len(), held.peers.len())
}

#[test]
fn the_largest_holding_of_a_peer_has_to_go() {
    let budget = budget(100);
    let open = || Stream::open(&budget, "10.0.0.1");
    let [mut small, mut large, mut late] = [open(), open(), open()];
    assert!(small.set(10) && large.set(50) && large.set(90));
    assert_eq!(held(&budget), (100, 2, 1));
    assert!(late.set(20));
    assert!(large.is_evicted() && !small.is_evicted() && !late.is_evicted());
    assert_eq!(held(&budget), (30, 2, 1));
    assert!(!large.set(91), "it learns that it has ended");
    drop(large);
    assert_eq!(held(&budget), (30, 2, 1));
    assert!(!small.set(101));
    assert!(small.is_evicted() && !late.is_evicted());
    assert_eq!(held(&budget), (20, 1, 1));
    drop((small, late));
    assert_eq!(held(&budget), (0, 0, 0));
}

#[test]
fn the_peer_that_holds_most_has_to_give_way() {
    let budget = budget(1000);
    let mut many: Vec<_> = (0..100)
        .map(|_| Stream::open(&budget, "2001:db8::1"))
        .collect();
    // Addresses of one network count together.
    many.extend((0..100).map(|_| Stream::open(&budget, "2001:db8::2")));
    assert!(many.iter_mut().all(|stream| stream.set(5)));
    let mut honest = Stream::open(&budget, "10.0.0.1");
    assert!(honest.set(61), "although it is the largest");
    let evicted = many.iter().filter(|stream| stream.is_evicted()).count();
    assert_eq!(evicted, 13, "61 bytes in pieces of 5");
    assert_eq!(held(&budget), (996, 188, 2));
    assert!(!honest.is_evicted());
}

#[test]
fn what_is_no_longer_held_is_not_counted() {
    let budget = budget(100);
    let mut stream = Stream::open(&budget, "10.0.0.1");
    for _ in 0..10 {
        assert!(stream.set(60) && stream.set(0));
    }
    assert_eq!(held(&budget), (0, 0, 0));
    assert!(stream.set(60) && stream.set(60));
    assert_eq!(held(&budget), (60, 1, 1));
    stream.account = None;
    assert_eq!(held(&budget), (0, 0, 0));
    assert!(!stream.is_evicted());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_held_beyond_its_deadline_although_nobody_polls_the_stream() {
    let messages = Budget::new(RequestLimit::UnfinishedBytes, "unfinished messages", 100);
    let budget = Arc::new(messages.with_timeout(RequestLimit::MessageTimeout, TIMEOUT));
    let sweeping = Arc::clone(&budget);
    tokio::spawn(async move { sweeping.expire().await });
    let open = || Stream::open(&budget, "10.0.0.1");
    let [mut slow, mut whole, mut late] = [open(), open(), open()];
    assert!(slow.set(10) && whole.set(20));
    tokio::time::sleep(TIMEOUT / 2).await;
    assert!(slow.set(11) && whole.set(0) && late.set(30));
    tokio::time::sleep(TIMEOUT / 2 + Duration::from_millis(2)).await;
    assert_eq!(
        *slow.refused.lock().unwrap(),
        [RequestLimit::MessageTimeout]
    );
    assert!(!slow.set(12));
    assert_eq!(held(&budget), (30, 1, 1));
    tokio::time::sleep(TIMEOUT).await;
    assert!(late.is_evicted() && !whole.is_evicted());
    assert_eq!(held(&budget), (0, 0, 0));
    assert!(whole.set(10), "after a time without deadlines");
    tokio::time::sleep(2 * TIMEOUT).await;
    assert!(whole.is_evicted());
}

#[test]
fn an_evicted_stream_says_why_once_it_can_send() {
    let budget = budget(10);
    let mut stream = Stream::open(&budget, "10.0.0.1");
    let body = stream.response.body_mut();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(
        std::pin::Pin::new(&mut *body)
            .poll_frame(&mut cx)
            .is_pending()
    );
    assert!(!stream.set(11));
    let body = stream.response.body_mut();
    let frame = std::pin::Pin::new(body).poll_frame(&mut cx);
    let std::task::Poll::Ready(Some(Ok(frame))) = frame else {
        panic!("{frame:?}");
    };
    let trailers = frame.into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "8");
    let message = trailers["grpc-message"].to_str().unwrap();
    assert!(
        message.starts_with("unfinished messages of all streams"),
        "{message}"
    );
}
