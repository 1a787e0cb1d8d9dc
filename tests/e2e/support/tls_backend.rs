//! HTTPS server with one certificate; it runs until the test process exits.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use plimsoll_testing::Authority;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Starts a server whose certificate has the URI, and writes its authority to `ca.crt`.
pub(crate) fn start(directory: &Path, uri: &str) -> SocketAddr {
    let authority = Authority::named("backends");
    std::fs::write(directory.join("ca.crt"), &authority.pem).unwrap();
    let (certificate, key) = authority.issue(&["127.0.0.1", uri]);
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    // A build of the workspace has two providers, and no default.
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let versions = builder.with_safe_default_protocol_versions().unwrap();
    let config = versions.with_no_client_auth();
    let config = Arc::new(config.with_single_cert(vec![certificate], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let config = Arc::clone(&config);
            // A connection ends when the client closes it, or refuses the certificate.
            thread::spawn(move || respond(config, stream));
        }
    });
    address
}

fn respond(config: Arc<ServerConfig>, stream: TcpStream) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    let mut line = String::new();
    while stream.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            stream.get_mut().write_all(answer)?;
            stream.get_mut().flush()?;
        }
        line.clear();
    }
    Ok(())
}
