//! [`OrcaBody`]: response body that adds the report to the trailers of a gRPC response.
//!
//! The body only extends trailers that the service sends, so that content lengths and HTTP/1.1
//! responses are unchanged. The request is in flight while the body lives (`call`).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::call::Call;

pin_project! {
    /// Response body of [`OrcaService`](crate::OrcaService).
    #[derive(Debug)]
    pub struct OrcaBody<B> {
        #[pin]
        inner: B,
        call: Option<Call>,
    }
}

impl<B> OrcaBody<B> {
    pub(crate) const fn new(inner: B, call: Option<Call>) -> Self {
        Self { inner, call }
    }
}

impl<B: Body> Body for OrcaBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let mut frame = ready!(this.inner.poll_frame(cx));
        match (&mut frame, this.call.as_mut()) {
            (Some(Ok(frame)), Some(call)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    call.handle_trailers(trailers);
                }
            }
            (Some(Err(_)), Some(call)) => call.handle_error(),
            (None, _) => *this.call = None,
            (_, None) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B: Default> Default for OrcaBody<B> {
    fn default() -> Self {
        Self::new(B::default(), None)
    }
}
