//! Rules for Rust files.

use onrush_tidy::{COLUMNS, Source, crate_of, demand, sources};

/// Lines of a file in `src` at most.
const FILE_LINES: usize = 700;
/// Lines of a function at most, from `fn` to the closing brace.
const FUNCTION_LINES: usize = 70;

/// Words that do not say what a type is.
const VAGUE_WORDS: [&str; 4] = ["manager", "handler", "processor", "helper"];
/// Names of modules that have no subject.
const VAGUE_MODULES: [&str; 5] = ["common", "util", "utils", "helpers", "misc"];

/// Files of tests that may sleep: polls with a deadline of a state that gives no event to wait for.
/// File, and the reason of every sleep in it.
const MAY_SLEEP: [(&str, &str); 2] = [
    (
        "crates/daemon/tests/it/memory_returned.rs",
        "an allocator's background threads return memory without an event",
    ),
    (
        "crates/load/tests/timed/server.rs",
        "a server whose slow replies are the subject of the test",
    ),
];

/// Types that make a thread wait for another, and crates of such types.
const LOCKS: [&str; 12] = [
    "Mutex",
    "RwLock",
    "Condvar",
    "Barrier",
    "Once",
    "OnceLock",
    "LazyLock",
    "ReentrantLock",
    "ShardedLock",
    "parking_lot",
    "once_cell",
    "lazy_static",
];
/// Crates whose code runs on workers.
const DATA_PATH: [&str; 4] = ["proto", "net", "swarm", "tracker"];
/// Files of these crates that may have locks: file, reason.
const MAY_LOCK: [(&str, &str); 1] = [(
    "crates/net/src/memory.rs",
    "the in-process network of tests: its lock is in place of the kernel's",
)];

#[test]
fn every_file_opens_with_a_description() {
    broken("a file opens with `//!`", |source| {
        if source.text.starts_with("//! ") { vec![] } else { vec![1] }
    });
}

#[test]
fn unsafe_is_in_net_only() {
    broken("`unsafe` is only in crates/net", |source| match crate_of(&source.path) {
        Some("net") => vec![],
        _ => source.lines_of(&["unsafe"]),
    });
}

#[test]
fn every_other_crate_forbids_unsafe() {
    broken("a crate root forbids unsafe code", |source| {
        let root = source.path.ends_with("/src/lib.rs")
            || source.path.ends_with("/src/main.rs")
            || source.path.contains("/src/bin/");
        let forbids = ["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"];
        let missing = root && crate_of(&source.path) != Some("net");
        if missing && source.lines_of(&forbids).is_empty() { vec![1] } else { vec![] }
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
fn functions_are_at_most_70_lines() {
    broken("a function has at most 70 lines", |source| {
        let functions = source.functions().into_iter();
        let long = functions.filter(|f| f.last - f.first + 1 > FUNCTION_LINES);
        long.map(|function| function.first).collect()
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

// Clippy does not see the workspaces beside the main one: fuzz targets and the loom model.
#[test]
fn no_unfinished_code_is_left() {
    broken("no todo!, unimplemented! or dbg!", |source| {
        let marks = ["todo", "unimplemented", "dbg"];
        marks.iter().flat_map(|mark| source.lines_of(&[mark, "!"])).collect()
    });
}

#[test]
fn no_test_is_ignored() {
    broken("no `#[ignore]`", |source| source.lines_of(&["#", "[", "ignore"]));
}

#[test]
fn tests_do_not_sleep() {
    broken_except("a test does not sleep (a poll has an entry in MAY_SLEEP)", &MAY_SLEEP, sleeps);
}

/// The lines of tests that sleep.
fn sleeps(source: &Source) -> Vec<usize> {
    let places = (1..source.tokens.len()).filter(|at| {
        // A method `sleep` is another thing: a worker sleeps on its inbox.
        let before = source.tokens[at - 1].text.as_str();
        let call = source.has(*at, &["sleep", "("]) && !["fn", "."].contains(&before);
        let imported = source.has(*at, &["sleep", ";"]);
        (call || imported) && source.is_test(*at)
    });
    places.map(|at| source.tokens[at].line).collect()
}

#[test]
fn the_data_path_has_no_locks() {
    broken_except(
        "no lock in proto, net, swarm and tracker (an exception has an entry in MAY_LOCK)",
        &MAY_LOCK,
        locks,
    );
}

/// The lines of code of the data path with a lock, outside of tests.
fn locks(source: &Source) -> Vec<usize> {
    let data_path = crate_of(&source.path).is_some_and(|name| DATA_PATH.contains(&name));
    if !data_path || !source.path.contains("/src/") {
        return vec![];
    }
    let tokens = source.tokens.iter().enumerate();
    let found = tokens.filter(|(_, token)| LOCKS.contains(&token.text.as_str()));
    found.filter(|(at, _)| !source.is_test(*at)).map(|(_, token)| token.line).collect()
}

/// As [`broken`], except for the files of `exceptions`, each of which has to be in use.
fn broken_except(
    rule: &str,
    exceptions: &[(&str, &str)],
    lines_of: impl Fn(&Source) -> Vec<usize>,
) {
    let mut unused = exceptions.to_vec();
    broken(rule, |source| {
        let mut lines = lines_of(source);
        if exceptions.iter().any(|(path, _)| *path == source.path) && !lines.is_empty() {
            unused.retain(|(path, _)| *path != source.path);
            lines.clear();
        }
        lines
    });
    demand("an exception is in use", unused.iter().map(|entry| format!("{entry:?}")).collect());
}

/// Fails with the lines of every file that break a rule.
fn broken(rule: &str, mut lines_of: impl FnMut(&Source) -> Vec<usize>) {
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
    let source = |path: &str, text: &str| Source::new(path, text.to_owned());
    let lock = "use std::sync::{Arc, Mutex};\nstatic S: std::sync::OnceLock<u8> = OnceLock::new();";
    assert_eq!(locks(&source("crates/swarm/src/shard/mod.rs", lock)), [1, 2, 2]);
    assert_eq!(locks(&source("crates/load/src/lib.rs", lock)), []);
    assert_eq!(locks(&source("crates/swarm/tests/model.rs", lock)), []);
    let model = "#[cfg(all(loom, test))]\nmod model { use loom::sync::Mutex; }\n// a Mutex\n";
    assert_eq!(locks(&source("crates/tracker/src/lanes/sleep.rs", model)), []);
}
