//! Static files of the dashboard page, embedded in the binary, and their response headers.
//!
//! The page loads nothing from other servers and runs no inline scripts; the content security
//! policy in [`HEADERS`] makes the browser enforce that.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};

/// A static file of the page.
pub(crate) struct Asset {
    /// File name under `/dashboard/`.
    pub(crate) name: &'static str,
    content_type: &'static str,
    body: &'static [u8],
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($name:literal, $content_type:expr) => {
        Asset {
            name: $name,
            content_type: $content_type,
            body: include_bytes!(concat!("../assets/", $name)),
        }
    };
}

/// The HTML page itself.
pub(crate) const INDEX: Asset = asset!("index.html", "text/html; charset=utf-8");

/// All files that the dashboard page loads.
pub(crate) const FILES: [Asset; 19] = [
    asset!("style.css", "text/css; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
    asset!("app.js", JAVASCRIPT),
    asset!("chart.js", JAVASCRIPT),
    asset!("compare.js", JAVASCRIPT),
    asset!("cost.js", JAVASCRIPT),
    asset!("dom.js", JAVASCRIPT),
    asset!("evacuation.js", JAVASCRIPT),
    asset!("format.js", JAVASCRIPT),
    asset!("history.js", JAVASCRIPT),
    asset!("map.js", JAVASCRIPT),
    asset!("matrix.js", JAVASCRIPT),
    asset!("nodes.js", JAVASCRIPT),
    asset!("overview.js", JAVASCRIPT),
    asset!("replicas.js", JAVASCRIPT),
    asset!("store.js", JAVASCRIPT),
    asset!("verdict.js", JAVASCRIPT),
    asset!("whatif.js", JAVASCRIPT),
    asset!("zones.js", JAVASCRIPT),
];

/// Headers of every response. The content security policy forbids inline styles and scripts.
pub(crate) const HEADERS: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    // Revalidate: a new build of the binary serves new files under the same names.
    (CACHE_CONTROL, "no-cache"),
];

impl IntoResponse for Asset {
    fn into_response(self) -> Response {
        (HEADERS, [(CONTENT_TYPE, self.content_type)], self.body).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(asset: &Asset) -> &'static str {
        std::str::from_utf8(asset.body).unwrap()
    }

    #[test]
    fn the_page_and_its_modules_load_only_embedded_files() {
        let known = |name: &str| FILES.iter().any(|file| file.name == name);
        let mut loaded = 0;
        for marker in ["src=\"dashboard/", "href=\"dashboard/"] {
            for rest in text(&INDEX).split(marker).skip(1) {
                let name = rest.split('"').next().unwrap();
                assert!(known(name), "{name} is not embedded");
                loaded += 1;
            }
        }
        assert!(loaded >= 3, "the page loads {loaded} files");
        for file in FILES.iter().filter(|file| file.name.ends_with(".js")) {
            for rest in text(file).split(" from './").skip(1) {
                let name = rest.split('\'').next().unwrap();
                assert!(known(name), "{} imports {name}", file.name);
            }
        }
    }

    #[test]
    fn there_are_no_external_urls_and_no_inline_scripts() {
        for file in FILES.iter().chain([&INDEX]) {
            let text = text(file).replace("http://www.w3.org/", "");
            assert!(!text.contains("http://"), "{}", file.name);
            assert!(!text.contains("https://"), "{}", file.name);
            assert!(!text.contains("innerHTML"), "{}", file.name);
            assert!(!text.contains("eval("), "{}", file.name);
        }
        let page = text(&INDEX);
        for inline in [" style=", "<style", " onclick=", "<script>"] {
            assert!(!page.contains(inline), "{inline}");
        }
    }

    #[test]
    fn every_file_is_loaded_by_another() {
        let all: String = FILES.iter().chain([&INDEX]).map(text).collect();
        for file in &FILES {
            let used = [
                format!("dashboard/{}", file.name),
                format!("./{}", file.name),
            ];
            assert!(used.iter().any(|name| all.contains(name)), "{}", file.name);
        }
    }
}
