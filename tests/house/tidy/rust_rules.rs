//! House rules for Rust files: lengths, widths, docs, notes, type parameters.
//!
//! Only what clippy does not check already (it counts parameters and refuses `unwrap`). Limits are
//! those of CONTRIBUTING.md.

use super::fault::Fault;
use super::rust_file::RustFile;

/// Lines per file, tests apart.
pub(crate) const MAX_FILE_LINES: usize = 600;
pub(crate) const MAX_FUNCTION_LINES: usize = 70;
/// Lines of the function that is longer than 95 % of all.
pub(crate) const P95_FUNCTION_LINES: usize = 40;
pub(crate) const MAX_LINE_WIDTH: usize = 100;
/// Type parameters per item.
pub(crate) const MAX_TYPE_PARAMETERS: usize = 3;
/// `expect` in a library, per 1000 lines of code.
pub(crate) const MAX_EXPECTS_PER_1000: usize = 2;
/// Notes for later, per 1000 lines of code.
pub(crate) const MAX_NOTES_PER_1000: usize = 1;

/// Words that mark a note for later.
const NOTES: [&str; 2] = ["TODO", "FIXME"];

pub(crate) fn file_length(file: &RustFile) -> Option<Fault> {
    let lines = file.production_lines();
    let advice = format!("{lines} lines, at most {MAX_FILE_LINES}: split by what changes together");
    (lines > MAX_FILE_LINES).then(|| Fault::new(&file.path, 1, "file length", advice))
}

pub(crate) fn function_length(file: &RustFile) -> Vec<Fault> {
    let long = file
        .functions
        .iter()
        .filter(|f| f.lines > MAX_FUNCTION_LINES && !file.in_test(f.first_line));
    long.map(|f| {
        let advice = format!(
            "`{}` has {} lines, at most {MAX_FUNCTION_LINES}: keep the branching, move the \
             computing into helpers",
            f.name, f.lines
        );
        Fault::new(&file.path, f.first_line, "function length", advice)
    })
    .collect()
}

/// The length that 95 % of all production functions do not exceed.
pub(crate) fn p95_function_lines(files: &[&RustFile]) -> usize {
    let production = |file: &&RustFile| {
        let functions = file.functions.iter();
        let lines = functions
            .filter(|f| !file.in_test(f.first_line))
            .map(|f| f.lines);
        lines.collect::<Vec<_>>()
    };
    let mut lines: Vec<usize> = files.iter().flat_map(production).collect();
    lines.sort_unstable();
    let index = (lines.len() * 95).div_ceil(100).saturating_sub(1);
    lines.get(index).copied().unwrap_or(0)
}

pub(crate) fn line_width(file: &RustFile) -> Vec<Fault> {
    let wide = file
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.chars().count() > MAX_LINE_WIDTH && !unbreakable(line));
    wide.map(|(index, line)| {
        let width = line.chars().count();
        let advice = format!("{width} characters, at most {MAX_LINE_WIDTH}: break the line");
        Fault::new(&file.path, index + 1, "line width", advice)
    })
    .collect()
}

/// An address, a single word such as a path, or a row of a table in a doc.
fn unbreakable(line: &str) -> bool {
    let text = line.trim().trim_start_matches(['/', '!', '#']).trim_start();
    let words = text.split_whitespace().count();
    line.contains("http") || words <= 1 || text.starts_with('|')
}

pub(crate) fn module_doc(file: &RustFile) -> Option<Fault> {
    let first = file.text.lines().find(|line| !line.trim().is_empty());
    let advice =
        "start with `//!`: what lives here, what does not and where it lives, who calls it";
    (!first.unwrap_or("").starts_with("//!"))
        .then(|| Fault::new(&file.path, 1, "module doc", advice))
}

pub(crate) fn type_parameters(file: &RustFile) -> Vec<Fault> {
    let many = file
        .generics
        .iter()
        .filter(|g| g.type_parameters > MAX_TYPE_PARAMETERS);
    many.map(|g| {
        let advice = format!(
            "`{}` has {}, at most {MAX_TYPE_PARAMETERS}: use an enum or a concrete type",
            g.name, g.type_parameters
        );
        Fault::new(&file.path, g.line, "type parameters", advice)
    })
    .collect()
}

/// Notes for later that name no issue.
pub(crate) fn notes_without_issue(file: &RustFile) -> Vec<Fault> {
    let nameless = notes(file).into_iter().filter(|&(_, named)| !named);
    nameless
        .map(|(line, _)| {
            let advice = "name the issue that ends it, as in `(#123)`, or do it now";
            Fault::new(&file.path, line, "note for later", advice)
        })
        .collect()
}

/// More notes for later than the lines of a crate allow.
pub(crate) fn too_many_notes(name: &str, files: &[&RustFile]) -> Option<Fault> {
    let count: usize = files.iter().map(|file| notes(file).len()).sum();
    let lines: usize = files.iter().map(|file| file.code_lines().0).sum();
    let advice =
        format!("{count} in {lines} lines, at most {MAX_NOTES_PER_1000} per 1000: do some");
    (count > allowed(lines, MAX_NOTES_PER_1000))
        .then(|| Fault::new(name, 1, "notes for later", advice))
}

/// More `expect`s than the lines of a library allow.
pub(crate) fn too_many_expects(name: &str, files: &[&RustFile]) -> Option<Fault> {
    let count: usize = files.iter().map(|file| expects(file).len()).sum();
    let lines: usize = files.iter().map(|file| file.code_lines().0).sum();
    let places: Vec<String> = files
        .iter()
        .flat_map(|file| {
            expects(file)
                .into_iter()
                .map(|line| format!("{}:{line}", file.path))
        })
        .collect();
    let advice = format!(
        "{count} in {lines} lines, at most {MAX_EXPECTS_PER_1000} per 1000: let a type carry the \
         invariant ({})",
        places.join(", ")
    );
    (count > allowed(lines, MAX_EXPECTS_PER_1000)).then(|| Fault::new(name, 1, "expect", advice))
}

/// A started thousand counts, so that a young crate may have its first.
fn allowed(lines: usize, per_1000: usize) -> usize {
    lines.div_ceil(1000) * per_1000
}

/// Lines with a note for later, and whether the note names an issue.
fn notes(file: &RustFile) -> Vec<(usize, bool)> {
    let lines = file.comments.iter().flat_map(|comment| {
        let lines = comment.lines.iter().enumerate();
        lines.map(|(index, line)| (comment.line + index, line))
    });
    lines
        .filter(|(_, line)| NOTES.iter().any(|note| has_word(line, note)))
        .map(|(number, line)| (number, names_issue(line)))
        .collect()
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|part| part == word)
}

fn names_issue(line: &str) -> bool {
    line.split('#')
        .skip(1)
        .any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Lines outside tests that call `expect`.
fn expects(file: &RustFile) -> Vec<usize> {
    let lines = file.expects.iter().copied();
    lines.filter(|&line| !file.in_test(line)).collect()
}

/// Tuples of parameters and chains of rebindings, which hide what a function takes and does.
pub(crate) fn named_steps(file: &RustFile) -> Vec<Fault> {
    let tuples = file.tuple_parameters.iter().map(|&line| {
        let advice = "name the arguments, or give them a struct";
        Fault::new(&file.path, line, "tuple parameter", advice)
    });
    let rebindings = file.rebindings.iter().map(|&line| {
        let advice = "join the two statements to one chain, or give the second its own name";
        Fault::new(&file.path, line, "rebinding", advice)
    });
    tuples.chain(rebindings).collect()
}

/// Public items and functions of a library without documentation. Fields and variants need none:
/// most are named by a specification.
pub(crate) fn missing_docs(file: &RustFile) -> Vec<Fault> {
    let missing = file.undocumented.iter();
    missing
        .filter(|(line, _)| !file.in_test(*line))
        .map(|(line, name)| {
            let advice = format!("say in a sentence what `{name}` is for");
            Fault::new(&file.path, *line, "missing docs", advice)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> RustFile {
        RustFile::parse("crates/x/src/a.rs", text)
    }

    fn lines(faults: &[Fault]) -> Vec<usize> {
        faults.iter().map(|fault| fault.line).collect()
    }

    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    x();\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_may_have_600_lines_besides_its_tests() {
        let tests = format!(
            "#[cfg(test)]\nmod tests {{\n{}}}\n",
            "    x!();\n".repeat(500)
        );
        assert_eq!(file_length(&file(&("x!();\n".repeat(600) + &tests))), None);
        let fault = file_length(&file(&"x!();\n".repeat(601))).unwrap();
        assert_eq!((fault.rule, fault.line), ("file length", 1));
    }

    #[test]
    fn a_function_may_have_70_lines_and_a_test_more() {
        let text = function("short", 70) + &function("long", 71);
        assert_eq!(lines(&function_length(&file(&text))), [71]);
        let test = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function("long", 90));
        assert_eq!(function_length(&file(&test)), []);
    }

    #[test]
    fn the_95th_percentile_is_that_of_production_functions() {
        let short: String = (0..19).map(|_| function("f", 3)).collect();
        let one = file(&(short + &function("g", 60)));
        let other = file(&function("h", 50));
        assert_eq!(p95_function_lines(&[&one]), 3);
        assert_eq!(p95_function_lines(&[&one, &other]), 50);
        assert_eq!(p95_function_lines(&[]), 0);
    }

    #[test]
    fn lines_have_100_characters_unless_nothing_can_be_broken() {
        let word = "ü".repeat(98);
        let ok = format!("// a{}\n", &word[..96 * 2]);
        assert_eq!(line_width(&file(&ok)), [], "characters, not bytes");
        let wide = format!("x!();\n// a {word}\n");
        assert_eq!(lines(&line_width(&file(&wide))), [2]);
        let unbreakable = format!("//! {word}xxx\n// see https://example.org/{word} for more\n");
        assert_eq!(line_width(&file(&unbreakable)), []);
        let row = format!("//! | a | {word} |\n");
        assert_eq!(line_width(&file(&row)), []);
    }

    #[test]
    fn every_file_starts_with_its_doc() {
        assert_eq!(module_doc(&file("\n//! What lives here.\n")), None);
        assert!(module_doc(&file("// What lives here.\n")).is_some());
        assert!(module_doc(&file("")).is_some());
    }

    #[test]
    fn three_type_parameters_are_enough() {
        assert_eq!(
            type_parameters(&file("struct A<'a, T, U, V>(T, U, V);")),
            []
        );
        assert_eq!(
            lines(&type_parameters(&file("\nstruct A<T, U, V, W>(T);"))),
            [2]
        );
    }

    #[test]
    fn notes_for_later_name_an_issue() {
        let note = NOTES[0];
        let text =
            format!("// {note}: some day\n// {note}(#12): then\nconst A: &str = \"{note}\";\n");
        assert_eq!(lines(&notes_without_issue(&file(&text))), [1]);
        assert_eq!(
            notes_without_issue(&file("// TODOS and # marks are words\n")),
            []
        );
    }

    #[test]
    fn notes_for_later_are_rationed() {
        let note = format!("// {}(#1)\n", NOTES[1]);
        let one = file(&(note.clone() + "x!();\n"));
        assert_eq!(too_many_notes("crates/x", &[&one]), None);
        let two = file(&note.repeat(2));
        assert!(too_many_notes("crates/x", &[&two]).is_some());
        let long = file(&(note.repeat(2) + &"x!();\n".repeat(1001)));
        assert_eq!(too_many_notes("crates/x", &[&long]), None);
    }

    #[test]
    fn expects_are_rationed_outside_tests() {
        let function =
            |count: usize| format!("fn f() {{\n{}}}\n", "a.expect(\"b\");\n".repeat(count));
        let count = |text: &str| too_many_expects("crates/x", &[&file(text)]);
        assert_eq!(count(&function(2)), None);
        let fault = count(&function(3)).unwrap();
        assert!(fault.advice.contains("crates/x/src/a.rs:4"), "{fault}");
        assert_eq!(count(&format!("#[cfg(test)]\n{}", function(5))), None);
        assert_eq!(count(&"// .expect(\n".repeat(9)), None);
    }
}
