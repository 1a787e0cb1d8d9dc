//! House rules for prose: comments, strings, documents, and the names of tests.
//!
//! A list of phrases that this repository once used instead of the words of the field, and a
//! shortest length for docs. A clean file is not thereby well written; a reviewer judges that.

use std::sync::LazyLock;

use regex::Regex;

use super::fault::Fault;
use super::rust_file::RustFile;

/// Words that a doc comment has at least; a shorter one repeats the name.
const MIN_DOC_WORDS: usize = 4;

/// Phrases and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    (r"anew", "again"),
    (
        r"whoever|whomever|those who|who (asks?|asked|waits?)",
        "name the caller, task or peer",
    ),
    (r"for ever", "forever, or until what"),
    (
        r"so (many|much) (as|are|may|errors|hosts|requests)",
        "give the number or its name",
    ),
    (
        r"in (vain|peace|silence)|at the line",
        "say what happens on the wire",
    ),
    (r"lets? go of", "drop, release, close"),
    (
        r"(has|have|more) to say|hears? of|says? hello",
        "report, receive, handshake",
    ),
    (r"los(e|es|ing) patience|be glad", "time out, reuse"),
    (
        r"strangers?|sisters?|brothers?",
        "client, peer; counterpart",
    ),
    (
        r"henceforth|thereof|therein|wherein|to and fro",
        "use a modern word",
    ),
    (r"(mend|mends|mended|mending)", "fix"),
];

static PHRASE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compile = |&(phrase, instead): &(&str, &'static str)| {
        let regex = Regex::new(&format!(r"(?i)\b({phrase})\b"));
        (regex.expect("the list holds regular expressions"), instead)
    };
    PHRASES.iter().map(compile).collect()
});

/// The first phrase of the list in `text`, and what to write instead.
fn phrase(text: &str) -> Option<(&str, &'static str)> {
    let mut found = PHRASE.iter().filter_map(|(regex, instead)| {
        let found = regex.find(text)?;
        Some((found.as_str(), *instead))
    });
    found.next()
}

fn fault(path: &str, line: usize, text: &str) -> Option<Fault> {
    let (found, instead) = phrase(text)?;
    let advice = format!("`{found}` is not a word of the field: {instead}");
    Some(Fault::new(path, line, "phrase", advice))
}

/// Phrases in comments, strings and names of functions. A phrase may be broken over two lines.
pub(crate) fn phrases(file: &RustFile) -> Vec<Fault> {
    let comments = file
        .comments
        .iter()
        .map(|comment| (comment.line, comment.lines.join(" ")));
    let strings = file.strings.iter().cloned();
    let names = file
        .functions
        .iter()
        .map(|function| (function.first_line, function.name.replace('_', " ")));
    comments
        .chain(strings)
        .chain(names)
        .filter_map(|(line, text)| fault(&file.path, line, &text))
        .collect()
}

/// Doc comments that are too short to say more than the name.
pub(crate) fn short_docs(file: &RustFile) -> Vec<Fault> {
    let docs = file.comments.iter().filter(|comment| comment.is_doc);
    let short = docs.filter(|doc| {
        let words = doc.lines.iter().map(|line| line.split_whitespace().count());
        words.sum::<usize>() < MIN_DOC_WORDS
    });
    short
        .map(|doc| {
            let advice = format!(
                "`{}` repeats the name: say when or why, or leave it out",
                doc.lines.join(" ")
            );
            Fault::new(&file.path, doc.line, "short doc", advice)
        })
        .collect()
}

/// Phrases in a document, outside code blocks.
pub(crate) fn phrases_of_document(path: &str, text: &str) -> Vec<Fault> {
    let mut in_block = false;
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            faults.extend(fault(path, index + 1, line));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(faults: &[Fault]) -> Vec<usize> {
        faults.iter().map(|fault| fault.line).collect()
    }

    #[test]
    fn phrases_are_found_in_comments_strings_and_names() {
        let text = "//! Starts\n//! Anew.\nfn for_ever() {\n    // Whoever calls.\n    \
                    g(\"in vain\");\n    // fine\n}\n";
        let file = RustFile::parse("crates/x/src/a.rs", text);
        let mut found = lines(&phrases(&file));
        found.sort_unstable();
        assert_eq!(found, [1, 3, 4, 5]);
    }

    #[test]
    fn phrases_are_found_in_documents_outside_code() {
        let text = "# Title\n```sh\necho anew\n```\nIt begins anew.\nMandatory is fine.\n";
        assert_eq!(lines(&phrases_of_document("a.md", text)), [5]);
    }

    #[test]
    fn short_docs_are_found() {
        let text = "//! What this module holds.\n/// The name.\nfn a() {}\n// Why.\nfn b() {}\n";
        let file = RustFile::parse("crates/x/src/a.rs", text);
        assert_eq!(lines(&short_docs(&file)), [2]);
    }
}
