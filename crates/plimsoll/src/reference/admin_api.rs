//! The page about admin paths, from the tables of the control plane and of the proxy.

use std::fmt::Write as _;

use plimsoll_xds::driver::AdminPath;

/// A table per address.
pub(super) fn page() -> String {
    let mut text = "\nBoth serve the [dashboard](../dashboard.md) at `/`; what it loads is under \
                    `/dashboard/`.\n"
        .to_owned();
    text.push_str(
        "\n## The control plane\n\nFields of the answers: [admin-api.md](../admin-api.md).\n",
    );
    table(&plimsoll_control::admin::PATHS, &mut text);
    text.push_str("\n## The proxy\n\nMore: [proxy.md](../proxy.md#admin-pages).\n");
    table(&plimsoll_proxy::ADMIN_PATHS, &mut text);
    text
}

fn table(paths: &[AdminPath], text: &mut String) {
    text.push_str("\n| method | path | query | says |\n|---|---|---|---|\n");
    for one in paths {
        let AdminPath {
            method,
            path,
            query,
            about,
        } = one;
        let query = match *query {
            "" => String::new(),
            query => format!("`{query}`"),
        };
        let _ = writeln!(text, "| {method} | `{path}` | {query} | {about} |");
    }
}
