//! Response body that runs the stream handler producing it.
//!
//! The transport polls a response body when it can send, and the body polls the handler. So a
//! stream needs neither a task nor a queue, and a client that does not read applies backpressure:
//! its handler reads no requests and creates no responses until there is capacity again. For the
//! same reason such a handler cannot end itself; others end it through its [`Session`]. `server`
//! has the handlers.

use std::fmt::{self, Write as _};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;

use super::request_limits::RequestLimit;
use super::server::StreamPermit;
use crate::grpc_frame;

/// Parts of a message are copied together up to this size, which is a DATA frame of HTTP/2: a frame
/// for each would cost more. Longer parts are sent without copying.
const FRAME: usize = 16 << 10;

/// Sending half of a stream, with capacity for one message.
#[derive(Clone, Debug)]
pub(super) struct Outbox(Arc<Mutex<Slot>>);

/// At most one message, or what has not been sent of it.
#[derive(Debug, Default)]
struct Slot(Option<Unsent>);

/// A message that is encoded while it is sent. Streams share the bodies of resources, so a message
/// whose client does not read takes little memory.
pub(super) struct OutgoingMessage {
    length: usize,
    parts: Box<dyn Iterator<Item = Bytes> + Send>,
}

struct Unsent {
    next: Bytes,
    parts: Box<dyn Iterator<Item = Bytes> + Send>,
}

type StreamHandler = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// Learns which limit a stream exceeded that is ended by others, and the text of its status.
pub(super) type Refused = Box<dyn Fn(RequestLimit, &str) + Send + Sync>;

/// Handler of a stream, which others can end while the client does not read.
pub(super) struct Session {
    refused: Refused,
    state: Mutex<SessionState>,
}

struct SessionState {
    /// `None` while it is polled, and once the stream has ended.
    handler: Option<StreamHandler>,
    /// Set when the stream has ended.
    result: Option<Result<(), Status>>,
    /// Task that polls the body.
    waker: Option<Waker>,
}

/// Runs a handler, sends the messages in the outbox, and the handler's result as trailers.
struct SessionBody {
    session: Arc<Session>,
    outbox: Outbox,
    has_sent_trailers: bool,
    /// The stream counts until the transport is done with it, even if its handler has ended.
    _permit: Option<StreamPermit>,
}

/// Creates a response whose body runs the handler that `start` returns.
pub(super) fn respond<F>(
    refused: Refused,
    permit: Option<StreamPermit>,
    start: impl FnOnce(Outbox, Weak<Session>) -> F,
) -> Response<Body>
where
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let outbox = Outbox(Arc::default());
    let session = Arc::new_cyclic(|session| Session {
        refused,
        state: Mutex::new(SessionState {
            handler: Some(Box::pin(start(outbox.clone(), Weak::clone(session)))),
            result: None,
            waker: None,
        }),
    });
    let body = SessionBody {
        session,
        outbox,
        has_sent_trailers: false,
        _permit: permit,
    };
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

impl Session {
    /// Ends the stream with RESOURCE_EXHAUSTED and drops its handler with all that it holds. Does
    /// nothing if the stream has ended.
    pub(super) fn refuse(&self, limit: RequestLimit, reason: &str) {
        let mut state = self.lock();
        if state.result.is_some() {
            return;
        }
        state.result = Some(Err(Status::resource_exhausted(reason)));
        let (handler, waker) = (state.handler.take(), state.waker.take());
        // The handler closes its session with others when it is dropped.
        drop(state);
        drop(handler);
        (self.refused)(limit, reason);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Polls the handler until the stream has ended; then returns the result, again and again.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let mut state = self.lock();
        if let Some(mut handler) = state.handler.take() {
            // Without the lock, because handlers may end each other.
            drop(state);
            let polled = handler.as_mut().poll(cx);
            state = self.lock();
            match polled {
                Poll::Ready(result) => {
                    state.result.get_or_insert(result);
                }
                Poll::Pending if state.result.is_none() => {
                    state.handler = Some(handler);
                    let waker = state.waker.get_or_insert_with(|| cx.waker().clone());
                    waker.clone_from(cx.waker());
                    return Poll::Pending;
                }
                // Ended while it was polled.
                Poll::Pending => {
                    drop(state);
                    drop(handler);
                    state = self.lock();
                }
            }
        }
        state.result.clone().map_or(Poll::Pending, Poll::Ready)
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Outbox {
    /// Waits for capacity, then queues a message. No waker is stored: capacity is freed by polling
    /// the body, which also polls the waiting handler.
    pub(super) async fn send(&self, message: OutgoingMessage) {
        poll_fn(|_| {
            if self.slot().0.is_none() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        self.slot().0 = Some(Unsent {
            next: Bytes::copy_from_slice(&grpc_frame::header(message.length)),
            parts: message.parts,
        });
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutgoingMessage {
    /// Creates a message of `length` bytes from its parts.
    pub(super) fn new(length: usize, parts: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        Self {
            length,
            parts: Box::new(parts.filter(|part| !part.is_empty())),
        }
    }
}

impl From<Bytes> for OutgoingMessage {
    fn from(message: Bytes) -> Self {
        Self::new(message.len(), std::iter::once(message))
    }
}

impl Slot {
    /// Takes the next frame of the message.
    fn pop(&mut self) -> Option<Bytes> {
        let Unsent {
            next: frame,
            mut parts,
        } = self.0.take()?;
        let mut copied: Option<BytesMut> = None;
        for part in parts.by_ref() {
            let length = copied.as_ref().map_or(frame.len(), BytesMut::len);
            if length >= FRAME || length + part.len() > FRAME {
                self.0 = Some(Unsent { next: part, parts });
                break;
            }
            let joined = copied.get_or_insert_with(|| BytesMut::from(&frame[..]));
            joined.extend_from_slice(&part);
        }
        Some(copied.map_or(frame, BytesMut::freeze))
    }
}

impl fmt::Debug for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsent").finish_non_exhaustive()
    }
}

impl http_body::Body for SessionBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // The outbox goes first, so that the handler runs only while there is capacity.
        if let Some(data) = self.outbox.slot().pop() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let ended = self.session.poll(cx);
        if let Some(data) = self.outbox.slot().pop() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        ended.map(|result| {
            let is_first = !std::mem::replace(&mut self.has_sent_trailers, true);
            is_first.then(|| Ok(Frame::trailers(trailers(&result))))
        })
    }
}

fn trailers(result: &Result<(), Status>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let ok = Status::ok("");
    let status = result.as_ref().err().unwrap_or(&ok);
    if status.add_header(&mut trailers).is_err() {
        trailers.insert("grpc-status", HeaderValue::from_static("13"));
    } else if let Some(message) = trailers.get_mut("grpc-message")
        && let Some(readable) = encoded(status.message())
    {
        *message = readable;
    }
    trailers
}

/// Encodes what the specification of gRPC requires and no more. tonic encodes spaces and quotes
/// too, which Envoy logs as they are on the wire.
fn encoded(message: &str) -> Option<HeaderValue> {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            text.push(byte.into());
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body::Body as _;

    use super::*;

    async fn frame(body: &mut Body) -> Option<Frame<Bytes>> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        frame.transpose().unwrap()
    }

    #[tokio::test]
    async fn a_handler_runs_at_most_one_message_ahead() {
        let said = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&said);
        let response = respond(Box::new(|_, _| ()), None, |outbox, _| async move {
            for message in ["one", "two", "three"] {
                outbox.send(Bytes::from(message).into()).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let mut body = response.into_body();
        for (index, message) in ["one", "two", "three"].into_iter().enumerate() {
            let data = frame(&mut body).await.unwrap().into_data().unwrap();
            assert_eq!(data[5..], *message.as_bytes());
            assert_eq!(
                data[..5],
                [0, 0, 0, 0, u8::try_from(message.len()).unwrap()]
            );
            assert_eq!(said.load(Ordering::Relaxed), index + 1);
        }
        let trailers = frame(&mut body).await.unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert!(frame(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn a_stream_that_is_not_polled_can_be_ended_and_frees_what_it_holds() {
        let refused = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&refused);
        let tell = move |limit, text: &str| list.lock().unwrap().push((limit, text.to_owned()));
        let (held, mut ended) = (Arc::new(()), Weak::new());
        let weak = Arc::downgrade(&held);
        let response = respond(Box::new(tell), None, |outbox, session| {
            ended = session;
            async move {
                let _held = held;
                outbox.send(Bytes::from("one").into()).await;
                std::future::pending().await
            }
        });
        let mut body = response.into_body();
        // The transport takes a message and then cannot send it, so it stops polling.
        assert!(frame(&mut body).await.unwrap().is_data());
        assert!(weak.upgrade().is_some());
        let session = ended.upgrade().unwrap();
        for _ in 0..2 {
            session.refuse(RequestLimit::UnfinishedBytes, "too much");
        }
        assert!(weak.upgrade().is_none(), "freed");
        let told = refused.lock().unwrap().clone();
        assert_eq!(
            told,
            [(RequestLimit::UnfinishedBytes, "too much".to_owned())]
        );
        let trailers = frame(&mut body).await.unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "8");
        assert!(frame(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn a_stream_may_be_ended_while_its_handler_runs_or_waits() {
        for waits in [false, true] {
            let mut ended = Weak::new();
            let response = respond(Box::new(|_, _| ()), None, |_, session: Weak<Session>| {
                ended = Weak::clone(&session);
                async move {
                    if !waits {
                        let session = session.upgrade().unwrap();
                        session.refuse(RequestLimit::UnfinishedBytes, "from within");
                    }
                    std::future::pending().await
                }
            });
            let mut body = response.into_body();
            let end = async {
                tokio::task::yield_now().await;
                let session = ended.upgrade().unwrap();
                session.refuse(RequestLimit::UnfinishedBytes, "from outside");
            };
            let (ended, ()) = tokio::join!(frame(&mut body), end);
            let trailers = ended.unwrap().into_trailers().unwrap();
            let expected = if waits { "from outside" } else { "from within" };
            assert_eq!(trailers["grpc-message"], expected);
        }
    }

    #[test]
    fn messages_are_readable_where_grpc_allows_it() {
        let message = "rule \"gateways\": zone {a}, 100 % of it\nétage";
        let expected = "rule \"gateways\": zone {a}, 100 %25 of it%0A%C3%A9tage";
        assert_eq!(encoded(message).unwrap(), expected);
        let status = Status::permission_denied(message);
        let trailers = trailers(&Err(status));
        assert_eq!(trailers["grpc-message"], expected);
        let read = Status::from_header_map(&trailers).unwrap();
        assert_eq!(read.message(), message);
    }

    #[tokio::test]
    async fn messages_before_an_error_are_sent_first() {
        let response = respond(Box::new(|_, _| ()), None, |outbox, _| async move {
            outbox.send(Bytes::from("last words").into()).await;
            Err(Status::aborted("enough"))
        });
        let mut body = response.into_body();
        assert!(frame(&mut body).await.unwrap().is_data());
        let trailers = frame(&mut body).await.unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "10");
        assert_eq!(trailers["grpc-message"], "enough");
    }

    #[tokio::test]
    async fn long_parts_are_shared_and_short_ones_joined() {
        let long = Bytes::from(vec![7; FRAME]);
        let parts = [
            Bytes::from("a"),
            "b".into(),
            long.clone(),
            "".into(),
            "c".into(),
        ];
        let expected = [&b"ab"[..], &long, b"c"].concat();
        let response = respond(Box::new(|_, _| ()), None, |outbox, _| {
            let message = OutgoingMessage::new(expected.len(), parts.into_iter());
            async move {
                outbox.send(message).await;
                std::future::pending().await
            }
        });
        let mut body = response.into_body();
        let mut frames = Vec::new();
        for _ in 0..3 {
            frames.push(frame(&mut body).await.unwrap().into_data().unwrap());
        }
        let length = u8::try_from(expected.len() - FRAME).unwrap();
        assert_eq!(frames[0], [0, 0, 0, 0x40, length, b'a', b'b'].as_slice());
        assert_eq!(frames[1].as_ptr(), long.as_ptr());
        assert_eq!(frames[2], "c");
    }

    #[tokio::test]
    async fn messages_of_many_parts_arrive_whole() {
        let parts: Vec<_> = (0..50_000_u32)
            .map(|index| Bytes::from(vec![7; index as usize % 50]))
            .collect();
        let expected = parts.concat();
        let message = OutgoingMessage::new(expected.len(), parts.into_iter());
        let response = respond(Box::new(|_, _| ()), None, |outbox, _| async move {
            outbox.send(message).await;
            Ok(())
        });
        let mut body = response.into_body();
        let mut received = Vec::new();
        while let Some(Ok(data)) = frame(&mut body).await.map(Frame::into_data) {
            assert!(data.len() <= FRAME);
            received.push(data);
        }
        assert!(received.len() < 2 * expected.len() / FRAME);
        let received = received.concat();
        assert_eq!(received[..5], grpc_frame::header(expected.len()));
        assert_eq!(received[5..], expected);
    }
}
