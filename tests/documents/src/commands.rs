//! Finds commands in the code blocks of documents and splits them like a shell.
//!
//! Supports quotes, `\` at the end of a line, comments, pipes, lists, redirections and `$(…)`,
//! which stays one word. Nothing is expanded. Used by the tests of documents and of `cmd`.

/// Command and its line number, starting at 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Documented {
    pub line: usize,
    pub words: Vec<String>,
}

/// Words that may precede a command.
const PREFIXES: [&str; 6] = ["!", "do", "else", "exec", "then", "time"];

/// Finds commands in `console` blocks (lines that start with `$`) and `sh` blocks (all lines).
pub fn documented(text: &str) -> Vec<Documented> {
    let mut found = Vec::new();
    let mut block = None;
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = block.is_none().then(|| language.trim());
            continue;
        }
        let mut command = match block {
            Some("console") => line.strip_prefix("$ ").unwrap_or_default().to_owned(),
            Some("sh" | "bash") => line.to_owned(),
            _ => continue,
        };
        while command.ends_with('\\') {
            command.pop();
            command.push_str(lines.next().map_or("", |(_, next)| next));
        }
        let line = index + 1;
        found.extend(
            commands(&command)
                .into_iter()
                .map(|words| Documented { line, words }),
        );
    }
    found
}

/// Splits a line into commands, each a list of words.
pub fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut redirected = false;
    for token in tokens(line) {
        match token {
            Token::End => commands.push(std::mem::take(&mut words)),
            Token::Redirection => redirected = true,
            Token::Word(_) if redirected => redirected = false,
            Token::Word(word) => words.push(word),
        }
    }
    commands.push(words);
    let trimmed = commands.into_iter().map(without_prefix);
    trimmed.filter(|words| !words.is_empty()).collect()
}

/// Removes leading keywords such as `do`, and variable assignments.
fn without_prefix(words: Vec<String>) -> Vec<String> {
    let is_prefix = |word: &String| {
        let assigned = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
        });
        assigned || PREFIXES.contains(&word.as_str())
    };
    words.into_iter().skip_while(is_prefix).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// End of a command: `|`, `&&`, `;` or similar.
    End,
    /// `>`, `<` or similar; the next word is a file.
    Redirection,
}

fn tokens(line: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            return tokens;
        };
        match first {
            '#' => return tokens,
            '|' | '&' | ';' => {
                tokens.push(Token::End);
                rest = &rest[1..];
            }
            '>' | '<' => {
                tokens.push(Token::Redirection);
                rest = rest.trim_start_matches(['>', '<', '&']);
            }
            _ => {
                let (word, after) = word(rest);
                // `2>` is a redirection, not a word.
                if !(word == "2" && after.starts_with('>')) {
                    tokens.push(Token::Word(word));
                }
                rest = after;
            }
        }
    }
}

/// Returns the first word of `text` without its quotes, and the rest.
fn word(text: &str) -> (String, &str) {
    let mut word = String::new();
    let mut quote = None;
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        let next = text[at + c.len_utf8()..].chars().next();
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') if depth == 0 => quote = Some(c),
            (None, '(') if depth > 0 || word.ends_with('$') => {
                depth += 1;
                word.push(c);
            }
            (None, ')') if depth > 0 => {
                depth -= 1;
                word.push(c);
            }
            (None, ' ' | '\t' | '|' | ';' | '>' | '<') if depth == 0 => return (word, &text[at..]),
            (None, '&') if depth == 0 && next != Some('=') => return (word, &text[at..]),
            _ => word.push(c),
        }
    }
    (word, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<String> {
        let join = |words: Vec<String>| words.join("|");
        commands(line).into_iter().map(join).collect()
    }

    #[test]
    fn blocks_are_found_and_output_is_not() {
        let text =
            "```console\n$ a b\noutput\n$ c \\\n    d\n```\n```text\n$ no\n```\n```sh\ne\n```\nf\n";
        let found: Vec<_> = documented(text)
            .iter()
            .map(|one| (one.line, one.words.join(" ")))
            .collect();
        let expected = [(2, "a b"), (4, "c d"), (11, "e")];
        assert_eq!(
            found,
            expected.map(|(line, words)| (line, words.to_owned()))
        );
    }

    #[test]
    fn lines_are_split_as_a_shell_would() {
        assert_eq!(
            split("a > x 2>/dev/null && b -c 'd e' | f &"),
            ["a", "b|-c|d e", "f"]
        );
        assert_eq!(split("a \"b $(c \\\"d\\\") e\""), ["a|b $(c \\d\\) e"]);
        assert_eq!(split("kill $(jobs -p) # all"), ["kill|$(jobs -p)"]);
        assert_eq!(split("X=1 do plimsoll --a=b"), ["plimsoll|--a=b"]);
        assert_eq!(split("curl 'a?b=c&d=e' x#y"), ["curl|a?b=c&d=e|x#y"]);
        assert_eq!(split("  # nothing"), [""; 0]);
    }
}
