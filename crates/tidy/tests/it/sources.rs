//! Rules for Rust files.

use onrush_tidy::{COLUMNS, Source, crate_of, demand, sources};

/// Lines of a file in `src` at most.
const FILE_LINES: usize = 700;

/// Words that do not say what a type is.
const VAGUE_WORDS: [&str; 4] = ["manager", "handler", "processor", "helper"];
/// Names of modules that have no subject.
const VAGUE_MODULES: [&str; 5] = ["common", "util", "utils", "helpers", "misc"];

#[test]
fn every_file_opens_with_a_description() {
    broken("a file opens with `//!`", |source| {
        if source.text.starts_with("//! ") { vec![] } else { vec![1] }
    });
}

/// The workspace denies `unsafe`; this finds attributes that allow it.
#[test]
fn unsafe_is_allowed_in_net_only() {
    broken("`unsafe_code` is only allowed in crates/net", |source| match source.path.as_str() {
        "crates/net/src/lib.rs" => vec![],
        _ => source.lines_of(&["unsafe_code"]),
    });
}

// Clippy does not see the workspaces beside the main one: fuzz targets and the loom model.
#[test]
fn no_unfinished_code_is_left() {
    broken("no todo!, unimplemented! or dbg!", |source| {
        let marks = ["todo", "unimplemented", "dbg"];
        marks.iter().flat_map(|mark| source.lines_of(&[mark, "!"])).collect()
    });
}

#[test]
fn files_are_at_most_700_lines() {
    broken("a file in src has at most 700 lines", |source| {
        let lines = source.text.lines().count();
        if source.path.contains("/src/") && lines > FILE_LINES { vec![lines] } else { vec![] }
    });
}

/// Comments and strings too, which rustfmt leaves as they are.
#[test]
fn lines_are_at_most_100_columns() {
    broken("a line has at most 100 columns", |source| {
        let long = |line: &str| line.chars().count() > COLUMNS;
        let lines = source.text.lines().enumerate();
        lines.filter(|(_, line)| long(line)).map(|(at, _)| at + 1).collect()
    });
}

#[test]
fn names_of_types_and_modules_are_specific() {
    broken("no Manager, Handler, Processor, Helper; no common, no utils", |source| {
        let mut lines = Vec::new();
        for pair in source.tokens.windows(2) {
            let [keyword, name] = pair else { continue };
            let words = words(&name.text);
            let empty = match keyword.text.as_str() {
                "struct" | "enum" | "union" | "trait" | "type" => {
                    words.iter().any(|word| VAGUE_WORDS.contains(&word.as_str()))
                }
                "mod" => words.iter().any(|word| {
                    VAGUE_WORDS.contains(&word.as_str()) || VAGUE_MODULES.contains(&word.as_str())
                }),
                _ => false,
            };
            if empty {
                lines.push(name.line);
            }
        }
        lines
    });
}

/// A counter with two writers loses counts: other crates only read those of members.
#[test]
fn only_members_write_their_counters() {
    broken("no code outside of crates/tracker and crates/web writes to `metrics`", |source| {
        let of_members = matches!(crate_of(&source.path), Some("tracker" | "web"));
        let places = match source.path.contains("/src/") && !of_members {
            true => 0..source.tokens.len(),
            false => 0..0,
        };
        let written = places.filter(|at| !source.is_test(*at) && is_written(source, *at));
        written.map(|at| source.tokens[at].line).collect()
    });
}

/// Whether the tokens at `at` write a counter: `metrics.kernel_drops.add(`.
fn is_written(source: &Source, mut at: usize) -> bool {
    let text = |at: usize| source.tokens.get(at).map_or("", |token| token.text.as_str());
    if text(at) != "metrics" {
        return false;
    }
    at += 1;
    loop {
        match text(at) {
            "." if ["add", "set", "observe"].contains(&text(at + 1)) => return true,
            "." => at += 2,
            "[" | "(" => at = source.close_of(at) + 1,
            _ => return false,
        }
    }
}

#[test]
fn no_test_is_ignored() {
    broken("no `#[ignore]`", |source| source.lines_of(&["#", "[", "ignore"]));
}

/// Fails with the lines of every file that break a rule.
fn broken(rule: &str, lines_of: impl Fn(&Source) -> Vec<usize>) {
    let sources = sources();
    assert!(sources.len() > 20, "only {} Rust files found", sources.len());
    let mut places = Vec::new();
    for source in sources {
        places.extend(lines_of(source).iter().map(|line| format!("{}:{line}", source.path)));
    }
    demand(rule, places);
}

/// The words of a CamelCase or snake_case name, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in name.chars() {
        if character == '_' || character.is_uppercase() {
            words.push(String::new());
        }
        if character != '_' {
            words.last_mut().expect("there is one").extend(character.to_lowercase());
        }
    }
    words
}

#[test]
fn the_rules_find_violations() {
    assert_eq!(words("PeerManager"), ["", "peer", "manager"]);
    assert_eq!(words("my_utils"), ["my", "utils"]);
    let is_written = |text: &str| is_written(&Source::new("x.rs", text.to_owned()), 0);
    assert!(is_written("metrics.incoming.of(family).refused[0].add(1)"));
    assert!(!is_written("metrics.turns.get() + sum.add(1)"));
}
