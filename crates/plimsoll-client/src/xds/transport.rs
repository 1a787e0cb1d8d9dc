//! [`ServerTransport`]: connections to the management server with the settings of a cluster: TLS,
//! happy eyeballs, keepalive.
//!
//! Certificates and keys are read again for every connection, so renewed files take effect without
//! `refresh_interval` (gRFC A65).

use std::io;
use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;
use plimsoll_xds::bootstrap::{ChannelCreds, XdsServer};
use plimsoll_xds::driver::{ConnectOptions, Connecting, Connector, Socket};
use plimsoll_xds::upstream::{
    CertificatePair, DataSource, HttpVersion, TrustedCa, UpstreamOptions, UpstreamTls,
};

use super::connect_options;
use crate::error::{Error, ErrorKind};
use crate::upstream::connect::{DialTarget, Dialer};

#[derive(Debug)]
struct ServerTransport(Arc<UpstreamOptions>);

impl Connector for ServerTransport {
    fn connect(&self, uri: &Uri) -> Connecting {
        let options = Arc::clone(&self.0);
        let host: Arc<str> = uri
            .host()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .into();
        let port = uri.port_u16().unwrap_or(443);
        Box::pin(async move {
            let found = tokio::net::lookup_host((&*host, port)).await?;
            let target = DialTarget {
                addresses: found.collect(),
                hostname: host,
                server_name: None,
            };
            let dialer = Dialer::new(&options);
            let dialed = dialer.dial(&target, HttpVersion::Http2).await;
            let socket = dialed.map_err(|error| io::Error::other(error.source))?;
            Ok(Box::new(socket) as Box<dyn Socket>)
        })
    }

    fn scheme(&self) -> Scheme {
        match self.0.tls {
            None => Scheme::HTTP,
            Some(_) => Scheme::HTTPS,
        }
    }
}

pub(super) fn set_transport(server: &mut ConnectOptions, options: UpstreamOptions) {
    server.connect_timeout = options.connect_timeout;
    server.connector = Some(Arc::new(ServerTransport(Arc::new(options))));
}

pub(super) fn server(server: &XdsServer) -> Result<ConnectOptions, Error> {
    let address = server.server_uri.trim_start_matches("dns:///");
    let mut connect = connect_options(format!("http://{address}"));
    if let Some(upstream) = options(server)? {
        set_transport(&mut connect, upstream);
    }
    Ok(connect)
}

/// Transport settings of a server of a bootstrap; `None` for plaintext.
fn options(server: &XdsServer) -> Result<Option<UpstreamOptions>, Error> {
    let ChannelCreds::Tls {
        ca_certificate_file,
        certificate_file,
        private_key_file,
    } = &server.channel_creds
    else {
        return Ok(None);
    };
    if cfg!(not(feature = "tls")) {
        let message = "channel_creds: TLS is not compiled in: enable the feature tls-ring, \
                       tls-aws-lc-rs or tls";
        return Err(Error::new(ErrorKind::Config, message));
    }
    let file = |path: &String| DataSource::Filename(path.clone());
    let pair = certificate_file.as_ref().zip(private_key_file.as_ref());
    let tls = UpstreamTls {
        auto_host_sni: true,
        auto_sni_san_validation: true,
        ca: ca_certificate_file
            .as_ref()
            .map_or(TrustedCa::System, |path| TrustedCa::Pem(file(path))),
        certificate: pair.map(|(certificate, key)| CertificatePair {
            certificate_chain: file(certificate),
            private_key: file(key),
        }),
        ..UpstreamTls::default()
    };
    Ok(Some(UpstreamOptions {
        tls: Some(tls),
        ..UpstreamOptions::default()
    }))
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests {
    use std::time::Duration;

    use plimsoll_xds::bootstrap::Bootstrap;

    use super::*;

    fn parsed(uri: &str, creds: &str) -> XdsServer {
        let text = format!(
            r#"{{"xds_servers": [{{"server_uri": "{uri}", "channel_creds": [{creds}]}}],
                "node": {{"id": "n"}}}}"#
        );
        Bootstrap::parse(&text).unwrap().xds_servers.remove(0)
    }

    #[test]
    fn credentials_become_settings_of_tls() {
        let insecure = parsed("xds:1", r#"{"type": "insecure"}"#);
        assert!(options(&insecure).unwrap().is_none());
        let tls = |creds: &str| {
            let parsed = parsed("xds:1", creds);
            options(&parsed).unwrap().unwrap().tls.unwrap()
        };
        let system = tls(r#"{"type": "tls", "config": {}}"#);
        assert_eq!(system.ca, TrustedCa::System);
        assert!(system.auto_host_sni && system.auto_sni_san_validation);
        assert_eq!(system.certificate, None);
        let own = tls(r#"{"type": "tls", "config": {"ca_certificate_file": "/ca",
                "certificate_file": "/cert", "private_key_file": "/key"}}"#);
        let file = |path: &str| DataSource::Filename(path.to_owned());
        assert_eq!(own.ca, TrustedCa::Pem(file("/ca")));
        let certificate = CertificatePair {
            certificate_chain: file("/cert"),
            private_key: file("/key"),
        };
        assert_eq!(own.certificate, Some(certificate));
    }

    #[test]
    fn servers_are_dialed_as_their_credentials_say() {
        let plain = server(&parsed("dns:///xds:1", r#"{"type": "insecure"}"#)).unwrap();
        assert_eq!(plain.uri, "http://xds:1");
        assert!(plain.connector.is_none());
        let secure = server(&parsed("xds:1", r#"{"type": "tls", "config": {}}"#)).unwrap();
        assert_eq!(secure.connector.unwrap().scheme(), Scheme::HTTPS);
        let mut connect = connect_options("http://xds:1");
        let options = UpstreamOptions {
            connect_timeout: Duration::from_secs(7),
            ..UpstreamOptions::default()
        };
        set_transport(&mut connect, options);
        assert_eq!(connect.connect_timeout, Duration::from_secs(7));
        assert_eq!(connect.connector.unwrap().scheme(), Scheme::HTTP);
    }
}
