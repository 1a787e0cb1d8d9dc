//! A server on plain hyper that reports its load, as any server can that has a tower service.
//!
//! Run it with `cargo run -p plimsoll-orca --example hyper -- 127.0.0.1:8080`.

use std::convert::Infallible;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use plimsoll_orca::OrcaRecorder;
use tower::{ServiceBuilder, service_fn};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn hello(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    if let Some(orca) = request.extensions().get::<OrcaRecorder>() {
        // Fails only for names and values that ORCA cannot express.
        let _ = orca.set_named_metric("greetings", 1.0);
    }
    Ok(Response::new("hello\n".to_owned()))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let argument = std::env::args().nth(1);
    let address = argument.as_deref().unwrap_or("127.0.0.1:8080");
    let listener = tokio::net::TcpListener::bind(address).await?;
    let service = ServiceBuilder::new()
        .layer(plimsoll_orca::layer()) // once per process: all connections share one report
        .service(service_fn(hello));
    loop {
        let (socket, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let server = Builder::new(TokioExecutor::new());
            // Fails if the client disconnects.
            let _ = server.serve_connection(TokioIo::new(socket), service).await;
        });
    }
}
