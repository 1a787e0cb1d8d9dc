//! Program with the embedded client, as a separate process.
//!
//! It is this test binary, started again with an environment variable ([`run_if_client_process`]).
//! It forwards every HTTP/1.1 request to `xds:///orders`; `/explain` returns the explanation of the
//! routing. Only the client inside knows the control plane.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use plimsoll_client::{Client, TargetService, XdsOptions};
use plimsoll_testing::Process;
use plimsoll_testing::http::get_json;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service as _;

use super::control::{Control, bootstrap};

/// Environment variable that makes this process a client, with its zone.
const ZONE: &str = "PLIMSOLL_E2E_CLIENT_ZONE";
/// Prefix of the line with its address.
const READY: &str = "client on ";

/// Running client process; killed when dropped.
pub(crate) struct ClientProcess {
    pub(crate) zone: String,
    pub(crate) address: SocketAddr,
    process: Process,
}

impl ClientProcess {
    /// Starts a client process; `entry` is the name of the test that calls
    /// [`run_if_client_process`].
    pub(crate) fn start(directory: &Path, entry: &str, control: &Control, zone: &str) -> Self {
        Self::start_at(directory, entry, control.xds, zone)
    }

    /// Like `start`, with the address of the control plane.
    pub(crate) fn start_at(directory: &Path, entry: &str, xds: SocketAddr, zone: &str) -> Self {
        let address = xds.to_string();
        let mut args = vec![
            "grpc", "--zone", zone, "--region", "r1", "--fleet", "checkout",
        ];
        args.extend(["--control", &address]);
        let file = directory.join(format!("client-{zone}.json"));
        std::fs::write(&file, bootstrap(&args).to_string()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", "--test-threads=1", entry]);
        command.env(ZONE, zone).env("GRPC_XDS_BOOTSTRAP", &file);
        let log = directory.join(format!("client-{zone}.log"));
        let mut process = Process::start(command, &log);
        let lines = BufReader::new(process.child.stdout.take().unwrap()).lines();
        // The test harness prints before that, possibly on the same line.
        let mut lines = lines.map_while(Result::ok);
        let address = lines.find_map(|line| {
            let (_, address) = line.split_once(READY)?;
            address.parse().ok()
        });
        Self {
            zone: zone.to_owned(),
            address: address.expect("the client starts"),
            process,
        }
    }

    /// Returns the explanation of the routing; null while unknown.
    pub(crate) fn explain(&self) -> Value {
        get_json(self.address, "/explain").unwrap_or_default()
    }

    /// Whether the process still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }
}

/// Runs a client and never returns if the environment variable is set.
pub(crate) fn run_if_client_process() {
    let Ok(zone) = std::env::var(ZONE) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(serve(zone));
}

async fn serve(zone: String) {
    let options = XdsOptions::from_env().unwrap();
    let client = Client::builder().xds(options).build().unwrap();
    let service = client.target("xds:///orders").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    announce(listener.local_addr().unwrap());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let caller = Caller {
            zone: zone.clone(),
            client: client.clone(),
            service: service.clone(),
        };
        // A connection ends when the other side closes it.
        tokio::spawn(async move { drop(caller.respond(stream).await) });
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the parent process waits for this line"
)]
fn announce(address: SocketAddr) {
    println!("{READY}{address}");
}

struct Caller {
    zone: String,
    client: Client,
    service: TargetService,
}

impl Caller {
    async fn respond(mut self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let (reader, mut writer) = stream.split();
        let mut lines = tokio::io::BufReader::new(reader).lines();
        let mut path = None;
        while let Some(line) = lines.next_line().await? {
            if path.is_none() {
                path = line.split(' ').nth(1).map(str::to_owned);
            }
            if !line.is_empty() {
                continue;
            }
            let (status, body) = match path.take().as_deref() {
                Some("/explain") => (200, self.explain().await),
                _ => self.call().await,
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status} -\r\ncontent-length: {length}\r\n\r\n");
            writer.write_all(head.as_bytes()).await?;
            writer.write_all(body.as_bytes()).await?;
        }
        Ok(())
    }

    async fn explain(&self) -> String {
        let explanation = self.client.explain("orders").await.ok();
        serde_json::to_string(&explanation).unwrap()
    }

    async fn call(&mut self) -> (u16, String) {
        let request = http::Request::get("http://orders/")
            .header("x-from", &self.zone)
            .body(Empty::<Bytes>::new())
            .unwrap();
        match self.service.call(request).await {
            Err(error) => (503, error.to_string()),
            Ok(response) => {
                let status = response.status().as_u16();
                match response.into_body().collect().await {
                    Ok(_) => (status, "ok".to_owned()),
                    Err(error) => (503, error.to_string()),
                }
            }
        }
    }
}
