//! [`Replay`]: a request that can be sent again after a host has seen it.
//!
//! The head is cloned; the body is buffered while it is read, up to a limit beyond which the
//! request is not retried. Used only if the policy retries requests that a host has seen. The lock
//! is uncontended: only the attempts of one request take it, one at a time.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request};
use http_body::{Body, Frame, SizeHint};

use crate::error::BoxError;
use crate::request::body::RequestBody;

pub(crate) struct Replay {
    head: Parts,
    buffer: Arc<Mutex<BodyBuffer>>,
}

struct BodyBuffer {
    source: RequestBody,
    data: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    remaining: usize,
    /// `source` was read to its end.
    ended: bool,
    /// The body is too long, or reading it failed: no further attempt is possible.
    discarded: bool,
    attempt: u32,
}

struct ReplayBody {
    buffer: Arc<Mutex<BodyBuffer>>,
    number: u32,
    position: usize,
    trailers_sent: bool,
}

impl Replay {
    pub(crate) fn new(request: Request<RequestBody>, limit: usize) -> Self {
        let (head, source) = request.into_parts();
        let buffer = BodyBuffer {
            ended: source.is_end_stream(),
            source,
            data: Vec::new(),
            trailers: None,
            remaining: limit,
            discarded: false,
            attempt: 0,
        };
        Self {
            head,
            buffer: Arc::new(Mutex::new(buffer)),
        }
    }

    /// Starts the next attempt, which ends earlier ones. `None` if the body was too long or failed.
    pub(crate) fn next(&self) -> Option<Request<RequestBody>> {
        let body = ReplayBody {
            number: self.begin_attempt()?,
            buffer: Arc::clone(&self.buffer),
            position: 0,
            trailers_sent: false,
        };
        Some(Request::from_parts(
            self.head.clone(),
            RequestBody::new(body),
        ))
    }

    fn begin_attempt(&self) -> Option<u32> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.discarded {
            return None;
        }
        buffer.attempt += 1;
        Some(buffer.attempt)
    }
}

impl BodyBuffer {
    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.source).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                match (frame.data_ref(), frame.trailers_ref()) {
                    (Some(data), _) => self.keep(data),
                    (_, Some(trailers)) => self.trailers = Some(trailers.clone()),
                    _ => {}
                }
                self.ended = self.source.is_end_stream();
            }
            Poll::Ready(Some(Err(_))) => self.discarded = true,
            Poll::Ready(None) => self.ended = true,
            Poll::Pending => {}
        }
        polled
    }

    fn keep(&mut self, data: &Bytes) {
        match self.remaining.checked_sub(data.len()) {
            Some(room) if !self.discarded => {
                self.remaining = room;
                self.data.push(data.clone());
            }
            _ => {
                self.discarded = true;
                self.data = Vec::new();
            }
        }
    }
}

impl Body for ReplayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let mut buffer = this.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.attempt != this.number {
            return Poll::Ready(Some(Err(
                "the request was retried: this attempt is abandoned".into(),
            )));
        }
        // Once the buffer is discarded, no attempt follows, and this one has read all of it.
        if !buffer.discarded
            && let Some(data) = buffer.data.get(this.position)
        {
            this.position += 1;
            return Poll::Ready(Some(Ok(Frame::data(data.clone()))));
        }
        if buffer.ended {
            let trailers = buffer.trailers.clone().filter(|_| !this.trailers_sent);
            this.trailers_sent = true;
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        }
        let polled = buffer.poll_source(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            this.position += usize::from(frame.is_data());
            this.trailers_sent |= frame.is_trailers();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let read = buffer.discarded || self.position >= buffer.data.len();
        let trailers = buffer.trailers.is_none() || self.trailers_sent;
        buffer.ended && read && trailers
    }

    fn size_hint(&self) -> SizeHint {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hint = buffer.source.size_hint();
        if buffer.discarded {
            return hint;
        }
        let rest = buffer.data.iter().skip(self.position);
        let kept = rest.map(|data| data.len() as u64).sum::<u64>();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(kept));
        }
        hint.set_lower(hint.lower().saturating_add(kept));
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt as _;

    use super::*;

    struct Frames(VecDeque<Result<Frame<Bytes>, BoxError>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    fn data(text: &'static str) -> Result<Frame<Bytes>, BoxError> {
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    fn replay(frames: Vec<Result<Frame<Bytes>, BoxError>>, limit: usize) -> Replay {
        let body = RequestBody::new(Frames(frames.into()));
        let request = Request::get("/").header("a", "b").body(body).unwrap();
        Replay::new(request, limit)
    }

    async fn read(request: Request<RequestBody>) -> (String, bool) {
        assert_eq!(request.headers()["a"], "b");
        let body = request.into_body().collect().await.unwrap();
        let trailers = body.trailers().is_some();
        (
            String::from_utf8(body.to_bytes().to_vec()).unwrap(),
            trailers,
        )
    }

    #[tokio::test]
    async fn every_attempt_reads_the_whole_body_and_its_trailers() {
        let trailers = Ok(Frame::trailers(HeaderMap::new()));
        let replay = replay(vec![data("one "), data("two"), trailers], 7);
        // The first attempt is abandoned halfway.
        let mut first = replay.next().unwrap().into_body();
        first.frame().await.unwrap().unwrap();
        for _ in 0..2 {
            let again = replay.next().unwrap();
            assert_eq!(read(again).await, ("one two".into(), true));
        }
        assert!(
            first.frame().await.unwrap().is_err(),
            "an abandoned attempt reads nothing"
        );
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_is_sent_once() {
        let replay = replay(vec![data("one "), data("two"), data(" three")], 6);
        let first = replay.next().unwrap();
        assert_eq!(read(first).await, ("one two three".into(), false));
        assert!(replay.next().is_none());
    }

    #[tokio::test]
    async fn a_failed_body_is_not_sent_again() {
        let replay = replay(vec![data("one"), Err("broken".into())], 100);
        let body = replay.next().unwrap().into_body();
        assert!(body.collect().await.is_err());
        assert!(replay.next().is_none());
    }

    #[tokio::test]
    async fn size_hints_cover_the_whole_body() {
        let body = RequestBody::new(http_body_util::Full::new(Bytes::from_static(b"12345")));
        let replay = Replay::new(Request::new(body), 100);
        let first = replay.next().unwrap().into_body();
        assert_eq!(first.size_hint().exact(), Some(5));
        assert_eq!(first.collect().await.unwrap().to_bytes(), "12345");
        let second = replay.next().unwrap().into_body();
        assert_eq!(second.size_hint().exact(), Some(5));
        assert!(!second.is_end_stream());
        let empty = RequestBody::new(http_body_util::Empty::new());
        let empty = Replay::new(Request::new(empty), 100).next().unwrap();
        assert!(empty.into_body().is_end_stream());
    }
}
