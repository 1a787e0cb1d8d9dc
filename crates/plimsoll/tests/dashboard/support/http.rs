//! One request over HTTP, for pages of JSON.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

/// One request of HTTP/1.0; null when nobody answers.
pub(crate) fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> Value {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().unwrap_or_default();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_default()
}
