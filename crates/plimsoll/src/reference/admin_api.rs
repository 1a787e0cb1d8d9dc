//! Page about the admin API, from the routing tables of control plane and proxy.

use std::fmt::Write as _;

use plimsoll_serve::AdminPath;

pub(super) fn page() -> String {
    let mut text =
        "\nControl plane and proxy serve the [dashboard](../dashboard.md) at `/`, and its data \
                    under `/dashboard/`.\n"
            .to_owned();
    text.push_str(
        "\n## The control plane\n\nFields of the responses: [admin-api.md](../admin-api.md), and \
         for programs [openapi.json](openapi.json), which the control plane also serves.\n",
    );
    table(
        &listed(plimsoll_control::admin::router().paths()),
        &mut text,
    );
    text.push_str("\n## The proxy\n\nMore: [proxy.md](../proxy.md#admin-pages).\n");
    table(&listed(&plimsoll_proxy::admin_paths()), &mut text);
    text.push_str(
        "\nAll JSON of both has line breaks with the query `pretty`: \
         `/api/v1/status?pretty`.\n",
    );
    text
}

/// Adds the paths that the dashboard serves beside its page.
fn listed(paths: &[AdminPath]) -> Vec<AdminPath> {
    let own = paths.iter().copied();
    own.chain([crate::dashboard::history_path()]).collect()
}

fn table(paths: &[AdminPath], text: &mut String) {
    text.push_str("\n| method | path | query | response |\n|---|---|---|---|\n");
    for one in paths {
        let query = match one.query {
            "" => String::new(),
            query => format!("`{query}`"),
        };
        let (method, path, about) = (one.method, one.path, one.about);
        let _ = writeln!(text, "| {method} | `{path}` | {query} | {about} |");
    }
}
