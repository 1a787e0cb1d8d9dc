//! A management server whose cluster nobody can decode.

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::net::TcpListener;

use super::{field, text};

pub(super) const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Serves until the test ends.
pub(super) async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                let mut open = Vec::new();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let head = http::Response::builder()
                        .header("content-type", "application/grpc")
                        .body(())
                        .unwrap();
                    let mut stream = respond.send_response(head, false).unwrap();
                    stream.send_data(response(), false).unwrap();
                    open.push((request, stream));
                }
            });
        }
    });
    address
}

/// A response with one cluster: its name can be read, and its `connect_timeout` is cut.
fn response() -> Bytes {
    let broken = b"\x0a\x06orders\x22\x01\xff";
    let resource = [text(1, CLUSTERS), field(2, broken)].concat();
    let message = [
        text(1, "1"),
        field(2, &resource),
        text(4, CLUSTERS),
        text(5, "1"),
    ]
    .concat();
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    framed.into()
}
