//! Out-of-band load reports (`OpenRcaService`) of the servers of `orca_backends`, at one port of
//! their addresses, as by sidecars. When a server stops reporting, its streams end with
//! `UNAVAILABLE`, and so does every new one.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;

use bytes::{BufMut as _, Bytes, BytesMut};
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_xds::orca::encode_message;
use plimsoll_xds::orca::oob::parse_request;
use tokio::net::{TcpListener, TcpStream};

use super::orca_backends::Host;

/// Starts the services and returns their port; they run until the test process exits.
pub(crate) fn serve(hosts: Vec<(IpAddr, Arc<Host>)>) -> u16 {
    let (listeners, port) = bind(&hosts);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    thread::spawn(move || {
        runtime.block_on(async {
            let start = |(listener, (_, host))| {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::spawn(accept(listener, host))
            };
            let services = listeners.into_iter().zip(hosts).map(start);
            for service in services.collect::<Vec<_>>() {
                drop(service.await);
            }
        });
    });
    port
}

/// Binds one port of all addresses.
fn bind(hosts: &[(IpAddr, Arc<Host>)]) -> (Vec<std::net::TcpListener>, u16) {
    loop {
        let first = std::net::TcpListener::bind((hosts[0].0, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let others = hosts[1..].iter();
        let others: Result<Vec<_>, _> = others
            .map(|(ip, _)| std::net::TcpListener::bind((*ip, port)))
            .collect();
        if let Ok(others) = others {
            let listeners: Vec<_> = std::iter::once(first).chain(others).collect();
            for listener in &listeners {
                listener.set_nonblocking(true).unwrap();
            }
            return (listeners, port);
        }
    }
}

async fn accept(listener: TcpListener, host: Arc<Host>) {
    while let Ok((stream, _)) = listener.accept().await {
        let host = Arc::clone(&host);
        // A connection ends when the data plane closes it.
        tokio::spawn(async move { drop(respond(stream, host).await) });
    }
}

async fn respond(stream: TcpStream, host: Arc<Host>) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, response) = accepted?;
        tokio::spawn(report(request, response, Arc::clone(&host)));
    }
    Ok(())
}

async fn report(
    mut request: http::Request<h2::RecvStream>,
    mut response: h2::server::SendResponse<Bytes>,
    host: Arc<Host>,
) -> Result<(), h2::Error> {
    let head = http::Response::builder().header("content-type", "application/grpc");
    if !host.is_reporting() {
        let head = head.header("grpc-status", "14").body(()).unwrap();
        response.send_response(head, true)?;
        return Ok(());
    }
    let Some(body) = request.body_mut().data().await else {
        return Ok(());
    };
    let period = parse_request(&body?[5..]).unwrap().unwrap();
    let mut stream = response.send_response(head.body(()).unwrap(), false)?;
    while host.is_reporting() {
        stream.send_data(frame(host.utilization()), false)?;
        tokio::time::sleep(period).await;
    }
    let status = [("grpc-status".parse().unwrap(), "14".parse().unwrap())];
    stream.send_trailers(status.into_iter().collect())
}

fn frame(utilization: f64) -> Bytes {
    let message = encode_message(&OrcaLoadReport {
        application_utilization: utilization,
        ..OrcaLoadReport::default()
    });
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(&message);
    frame.freeze()
}
