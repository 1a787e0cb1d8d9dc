//! [`RustFile`]: a source file as the house rules see it: lines, test lines, functions, generics.
//!
//! Built from text alone, so that rules are tested without a disk. The rules live in `rust_rules`.

use std::ops::Range;

use super::lexer::{Views, views};

/// A Rust file and what was found in it. Line numbers start at 1.
#[derive(Debug)]
pub(crate) struct RustFile {
    /// Path from the root of the repository.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
    /// Code and comments apart.
    pub(crate) views: Views,
    /// For each line, whether it belongs to a test.
    pub(crate) is_test: Vec<bool>,
    /// Names of modules that are declared for tests only and live in their own file.
    pub(crate) test_modules: Vec<String>,
    /// Every function with a body, nested ones too.
    pub(crate) functions: Vec<Function>,
    /// Every item with type parameters.
    pub(crate) generics: Vec<Generics>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) first_line: usize,
    pub(crate) lines: usize,
}

/// Type parameters of an item; lifetimes and constants do not count.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Generics {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) type_parameters: usize,
}

impl RustFile {
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let views = views(text);
        let tokens = tokens(&views.code);
        let whole = is_test_path(path);
        let mut is_test = vec![whole; text.lines().count()];
        let mut test_modules = Vec::new();
        for range in test_items(&tokens) {
            let lines = tokens[range.start].line..=tokens[range.end - 1].line;
            is_test[lines.start() - 1..*lines.end()].fill(true);
            test_modules.extend(module_declared_in(&tokens[range]));
        }
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            is_test,
            test_modules,
            functions: functions(&tokens),
            generics: generics(&tokens),
            views,
        }
    }

    /// Whether line `number` belongs to a test.
    pub(crate) fn in_test(&self, number: usize) -> bool {
        self.is_test.get(number - 1).copied().unwrap_or(false)
    }

    /// Lines outside tests, blank ones included.
    pub(crate) fn production_lines(&self) -> usize {
        self.is_test.iter().filter(|&&test| !test).count()
    }

    /// Lines that are neither blank nor only comment: (production, tests).
    pub(crate) fn code_lines(&self) -> (usize, usize) {
        let lines = self
            .text
            .lines()
            .zip(self.views.comments.lines())
            .zip(&self.is_test);
        let code = lines.filter(|((line, comment), _)| !is_blank_besides(line, comment));
        let tests = code.clone().filter(|&(_, &test)| test).count();
        (code.count() - tests, tests)
    }

    /// Paths of the files in which this file's test-only modules may live.
    pub(crate) fn test_module_paths(&self) -> Vec<String> {
        let (folder, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let stem = name.trim_end_matches(".rs");
        let base = match stem {
            "lib" | "main" | "mod" => folder.to_owned(),
            _ => format!("{folder}/{stem}"),
        };
        let both = |module: &String| {
            [
                format!("{base}/{module}.rs"),
                format!("{base}/{module}/mod.rs"),
            ]
        };
        self.test_modules.iter().flat_map(both).collect()
    }
}

/// Whether there is nothing on a line but its comment. Both views have the same columns.
fn is_blank_besides(line: &str, comment: &str) -> bool {
    let both = line.chars().zip(comment.chars());
    both.filter(|(_, comment)| *comment == ' ')
        .all(|(c, _)| c.is_whitespace())
}

/// Whether a file is a test as a whole, by its place.
pub(crate) fn is_test_path(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "tests.rs")
}

#[derive(Debug)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// Words and single marks of code, with their lines. A lifetime keeps its quote.
fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let end = match first {
                '\'' => 1 + rest[1..].find(|c| !word(c)).unwrap_or(rest.len() - 1),
                c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
                '-' if rest.starts_with("->") => 2,
                '=' if rest.starts_with("=>") => 2,
                c => c.len_utf8(),
            };
            tokens.push(Token {
                text: &rest[..end],
                line: index + 1,
            });
            rest = rest[end..].trim_start();
        }
    }
    tokens
}

/// Tokens of every item under `#[cfg(test)]`, the attribute included.
fn test_items(tokens: &[Token<'_>]) -> Vec<Range<usize>> {
    let mut items = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let Some(attribute) = attribute_at(tokens, at) else {
            at += 1;
            continue;
        };
        let words = &tokens[at..attribute];
        let has = |word: &str| words.iter().any(|token| token.text == word);
        if has("cfg") && has("test") && !has("not") {
            let end = end_of_item(tokens, attribute);
            items.push(at..end);
            at = end;
        } else {
            at = attribute;
        }
    }
    items
}

/// The end of the outer attribute that starts at `at`, if one does.
fn attribute_at(tokens: &[Token<'_>], at: usize) -> Option<usize> {
    let text = |index: usize| tokens.get(index).map(|token| token.text);
    (text(at) == Some("#") && text(at + 1) == Some("[")).then(|| closing(tokens, at + 1) + 1)
}

/// One past the body or the semicolon of the item that starts at `start`.
fn end_of_item(tokens: &[Token<'_>], start: usize) -> usize {
    let mut at = start;
    while let Some(end) = attribute_at(tokens, at) {
        at = end;
    }
    match body_or_semicolon(tokens, at) {
        Some((index, true)) => closing(tokens, index) + 1,
        Some((index, false)) => index + 1,
        None => tokens.len(),
    }
}

/// The next `{` (true) or `;` (false) that is not inside parentheses or brackets.
fn body_or_semicolon(tokens: &[Token<'_>], start: usize) -> Option<(usize, bool)> {
    let mut at = start;
    while at < tokens.len() {
        match tokens[at].text {
            "{" => return Some((at, true)),
            ";" => return Some((at, false)),
            "(" | "[" => at = closing(tokens, at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// The token that closes the bracket at `open`; the last one in a file that does not close it.
fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    tokens.len() - 1
}

/// `mod name ;` at the end of an item.
fn module_declared_in(item: &[Token<'_>]) -> Option<String> {
    match item {
        [.., keyword, name, semicolon] if keyword.text == "mod" && semicolon.text == ";" => {
            Some(name.text.to_owned())
        }
        _ => None,
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn functions(tokens: &[Token<'_>]) -> Vec<Function> {
    let mut functions = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        if keyword.text != "fn" || !is_name(name.text) {
            continue;
        }
        if let Some((open, true)) = body_or_semicolon(tokens, index) {
            let last_line = tokens[closing(tokens, open)].line;
            functions.push(Function {
                name: name.text.to_owned(),
                first_line: keyword.line,
                lines: last_line - keyword.line + 1,
            });
        }
    }
    functions
}

fn generics(tokens: &[Token<'_>]) -> Vec<Generics> {
    let mut found = Vec::new();
    for (index, keyword) in tokens.iter().enumerate() {
        let named = ["fn", "struct", "enum", "trait", "type"].contains(&keyword.text);
        let (name, open) = match keyword.text {
            "impl" => ("impl", index + 1),
            _ if named => (
                tokens.get(index + 1).map_or("", |token| token.text),
                index + 2,
            ),
            _ => continue,
        };
        if tokens.get(open).is_some_and(|token| token.text == "<") {
            found.push(Generics {
                name: name.to_owned(),
                line: keyword.line,
                type_parameters: count_type_parameters(&tokens[open + 1..]),
            });
        }
    }
    found
}

/// Type parameters up to the `>` that closes the list whose `<` stands just before.
fn count_type_parameters(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    let mut count = 0;
    let mut at_start = true;
    for token in tokens {
        match token.text {
            ">" if depth == 0 => break,
            "<" | "(" | "[" => depth += 1,
            ">" | ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if at_start && is_name(token.text) && token.text != "const" {
            count += 1;
        }
        at_start = depth == 0 && token.text == ",";
    }
    count
}

#[cfg(test)]
mod tests {
    use super::RustFile;

    const SAMPLE: &str = "\
//! Doc.
pub fn outer(items: [u8; 2]) -> fn(u8) -> u8 {
    fn inner() {}
    inner();
    |x| x
}

trait Shape {
    fn area(&self) -> f64;
}

#[cfg(test)]
#[path = \"x.rs\"]
mod elsewhere;

#[cfg(test)]
mod tests {
    fn helper() {
        let text = \"}\";
    }
}

#[cfg(not(test))]
fn real() {}
";

    fn sample() -> RustFile {
        RustFile::parse("crates/x/src/shape.rs", SAMPLE)
    }

    #[test]
    fn functions_with_bodies_are_measured() {
        let file = sample();
        let found: Vec<_> = file
            .functions
            .iter()
            .map(|f| (f.name.as_str(), f.first_line, f.lines))
            .collect();
        assert_eq!(
            found,
            [
                ("outer", 2, 5),
                ("inner", 3, 1),
                ("helper", 18, 3),
                ("real", 24, 1)
            ]
        );
    }

    #[test]
    fn test_items_are_told_from_production() {
        let file = sample();
        let test_lines: Vec<_> = (1..=24).filter(|&line| file.in_test(line)).collect();
        assert_eq!(test_lines, [12, 13, 14, 16, 17, 18, 19, 20, 21]);
        assert_eq!(file.production_lines(), 24 - 9);
        assert_eq!(file.code_lines(), (10, 9), "the doc is no code");
        let mixed = RustFile::parse(
            "a.rs",
            "/* a\n b */ x();\n// c\n\"// d\"; // e\n\n/* f */\n",
        );
        assert_eq!(mixed.code_lines(), (2, 0));
    }

    #[test]
    fn test_modules_in_their_own_file_are_found() {
        let paths = sample().test_module_paths();
        assert_eq!(
            paths,
            [
                "crates/x/src/shape/elsewhere.rs",
                "crates/x/src/shape/elsewhere/mod.rs"
            ]
        );
        let lib = RustFile::parse("crates/x/src/lib.rs", "#[cfg(test)]\nmod tools;\n");
        assert_eq!(lib.test_module_paths()[0], "crates/x/src/tools.rs");
    }

    #[test]
    fn files_of_tests_are_tests_whole() {
        for path in [
            "crates/x/tests/a.rs",
            "crates/x/src/a/tests.rs",
            "crates/x/src/tests/b.rs",
        ] {
            assert_eq!(
                RustFile::parse(path, "fn a() {}\n").production_lines(),
                0,
                "{path}"
            );
        }
        assert_eq!(
            RustFile::parse("crates/x/src/attests.rs", "fn a() {}\n").production_lines(),
            1
        );
    }

    #[test]
    fn type_parameters_are_counted_without_lifetimes_and_constants() {
        let text = "struct A<'a, T: Into<Vec<u8>>, const N: usize>(&'a T);\n\
                    impl<T, U, V, W> B<T> {}\n\
                    fn f<F: Fn(u8, u8) -> u8, G>() {}\nfn g(x: Vec<u8>) {}\n";
        let file = RustFile::parse("a.rs", text);
        let found: Vec<_> = file
            .generics
            .iter()
            .map(|g| (g.name.as_str(), g.line, g.type_parameters))
            .collect();
        assert_eq!(found, [("A", 1, 1), ("impl", 2, 4), ("f", 3, 2)]);
    }

    #[test]
    fn broken_files_do_not_stop_the_tools() {
        for text in ["fn", "fn f(", "#[cfg(test)]", "#[", "fn f<", "}"] {
            RustFile::parse("a.rs", text);
        }
    }
}
