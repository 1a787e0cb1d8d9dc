//! gRPC stream of a synthetic proxy, on h2 without the layers of a real client.

use anyhow::{anyhow, bail};
use bytes::{Buf as _, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};

/// Length of the gRPC message prefix: compressed flag and length.
const HEADER: usize = 5;

/// Bidirectional gRPC stream over h2.
pub(crate) struct Stream {
    requests: SendStream<Bytes>,
    responses: RecvStream,
    buffer: BytesMut,
}

impl Stream {
    pub(crate) async fn open(requests: SendRequest<Bytes>, path: &str) -> anyhow::Result<Self> {
        let request = http::Request::post(format!("http://control{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let mut sender = requests.ready().await?;
        let (response, requests) = sender.send_request(request, false)?;
        Ok(Self {
            requests,
            responses: response.await?.into_body(),
            buffer: BytesMut::new(),
        })
    }

    pub(crate) fn send(&mut self, message: Bytes) -> anyhow::Result<()> {
        Ok(self.requests.send_data(message, false)?)
    }

    /// Returns the next message; cancel-safe.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Bytes> {
        loop {
            if let Some(length) = self.buffer.get(1..HEADER) {
                let length = u32::from_be_bytes(length.try_into()?) as usize;
                if self.buffer.len() >= HEADER + length {
                    self.buffer.advance(HEADER);
                    let message = self.buffer.split_to(length).freeze();
                    if self.buffer.is_empty() {
                        self.buffer = BytesMut::new();
                    }
                    return Ok(message);
                }
            }
            let Some(data) = self.responses.data().await else {
                bail!("the stream has ended");
            };
            let data = data.map_err(|error| anyhow!(error))?;
            self.responses.flow_control().release_capacity(data.len())?;
            self.buffer.extend_from_slice(&data);
        }
    }
}
