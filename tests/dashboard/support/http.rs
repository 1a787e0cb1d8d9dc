//! HTTP/1.0 client for JSON.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

/// Sends a request and returns the JSON of the response; null if there is none.
pub(crate) fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> Value {
    let send = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    let response = send().unwrap_or_default();
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_default()
}
