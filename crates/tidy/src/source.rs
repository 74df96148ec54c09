//! A Rust file as text and as a flat list of tokens with their lines.

use std::ops::Range;
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A Rust file.
#[derive(Debug)]
pub struct Source {
    /// Its path, relative to the root.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Its tokens, with those inside groups.
    pub tokens: Vec<Token>,
    /// Tokens inside modules of tests.
    test_modules: Vec<Range<usize>>,
}

/// A word, a mark, a bracket or a literal.
#[derive(Debug)]
pub struct Token {
    /// As written; for a literal only its first character, so that a string is not taken for code.
    pub text: String,
    /// The line it is on, from 1.
    pub line: usize,
}

impl Source {
    /// Reads the file at `path`, relative to the root.
    ///
    /// # Panics
    /// When it cannot be read or is not Rust.
    pub fn read(path: &str) -> Self {
        Self::new(path, crate::text(path))
    }

    /// A file of this text.
    ///
    /// # Panics
    /// When the text is not Rust.
    pub fn new(path: &str, text: String) -> Self {
        let stream = TokenStream::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let mut source = Self { path: path.to_owned(), text, tokens, test_modules: Vec::new() };
        source.test_modules = source.find_test_modules();
        source
    }

    /// Whether the tokens at `at` are these.
    pub fn has(&self, at: usize, expected: &[&str]) -> bool {
        let mut tokens = self.tokens.iter().skip(at);
        expected.iter().all(|text| tokens.next().is_some_and(|token| token.text == *text))
    }

    /// The lines with these tokens in a row.
    pub fn lines_of(&self, expected: &[&str]) -> Vec<usize> {
        let places = (0..self.tokens.len()).filter(|at| self.has(*at, expected));
        places.map(|at| self.tokens[at].line).collect()
    }

    /// The token that closes the bracket at `open`.
    ///
    /// # Panics
    /// When there is no bracket at `open`.
    pub fn close_of(&self, open: usize) -> usize {
        let mut depth = 0;
        for (at, token) in self.tokens.iter().enumerate().skip(open) {
            match token.text.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                assert!(at > open, "a bracket opens at {open}");
                return at;
            }
        }
        unreachable!("the tokenizer balances brackets")
    }

    /// Whether the token at `at` belongs to a test: the file is in `tests` or `benches` or is named
    /// `tests.rs`, or a module marked `#[cfg(test)]` or `#[cfg(all(loom, test))]` encloses it.
    pub fn is_test(&self, at: usize) -> bool {
        self.is_test_file() || self.test_modules.iter().any(|module| module.contains(&at))
    }

    fn is_test_file(&self) -> bool {
        let directories = ["/tests/", "/benches/"];
        directories.iter().any(|part| self.path.contains(part)) || self.path.ends_with("/tests.rs")
    }

    /// The number of lines that are neither blank nor a comment: outside of tests, and in tests.
    pub fn code_lines(&self) -> [usize; 2] {
        let line_of = |at: usize| self.tokens[at].line;
        let modules: Vec<_> =
            self.test_modules.iter().map(|it| line_of(it.start)..=line_of(it.end)).collect();
        let mut counts = [0; 2];
        for (at, line) in self.text.lines().enumerate() {
            let line = line.trim_start();
            if !line.is_empty() && !line.starts_with("//") {
                let in_module = modules.iter().any(|module| module.contains(&(at + 1)));
                counts[usize::from(in_module || self.is_test_file())] += 1;
            }
        }
        counts
    }

    /// The bodies of modules marked `#[cfg(test)]` or `#[cfg(all(loom, test))]`.
    fn find_test_modules(&self) -> Vec<Range<usize>> {
        let test = ["#", "[", "cfg", "(", "test", ")", "]"];
        let model = ["#", "[", "cfg", "(", "all", "(", "loom", ",", "test", ")", ")", "]"];
        let behind = |mark| [&test[..], &model].into_iter().find(|it| self.has(mark, it));
        let places = 0..self.tokens.len();
        let marks = places.filter_map(|mark| behind(mark).map(|it| mark + it.len()));
        let bodies = marks.filter_map(|mark| self.body_of(mark));
        bodies.map(|open| open..self.close_of(open)).collect()
    }

    /// The brace that opens the body of the item that continues at `at`; none when the item ends
    /// with a semicolon.
    fn body_of(&self, mut at: usize) -> Option<usize> {
        loop {
            match self.tokens.get(at)?.text.as_str() {
                "{" => return Some(at),
                ";" => return None,
                "(" | "[" => at = self.close_of(at) + 1,
                _ => at += 1,
            }
        }
    }
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    for tree in stream {
        let mut push = |text: &str, line| into.push(Token { text: text.to_owned(), line });
        match tree {
            TokenTree::Ident(ident) => push(&ident.to_string(), ident.span().start().line),
            TokenTree::Punct(mark) => {
                push(mark.as_char().encode_utf8(&mut [0; 4]), mark.span().start().line);
            }
            TokenTree::Literal(literal) => {
                push(&literal.to_string()[..1], literal.span().start().line);
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                push(open, group.span_open().start().line);
                flatten(group.stream(), into);
                let line = group.span_close().end().line;
                into.push(Token { text: close.to_owned(), line });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("crates/x/src/lib.rs", text.to_owned())
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let source = source("// unsafe {\nconst S: &str = \"unsafe {\"; /* dbg!() */");
        assert_eq!(source.lines_of(&["unsafe"]), []);
        assert_eq!(source.lines_of(&["dbg", "!"]), []);
    }

    #[test]
    fn macros_are_seen_through() {
        let source = source("proptest! {\n #[test]\n fn a(x: u8) {\n  dbg!(x)\n }\n}");
        assert_eq!(source.lines_of(&["dbg", "!"]), [4]);
    }

    #[test]
    fn test_modules_are_tests() {
        let source = source("fn a() { b() }\n#[cfg(test)]\nmod tests { fn c() {} }\nfn d() {}");
        let at = |name: &str| source.tokens.iter().position(|t| t.text == name).unwrap();
        assert!(source.is_test(at("c")));
        assert!(!source.is_test(at("a")) && !source.is_test(at("d")));
    }

    #[test]
    fn lines_of_code_and_of_tests_are_counted() {
        let text = "//! A.\n\nfn a() {\n    // b\n}\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
        assert_eq!(source(text).code_lines(), [3, 3]);
        assert_eq!(Source::new("crates/x/tests/a.rs", text.to_owned()).code_lines(), [0, 6]);
    }

    #[test]
    fn a_model_under_loom_is_a_test() {
        let source = source(
            "#[cfg(all(loom, test))]\nmod model { fn c() {} }\n#[cfg(loom)]\nmod m { fn d() {} }",
        );
        let at = |name: &str| source.tokens.iter().position(|t| t.text == name).unwrap();
        assert!(source.is_test(at("c")) && !source.is_test(at("d")));
    }
}
