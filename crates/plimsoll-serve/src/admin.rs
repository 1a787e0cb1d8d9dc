//! [`AdminRouter`]: an admin API built from a table of its paths, so that every path that is served
//! is also documented. `/help` and docs/reference/admin-api.md print that table.
//!
//! The caller that starts a server can add pages, such as the dashboard ([`AdminOptions`]). All
//! requests pass the checks of `http_guard`.

use std::future::ready;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::handler::Handler;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};
use plimsoll_core::log_line;

use crate::access::{AdminToken, Administrators, Caller, Trusted, caller, check};
use crate::http_guard::HttpGuard;
use crate::log_lines;
use crate::pretty::pretty;

/// Limit of request bodies: large enough for a what-if request with thousands of zones.
const MAX_BODY_BYTES: usize = 256 << 10;

/// Documentation of one path of the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminPath {
    /// HTTP method, `GET` or `POST`.
    pub method: &'static str,
    pub path: &'static str,
    /// Query parameters of the path; empty if there are none.
    pub query: &'static str,
    /// Description of the path, for the list of paths.
    pub about: &'static str,
    /// Whether the path changes something: allowed from loopback or with the admin token.
    pub changes_state: bool,
}

impl AdminPath {
    /// Creates the documentation of a path that does not change anything.
    pub const fn new(
        method: &'static str,
        path: &'static str,
        query: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            method,
            path,
            query,
            about,
            changes_state: false,
        }
    }

    /// Returns path and query as in a request line.
    pub fn target(&self) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", self.path, self.query)
    }
}

/// How an admin API renders its list of paths and its errors: as text or JSON.
#[derive(Clone, Copy, Debug)]
pub struct AdminFormat {
    /// Renders the list of paths.
    pub index: fn(&[AdminPath]) -> Response,
    /// Renders an error with the reason for refusing a request.
    pub error: fn(StatusCode, String) -> Response,
}

/// Renders an error as a line of text.
pub fn text_error(status: StatusCode, error: String) -> Response {
    (status, format!("{error}\n")).into_response()
}

/// Additions to the admin listener by the caller that starts a server.
#[derive(Debug, Default)]
pub struct AdminOptions {
    /// Additional pages of the listener, including `/`.
    pub pages: Option<Router>,
    /// Paths of `pages` that belong in the list of paths.
    pub listed: Vec<AdminPath>,
    /// Additional host names of the admin listener; requests for other names are refused.
    pub hosts: Vec<String>,
    /// Allows requests from other machines to change state; without it only loopback may.
    pub token: Option<AdminToken>,
    /// Client certificates that allow as much as the token.
    pub administrators: Administrators,
    pub access: AdminAccess,
}

/// What other machines may do at an admin listener without the token or an administrator's
/// certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminAccess {
    /// Reading is open to everybody.
    #[default]
    ReadAnywhere,
    /// Everything needs loopback, the token or a certificate.
    Restricted,
    /// They may read, and nobody may do anything else, with or without the token.
    ReadOnly,
}

impl AdminAccess {
    /// Checks a request; the error is the reason for refusing it.
    fn check(self, request: &Request, is_action: bool, trusted: &Trusted) -> Result<(), String> {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match self {
            Self::ReadAnywhere if is_action => check(request, trusted),
            Self::ReadAnywhere => Ok(()),
            Self::Restricted => check(request, trusted),
            Self::ReadOnly if reads => Ok(()),
            Self::ReadOnly => Err("this address is read-only".to_owned()),
        }
    }
}

/// Paths of an admin API and their handlers.
#[derive(Debug)]
pub struct AdminRouter<S> {
    format: AdminFormat,
    /// Documented paths; the first one is the list of paths.
    paths: Vec<AdminPath>,
    router: Router<S>,
}

impl<S: Clone + Send + Sync + 'static> AdminRouter<S> {
    /// Creates a router that lists its paths at `index`.
    pub fn new(format: AdminFormat, index: &'static str) -> Self {
        Self {
            format,
            paths: vec![AdminPath::new("GET", index, "", "A list of these paths")],
            router: Router::new(),
        }
    }

    /// Adds a `GET` handler with its query parameters and description.
    #[must_use]
    pub fn get<T: 'static>(
        self,
        path: &'static str,
        query: &'static str,
        about: &'static str,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.add(AdminPath::new("GET", path, query, about), get(handler))
    }

    /// Adds a `POST` handler that changes state: allowed from loopback or with the admin token.
    #[must_use]
    pub fn action<T: 'static>(
        self,
        path: &'static str,
        query: &'static str,
        about: &'static str,
        handler: impl Handler<T, S>,
    ) -> Self {
        let path = AdminPath {
            changes_state: true,
            ..AdminPath::new("POST", path, query, about)
        };
        self.add(path, post(handler))
    }

    /// Adds a `POST` handler that changes nothing, for requests with a body.
    #[must_use]
    pub fn post<T: 'static>(
        self,
        path: &'static str,
        query: &'static str,
        about: &'static str,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.add(AdminPath::new("POST", path, query, about), post(handler))
    }

    fn add(mut self, path: AdminPath, handler: MethodRouter<S>) -> Self {
        self.router = self.router.route(path.path, handler);
        self.paths.push(path);
        self
    }

    /// Returns the documentation of all paths.
    pub fn paths(&self) -> &[AdminPath] {
        &self.paths
    }

    /// Builds the router. The list of paths is also served at `/` unless `options` has pages.
    pub fn into_router(self, state: S, options: AdminOptions) -> Router {
        let AdminFormat { index, error } = self.format;
        let paths: Arc<[AdminPath]> = self.paths.into_iter().chain(options.listed).collect();
        let actions: Vec<&'static str> = paths
            .iter()
            .filter(|path| path.changes_state)
            .map(|path| path.path)
            .collect();
        let access = options.access;
        let trusted = Trusted {
            token: options.token,
            administrators: options.administrators,
        };
        let listed_at = paths[0].path;
        let list = move || ready(index(&paths));
        let pages = options
            .pages
            .unwrap_or_else(|| Router::new().route("/", get(list.clone())));
        let router = self
            .router
            .route(listed_at, get(list))
            .fallback(move |uri: Uri| {
                let reason = format!("{} not found; see {listed_at} for all paths", uri.path());
                ready(error(StatusCode::NOT_FOUND, reason))
            })
            .method_not_allowed_fallback(move |method: Method, uri: Uri| {
                let reason = format!("{method} is not allowed for {}", uri.path());
                ready(error(StatusCode::METHOD_NOT_ALLOWED, reason))
            })
            .with_state(state)
            .merge(pages)
            .layer(from_fn(pretty))
            .layer(from_fn(move |mut request: Request, next: Next| {
                let is_action = actions.contains(&request.uri().path());
                let checked = access.check(&request, is_action, &trusted);
                if is_action {
                    let reason = checked.as_ref().err().map_or("", String::as_str);
                    let (path, by) = (
                        request.uri().path(),
                        caller(&request, trusted.token.as_ref()),
                    );
                    log_line!(log_lines::ADMIN_ACTION, path, by, reason);
                    request.extensions_mut().insert(Caller(by));
                }
                async move {
                    match checked {
                        Ok(()) => next.run(request).await,
                        Err(reason) => error(StatusCode::FORBIDDEN, reason),
                    }
                }
            }));
        guarded(router, &options.hosts, error)
    }
}

/// Adds a limit of body sizes and protection from cross-site requests to a router. `hosts` are
/// additional host names of the listener.
pub fn guarded(
    router: Router,
    hosts: &[String],
    error: fn(StatusCode, String) -> Response,
) -> Router {
    let guard = HttpGuard::new(hosts);
    let router = router.layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
    router.layer(from_fn(move |request: Request, next: Next| {
        let checked = guard.check(&request);
        async move {
            match checked {
                Ok(()) => next.run(request).await,
                Err(reason) => error(StatusCode::FORBIDDEN, reason),
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt as _;

    use super::*;

    fn pages() -> AdminRouter<u32> {
        let format = AdminFormat {
            index: |paths| {
                let targets: Vec<String> = paths.iter().map(AdminPath::target).collect();
                targets.join("\n").into_response()
            },
            error: text_error,
        };
        let one = |state: axum::extract::State<u32>| async move { state.to_string() };
        AdminRouter::new(format, "/help")
            .get("/one", "name=NAME", "A number", one)
            .post("/ask", "", "Answers it", async || "OK")
            .action("/end", "", "Ends it", async || "OK")
    }

    async fn ask(options: AdminOptions, request: Request<Body>) -> (u16, String) {
        let router = pages().into_router(7, options);
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.into()).unwrap())
    }

    async fn get(path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        ask(AdminOptions::default(), request).await
    }

    #[tokio::test]
    async fn every_path_of_the_table_is_served_and_listed() {
        let table = pages();
        let methods: Vec<_> = table.paths().iter().map(|path| path.method).collect();
        assert_eq!(methods, ["GET", "GET", "POST", "POST"]);
        let list = (200, "/help\n/one?name=NAME\n/ask\n/end".to_owned());
        assert_eq!(get("/help").await, list);
        assert_eq!(get("/").await, list);
        assert_eq!(get("/one").await, (200, "7".to_owned()));
        let (status, reason) = get("/two").await;
        assert!(status == 404 && reason.contains("see /help"), "{reason}");
        let reason = "GET is not allowed for /ask\n".to_owned();
        assert_eq!(get("/ask").await, (405, reason));
    }

    fn from(peer: &str, request: http::request::Builder) -> Request<Body> {
        let mut request = request.body(Body::empty()).unwrap();
        let peer = crate::access::Peer {
            address: peer.parse().unwrap(),
            identity: None,
        };
        request.extensions_mut().insert(peer);
        request
    }

    #[tokio::test]
    async fn a_restricted_listener_needs_loopback_or_the_token_for_everything() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "0123456789abcdef").unwrap();
        let restricted = || AdminOptions {
            access: AdminAccess::Restricted,
            token: Some(AdminToken::read(file.path()).unwrap()),
            ..AdminOptions::default()
        };
        let (local, other) = ("127.0.0.1:1", "10.0.0.7:1");
        for path in ["/one", "/help", "/"] {
            let status = ask(restricted(), from(local, Request::get(path))).await.0;
            assert_eq!(status, 200, "{path}");
            let status = ask(restricted(), from(other, Request::get(path))).await.0;
            assert_eq!(status, 403, "{path}");
            let request = Request::get(path).header("authorization", "Bearer 0123456789abcdef");
            assert_eq!(
                ask(restricted(), from(other, request)).await.0,
                200,
                "{path}"
            );
        }
        assert_eq!(
            ask(restricted(), from(other, Request::post("/ask")))
                .await
                .0,
            403
        );
    }

    #[tokio::test]
    async fn a_read_only_listener_is_open_for_reading() {
        let read_only = || AdminOptions {
            access: AdminAccess::ReadOnly,
            ..AdminOptions::default()
        };
        for peer in ["127.0.0.1:1", "10.0.0.7:1"] {
            let status = ask(read_only(), from(peer, Request::get("/one"))).await.0;
            assert_eq!(status, 200, "{peer}");
            let status = ask(read_only(), from(peer, Request::head("/one"))).await.0;
            assert_eq!(status, 200, "{peer}");
            for path in ["/ask", "/end"] {
                let (status, reason) = ask(read_only(), from(peer, Request::post(path))).await;
                assert!(status == 403 && reason.contains("read-only"), "{reason}");
            }
        }
    }

    #[tokio::test]
    async fn actions_are_refused_from_other_machines() {
        let post = |path: &str, peer: &str| {
            let request = from(peer, Request::post(path));
            ask(AdminOptions::default(), request)
        };
        assert_eq!(post("/end", "127.0.0.1:1").await.0, 200);
        let (status, reason) = post("/end", "10.0.0.7:1").await;
        assert!(status == 403 && reason.contains("loopback"), "{reason}");
        assert_eq!(post("/ask", "10.0.0.7:1").await.0, 200);
    }

    #[tokio::test]
    async fn additional_pages_replace_the_root_and_additional_names_are_accepted() {
        let options = || AdminOptions {
            pages: Some(Router::new().route("/", axum::routing::get(async || "a page"))),
            hosts: vec!["admin.example.org".to_owned()],
            ..AdminOptions::default()
        };
        let to = |host: &str| Request::get("/").header("host", host).body(Body::empty());
        let answer = ask(options(), to("admin.example.org").unwrap()).await;
        assert_eq!(answer, (200, "a page".to_owned()));
        let (status, reason) = ask(options(), to("evil.example").unwrap()).await;
        assert!(status == 403 && reason.contains("evil.example"), "{reason}");
    }

    #[tokio::test]
    async fn large_bodies_are_refused() {
        let router = AdminRouter::new(pages().format, "/help")
            .post("/echo", "", "", async |_: axum::body::Bytes| "read")
            .into_router((), AdminOptions::default());
        let body = Body::from(vec![0; MAX_BODY_BYTES + 1]);
        let request = Request::post("/echo").body(body).unwrap();
        assert_eq!(router.oneshot(request).await.unwrap().status(), 413);
    }
}
