//! Standalone HTML report of the simulator: data, and the dashboard modules that draw it.
//!
//! A page opened from disk cannot load modules from other files. The modules are therefore inlined
//! in the order of their imports, each in its own scope.

use std::fmt::Write as _;

use serde::Serialize;

/// JavaScript modules, each after the modules that it imports.
const MODULES: [(&str, &str); 4] = [
    ("format.js", include_str!("../assets/format.js")),
    ("dom.js", include_str!("../assets/dom.js")),
    ("chart.js", include_str!("../assets/chart.js")),
    ("report.js", include_str!("../assets/report.js")),
];
const STYLES: [&str; 2] = [
    include_str!("../assets/style.css"),
    include_str!("../assets/report.css"),
];

/// Renders the report of the simulator as an HTML page; `assets/report.js` draws `report`. Fails if
/// `report` cannot be serialized as JSON.
pub fn report_page(title: &str, report: &impl Serialize) -> Result<String, serde_json::Error> {
    // Text in the report must not close the script element that contains it.
    let json = serde_json::to_string(report)?.replace('<', "\\u003c");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let modules: String = MODULES
        .iter()
        .map(|(name, source)| inlined(name, source))
        .collect();
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body class=\"report\">\n\
         <script type=\"application/json\" id=\"report\">{json}</script>\n\
         <script type=\"module\">\nconst modules = {{}};\n{modules}</script>\n</body>\n</html>\n",
        STYLES.concat(),
    ))
}

/// Converts a module to a function call whose result is stored in `modules`: imports read from
/// `modules`, exports are the return value.
fn inlined(name: &str, source: &str) -> String {
    let mut exports: Vec<&str> = Vec::new();
    let mut body = String::with_capacity(source.len());
    for line in source.lines() {
        let import = line
            .strip_prefix("import ")
            .and_then(|line| line.split_once(" from './"));
        let statement = match (import, line.strip_prefix("export ")) {
            (Some((names, file)), _) => {
                let file = file.trim_end_matches("';");
                let _ = writeln!(body, "const {names} = modules['{file}'];");
                continue;
            }
            (None, Some(list)) if list.starts_with('{') => {
                exports.push(list.trim_matches(['{', '}', ';', ' ']));
                continue;
            }
            (None, Some(statement)) => {
                let words = statement.strip_prefix("async ").unwrap_or(statement);
                let declared = words.split([' ', '(']).nth(1);
                exports.extend(declared);
                statement
            }
            (None, None) => line,
        };
        let _ = writeln!(body, "{statement}");
    }
    let exports = exports.join(", ");
    format!("modules['{name}'] = (() => {{\n{body}return {{ {exports} }};\n}})();\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_read_from_earlier_modules_and_exports_are_returned() {
        let source = "import { a, b } from './x.js';\nexport const c = a;\n\
                      export async function d(e) {\n  return b;\n}\nconst f = 1;\nexport { f };\n";
        let inlined = inlined("y.js", source);
        let expected = "modules['y.js'] = (() => {\nconst { a, b } = modules['x.js'];\n\
                        const c = a;\nasync function d(e) {\n  return b;\n}\nconst f = 1;\n\
                        return { c, d, f };\n})();\n";
        assert_eq!(inlined, expected);
    }

    #[test]
    fn every_import_is_exported_by_an_earlier_module() {
        for (index, (name, source)) in MODULES.iter().enumerate() {
            for line in source.lines().filter(|line| line.starts_with("import ")) {
                let (names, file) = line.split_once(" from './").unwrap();
                let file = file.trim_end_matches("';");
                let before = MODULES[..index].iter().find(|(known, _)| *known == file);
                let (_, before) = before.unwrap_or_else(|| panic!("{name}: {file} comes later"));
                let names = names.trim_start_matches("import { ").trim_end_matches(" }");
                for wanted in names.split(", ") {
                    let declared = [
                        format!("export const {wanted} "),
                        format!("export function {wanted}("),
                        format!("export async function {wanted}("),
                    ];
                    let listed = before
                        .lines()
                        .any(|line| line.starts_with("export { ") && line.contains(wanted));
                    let declared = declared.iter().any(|words| before.contains(words));
                    assert!(declared || listed, "{name}: {file} has no {wanted}");
                }
            }
        }
    }

    #[test]
    fn the_page_is_standalone_and_escapes_text() {
        let page = report_page("a <b>", &["</script><p>"]).unwrap();
        let own = page.replace("http://www.w3.org/", "");
        for foreign in ["http:", "https:", "src=", "<link", "url(", "@import"] {
            assert!(!own.contains(foreign), "{foreign}");
        }
        for line in page.lines() {
            assert!(
                !line.starts_with("import ") && !line.starts_with("export "),
                "{line}"
            );
        }
        assert!(page.contains("<title>a &lt;b></title>"));
        assert!(page.contains(r#"["\u003c/script>\u003cp>"]"#));
        assert_eq!(page.matches("</script>").count(), 2);
    }
}
