//! [`ServerTransport`]: the way to the management server, as to a host of a cluster: TLS, happy
//! eyeballs, keep-alive.
//!
//! Certificates and keys are read anew for every connection, so that renewed files need no other
//! sign (`refresh_interval` of gRFC A65 has nothing to do here).

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
use crate::connect::{Callee, Dialer};
use crate::error::{Error, ErrorKind};

/// Opens sockets to the management server.
#[derive(Debug)]
struct ServerTransport(Arc<UpstreamOptions>);

impl Connector for ServerTransport {
    fn connect(&self, uri: &Uri) -> Connecting {
        let options = Arc::clone(&self.0);
        let host = uri.host().unwrap_or_default();
        let host: Arc<str> = host.trim_matches(['[', ']']).into();
        let port = uri.port_u16().unwrap_or(443);
        Box::pin(async move {
            let found = tokio::net::lookup_host((&*host, port)).await?;
            let callee = Callee {
                addresses: found.collect(),
                hostname: host,
                server_name: None,
            };
            let dialler = Dialer::new(&options);
            let dialled = dialler.dial(&callee, HttpVersion::Http2).await;
            let socket = dialled.map_err(|error| io::Error::other(error.source))?;
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

/// Connects to `server` as to a host of a cluster with `options`.
pub(super) fn secure(server: &mut ConnectOptions, options: UpstreamOptions) {
    server.connect_timeout = options.connect_timeout;
    server.connector = Some(Arc::new(ServerTransport(Arc::new(options))));
}

/// A server of a bootstrap.
pub(super) fn server(server: &XdsServer) -> Result<ConnectOptions, Error> {
    let address = server.server_uri.trim_start_matches("dns:///");
    let mut connect = connect_options(format!("http://{address}"));
    if let Some(upstream) = options(server)? {
        secure(&mut connect, upstream);
    }
    Ok(connect)
}

/// How a bootstrap wants the server to be spoken to; `None` is plainly.
fn options(server: &XdsServer) -> Result<Option<UpstreamOptions>, Error> {
    let ChannelCreds::Tls {
        ca_certificate_file,
        certificate_file,
        private_key_file,
    } = &server.channel_creds
    else {
        return Ok(None);
    };
    if cfg!(not(feature = "tls-ring")) {
        let message = "channel_creds: tls is not part of this build: feature tls-ring";
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
