//! [`Replay`]: a request that can be sent again after a host has seen it.
//!
//! The head is copied; the body is kept while it is read, up to a limit, above which there is no
//! further try. Used only where the retry policy has such conditions. The lock is the request's
//! own: nobody but its tries takes it, one at a time.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request};
use http_body::{Body, Frame, SizeHint};

use crate::body::RequestBody;
use crate::error::BoxError;

/// A request and what was read of its body.
pub(crate) struct Replay {
    head: Parts,
    tape: Arc<Mutex<Tape>>,
}

struct Tape {
    source: RequestBody,
    /// What was read so far, unless it was too much.
    data: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    /// Bytes that may still be kept.
    room: usize,
    /// Nothing more will come from `source`.
    ended: bool,
    /// There can be no further try.
    lost: bool,
    /// Number of the newest try.
    attempt: u32,
}

/// The body of one try.
struct Attempt {
    tape: Arc<Mutex<Tape>>,
    number: u32,
    /// Pieces that this try has had.
    position: usize,
    trailers_sent: bool,
}

impl Replay {
    /// Keeps up to `limit` bytes of the body of `request`.
    pub(crate) fn new(request: Request<RequestBody>, limit: usize) -> Self {
        let (head, source) = request.into_parts();
        let tape = Tape {
            ended: source.is_end_stream(),
            source,
            data: Vec::new(),
            trailers: None,
            room: limit,
            lost: false,
            attempt: 0,
        };
        Self {
            head,
            tape: Arc::new(Mutex::new(tape)),
        }
    }

    /// The request once more; earlier tries get nothing any more. `None` if too much of its body
    /// was read, or reading it failed.
    pub(crate) fn next(&self) -> Option<Request<RequestBody>> {
        let body = Attempt {
            number: self.begin_attempt()?,
            tape: Arc::clone(&self.tape),
            position: 0,
            trailers_sent: false,
        };
        Some(Request::from_parts(
            self.head.clone(),
            RequestBody::new(body),
        ))
    }

    fn begin_attempt(&self) -> Option<u32> {
        let mut tape = self.tape.lock().unwrap_or_else(PoisonError::into_inner);
        if tape.lost {
            return None;
        }
        tape.attempt += 1;
        Some(tape.attempt)
    }
}

impl Tape {
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
            Poll::Ready(Some(Err(_))) => self.lost = true,
            Poll::Ready(None) => self.ended = true,
            Poll::Pending => {}
        }
        polled
    }

    fn keep(&mut self, data: &Bytes) {
        match self.room.checked_sub(data.len()) {
            Some(room) if !self.lost => {
                self.room = room;
                self.data.push(data.clone());
            }
            _ => {
                self.lost = true;
                self.data = Vec::new();
            }
        }
    }
}

impl Body for Attempt {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let mut tape = this.tape.lock().unwrap_or_else(PoisonError::into_inner);
        if tape.attempt != this.number {
            return Poll::Ready(Some(Err("the request is tried again".into())));
        }
        // Once lost, this is the last try, and it has had all that was kept.
        if !tape.lost
            && let Some(data) = tape.data.get(this.position)
        {
            this.position += 1;
            return Poll::Ready(Some(Ok(Frame::data(data.clone()))));
        }
        if tape.ended {
            let trailers = tape.trailers.clone().filter(|_| !this.trailers_sent);
            this.trailers_sent = true;
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        }
        let polled = tape.poll_source(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            this.position += usize::from(frame.is_data());
            this.trailers_sent |= frame.is_trailers();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let tape = self.tape.lock().unwrap_or_else(PoisonError::into_inner);
        let read = tape.lost || self.position >= tape.data.len();
        let trailers = tape.trailers.is_none() || self.trailers_sent;
        tape.ended && read && trailers
    }

    fn size_hint(&self) -> SizeHint {
        let tape = self.tape.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hint = tape.source.size_hint();
        if tape.lost {
            return hint;
        }
        let rest = tape.data.iter().skip(self.position);
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

    /// Frames one by one, then perhaps an error.
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
    async fn every_try_reads_the_whole_body_and_its_trailers() {
        let trailers = Ok(Frame::trailers(HeaderMap::new()));
        let replay = replay(vec![data("one "), data("two"), trailers], 7);
        // The first try is given up in the middle.
        let mut first = replay.next().unwrap().into_body();
        first.frame().await.unwrap().unwrap();
        for _ in 0..2 {
            let again = replay.next().unwrap();
            assert_eq!(read(again).await, ("one two".into(), true));
        }
        assert!(
            first.frame().await.unwrap().is_err(),
            "an old try reads nothing"
        );
    }

    #[tokio::test]
    async fn a_long_body_is_sent_once() {
        let replay = replay(vec![data("one "), data("two"), data(" three")], 6);
        let first = replay.next().unwrap();
        assert_eq!(read(first).await, ("one two three".into(), false));
        assert!(replay.next().is_none());
    }

    #[tokio::test]
    async fn a_body_that_failed_is_not_sent_again() {
        let replay = replay(vec![data("one"), Err("broken".into())], 100);
        let body = replay.next().unwrap().into_body();
        assert!(body.collect().await.is_err());
        assert!(replay.next().is_none());
    }

    #[tokio::test]
    async fn lengths_are_those_of_the_whole_body() {
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
