//! [`RustFile`]: a source file as the house rules see it: items, comments, strings, test lines.
//!
//! Built from text alone by `syn`, so that rules are tested without a disk. The rules live in
//! `rust_rules` and `prose`.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Visibility};

/// A Rust file and what was found in it. Line numbers start at 1.
#[derive(Debug, Default)]
pub(crate) struct RustFile {
    /// Path from the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
    /// For each line, whether it belongs to a test.
    pub(crate) is_test: Vec<bool>,
    /// Names of modules that are declared for tests only and live in their own file.
    pub(crate) test_modules: Vec<String>,
    /// Functions with a body, nested ones too.
    pub(crate) functions: Vec<Function>,
    /// Items with type parameters.
    pub(crate) generics: Vec<Generics>,
    /// Public items and functions without documentation: line and name.
    pub(crate) undocumented: Vec<(usize, String)>,
    /// Lines that call `expect`.
    pub(crate) expects: Vec<usize>,
    /// Lines with a tuple pattern as one of several parameters.
    pub(crate) tuple_parameters: Vec<usize>,
    /// Lines of `let x = x.method()` right after another `let x`.
    pub(crate) rebindings: Vec<usize>,
    /// Blocks of consecutive comment lines of one kind.
    pub(crate) comments: Vec<Comment>,
    /// String literals with their first lines.
    pub(crate) strings: Vec<(usize, String)>,
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

/// A block of comment lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) line: usize,
    /// Whether it documents an item or a module (`///`, `//!`).
    pub(crate) is_doc: bool,
    /// Its lines, without the marks.
    pub(crate) lines: Vec<String>,
}

impl RustFile {
    /// # Panics
    /// If the file is not Rust.
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let tokens: TokenStream = text.parse().expect(path);
        let mut file = Self {
            path: path.to_owned(),
            text: text.to_owned(),
            is_test: vec![is_test_path(path); text.lines().count()],
            ..Self::default()
        };
        let parsed = syn::parse2(tokens.clone()).expect(path);
        file.visit_file(&parsed);
        let mut is_literal = vec![false; file.is_test.len()];
        file.read_strings(tokens, &mut is_literal);
        file.comments = comments(text, &is_literal);
        file
    }

    pub(crate) fn in_test(&self, number: usize) -> bool {
        self.is_test.get(number - 1).copied().unwrap_or(false)
    }

    /// Lines outside tests, blank ones included.
    pub(crate) fn production_lines(&self) -> usize {
        self.is_test.iter().filter(|&&test| !test).count()
    }

    /// Lines that are neither blank nor only comment: (production, tests).
    pub(crate) fn code_lines(&self) -> (usize, usize) {
        let mut is_comment = vec![false; self.is_test.len()];
        for comment in &self.comments {
            is_comment[comment.line - 1..][..comment.lines.len()].fill(true);
        }
        let lines = self.text.lines().zip(is_comment).zip(&self.is_test);
        let code = lines.filter(|((line, comment), _)| !comment && !line.trim().is_empty());
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

    fn read_strings(&mut self, tokens: TokenStream, is_literal: &mut [bool]) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.read_strings(group.stream(), is_literal),
                TokenTree::Literal(literal) => {
                    let (first, last) = line_range(literal.span());
                    // The first line may start with code; the others are the literal's.
                    is_literal[first..last].fill(true);
                    let is_doc = is_comment_line(self.text.lines().nth(first - 1).unwrap_or(""));
                    if let Ok(string) = syn::parse_str::<syn::LitStr>(&literal.to_string())
                        && !is_doc
                    {
                        self.strings.push((first, string.value()));
                    }
                }
                _ => {}
            }
        }
    }

    fn add_function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let first_line = signature.fn_token.span.start().line;
        let (_, last_line) = line_range(body.span());
        self.functions.push(Function {
            name: signature.ident.to_string(),
            first_line,
            lines: last_line - first_line + 1,
        });
    }

    fn add_generics(&mut self, name: String, span: Span, generics: &syn::Generics) {
        self.generics.push(Generics {
            name,
            line: span.start().line,
            type_parameters: generics.type_params().count(),
        });
    }

    fn require_doc(
        &mut self,
        visibility: &Visibility,
        attributes: &[Attribute],
        name: &syn::Ident,
    ) {
        let documented = attributes.iter().any(|a| a.path().is_ident("doc"));
        if matches!(visibility, Visibility::Public(_)) && !documented {
            let line = name.span().start().line;
            self.undocumented.push((line, name.to_string()));
        }
    }
}

impl<'ast> Visit<'ast> for RustFile {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if attributes(item).iter().any(is_cfg_test) {
            let (first, last) = line_range(item.span());
            self.is_test[first - 1..last].fill(true);
            if let syn::Item::Mod(module) = item
                && module.content.is_none()
            {
                self.test_modules.push(module.ident.to_string());
            }
        }
        match item {
            syn::Item::Fn(item) => {
                self.require_doc(&item.vis, &item.attrs, &item.sig.ident);
                self.add_function(&item.sig, &item.block);
            }
            syn::Item::Struct(item) => {
                self.require_doc(&item.vis, &item.attrs, &item.ident);
                self.add_generics(item.ident.to_string(), item.ident.span(), &item.generics);
            }
            syn::Item::Enum(item) => {
                self.require_doc(&item.vis, &item.attrs, &item.ident);
                self.add_generics(item.ident.to_string(), item.ident.span(), &item.generics);
            }
            syn::Item::Trait(item) => {
                self.require_doc(&item.vis, &item.attrs, &item.ident);
                self.add_generics(item.ident.to_string(), item.ident.span(), &item.generics);
            }
            syn::Item::Type(item) => self.require_doc(&item.vis, &item.attrs, &item.ident),
            syn::Item::Const(item) => self.require_doc(&item.vis, &item.attrs, &item.ident),
            syn::Item::Static(item) => self.require_doc(&item.vis, &item.attrs, &item.ident),
            syn::Item::Impl(item) => {
                self.add_generics("impl".to_owned(), item.impl_token.span, &item.generics);
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.require_doc(&item.vis, &item.attrs, &item.sig.ident);
        self.add_function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add_function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let name = &signature.ident;
        self.add_generics(name.to_string(), name.span(), &signature.generics);
        let tuples = signature
            .inputs
            .iter()
            .filter(|input| is_tuple_pattern(input));
        let typed = signature.inputs.iter();
        if typed
            .filter(|input| matches!(input, syn::FnArg::Typed(_)))
            .count()
            > 1
        {
            let lines = tuples.map(|tuple| tuple.span().start().line);
            self.tuple_parameters.extend(lines);
        }
        visit::visit_signature(self, signature);
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        for pair in block.stmts.windows(2) {
            if let Some(name) = bound_name(&pair[0])
                && bound_name(&pair[1]) == Some(name)
                && calls_method_on(&pair[1], name)
            {
                self.rebindings.push(pair[1].span().start().line);
            }
        }
        visit::visit_block(self, block);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "expect" {
            self.expects.push(call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }
}

fn is_tuple_pattern(input: &syn::FnArg) -> bool {
    let syn::FnArg::Typed(typed) = input else {
        return false;
    };
    matches!(
        (&*typed.pat, &*typed.ty),
        (syn::Pat::Tuple(_), syn::Type::Tuple(_))
    )
}

/// The name that a `let` binds, if it is a single immutable one.
fn bound_name(statement: &syn::Stmt) -> Option<&syn::Ident> {
    let syn::Stmt::Local(local) = statement else {
        return None;
    };
    match &local.pat {
        // One with a type is often collected and then borrowed from.
        syn::Pat::Ident(pattern) if pattern.mutability.is_none() => Some(&pattern.ident),
        _ => None,
    }
}

/// Whether a `let` calls methods on the variable `name` that do not take it as an argument or as
/// the parameter of a closure.
fn calls_method_on(statement: &syn::Stmt, name: &syn::Ident) -> bool {
    let syn::Stmt::Local(local) = statement else {
        return false;
    };
    let Some(syn::Expr::MethodCall(call)) = local.init.as_ref().map(|init| &*init.expr) else {
        return false;
    };
    let mut receiver = &*call.receiver;
    let mut arguments = call.args.to_token_stream().to_string();
    while let syn::Expr::MethodCall(inner) = receiver {
        receiver = &inner.receiver;
        arguments.push_str(&inner.args.to_token_stream().to_string());
    }
    let mut words = arguments.split(|c: char| !c.is_alphanumeric() && c != '_');
    if words.any(|word| name == word) {
        return false;
    }
    matches!(receiver, syn::Expr::Path(path) if path.path.is_ident(name))
}

/// First and last line of a span.
fn line_range(span: Span) -> (usize, usize) {
    (span.start().line, span.end().line)
}

fn attributes(item: &syn::Item) -> &[Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]`, alone or inside `all(…)`.
fn is_cfg_test(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let condition = list.tokens.to_string();
    list.path.is_ident("cfg")
        && (condition == "test"
            || condition.starts_with("all (test")
            || condition.starts_with("all(test"))
}

fn is_comment_line(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Blocks of comment lines; a block ends where the mark changes.
fn comments(text: &str, is_literal: &[bool]) -> Vec<Comment> {
    let mut comments: Vec<Comment> = Vec::new();
    let mut mark_before = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let marks = ["///", "//!", "//"];
        let mark = marks.into_iter().find(|&mark| line.starts_with(mark));
        let Some(mark) = mark.filter(|_| !is_literal[index]) else {
            mark_before = "";
            continue;
        };
        if mark != mark_before {
            comments.push(Comment {
                line: index + 1,
                is_doc: mark != "//",
                lines: Vec::new(),
            });
        }
        if let Some(comment) = comments.last_mut() {
            comment.lines.push(line[mark.len()..].trim().to_owned());
        }
        mark_before = mark;
    }
    comments
}

/// Whether a file is a test as a whole, by its place.
pub(crate) fn is_test_path(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "tests.rs")
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
        let functions = file.functions.iter();
        let found: Vec<_> = functions
            .map(|f| (f.name.as_str(), f.first_line, f.lines))
            .collect();
        let expected = [
            ("outer", 2, 5),
            ("inner", 3, 1),
            ("helper", 18, 3),
            ("real", 24, 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn test_items_are_told_from_production() {
        let file = sample();
        let test_lines: Vec<_> = (1..=24).filter(|&line| file.in_test(line)).collect();
        assert_eq!(test_lines, [12, 13, 14, 16, 17, 18, 19, 20, 21]);
        assert_eq!(file.production_lines(), 24 - 9);
        assert_eq!(file.code_lines(), (10, 9), "docs are not code");
    }

    #[test]
    fn test_modules_in_their_own_file_are_found() {
        let paths = sample().test_module_paths();
        let expected = [
            "crates/x/src/shape/elsewhere.rs",
            "crates/x/src/shape/elsewhere/mod.rs",
        ];
        assert_eq!(paths, expected);
        let lib = RustFile::parse("crates/x/src/lib.rs", "#[cfg(test)]\nmod tools;\n");
        assert_eq!(lib.test_module_paths()[0], "crates/x/src/tools.rs");
    }

    #[test]
    fn files_below_tests_are_tests_as_a_whole() {
        let paths = [
            "crates/x/tests/a.rs",
            "crates/x/src/a/tests.rs",
            "crates/x/src/tests/b.rs",
        ];
        for path in paths {
            let file = RustFile::parse(path, "fn a() {}\n");
            assert_eq!(file.production_lines(), 0, "{path}");
        }
        let file = RustFile::parse("crates/x/src/attests.rs", "fn a() {}\n");
        assert_eq!(file.production_lines(), 1);
    }

    #[test]
    fn type_parameters_are_counted_without_lifetimes_and_constants() {
        let text = "struct A<'a, T: Into<Vec<u8>>, const N: usize>(&'a T);\n\
                    impl<T, U, V, W> B<T> {}\n\
                    fn f<F: Fn(u8, u8) -> u8, G>() {}\n";
        let file = RustFile::parse("a.rs", text);
        let generics = file.generics.iter();
        let found: Vec<_> = generics
            .map(|g| (g.name.as_str(), g.line, g.type_parameters))
            .collect();
        assert_eq!(found, [("A", 1, 1), ("impl", 2, 4), ("f", 3, 2)]);
    }

    #[test]
    fn public_items_and_functions_need_docs_and_fields_do_not() {
        let text = "/// Doc.\npub struct A { pub a: u8 }\npub fn b() {}\n\
                    impl A {\n    pub fn c() {}\n    fn d() {}\n    pub(crate) fn e() {}\n}\n";
        let file = RustFile::parse("a.rs", text);
        assert_eq!(
            file.undocumented,
            [(3, "b".to_owned()), (5, "c".to_owned())]
        );
    }

    #[test]
    fn tuple_parameters_and_rebindings_are_found() {
        let text = "fn a((b, c): (u8, u8), d: u8) {\n    let x = d;\n    let x = x.one();\n}\n\
                    fn e((f, g): (u8, u8)) {\n    let y = f;\n    let y = g.one();\n}\n";
        let file = RustFile::parse("a.rs", text);
        assert_eq!(file.tuple_parameters, [1]);
        assert_eq!(file.rebindings, [3]);
    }

    #[test]
    fn comments_and_strings_are_told_apart() {
        let text =
            "//! One\n//! two.\n\n/// Three.\nfn f() {\n    // four\n    g(\"five\n// six\");\n}\n";
        let file = RustFile::parse("a.rs", text);
        let comments = file.comments.iter();
        let found: Vec<_> = comments
            .map(|c| (c.line, c.is_doc, c.lines.join(" ")))
            .collect();
        let expected = [
            (1, true, "One two."),
            (4, true, "Three."),
            (6, false, "four"),
        ];
        assert_eq!(found, expected.map(|(l, d, t)| (l, d, t.to_owned())));
        assert_eq!(file.strings, [(7, "five\n// six".to_owned())]);
    }
}
