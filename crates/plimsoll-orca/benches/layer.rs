//! Overhead of the layer per request, compared with an identity layer in the same run.
//!
//! The handler is always ready and has an empty body, so that only the layer is measured.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use criterion::{Criterion, criterion_group, criterion_main};
use http::{Request, Response};
use http_body::Body;
use http_body_util::Empty;
use plimsoll_orca::{OrcaFormat, OrcaLayer, OrcaRecorder, When};
use tower::layer::util::Identity;
use tower::{Layer, Service};

/// Responds with two headers and an empty body.
#[derive(Clone)]
struct Handler {
    cost: bool,
}

impl Service<Request<()>> for Handler {
    type Response = Response<Empty<bytes::Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        if self.cost
            && let Some(recorder) = request.extensions().get::<OrcaRecorder>()
        {
            let _ = recorder.set_request_cost("rows", 3.0);
        }
        let mut response = Response::new(Empty::new());
        let headers = response.headers_mut();
        headers.insert("content-type", http::HeaderValue::from_static("text/plain"));
        headers.insert("server", http::HeaderValue::from_static("bench"));
        ready(Ok(response))
    }
}

/// Sends one request and reads its response to the end.
fn request<S, B>(service: &mut S)
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
    B: Body,
{
    let mut cx = Context::from_waker(Waker::noop());
    let mut request = Request::new(());
    // Real servers also insert extensions, such as the peer address.
    request.extensions_mut().insert(80_u16);
    let future = pin!(service.call(request));
    if let Poll::Ready(Ok(response)) = future.poll(&mut cx) {
        let (head, body) = response.into_parts();
        black_box(head);
        let body = pin!(body);
        black_box(body.poll_frame(&mut cx).is_ready());
    }
}

fn layer(format: OrcaFormat, when: When) -> OrcaLayer {
    let layer = OrcaLayer::builder()
        .http_format(format)
        .when(when)
        .build()
        .unwrap_or_default();
    let _ = layer.handle().set_cpu_utilization(0.37);
    layer.handle().refresh();
    layer
}

fn benches(criterion: &mut Criterion) {
    let plain = Handler { cost: false };
    let mut group = criterion.benchmark_group("layer");
    let mut nothing = Identity::new().layer(plain.clone());
    group.bench_function("nothing", |bencher| bencher.iter(|| request(&mut nothing)));
    for format in [OrcaFormat::Text, OrcaFormat::BinHeader] {
        let mut service = layer(format, When::Always).layer(plain.clone());
        group.bench_function(format!("{format:?}"), |bencher| {
            bencher.iter(|| request(&mut service));
        });
    }
    let mut silent = layer(OrcaFormat::Text, When::OnRequest).layer(plain);
    group.bench_function("not asked", |bencher| bencher.iter(|| request(&mut silent)));
    let costly = Handler { cost: true };
    let mut costly = layer(OrcaFormat::BinHeader, When::Always).layer(costly);
    group.bench_function("own cost", |bencher| bencher.iter(|| request(&mut costly)));
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
