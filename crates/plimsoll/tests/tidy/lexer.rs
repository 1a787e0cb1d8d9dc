//! Tells code, comments and literals of a Rust file apart, well enough to count braces and words.
//!
//! Not a parser: what items there are lives in `rust_file`. Handles nested block comments, raw
//! strings and the difference between a lifetime and a character.

/// What a character belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Code,
    Comment,
    Literal,
}

/// Two views of a file, each with everything else replaced by blanks; line and column numbers stay.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Views {
    /// Only code.
    pub(crate) code: String,
    /// Only comments.
    pub(crate) comments: String,
}

/// Splits a file into its views.
pub(crate) fn views(text: &str) -> Views {
    let chars: Vec<char> = text.chars().collect();
    let classes = classify(&chars);
    let view = |wanted: Class| {
        let of = |(&c, &class): (&char, &Class)| if class == wanted || c == '\n' { c } else { ' ' };
        chars.iter().zip(&classes).map(of).collect()
    };
    Views {
        code: view(Class::Code),
        comments: view(Class::Comment),
    }
}

fn classify(chars: &[char]) -> Vec<Class> {
    let mut classes = vec![Class::Code; chars.len()];
    let mut at = 0;
    while at < chars.len() {
        let (class, end) = token(chars, at);
        classes[at..end].fill(class);
        at = end;
    }
    classes
}

/// The class of what starts at `at`, and where it ends.
fn token(chars: &[char], at: usize) -> (Class, usize) {
    let peek = |offset: usize| chars.get(at + offset).copied().unwrap_or('\n');
    match (peek(0), peek(1)) {
        ('/', '/') => (Class::Comment, find(chars, at, |rest| rest[0] == '\n')),
        ('/', '*') => (Class::Comment, end_of_block_comment(chars, at)),
        ('"', _) => (Class::Literal, end_of_quoted(chars, at, '"')),
        ('r', '"' | '#') if starts_word(chars, at) => match end_of_raw_string(chars, at) {
            Some(end) => (Class::Literal, end),
            None => (Class::Code, at + 1),
        },
        ('\'', '\\') => (Class::Literal, end_of_quoted(chars, at, '\'')),
        ('\'', _) if peek(2) == '\'' => (Class::Literal, at + 3),
        _ => (Class::Code, at + 1),
    }
}

/// Whether an identifier could start here; the prefixes of `br"…"` and `cr"…"` are no obstacle.
fn starts_word(chars: &[char], at: usize) -> bool {
    let word = |index: Option<usize>| {
        let c = index.and_then(|index| chars.get(index));
        c.is_some_and(|c| c.is_alphanumeric() || *c == '_')
    };
    match at.checked_sub(1).and_then(|before| chars.get(before)) {
        Some('b' | 'c') => !word(at.checked_sub(2)),
        _ => !word(at.checked_sub(1)),
    }
}

fn end_of_block_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

fn end_of_quoted(chars: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `None` when `r#` begins a raw identifier and not a string.
fn end_of_raw_string(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|&&c| c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |rest: &[char]| {
        rest[0] == '"' && rest.len() > hashes && rest[1..=hashes].iter().all(|&c| c == '#')
    };
    let close = find(chars, open + 1, closes);
    Some((close + 1 + hashes).min(chars.len()))
}

/// The first place from `start` on where `found` holds for what follows; the end if there is none.
fn find(chars: &[char], start: usize, found: impl Fn(&[char]) -> bool) -> usize {
    let place = (start..chars.len()).find(|&at| found(&chars[at..]));
    place.unwrap_or(chars.len())
}

#[cfg(test)]
mod tests {
    use super::views;

    fn code(text: &str) -> String {
        views(text)
            .code
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn comments_and_code_keep_their_places() {
        let views = views("let a = 1; // {\n/* x /* y */ } */ b\n");
        let lines: Vec<&str> = views.code.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["let a = 1;", "                  b"]);
        assert_eq!(views.comments.find("// {"), Some(11));
    }

    #[test]
    fn strings_are_not_code() {
        assert_eq!(code(r#"f("{ \" }", "//");"#), "f( , );");
        assert_eq!(
            code("f(r#\"{ \"quoted\" \"#, br\"{\", cr##\"\"#\"##);"),
            "f( , b , c );"
        );
        assert_eq!(code("let r#fn = var\"{\";"), "let r#fn = var ;");
    }

    #[test]
    fn characters_and_lifetimes_differ() {
        assert_eq!(
            code(r"fn f<'a>(x: &'a str) -> char { '{' }"),
            "fn f<'a>(x: &'a str) -> char { }"
        );
        assert_eq!(code(r"['\'', '\u{7b}', '/', 'b']"), "[ , , , ]");
    }

    #[test]
    fn unfinished_text_ends_quietly() {
        for text in ["\"abc", "/* abc", "r#\"abc", "'\\", "'", "r", "r#", "//"] {
            views(text);
        }
    }
}
