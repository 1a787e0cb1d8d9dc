//! One GET over plain HTTP, for commands that look at an admin address.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The largest answer that is read.
const MAX_BODY_BYTES: usize = 64 << 20;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where admin pages are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminAddress {
    host_and_port: String,
}

impl AdminAddress {
    /// Reads `HOST:PORT`, with or without `http://` before it and `/` behind it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let wrong = |reason: &str| Err(format!("{reason}: write HOST:PORT"));
        if rest.contains("://") {
            return wrong("only http:// is spoken");
        }
        let Some((host, port)) = rest.rsplit_once(':') else {
            return wrong("there is no port");
        };
        if host.is_empty() || host.contains(['/', ' ']) || port.parse::<u16>().is_err() {
            return wrong("this is no address");
        }
        Ok(Self {
            host_and_port: rest.to_owned(),
        })
    }
}

impl std::fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.host_and_port)
    }
}

/// The body of a page that was found.
pub(crate) async fn get(address: &AdminAddress, path: &str) -> anyhow::Result<Bytes> {
    let answer = tokio::time::timeout(PATIENCE, get_patiently(address, path)).await;
    let answer = answer.unwrap_or_else(|_| Err(anyhow!("no answer within {PATIENCE:?}")));
    answer.with_context(|| format!("http://{address}{path}"))
}

async fn get_patiently(address: &AdminAddress, path: &str) -> anyhow::Result<Bytes> {
    let stream = TcpStream::connect(&address.host_and_port).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = http::Request::get(path)
        .header(http::header::HOST, &address.host_and_port)
        .header(http::header::ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        if !status.is_success() {
            bail!("answers with {status}");
        }
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES)
            .collect()
            .await;
        let body = body.map_err(|error| anyhow!("{error}"))?;
        Ok(body.to_bytes())
    };
    // The connection must be driven while we wait. Its own end says nothing: the answer may still
    // be on its way to us, and if there is none the sender says so.
    let driven = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        answer = answer => answer,
        never = driven => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_people_paste() {
        for text in [
            "localhost:18001",
            "http://localhost:18001",
            "http://localhost:18001/",
        ] {
            assert_eq!(
                AdminAddress::parse(text).unwrap().to_string(),
                "localhost:18001"
            );
        }
        assert_eq!(
            AdminAddress::parse("[::1]:80").unwrap().to_string(),
            "[::1]:80"
        );
        for text in [
            "localhost",
            ":80",
            "a:b",
            "https://a:1",
            "a/b:1",
            "a:99999",
            "",
        ] {
            assert!(AdminAddress::parse(text).is_err(), "{text}");
        }
    }
}
