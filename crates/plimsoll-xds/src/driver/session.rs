//! Response body that runs the stream handler producing it.
//!
//! The transport polls a response body when it can send, and the body polls the handler. So a
//! stream needs neither a task nor a queue, and a client that does not read applies backpressure:
//! its handler reads no requests and creates no responses until there is capacity again. The
//! handlers are in `server`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;

use crate::grpc_frame;

/// Longer messages are sent as a separate frame after their header instead of being copied.
const COPIED_UP_TO: usize = 4 << 10;

/// Sending half of a stream, with capacity for one message.
#[derive(Clone, Debug)]
pub(super) struct Outbox(Arc<Mutex<Slot>>);

/// Frames of at most one message.
#[derive(Debug, Default)]
struct Slot(VecDeque<Bytes>);

type StreamHandler = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// Runs a handler, sends the messages in the outbox, and the handler's result as trailers.
struct SessionBody {
    /// `None` once the handler has finished.
    handler: Option<StreamHandler>,
    trailers: Option<HeaderMap>,
    outbox: Outbox,
}

/// Creates a response whose body runs the handler that `start` returns.
pub(super) fn respond<F>(start: impl FnOnce(Outbox) -> F) -> Response<Body>
where
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let outbox = Outbox(Arc::default());
    let body = SessionBody {
        handler: Some(Box::pin(start(outbox.clone()))),
        trailers: None,
        outbox,
    };
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

impl Outbox {
    /// Waits for capacity, then queues a message. No waker is stored: capacity is freed by polling
    /// the body, which also polls the waiting handler.
    pub(super) async fn send(&self, message: Bytes) {
        poll_fn(|_| {
            if self.slot().0.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
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
        if let Some(handler) = &mut this.handler {
            // The outbox goes first, so that the handler runs only while there is capacity.
            if let Some(data) = this.outbox.slot().0.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            let result = handler.as_mut().poll(cx);
            if let Poll::Ready(result) = &result {
                this.handler = None;
                this.trailers = Some(trailers(result));
            }
        }
        if let Some(data) = this.outbox.slot().0.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if this.handler.is_some() {
            return Poll::Pending;
        }
        let trailers = this.trailers.take();
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

fn frames(message: Bytes) -> impl Iterator<Item = Bytes> {
    let copied = message.len() <= COPIED_UP_TO;
    let first = if copied {
        grpc_frame::frame(&message)
    } else {
        Bytes::copy_from_slice(&grpc_frame::header(message.len()))
    };
    [first].into_iter().chain((!copied).then_some(message))
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
    async fn a_handler_runs_at_most_one_message_ahead() {
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
    async fn messages_before_an_error_are_sent_first() {
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
