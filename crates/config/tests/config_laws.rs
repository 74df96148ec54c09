//! Laws that hold for every key in the table, and for every text.

use onrush_config::Settings;
use onrush_config::file::keys::{self, Key, Standard, TABLES, Table};
use onrush_config::file::{Config, Problem, Problems, print_config};
use onrush_config::flags::Flags;
use onrush_config::settings::{Host, Notice};
use proptest::prelude::*;
use proptest::sample::{Index, select};

#[test]
fn every_key_is_settable_and_changes_the_settings() {
    let (defaults, _) = resolve("").unwrap();
    for (table, key) in keys::all() {
        let text = changed(table, key);
        assert!(text.contains(&format!("{} = ", key.name)), "{text}");
        let (settings, _) = resolve(&text).unwrap_or_else(|problems| panic!("{text}\n{problems}"));
        assert_ne!(settings, defaults, "{} changes nothing", key.path(table));
    }
}

#[test]
fn every_example_and_default_is_a_value_of_its_key() {
    for (table, key) in keys::all() {
        let value = match key.default {
            Standard::Is(value) => value,
            Standard::Absent { example, .. } => example,
        };
        let text = setting(table, key, value);
        let problems = reported(&text);
        let wrong = problems.iter().find(|problem| problem.to_string().contains("expected "));
        assert_eq!(wrong, None, "{text}");
    }
}

#[test]
fn every_key_is_explained() {
    let printed = print_config();
    let flat = printed.replace("\n# ", " ");
    for (table, key) in keys::all() {
        assert!(key.doc.ends_with('.'), "{} has no text", key.path(table));
        let line = match key.default {
            Standard::Is(value) => format!("\n{} = {value}\n", key.name),
            Standard::Absent { example, .. } => format!("\n# {} = {example}\n", key.name),
        };
        assert!(printed.contains(&line), "{line} is not printed");
        if let Some((least, most)) = numbers(key) {
            let range = format!("from {least} to {most} ({})", key.unit);
            assert!(flat.contains(&range), "{}: {range} is not printed", key.path(table));
        }
    }
    assert!(printed.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn every_range_ends_where_it_says() {
    let mut tried = 0;
    for (table, key) in keys::all() {
        let Some((least, most)) = numbers(key) else { continue };
        tried += 1;
        for good in [least, most] {
            let text = setting(table, key, &good.to_string()) + beside(table, key);
            assert_eq!(reported(&text), [], "{text}");
        }
        let below = least.checked_sub(1).map_or("-1".to_owned(), |number| number.to_string());
        for bad in [below, (most + 1).to_string()] {
            let text = setting(table, key, &bad) + beside(table, key);
            let problems = reported(&text);
            assert_eq!(problems.len(), 1, "{text}\n{problems:?}");
            assert_eq!(problems[0].position(), Some((2, key.name.len() + 4)), "{text}");
            assert_eq!(problems[0].key(), key.path(table));
        }
    }
    assert!(tried > 15, "only {tried} keys are numbers");
}

#[test]
fn every_key_refuses_a_date_and_a_table() {
    for (table, key) in keys::all() {
        for value in ["1979-05-27", "{}"] {
            let text = setting(table, key, value);
            let problems = reported(&text);
            assert_eq!(problems.len(), 1, "{text}\n{problems:?}");
            assert_eq!(problems[0].key(), key.path(table));
            assert!(problems[0].to_string().contains("expected "), "{}", problems[0]);
        }
    }
}

#[test]
fn every_mistyped_or_misplaced_key_is_found_again() {
    for (table, key) in keys::all() {
        let mistyped = setting(table, key, "1").replace(&format!("{} =", key.name), &typo(key));
        let text = reported(&mistyped)[0].to_string();
        assert!(text.contains(&format!("`{}`?", key.name)), "{mistyped}\n{text}");
        let home = match table.name {
            "" => "top".to_owned(),
            name => format!("[{name}]"),
        };
        for other in TABLES {
            if other.keys.iter().any(|known| known.name == key.name) || is_table(key.name) {
                continue;
            }
            let misplaced = setting(other, key, "1");
            let text = reported(&misplaced)[0].to_string();
            assert!(text.contains(&home), "{misplaced}\n{text}");
        }
    }
}

#[test]
fn names_are_unique_in_their_table() {
    for table in TABLES {
        for (at, key) in table.keys.iter().enumerate() {
            assert!(table.keys[..at].iter().all(|other| other.name != key.name), "{key:?} twice");
        }
    }
    assert!(TABLES[0].name.is_empty(), "the keys above the first table come first");
    assert!(TABLES[0].keys.iter().all(|key| !is_table(key.name)));
}

#[test]
fn deep_files_do_not_overflow_the_stack() {
    for text in [
        format!("a{} = 1", ".a".repeat(200_000)),
        format!("[a{}]", ".a".repeat(200_000)),
        format!("a = {}{}", "[".repeat(200_000), "]".repeat(200_000)),
        format!("a = {}", "{a=".repeat(200_000)),
    ] {
        assert!(resolve(&text).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_mutation_of_the_defaults_makes_it_panic(mutations in mutations()) {
        let mut text: Vec<char> = bare_defaults().chars().collect();
        for (at, mutation) in &mutations {
            mutation.apply(&mut text, *at);
        }
        every_problem_can_be_shown(&text.into_iter().collect::<String>());
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-z_.=\\[\\]{}\"'# \\n\\t\\r0-9é\u{1b}]{0,200}") {
        every_problem_can_be_shown(&text);
    }

    #[test]
    fn no_bytes_make_loading_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let is_text = str::from_utf8(&bytes).is_ok();
        prop_assert_eq!(Config::load(file.path()).is_ok(), is_text);
    }

    #[test]
    fn any_value_in_range_is_kept(interval in 60u32..=30_000, validity in 120u32..=3600) {
        let announce = format!("[announce]\ninterval = {interval}\n");
        let (settings, _) =
            resolve(&format!("{announce}[connection]\nvalidity = {validity}")).unwrap();
        prop_assert_eq!(settings.announce.interval, interval);
        prop_assert_eq!(settings.announce.peer_lifetime, interval * 2);
        prop_assert_eq!(settings.connection.validity, validity);
    }
}

fn resolve(text: &str) -> Result<(Settings, Vec<Notice>), Problems> {
    let vcpus = (0..4).collect();
    let host = Host { vcpus, home: Some("/home/op".into()), ..Host::default() };
    Settings::resolve(Config::parse("f", text), &Flags::default(), &host)
}

fn reported(text: &str) -> Vec<Problem> {
    resolve(text).map_or_else(|problems| problems.iter().cloned().collect(), |_| Vec::new())
}

/// A file that sets one key.
fn setting(table: &Table, key: &Key, value: &str) -> String {
    match table.name {
        "" => format!("{} = {value}\n", key.name),
        name => format!("[{name}]\n{} = {value}\n", key.name),
    }
}

/// A file that sets this key to something else than its default, with whatever has to go with it.
fn changed(table: &Table, key: &Key) -> String {
    let hashes = "info_hashes = [\"0123456789abcdef0123456789abcdef01234567\"]\n";
    match key.path(table).as_str() {
        "listen" => "listen = [\"127.0.0.1:7000\"]".to_owned(),
        "group" => "user = \"onrush\"\ngroup = \"www\"".to_owned(),
        "workers.placement" => "[workers]\nplacement = \"split\"".to_owned(),
        "workers.total" => "[workers]\ntotal = 3".to_owned(),
        "workers.socket" => "[workers]\nplacement = \"split\"\nsocket = 2\ntotal = 4".to_owned(),
        "workers.swarm" => "[workers]\nplacement = \"split\"\nswarm = 2\ntotal = 4".to_owned(),
        "workers.pin" => "[workers]\npin = [3, 2, 1, 0]".to_owned(),
        "announce.interval" => "[announce]\ninterval = 600".to_owned(),
        "announce.peer_lifetime" => "[announce]\npeer_lifetime = 4000".to_owned(),
        "access.mode" => format!("[access]\nmode = \"allow\"\n{hashes}"),
        "access.file" => "[access]\nmode = \"deny\"\nfile = \"/list\"\n".to_owned(),
        "access.blocked" => "[access]\nblocked = [\"192.0.2.0/24\"]\n".to_owned(),
        "overload.longest_interval" => "[overload]\nlongest_interval = 5400\n".to_owned(),
        "access.info_hashes" => format!("[access]\nmode = \"deny\"\n{hashes}"),
        "limits.peers" => "[limits]\npeers = 12345".to_owned(),
        "log.level" => "[log]\nlevel = \"debug\"".to_owned(),
        path => match (key.default, &key.range) {
            (Standard::Absent { example, .. }, _) => setting(table, key, example),
            (Standard::Is("true"), None) => setting(table, key, "false"),
            (Standard::Is("false"), None) => setting(table, key, "true"),
            (Standard::Is(default), Some(range)) => {
                let (least, most) = (range.start().to_string(), range.end().to_string());
                setting(table, key, if least == default { &most } else { &least })
            }
            other => panic!("{path}: say how to change {other:?}"),
        },
    }
}

/// What has to go with the ends of a key's range.
fn beside(table: &Table, key: &Key) -> &'static str {
    match key.path(table).as_str() {
        "announce.interval" | "announce.interval_jitter_percent" => "peer_lifetime = 65536\n",
        "announce.peer_lifetime" => "interval = 60\ninterval_jitter_percent = 0\n",
        "overload.longest_interval" => "[announce]\ninterval = 60\n",
        "limits.batches_in_flight" => "[workers]\ntotal = 1\n",
        "workers.socket" | "workers.swarm" => "placement = \"split\"\ntotal = 1024\n",
        _ => "",
    }
}

/// The range of a key that is a number.
fn numbers(key: &Key) -> Option<(u64, u64)> {
    let range = key.range.as_ref().filter(|_| !key.unit.is_empty())?;
    Some((*range.start(), *range.end()))
}

fn typo(key: &Key) -> String {
    format!("{}x =", key.name)
}

fn is_table(name: &str) -> bool {
    TABLES.iter().any(|table| table.name == name)
}

fn every_problem_can_be_shown(text: &str) {
    let Err(problems) = resolve(text) else { return };
    assert!(problems.to_string().ends_with(".\n"));
    for problem in problems.iter() {
        let shown = problem.to_string();
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        let (line, column) = problem.position().unwrap_or((1, 1));
        let width = text.split('\n').nth(line - 1).expect("a line of the file").chars().count();
        assert!((1..=width + 1).contains(&column), "{shown}");
    }
}

/// What is done to the default file, and where.
fn mutations() -> impl Strategy<Value = Vec<(Index, Mutation)>> {
    let punctuation = vec!['"', '[', ']', '{', '}', '=', '.', '#', '\n', '\'', '-', '9'];
    let mutation = prop_oneof![
        any::<char>().prop_map(Mutation::Insert),
        select(punctuation).prop_map(Mutation::Insert),
        (1usize..30).prop_map(Mutation::Delete),
        any::<Index>().prop_map(Mutation::CopyLine),
        Just(Mutation::Uncomment),
    ];
    prop::collection::vec((any::<Index>(), mutation), 1..12)
}

#[derive(Clone, Debug)]
enum Mutation {
    Insert(char),
    Delete(usize),
    CopyLine(Index),
    Uncomment,
}

impl Mutation {
    fn apply(&self, text: &mut Vec<char>, at: Index) {
        if text.is_empty() {
            return;
        }
        let at = at.index(text.len());
        match self {
            Self::Insert(character) => text.insert(at, *character),
            Self::Delete(count) => drop(text.drain(at..(at + count).min(text.len()))),
            Self::CopyLine(line) => {
                let whole: String = text.iter().collect();
                let lines: Vec<_> = whole.split_inclusive('\n').collect();
                let line: Vec<_> = lines[line.index(lines.len())].chars().collect();
                text.splice(at..at, line);
            }
            Self::Uncomment => {
                if let Some(comment) = text[at..].iter().position(|c| *c == '#') {
                    text.remove(at + comment);
                }
            }
        }
    }
}

/// The default file without its texts, so that mutations meet keys and values.
fn bare_defaults() -> String {
    let printed = print_config();
    let lines = printed.lines().filter(|line| !line.starts_with("# ") || line.contains(" = "));
    lines.flat_map(|line| [line, "\n"]).collect()
}
