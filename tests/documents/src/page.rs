//! Parses a page into the statements of its code blocks, with the output shown.
//!
//! A statement may span lines, for example a loop. `commands` splits lines into words; `run` runs
//! statements.

use std::process::Command;

/// Statement that a reader types, and the output that the page shows.
#[derive(Debug, PartialEq, Eq)]
pub struct Statement {
    /// Number of its first line, starting at 1.
    pub line: usize,
    pub text: String,
    /// Lines below it in a `console` block; empty if the page shows none.
    pub shown: Vec<String>,
}

/// Finds statements in `console` blocks (after `$`) and `sh` blocks.
pub fn statements(page: &str) -> Vec<Statement> {
    let mut found: Vec<Statement> = Vec::new();
    let mut block = None;
    let mut open = false;
    for (index, line) in page.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = block.is_none().then(|| language.trim());
            open = false;
            continue;
        }
        let console = match block {
            Some("console") => true,
            Some("sh" | "bash") => false,
            _ => continue,
        };
        if let (true, Some(statement)) = (open, found.last_mut()) {
            statement.text.push('\n');
            statement.text.push_str(line);
            open = is_open(&statement.text);
            continue;
        }
        let typed = match line.strip_prefix("$ ") {
            Some(typed) if console => typed,
            None if !console => line,
            _ => {
                let statement = found.last_mut().expect("output follows a command");
                statement.shown.push(line.to_owned());
                continue;
            }
        };
        if !typed.trim().is_empty() && !typed.trim_start().starts_with('#') {
            open = is_open(typed);
            found.push(Statement {
                line: index + 1,
                text: typed.to_owned(),
                shown: Vec::new(),
            });
        }
    }
    found
}

/// Whether a shell would read more lines; runs `bash -n` to find out.
fn is_open(text: &str) -> bool {
    if text.ends_with('\\') {
        return true;
    }
    let checked = Command::new("bash").args(["-n", "-c", text]).output();
    !checked.expect("bash is installed").status.success()
}

/// Compares the output of a statement with the page. Numbers and surrounding whitespace may differ;
/// a line `…` stands for any number of lines.
pub fn differs(shown: &[String], printed: &str) -> Option<String> {
    let printed: Vec<_> = printed.lines().map(without_numbers).collect();
    let mut rest = printed.as_slice();
    let mut skipping = false;
    for line in shown {
        if line.trim() == "…" {
            skipping = true;
            continue;
        }
        let expected = without_numbers(line);
        let found = rest.iter().position(|one| *one == expected);
        match found {
            Some(at) if at == 0 || skipping => rest = &rest[at + 1..],
            _ => {
                return Some(format!(
                    "the page shows\n  {line}\nwhich was not printed at that place"
                ));
            }
        }
        skipping = false;
    }
    let more = rest.iter().find(|line| !line.is_empty());
    match more {
        Some(line) if !skipping => Some(format!("the page does not show the line\n  {line}")),
        _ => None,
    }
}

/// Replaces every number by `#`, because numbers may differ.
fn without_numbers(line: &str) -> String {
    let mut plain = String::new();
    let mut characters = line.trim().chars().peekable();
    while let Some(c) = characters.next() {
        if !c.is_ascii_digit() {
            plain.push(c);
            continue;
        }
        plain.push('#');
        while characters
            .next_if(|c| c.is_ascii_digit() || *c == '.')
            .is_some()
        {}
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<(usize, String, usize)> {
        let all = statements(page).into_iter();
        all.map(|one| (one.line, one.text, one.shown.len()))
            .collect()
    }

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_loop_is_one_statement() {
        let page = "```sh\n# first\na=1\n\nfor x in 1 2; do\n  b \\\n    c &\ndone\nd\n```\n";
        let expected = [
            (3, "a=1"),
            (5, "for x in 1 2; do\n  b \\\n    c &\ndone"),
            (9, "d"),
        ];
        assert_eq!(
            found(page),
            expected.map(|(line, text)| (line, text.to_owned(), 0))
        );
    }

    #[test]
    fn output_belongs_to_the_command_above_it() {
        let page = "```console\n$ a\nx\ny\n$ b \\\n  c\n```\n```text\nno\n```\n";
        let expected = [(2, "a".to_owned(), 2), (5, "b \\\n  c".to_owned(), 0)];
        assert_eq!(found(page), expected);
    }

    #[test]
    fn numbers_may_differ_and_words_may_not() {
        let printed = "load 1.25, 3 hosts\r\n\nend\n";
        assert_eq!(differs(&lines("load 0.9, 12 hosts\n\nend"), printed), None);
        assert!(differs(&lines("load 0.9, 12 zones\n…"), printed).is_some());
        assert_eq!(differs(&lines("…\nend"), printed), None);
        assert!(differs(&lines("end\n…"), printed).is_some());
        let more = differs(&lines("load 1, 1 hosts"), printed).unwrap();
        assert!(more.contains("end"), "{more}");
        assert_eq!(differs(&lines("load 1, 1 hosts\n…"), printed), None);
    }
}
