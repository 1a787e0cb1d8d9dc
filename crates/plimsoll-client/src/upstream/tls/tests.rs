//! Handshakes with a test server, under every setting that decides whether they succeed.

use std::net::SocketAddr;

use plimsoll_testing::Authority;
use plimsoll_xds::string_match::{SafeRegex, StringMatcher};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A server that answers every connection with the SNI and ALPN protocol of the handshake.
struct Server {
    address: SocketAddr,
    authority: Authority,
}

impl Server {
    async fn start(require_client_certificate: bool) -> Self {
        let authority = Authority::new();
        let names = ["orders.test", "spiffe://test/orders", "127.0.0.1"];
        let (certificate, key) = authority.issue(&names);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if require_client_certificate {
            let roots = roots(&pem(&authority.pem)).unwrap().unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let (_, session) = stream.get_ref();
                let name = session.server_name().unwrap_or("-").to_owned();
                let alpn = session.alpn_protocol().unwrap_or(b"-").to_vec();
                let answer = format!("{name} {}", String::from_utf8(alpn).unwrap());
                drop(stream.write_all(answer.as_bytes()).await);
                drop(stream.shutdown().await);
            }
        });
        Self { address, authority }
    }

    async fn handshake(&self, tls: &UpstreamTls, version: HttpVersion) -> Result<String, String> {
        self.handshake_as(tls, version, &UpstreamOptions::default(), None)
            .await
    }

    async fn handshake_as(
        &self,
        tls: &UpstreamTls,
        version: HttpVersion,
        options: &UpstreamOptions,
        server_name: Option<&str>,
    ) -> Result<String, String> {
        let tls = Tls::try_new(tls, options).map_err(|error| error.to_string())?;
        let target = DialTarget {
            addresses: [self.address].into(),
            hostname: "host.test".into(),
            server_name: server_name.map(Into::into),
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut stream = tls
            .handshake(stream, &target, version)
            .await
            .map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .await
            .map_err(|error| error.to_string())?;
        Ok(answer)
    }

    fn trusted(&self) -> UpstreamTls {
        UpstreamTls {
            ca: pem(&self.authority.pem),
            ..UpstreamTls::default()
        }
    }
}

fn pem(text: &str) -> TrustedCa {
    TrustedCa::Pem(inline(text))
}

fn inline(text: &str) -> DataSource {
    DataSource::Inline(text.to_owned().into())
}

fn matcher(san_type: Option<SanType>, pattern: StringPattern) -> Vec<SanMatcher> {
    vec![SanMatcher {
        san_type,
        matcher: StringMatcher::new(pattern),
    }]
}

#[tokio::test]
async fn sni_and_alpn_follow_the_settings() {
    let server = Server::start(false).await;
    let mut tls = UpstreamTls::default();
    assert_eq!(
        server.handshake(&tls, HttpVersion::Http2).await.unwrap(),
        "- h2"
    );
    tls.sni = "orders.test".into();
    let received = server.handshake(&tls, HttpVersion::Http1).await.unwrap();
    assert_eq!(received, "orders.test http/1.1");
    tls.auto_host_sni = true;
    let received = server.handshake(&tls, HttpVersion::Http2).await.unwrap();
    assert_eq!(received, "host.test h2");
    let options = UpstreamOptions::default();
    let received = server
        .handshake_as(&tls, HttpVersion::Http2, &options, Some("x.test"))
        .await;
    assert_eq!(received.unwrap(), "x.test h2");
    tls.alpn = vec!["http/1.1".into()];
    let received = server.handshake(&tls, HttpVersion::Http2).await.unwrap();
    assert_eq!(received, "host.test http/1.1");
}

#[tokio::test]
async fn the_chain_is_verified_with_a_trusted_ca_and_names_on_request() {
    let server = Server::start(false).await;
    let mut tls = server.trusted();
    tls.sni = "other.test".into();
    assert!(server.handshake(&tls, HttpVersion::Http1).await.is_ok());
    tls.auto_sni_san_validation = true;
    let error = server
        .handshake(&tls, HttpVersion::Http1)
        .await
        .unwrap_err();
    assert!(error.contains("not valid for name"), "{error}");
    tls.sni = "orders.test".into();
    assert!(server.handshake(&tls, HttpVersion::Http1).await.is_ok());
    tls.ca = pem(&Authority::new().pem);
    let error = server
        .handshake(&tls, HttpVersion::Http1)
        .await
        .unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
    let options = UpstreamOptions {
        auto_san_validation: true,
        ..Default::default()
    };
    let tls = server.trusted();
    let wrong = server.handshake_as(&tls, HttpVersion::Http1, &options, Some("x.test"));
    assert!(wrong.await.is_err());
    let right = server.handshake_as(&tls, HttpVersion::Http1, &options, Some("orders.test"));
    assert!(right.await.is_ok());
}

#[tokio::test]
async fn subject_alt_names_match_by_type_and_pattern() {
    let server = Server::start(false).await;
    let exact = |text: &str| StringPattern::Exact(text.into());
    let regex = |text: &str| StringPattern::Regex(SafeRegex::try_new(text).unwrap());
    let cases = [
        (None, exact("orders.test"), true),
        (
            Some(SanType::Dns),
            StringPattern::Suffix(".test".into()),
            true,
        ),
        (Some(SanType::Uri), exact("orders.test"), false),
        (Some(SanType::Uri), exact("spiffe://test/orders"), true),
        (None, regex("spiffe://[a-z]+/.*"), true),
        (Some(SanType::Dns), regex("spiffe://.*"), false),
        (Some(SanType::IpAddress), exact("127.0.0.1"), true),
        (Some(SanType::IpAddress), exact("127.0.0.2"), false),
        (None, exact("users.test"), false),
    ];
    for (san_type, pattern, expected) in cases {
        let case = format!("{san_type:?} {pattern:?}");
        let tls = UpstreamTls {
            match_subject_alt_names: matcher(san_type, pattern),
            ..server.trusted()
        };
        let received = server.handshake(&tls, HttpVersion::Http1).await;
        assert_eq!(received.is_ok(), expected, "{case}: {received:?}");
    }
}

#[tokio::test]
async fn the_client_certificate_is_sent_when_the_server_requests_it() {
    let server = Server::start(true).await;
    let mut tls = server.trusted();
    assert!(server.handshake(&tls, HttpVersion::Http1).await.is_err());
    let (chain, key) = server.authority.issue(&[]);
    tls.certificate = Some(CertificatePair {
        certificate_chain: inline(&chain),
        private_key: inline(&key),
    });
    assert!(server.handshake(&tls, HttpVersion::Http1).await.is_ok());
}

#[test]
fn errors_name_the_setting_and_the_file() {
    let error = |tls: UpstreamTls| {
        let error = Tls::try_new(&tls, &UpstreamOptions::default()).unwrap_err();
        error.to_string()
    };
    let mut tls = UpstreamTls {
        ca: TrustedCa::Pem(DataSource::Filename("no/such/file".into())),
        ..UpstreamTls::default()
    };
    assert!(error(tls.clone()).contains("trusted_ca: no/such/file"));
    tls.ca = pem("nothing");
    assert!(error(tls.clone()).contains("no certificate"));
    tls.ca = TrustedCa::Unverified;
    tls.match_subject_alt_names = matcher(Some(SanType::Email), StringPattern::Exact("a@b".into()));
    assert!(error(tls).contains("email"));
}

/// With `--all-features` both providers are compiled in; a program chooses one of them.
#[tokio::test]
async fn every_provider_completes_a_handshake() {
    let server = Server::start(false).await;
    let providers = [
        #[cfg(feature = "tls-ring")]
        rustls::crypto::ring::default_provider(),
        #[cfg(feature = "tls-aws-lc-rs")]
        rustls::crypto::aws_lc_rs::default_provider(),
    ];
    for provider in providers {
        let name = format!("{:?}", provider.key_provider);
        let options = UpstreamOptions::default();
        let tls = Tls::with_provider(&server.trusted(), &options, Arc::new(provider)).unwrap();
        let target = DialTarget {
            addresses: [server.address].into(),
            hostname: "".into(),
            server_name: None,
        };
        let stream = TcpStream::connect(server.address).await.unwrap();
        let connected = tls.handshake(stream, &target, HttpVersion::Http2).await;
        assert!(connected.is_ok(), "{name}: {connected:?}");
    }
}

#[test]
fn only_regular_files_of_limited_size_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let directory = read_file(folder.path().to_str().unwrap()).unwrap_err();
    assert_eq!(directory.to_string(), "is not a regular file");
    let path = folder.path().join("bundle.pem");
    let file = std::fs::File::create(&path).unwrap();
    let size = |bytes: u64| {
        file.set_len(bytes).unwrap();
        let read = read_file(path.to_str().unwrap());
        read.map(|bytes| bytes.len() as u64)
    };
    let limit = 16 * 1024 * 1024;
    assert_eq!(size(3).unwrap(), 3);
    assert_eq!(size(limit).unwrap(), limit);
    let error = size(limit + 1).unwrap_err();
    assert_eq!(error.to_string(), "has more than 16777216 bytes");
}
