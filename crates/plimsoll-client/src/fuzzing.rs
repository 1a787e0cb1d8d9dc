//! Interpreter of byte strings for the fuzz target `request_form` in `fuzz/`: the form in which a
//! request is sent (`upstream::normalize`). Compiled with `--cfg fuzzing`, and for the test of this
//! module.

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Uri, Version};

use crate::upstream::normalize::{ConnectionForm, normalize};

/// The first byte selects the connection. The lines of the rest are method and URI, then hosts.
pub fn run(bytes: &[u8]) {
    let Some((flags, rest)) = bytes.split_first() else {
        return;
    };
    let Some(mut request) = parse(rest) else {
        return;
    };
    let authority = Authority::from_static("cluster");
    let form = ConnectionForm {
        http2: flags & 1 == 1,
        tls: flags & 2 == 2,
        authority: &authority,
    };
    normalize(&mut request, form);
    check(&request, form);
    let (uri, headers) = (request.uri().clone(), request.headers().clone());
    normalize(&mut request, form);
    assert_eq!((request.uri(), request.headers()), (&uri, &headers));
}

fn parse(text: &[u8]) -> Option<Request<()>> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let first = lines.next()?;
    let space = first.iter().position(|byte| *byte == b' ')?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(&first[..space]).ok()?;
    *request.uri_mut() = Uri::try_from(&first[space + 1..]).ok()?;
    for host in lines {
        let host = HeaderValue::from_bytes(host).ok()?;
        request.headers_mut().append(HOST, host);
    }
    Some(request)
}

fn check(request: &Request<()>, form: ConnectionForm<'_>) {
    let uri = request.uri();
    let connect = request.method() == Method::CONNECT;
    if form.http2 {
        assert_eq!(request.version(), Version::HTTP_2);
        assert!(uri.authority().is_some() && !request.headers().contains_key(HOST));
        assert!(uri.scheme().is_some() || connect, "{uri}");
    } else {
        assert_eq!(request.version(), Version::HTTP_11);
        assert!(request.headers().contains_key(HOST));
        assert!(uri.authority().is_none() || connect, "{uri}");
    }
    assert!(!uri.to_string().is_empty(), "a request has a target");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalized_requests_are_complete() {
        let targets = [
            "/",
            "*",
            "/a?b",
            "?b",
            "http://x",
            "http://x?b",
            "http://u:p@x:1/",
            "x:80",
            "x",
            "http://x/#y",
            "https://[::1]:1/",
            "ftp://x/a",
        ];
        let hosts = ["", "\nh", "\nh:1", "\nnot a host", "\n", "\na\nb"];
        for flags in 0..4 {
            for method in ["GET", "OPTIONS", "CONNECT"] {
                for target in targets {
                    for host in hosts {
                        let text = format!("{method} {target}{host}");
                        run(&[&[flags], text.as_bytes()].concat());
                    }
                }
            }
        }
    }
}
