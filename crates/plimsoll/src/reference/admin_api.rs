//! The page about admin paths, from the tables of the control plane and of the proxy.

use std::fmt::Write as _;

/// A table per address.
pub(super) fn page() -> String {
    let control = plimsoll_control::admin::PATHS.iter();
    let control = control.map(|one| (one.method, one.path, one.query, one.about));
    let proxy = plimsoll_proxy::ADMIN_PATHS.iter();
    let proxy = proxy.map(|one| (one.method, one.path, one.query, one.about));
    let mut text = "\nBoth serve the [dashboard](../dashboard.md) at `/`; what it loads is under \
                    `/dashboard/`.\n"
        .to_owned();
    text.push_str(
        "\n## The control plane\n\nFields of the answers: [admin-api.md](../admin-api.md).\n",
    );
    table(control, &mut text);
    text.push_str("\n## The proxy\n\nMore: [proxy.md](../proxy.md#admin-pages).\n");
    table(proxy, &mut text);
    text
}

type Row = (&'static str, &'static str, &'static str, &'static str);

fn table(rows: impl Iterator<Item = Row>, text: &mut String) {
    text.push_str("\n| method | path | query | says |\n|---|---|---|---|\n");
    for (method, path, query, about) in rows {
        let query = match query {
            "" => String::new(),
            query => format!("`{query}`"),
        };
        let _ = writeln!(text, "| {method} | `{path}` | {query} | {about} |");
    }
}
