//! [`hint`]: what to look at if a host and this client do not understand each other. The errors of
//! the libraries name what arrived, not the setting that is wrong.

use std::error::Error;
use std::io;

use plimsoll_xds::upstream::{HttpVersion, UpstreamOptions};

/// Returns a question about the settings of a cluster that would explain `error`; `is_first` says
/// that the connection has served no request before.
#[cold]
pub(crate) fn hint(
    error: &(dyn Error + 'static),
    options: &UpstreamOptions,
    is_first: bool,
) -> Option<&'static str> {
    let mut chain = std::iter::successors(Some(error), source);
    let (is_plain, http2) = (
        options.tls.is_none(),
        options.http_version == HttpVersion::Http2,
    );
    chain.find_map(|error| {
        if is_no_tls(error) {
            return Some("does the host speak TLS on this port?");
        }
        let hyper = error.downcast_ref::<hyper::Error>();
        if hyper.is_some_and(hyper::Error::is_parse) {
            return Some(if is_plain {
                "does the host expect TLS (Cluster::tls), or HTTP/2, as gRPC does (Cluster::http2)?"
            } else {
                "does the host expect HTTP/2, as gRPC does (Cluster::http2)?"
            });
        }
        let closed = hyper.is_some_and(hyper::Error::is_incomplete_message);
        if closed && is_first && is_plain && !http2 {
            return Some("does the host expect TLS (Cluster::tls)?");
        }
        let is_framing = |error: &h2::Error| !error.is_remote() && !error.is_io();
        let no_http2 = error.downcast_ref().is_some_and(is_framing);
        (no_http2 && is_first && http2).then_some(if is_plain {
            "does the host speak HTTP/2 without TLS?"
        } else {
            "does the host speak HTTP/2?"
        })
    })
}

fn source<'a>(error: &&'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    (**error).source()
}

/// Whether what arrived in a TLS handshake is no TLS.
#[cfg(feature = "tls")]
fn is_no_tls(error: &(dyn Error + 'static)) -> bool {
    // `source` of an `io::Error` leaves out the error that it wraps.
    let wrapped = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
        .and_then(|error| error.downcast_ref::<rustls::Error>());
    let tls = wrapped.or_else(|| error.downcast_ref());
    matches!(tls, Some(rustls::Error::InvalidMessage(_)))
}

#[cfg(not(feature = "tls"))]
fn is_no_tls(error: &(dyn Error + 'static)) -> bool {
    let _ = error.downcast_ref::<io::Error>();
    false
}
