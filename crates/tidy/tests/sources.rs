//! Rules for Rust files.

use std::collections::BTreeSet;

use onrush_tidy::{Source, crate_of, demand, sources};

/// Lines of a file in `src` at most.
const FILE_LINES: usize = 700;
/// Lines of a function at most, from `fn` to the closing brace.
const FUNCTION_LINES: usize = 70;

/// Words that say nothing of what a thing is.
const EMPTY_WORDS: [&str; 4] = ["manager", "handler", "processor", "helper"];
/// Rooms in which things end up that nobody placed.
const EMPTY_ROOMS: [&str; 5] = ["common", "util", "utils", "helpers", "misc"];

/// Tests that may sleep: polls with a deadline, for which there is nothing to wait on. File,
/// function, reason.
const MAY_SLEEP: [(&str, &str, &str); 2] = [
    (
        "crates/daemon/tests/it/memory_returned.rs",
        "when_everybody_has_left_the_daemon_is_small_again",
        "nothing tells when an allocator's own threads give memory back",
    ),
    (
        "crates/load/tests/responder/server.rs",
        "serve",
        "a server that is slow or stalls: that is what it is for, nobody waits for state",
    ),
];

/// What makes a thread wait for another, and crates that are for nothing else.
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
/// Crates whose code workers run.
const CRATES_OF_WORKERS: [&str; 4] = ["proto", "net", "swarm", "tracker"];
/// Files of these crates that have locks all the same: file, reason.
const MAY_LOCK: [(&str, &str); 1] = [(
    "crates/net/src/memory.rs",
    "the in-process network is for tests: its lock stands for the kernel's",
)];
#[test]
fn every_file_says_what_it_is_for() {
    broken("a file opens with `//!`", |source| {
        if source.text.starts_with("//! ") { vec![] } else { vec![1] }
    });
}

#[test]
fn unsafe_is_in_net_only() {
    broken("`unsafe` is only in crates/net", |source| match crate_of(&source.path) {
        Some("net") => vec![],
        // Compares the network backend with raw system calls; no product crate depends on it.
        _ if source.path.starts_with("crates/lab/programs/levers/") => vec![],
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
fn every_unsafe_block_says_why_it_is_sound() {
    broken("`// SAFETY:` stands above an unsafe block or impl", |source| {
        let mut lines = Vec::new();
        for opening in [["unsafe", "{"], ["unsafe", "impl"], ["unsafe", "extern"]] {
            lines.extend(source.lines_of(&opening));
        }
        lines.retain(|line| !says_why(&source.text, *line));
        lines
    });
}

#[test]
fn a_file_has_an_end() {
    broken("a file in src has at most 700 lines", |source| {
        let lines = source.text.lines().count();
        if source.path.contains("/src/") && lines > FILE_LINES { vec![lines] } else { vec![] }
    });
}

#[test]
fn a_function_fits_on_a_screen() {
    broken("a function has at most 70 lines", |source| {
        let functions = source.functions().into_iter();
        let long = functions.filter(|f| f.last - f.first + 1 > FUNCTION_LINES);
        long.map(|function| function.first).collect()
    });
}

#[test]
fn names_say_what_a_thing_is() {
    broken("no Manager, Handler, Processor, Helper; no common, no utils", |source| {
        let mut lines = Vec::new();
        for pair in source.tokens.windows(2) {
            let [keyword, name] = pair else { continue };
            let words = words(&name.text);
            let empty = match keyword.text.as_str() {
                "struct" | "enum" | "union" | "trait" | "type" => {
                    words.iter().any(|word| EMPTY_WORDS.contains(&word.as_str()))
                }
                "mod" => words.iter().any(|word| {
                    EMPTY_WORDS.contains(&word.as_str()) || EMPTY_ROOMS.contains(&word.as_str())
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

#[test]
fn nothing_is_left_undone() {
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
    let mut used = BTreeSet::new();
    broken("a test does not sleep (a poll is named in MAY_SLEEP, with its reason)", |source| {
        let mut lines = Vec::new();
        for at in 1..source.tokens.len() {
            // A method of that name is somebody's own word: a worker sleeps on its inbox.
            let before = source.tokens[at - 1].text.as_str();
            let call = source.has(at, &["sleep", "("]) && !["fn", "."].contains(&before);
            let imported = source.has(at, &["sleep", ";"]);
            if !(call || imported) || !source.is_test(at) {
                continue;
            }
            let line = source.tokens[at].line;
            let functions = source.functions();
            let around = functions.iter().rfind(|f| (f.first..=f.last).contains(&line));
            let entry = MAY_SLEEP.iter().position(|(path, name, _)| {
                *path == source.path && around.is_some_and(|f| f.name == *name)
            });
            match entry {
                Some(entry) => _ = used.insert(entry),
                None => lines.push(line),
            }
        }
        lines
    });
    let stale = (0..MAY_SLEEP.len()).filter(|entry| !used.contains(entry));
    demand(
        "an entry of MAY_SLEEP is in use",
        stale.map(|n| format!("{:?}", MAY_SLEEP[n])).collect(),
    );
}

#[test]
fn no_lock_is_shared_with_a_worker() {
    let mut used = BTreeSet::new();
    broken("no lock where workers are (what is elsewhere is named in MAY_LOCK)", |source| {
        let mut lines = locks(source);
        if let Some(entry) = MAY_LOCK.iter().position(|(path, _)| *path == source.path)
            && !lines.is_empty()
        {
            used.insert(entry);
            lines.clear();
        }
        lines
    });
    let stale = (0..MAY_LOCK.len()).filter(|entry| !used.contains(entry));
    demand("an entry of MAY_LOCK is in use", stale.map(|n| format!("{:?}", MAY_LOCK[n])).collect());
}

/// The lines with a lock, outside of tests, if it is code that workers run.
fn locks(source: &Source) -> Vec<usize> {
    let of_workers = crate_of(&source.path).is_some_and(|name| CRATES_OF_WORKERS.contains(&name));
    if !of_workers || !source.path.contains("/src/") {
        return vec![];
    }
    lines_with(source, &LOCKS)
}

/// The lines on which one of these words stands outside of tests.
fn lines_with(source: &Source, words: &[&str]) -> Vec<usize> {
    let tokens = source.tokens.iter().enumerate();
    let found = tokens.filter(|(_, token)| words.contains(&token.text.as_str()));
    found.filter(|(at, _)| !source.is_test(*at)).map(|(_, token)| token.line).collect()
}

/// Looks for lines that break a rule, in every file.
fn broken(rule: &str, mut lines_of: impl FnMut(&Source) -> Vec<usize>) {
    let sources = sources();
    assert!(sources.len() > 20, "only {} Rust files found", sources.len());
    let mut places = Vec::new();
    for source in &sources {
        places.extend(lines_of(source).iter().map(|line| format!("{}:{line}", source.path)));
    }
    demand(rule, places);
}

/// Whether a comment with `SAFETY:` stands directly above the statement that `line` (from 1) is
/// in, or on the line itself.
fn says_why(text: &str, line: usize) -> bool {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let is_comment = |at: usize| lines[at].starts_with("//");
    let mut at = line - 1;
    if lines[at].contains("// SAFETY:") {
        return true;
    }
    // Up to the statement's first line, past attributes.
    while at > 0 && !is_comment(at - 1) && !lines[at - 1].ends_with([';', '{', '}', ',']) {
        at -= 1;
    }
    // Up the comment.
    while at > 0 && is_comment(at - 1) {
        at -= 1;
        if lines[at].starts_with("// SAFETY:") {
            return true;
        }
    }
    false
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
fn the_rules_bite() {
    assert!(says_why("// SAFETY: it is\n// so.\nlet x =\n    unsafe { 1 };", 4));
    assert!(!says_why("// SAFETY: of another\nf();\nunsafe { 1 };", 3));
    assert!(!says_why("// why not\nunsafe { 1 };", 2));
    assert_eq!(words("PeerManager"), ["", "peer", "manager"]);
    assert_eq!(words("my_utils"), ["my", "utils"]);
    let source = |path: &str, text: &str| Source::new(path, text.to_owned());
    let lock = "use std::sync::{Arc, Mutex};\nstatic S: std::sync::OnceLock<u8> = OnceLock::new();";
    assert_eq!(locks(&source("crates/swarm/src/shard.rs", lock)), [1, 2, 2]);
    assert_eq!(locks(&source("crates/load/src/lib.rs", lock)), []);
    assert_eq!(locks(&source("crates/swarm/tests/model.rs", lock)), []);
    let model = "#[cfg(all(loom, test))]\nmod model { use loom::sync::Mutex; }\n// a Mutex\n";
    assert_eq!(locks(&source("crates/tracker/src/lanes/sleep.rs", model)), []);
}
