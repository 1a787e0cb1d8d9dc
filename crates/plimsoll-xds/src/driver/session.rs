//! [`SessionBody`]: a conversation as the body of its own response.
//!
//! The transport polls a response body when it can send; here that runs the conversation. So a
//! stream needs no task and no queue of its own, and one whose client does not read simply stops:
//! it reads no more requests and makes no more responses until there is room again. Conversations
//! themselves are in `server`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;

/// Longer messages go out as they are, behind their header, instead of being copied.
const COPIED_UP_TO: usize = 4 << 10;

/// How a conversation sends. There is room for one message.
#[derive(Clone, Debug)]
pub(super) struct Outbox(Arc<Mutex<Slot>>);

/// The frames of at most one message.
#[derive(Debug, Default)]
struct Slot(VecDeque<Bytes>);

type Conversation = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// Runs a conversation, sends what it puts into the outbox, and its result as trailers.
struct SessionBody {
    /// `None` when it is over.
    conversation: Option<Conversation>,
    trailers: Option<HeaderMap>,
    outbox: Outbox,
}

/// The response whose body is the conversation that `start` makes.
pub(super) fn respond<F>(start: impl FnOnce(Outbox) -> F) -> Response<Body>
where
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let outbox = Outbox(Arc::default());
    let body = SessionBody {
        conversation: Some(Box::pin(start(outbox.clone()))),
        trailers: None,
        outbox,
    };
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

impl Outbox {
    /// Waits for room, then puts a message in.
    ///
    /// No waker is kept: what makes room is the poll of the body, and that polls the conversation
    /// that waits here.
    pub(super) async fn send(&self, message: Bytes) {
        poll_fn(|_| match self.slot().0.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        self.slot().0.extend(frames(message));
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl http_body::Body for SessionBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some(conversation) = &mut this.conversation {
            // What waits in the outbox goes first: a conversation runs only into free space.
            if let Some(data) = this.outbox.slot().0.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            let result = conversation.as_mut().poll(cx);
            if let Poll::Ready(result) = &result {
                this.conversation = None;
                this.trailers = Some(trailers(result));
            }
        }
        if let Some(data) = this.outbox.slot().0.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if this.conversation.is_some() {
            return Poll::Pending;
        }
        let trailers = this.trailers.take();
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

fn frames(message: Bytes) -> impl Iterator<Item = Bytes> {
    let copied = message.len() <= COPIED_UP_TO;
    let mut first = BytesMut::with_capacity(5 + if copied { message.len() } else { 0 });
    first.put_u8(0);
    // A message of 4 GiB cannot be framed; views are far smaller.
    first.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    if copied {
        first.extend_from_slice(&message);
    }
    let rest = (!copied).then_some(message);
    [first.freeze()].into_iter().chain(rest)
}

fn trailers(result: &Result<(), Status>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let ok = Status::ok("");
    let status = result.as_ref().err().unwrap_or(&ok);
    if status.add_header(&mut trailers).is_err() {
        trailers.insert("grpc-status", HeaderValue::from_static("13"));
    }
    trailers
}
