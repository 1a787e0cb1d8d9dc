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
    async fn a_conversation_runs_no_further_than_one_message_ahead() {
        let said = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&said);
        let response = respond(|outbox| async move {
            for message in ["one", "two", "three"] {
                outbox.send(message.into()).await;
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
    async fn what_was_said_before_an_error_is_sent_first() {
        let response = respond(|outbox| async move {
            outbox.send("last words".into()).await;
            Err(Status::aborted("enough"))
        });
        let mut body = response.into_body();
        assert!(frame(&mut body).await.unwrap().is_data());
        let trailers = frame(&mut body).await.unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "10");
        assert_eq!(trailers["grpc-message"], "enough");
    }

    #[tokio::test]
    async fn a_long_message_is_shared_and_not_copied() {
        let long = Bytes::from(vec![7; COPIED_UP_TO + 1]);
        let shared = long.clone();
        let response = respond(|outbox| async move {
            outbox.send(shared).await;
            std::future::pending().await
        });
        let mut body = response.into_body();
        let header = frame(&mut body).await.unwrap().into_data().unwrap();
        assert_eq!(header, [0, 0, 0, 0x10, 0x01].as_slice());
        let data = frame(&mut body).await.unwrap().into_data().unwrap();
        assert_eq!(data.as_ptr(), long.as_ptr());
    }
}
