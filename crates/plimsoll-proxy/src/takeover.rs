//! Restart without a gap: tells the previous process to drain, over its admin address.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Time limit of the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Sends `POST /quitquitquit` to the process that has the admin address. Must be called before this
/// process opens the address, which both may share.
pub(crate) async fn drain_previous(admin: SocketAddr) -> io::Result<()> {
    let exchange = async {
        let mut stream = TcpStream::connect(plimsoll_serve::local(admin)).await?;
        let request = "POST /quitquitquit HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\
                       connection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        if &status[9..] == b"200" {
            return Ok(());
        }
        let status = String::from_utf8_lossy(&status);
        Err(io::Error::other(format!("answered with {status}")))
    };
    tokio::time::timeout(TIMEOUT, exchange)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
