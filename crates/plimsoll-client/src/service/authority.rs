//! Default authority of requests whose URI has none, such as those of generated gRPC clients.

use http::uri::PathAndQuery;
use http::{Request, Uri};

/// Adds scheme and authority to the URI if it has no authority.
pub(crate) fn set_default_authority<B>(request: &mut Request<B>, authority: &str) {
    let uri = request.uri();
    if uri.authority().is_some() {
        return;
    }
    let path = uri.path_and_query().cloned();
    let whole = Uri::builder()
        .scheme(http::uri::Scheme::HTTP)
        .authority(authority)
        .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    // If the target name is not a valid authority, the URI stays as it is.
    if let Ok(whole) = whole.build() {
        *request.uri_mut() = whole;
    }
}
