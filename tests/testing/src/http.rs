//! Minimal HTTP/1.1 client over blocking sockets, for admin APIs and load.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// HTTP/1.1 connection with keep-alive.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request and returns status and body.
    pub fn request(&mut self, head: &str) -> io::Result<(u16, Vec<u8>)> {
        self.stream.get_mut().write_all(head.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status =
            status.ok_or_else(|| io::Error::other(format!("unexpected status line {line:?}")))?;
        let mut length = None;
        let mut chunked = false;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let header = line.trim_end().to_ascii_lowercase();
            match header.split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse().ok(),
                Some(("transfer-encoding", value)) => chunked = value.trim() == "chunked",
                Some(_) => {}
                None => break,
            }
        }
        let body = match (chunked, length) {
            (true, _) => self.chunks()?,
            (false, length) => self.exactly(length.unwrap_or(0))?,
        };
        Ok((status, body))
    }

    fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            body.extend(self.exactly(length)?);
            // CRLF at the end of the chunk.
            self.exactly(2)?;
            if length == 0 {
                return Ok(body);
            }
        }
    }
}

/// Returns the body of a response with status 200; `None` otherwise.
pub fn get(address: SocketAddr, path: &str) -> Option<String> {
    let head = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    let (status, body) = Connection::open(address).ok()?.request(&head).ok()?;
    (status == 200).then(|| String::from_utf8(body).unwrap())
}

/// Returns the JSON of a response with status 200; `None` otherwise.
pub fn get_json(address: SocketAddr, path: &str) -> Option<serde_json::Value> {
    let text = get(address, path)?;
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}")))
}
