//! Files and flags in, values or exact problems out, for a schema with a key of every kind.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use onrush_toml_keys::{
    Document, Kind, MAX_FILE_LEN, Problem, Problems, Schema, Value, integer, keys, list, number,
    parses, switch, table, tables, text, texts, word, word_or_list,
};
use proptest::prelude::*;

const WORDS: &[&str] = &["auto", "on", "off"];
const ADDRESS: Kind = Kind::Text("an address", parses::<SocketAddr>);
const CPU: Kind = Kind::Integer(0..=99, "");

keys! {
    /// A file.
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Server {
        /// Where to listen.
        #[serde(deserialize_with = "texts")]
        listen: Vec<SocketAddr> = list(&ADDRESS, 1..=3).default("[\"127.0.0.1:1\"]"),

        /// Limits.
        limits: Limits = table(Limits::KEYS),

        /// Logging.
        log: Log = table(Log::KEYS),

        /// Clients.
        clients: Vec<Client> = tables(Client::KEYS, 3).default("[{ weight = 1.0, wants = 0 }]"),
    }

    /// Limits.
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Limits {
        /// Connections at once. A connection over the limit is closed.
        connections: u16 = integer(1..=400, "connections").default("64").on_reload("pool"),

        /// Whether the limits hold.
        enforced: bool = switch().default("true"),

        /// Seconds until a connection is closed.
        lifetime: Option<u32> = integer(60..=3600, "seconds").derived("twice the interval", "120"),
    }

    /// Logging.
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Log {
        /// The level.
        level: String = word(&["info", "debug"]).default("\"info\"").on_restart(),

        /// The vCPUs.
        pin: Value = word_or_list(WORDS, &Kind::List(&CPU, 1..=9))
            .default("\"auto\""),

        /// An address.
        to: SocketAddr = text("an address", parses::<SocketAddr>).default("\"127.0.0.1:2\""),
    }

    /// A client.
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Client {
        /// A share.
        weight: f64 = number(0.0..=1.0),

        /// A number.
        wants: i32 = integer(-7..=7, ""),
    }
}

static SCHEMA: Schema =
    Schema { keys: Server::KEYS, hints: &[(&["port"], "write `listen`")], head: "# A server.\n" };

fn parse(text: &str) -> Document {
    Document::parse(&SCHEMA, SCHEMA.defaults(), "s.toml", text)
}

fn read(text: &str) -> Server {
    let document = parse(text);
    let server = document.read();
    document.finish().unwrap_or_else(|problems| panic!("{problems}"));
    server
}

fn problems(text: &str) -> Problems {
    parse(text).finish().expect_err(text)
}

#[test]
fn a_file_is_read_over_the_defaults() {
    let defaults = read("");
    assert_eq!(defaults.listen, ["127.0.0.1:1".parse().unwrap()]);
    assert_eq!(defaults.limits, Limits { connections: 64, enforced: true, lifetime: None });
    assert_eq!(read("\u{feff}# nothing\r\n[limits]\r\n"), defaults);
    let file = "listen = ['[::1]:9', '1.2.3.4:5']\n[limits]\nlifetime = 0x50\nenforced = false\n\
                [log]\npin = [3, 1]\n[[clients]]\nweight = 1\nwants = -7\n";
    let server = read(file);
    assert_eq!(server.listen.len(), 2);
    assert_eq!(server.limits, Limits { connections: 64, enforced: false, lifetime: Some(80) });
    assert_eq!(server.log.pin, Value::try_from([3, 1]).unwrap());
    assert_eq!(server.clients, [Client { weight: 1.0, wants: -7 }]);
}

#[test]
fn flags_are_read_over_the_file() {
    let mut document = parse("[limits]\nconnections = 5\n[[clients]]\nweight = 1\nwants = 1\n");
    document.set("--set", "limits.connections", "6");
    document.set("--set", "log.level", "debug");
    document.set("--set", "clients.0.wants", "2");
    let server: Server = document.read();
    assert_eq!((server.limits.connections, server.log.level.as_str()), (6, "debug"));
    assert_eq!(server.clients, [Client { weight: 1.0, wants: 2 }]);
    assert!(document.is_given("log.level") && !document.is_given("log.pin"));
    assert_eq!(document.origin("log.level"), Some("--set"));
    assert_eq!(document.finish(), Ok(()));
    for (path, value, part) in [
        ("limits.conections", "5", "--set: `limits.conections`: unknown key\n  help: did you mean"),
        ("limits.connections", "lots", "found \"lots\", expected an integer from 1 to 400"),
        ("limits.connections.x", "5", "found a table, expected an integer from 1 to 400"),
        ("clients.1.wants", "5", "expected the number of an entry, from 0 to 0"),
        ("limits", "5", "found 5, expected a table"),
        ("", "5", "unknown key"),
    ] {
        let mut document = parse("");
        document.set("--set", path, value);
        let problems = document.finish().unwrap_err().to_string();
        assert!(problems.contains(part), "{problems}");
    }
}

#[test]
fn a_value_has_the_name_and_the_place_of_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("s.toml");
    let text = "[limits]\nconnections = 5\nlifetime = 80\n\
                [[clients]]\nweight = 1\nwants = 1\n[[clients]]\nweight = 0\nwants = 2\n";
    fs::write(&file, text).unwrap();
    let mut document = Document::load(&SCHEMA, SCHEMA.defaults(), &file);
    document.set("--set", "clients", "[{ weight = 0.5, wants = 3 }]");
    let clients = document.read::<Server>().clients;
    assert_eq!(clients, [Client { weight: 0.5, wants: 3 }], "the whole list");
    let name = file.display().to_string();
    for (path, of) in [
        ("limits.connections", Some(name.as_str())),
        ("clients.0.wants", Some("--set")),
        ("clients.1.wants", None),
        ("log.level", None),
    ] {
        assert_eq!(document.origin(path), of, "{path}");
    }
    for (path, at) in [
        ("limits.lifetime", format!("{name}:3:12: ")),
        // The place of the innermost table around it.
        ("limits.enforced", format!("{name}:1:1: ")),
        ("log.level", format!("{name}: ")),
    ] {
        let mut document = document.clone();
        document.problem(path, "it is taken".to_owned(), None);
        let shown = document.finish().unwrap_err().to_string();
        assert!(shown.starts_with(&format!("{at}`{path}`: it is taken")), "{shown}");
    }
}

#[test]
fn plain_values_have_no_quotes_and_lists_have_commas() {
    let mut document = parse("");
    for (path, text) in [
        ("listen", "[::1]:9 ,1.2.3.4:5,"),
        ("limits.connections", "0x10"),
        ("limits.enforced", "false"),
        ("limits.lifetime", "2m"),
        ("log.level", "debug"),
        ("log.to", "1.2.3.4:5"),
        ("log.pin", "3, 1"),
        ("clients.0.wants", "-2"),
    ] {
        document.set_plain("VARIABLE", path, text);
    }
    let server: Server = document.read();
    assert_eq!(document.finish(), Ok(()));
    assert_eq!(server.listen, ["[::1]:9".parse().unwrap(), "1.2.3.4:5".parse().unwrap()]);
    assert_eq!(server.limits, Limits { connections: 16, enforced: false, lifetime: Some(120) });
    assert_eq!((server.log.level.as_str(), server.log.to.port()), ("debug", 5));
    assert_eq!(server.log.pin, Value::try_from([3, 1]).unwrap());
    assert_eq!(server.clients, [Client { weight: 1.0, wants: -2 }]);
    for (path, text, part) in [
        ("listen", "[\"1.2.3.4:5\"]", None),
        ("log.pin", "auto", None),
        ("listen", "nowhere,:", Some("`listen`: found \"nowhere\", expected")),
        ("listen", ",", Some("`listen`: found a list of 0, expected")),
        ("log.pin", "autto", Some("`log.pin`: found \"autto\", expected")),
        ("log.level", "5", Some("`log.level`: found \"5\", expected")),
        ("log.to", "'x", Some("`log.to`: found \"'x\", expected")),
        ("limits.conections", "5", Some("help: did you mean `connections`?")),
    ] {
        let mut document = parse("");
        document.set_plain("VARIABLE", path, text);
        let shown = document.finish().err().map(|problems| problems.to_string());
        let right = match (&shown, part) {
            (Some(shown), Some(part)) => shown.starts_with("VARIABLE: ") && shown.contains(part),
            (shown, part) => shown.is_none() && part.is_none(),
        };
        assert!(right, "{path} = {text}: {shown:?}");
    }
}

#[test]
fn a_problem_has_place_excerpt_and_remedy() {
    assert_eq!(
        problems("[limits]\nconections = 18\n").to_string(),
        "\
s.toml:2:1: `limits.conections`: unknown key
    |
  2 | conections = 18
    | ^^^^^^^^^^
  help: did you mean `connections`?

1 problem
"
    );
    assert_eq!(
        problems("# mine\n\n  [limits]\n  connections = 2_000 # many\n").to_string(),
        "\
s.toml:4:17: `limits.connections`: found 2000, expected an integer from 1 to 400 (connections)
    |
  4 |   connections = 2_000 # many
    |                 ^^^^^
  help: the default is 64

1 problem
"
    );
}

/// Each file with its problems: line, column, key, and part of the message.
#[allow(clippy::type_complexity)]
const WRONG: &[(&str, &[(usize, usize, &str, &str)])] = &[
    (
        "connections = 1\nport = 9\n[limit]\nlifetime = \"30x\"\n[log]\nlevel = \"inof\"",
        &[
            (1, 1, "connections", "help: this key belongs in [limits]"),
            (2, 1, "port", "help: write `listen`"),
            (3, 2, "limit", "unknown table"),
            (4, 12, "limits.lifetime", "found \"30x\", expected an integer from 60 to 3600"),
            (6, 9, "log.level", "help: did you mean \"info\"?"),
        ],
    ),
    ("[lmits]", &[(1, 2, "lmits", "help: did you mean [limits]?")]),
    ("[web]", &[(1, 2, "web", "help: the tables are [limits], [log]")]),
    ("[limits]\nto = 1", &[(2, 1, "limits.to", "help: this key belongs in [log]")]),
    ("[limits]\nLevle = 1", &[(2, 1, "limits.Levle", "mean `level`, which belongs in [log]?")]),
    ("[limits]\nEnforced = 1", &[(2, 1, "limits.Enforced", "did you mean `enforced`?")]),
    ("[limits]\nlog = 1", &[(2, 1, "limits.log", "help: [log] is a table at the top level")]),
    ("[limits]\nzzzzzz = 1", &[(2, 1, "limits.zzzzzz", "the keys in [limits] are `connections`")]),
    ("[log.extra]\nlevel = 1", &[(1, 6, "log.extra", "unknown key")]),
    ("limits = 5", &[(1, 10, "limits", "help: write `[limits]` on a line of its own")]),
    ("[[limits]]", &[(1, 1, "limits", "found a list, expected a table")]),
    ("[limits]\nconnections = 1.5", &[(2, 15, "limits.connections", "found 1.5")]),
    ("[limits]\nconnections = \"12\"", &[(2, 15, "limits.connections", "without quotes")]),
    ("[limits]\nconnections = 0xfffff", &[(2, 15, "limits.connections", "found 0xfffff")]),
    ("[limits]\nconnections = 99999999999999999999", &[(2, 15, "limits.connections", "99999")]),
    ("[limits]\nlifetime = 1979-05-27", &[(2, 12, "limits.lifetime", "found the date 1979")]),
    ("[limits]\nlifetime = 1", &[(2, 12, "limits.lifetime", "without this key: twice the int")]),
    ("[limits]\nenforced = \"true\"", &[(2, 12, "limits.enforced", "write it without quotes")]),
    ("[log]\npin = true", &[(2, 7, "log.pin", "did you mean \"on\"?")]),
    ("[log]\npin = [0, \"1\"]", &[(2, 11, "log.pin", "found \"1\", expected \"auto\", \"on\"")]),
    ("[log]\nto = 5", &[(2, 6, "log.to", "help: invalid socket address")]),
    ("listen = \"a\"", &[(1, 10, "listen", "help: write it as a list: [\"a\"]")]),
    ("listen = []", &[(1, 10, "listen", "found a list of 0, expected a list of 1 to 3 entries")]),
    ("[clients]\nweight = 1", &[(1, 1, "clients", "write `[[clients]]` on a line of its own")]),
    (
        "[[clients]]\nweight = nan\n[[clients]]\nweight = 2\nwants = 8",
        &[
            (1, 1, "clients.0", "`wants` is missing"),
            (2, 10, "clients.0.weight", "found nan, expected a number from 0 to 1"),
            (4, 10, "clients.1.weight", "found 2"),
            (5, 9, "clients.1.wants", "expected an integer from -7 to 7\n"),
        ],
    ),
    (
        "[limits]\nconnections =\n[log]\nlevel = info\n[web\n",
        &[
            (2, 14, "", "help: write a value: `connections = ...`"),
            (4, 9, "", "help: strings need quotes"),
            (5, 5, "", "syntax: unclosed table"),
        ],
    ),
    ("[log]\nlevel = 1\nlevel = 2\n", &[(3, 1, "", "syntax: duplicate key")]),
];

#[test]
fn every_kind_of_problem_is_reported_at_its_place_with_a_remedy() {
    for (text, expected) in WRONG {
        let problems = problems(text);
        assert_eq!(problems.total(), expected.len(), "{text}\n{problems}");
        for (problem, (line, column, key, part)) in problems.iter().zip(*expected) {
            let problem = problem.to_string();
            let key = if key.is_empty() { String::new() } else { format!("`{key}`: ") };
            let place = format!("s.toml:{line}:{column}: {key}");
            assert!(problem.starts_with(&place) && problem.contains(part), "{text}\n{problem}");
        }
    }
}

#[test]
fn problems_found_after_reading_are_at_the_value_the_flag_or_the_file() {
    let mut document = parse("listen = ['1.1.1.1:1',\n'1.1.1.1:1']\n[limits]\nlifetime = 60\n");
    document.set("--level", "log.level", "debug");
    document.problem("listen.1", "twice".to_owned(), None);
    document.problem("limits.lifetime", "short".to_owned(), Some("write more"));
    document.problem("log.level", "verbose".to_owned(), None);
    document.problem("log.pin", "odd".to_owned(), None);
    let problems = document.finish().unwrap_err();
    let shown: Vec<_> = problems.iter().map(Problem::to_string).collect();
    assert!(shown[1].starts_with("s.toml:2:1: `listen.1`: twice"), "{problems}");
    assert_eq!(shown[0], "s.toml: `log.pin`: odd\n");
    assert!(shown[2].starts_with("s.toml:4:12: `limits.lifetime`: short"), "{problems}");
    assert!(shown[2].ends_with("  help: write more\n"), "{problems}");
    assert_eq!(shown[3], "--level: `log.level`: verbose\n");
}

#[test]
fn a_problem_in_a_misspelled_table_is_at_its_value() {
    let mut document = parse("[limit]\nlifetime = 60\n");
    document.problem("limits.lifetime", "short".to_owned(), None);
    let problems = document.finish().unwrap_err();
    let shown: Vec<_> = problems.iter().map(Problem::to_string).collect();
    assert!(shown[1].starts_with("s.toml:2:12: `limits.lifetime`: short"), "{problems}");
}

/// For programs that need a value of a file whatever the rest of it is like.
#[test]
fn keys_before_an_error_of_the_syntax_are_read() {
    for (end, count) in [
        ("[log]\nlevel = \n", 1),
        ("[log\n", 1),
        ("limits = {}\n", 1),
        // All further lines are in the array.
        ("listen = [\n  '1.2.3.4:5',\n[log]\n", 5),
    ] {
        let mut document =
            parse(&format!("limits.connections = 2\nunknown = 1\n{end}[[clients]]\nwants = 1"));
        document.problem(
            "limits.connections",
            "may be in order once the syntax is".to_owned(),
            None,
        );
        assert!(document.is_partial());
        assert_eq!(document.read::<Server>().limits.connections, 2, "{end}");
        let problems = document.finish().unwrap_err();
        assert_eq!(problems.total(), count, "{problems}");
        assert!(problems.to_string().contains("syntax: "), "{problems}");
    }
    assert!(!parse("unknown = 1").is_partial());
}

#[test]
fn rejected_values_are_known() {
    let document = parse("[limits]\nlifetime = 1\nconnections = 2\n");
    assert!(document.is_rejected("limits.lifetime") && !document.is_given("limits.lifetime"));
    assert!(!document.is_rejected("limits.connections"));
}

#[test]
fn unreadable_files_are_problems() {
    let directory = tempfile::tempdir().unwrap();
    let load = |name: &str| {
        let path = directory.path().join(name);
        Document::load(&SCHEMA, SCHEMA.defaults(), &path).finish().unwrap_err().to_string()
    };
    assert!(load("missing.toml").contains("missing.toml: the file cannot be read: No such file"));
    fs::write(directory.path().join("latin1.toml"), b"# ok\nuser = \"J\xf6rg\"\n").unwrap();
    assert!(load("latin1.toml").contains("latin1.toml:2:10: byte 0xf6 is not UTF-8"));
    let long = fs::File::create(directory.path().join("long.toml")).unwrap();
    long.set_len(MAX_FILE_LEN + 1).unwrap();
    assert!(load("long.toml").contains("the file is longer than 16777216 bytes"));
    assert!(load("").contains("the file cannot be read"), "a directory");
}

#[test]
fn the_default_file_has_every_key_and_changes_nothing() {
    let printed = SCHEMA.print();
    assert_eq!(read(&printed), read(""));
    assert!(printed.starts_with("# A server.\n\n# Where to listen.\n# Takes a list of 1 to 3"));
    assert!(printed.contains(
        "
[limits]
# Limits.

# Connections at once. A connection over the limit is closed.
# Takes an integer from 1 to 400 (connections). A change applies on a reload.
connections = 64
"
    ));
    assert!(printed.contains(
        r#"
# Takes an integer from 60 to 3600 (seconds), or a time like "90s", "30m" or "1h30m". Without
# this key: twice the interval. A change applies on an upgrade or a restart.
# lifetime = 120
"#
    ));
}

#[test]
fn the_reference_has_every_key() {
    let page = SCHEMA.markdown("Keys", &["All of them."]);
    assert!(page.starts_with("# Keys\n\nAll of them.\n\n## Top level\n\n### `listen`\n"));
    assert!(page.contains(
        "
### `limits.connections`

Connections at once. A connection over the limit is closed.

- Takes an integer from 1 to 400 (connections).
- Default: `64`.
- A change applies on a reload.
"
    ));
    for (path, _) in SCHEMA.leaves() {
        assert!(page.contains(&format!("\n### `{path}`\n")), "{path}");
    }
}

/// Time quadratic in the number of problems would be days for the longest file.
#[test]
fn very_many_problems_are_counted_in_linear_time() {
    let start = Instant::now();
    let lines = problems(&"a=\n".repeat(200_000));
    assert_eq!((lines.total(), lines.iter().count()), (200_000, 200));
    assert!(lines.to_string().ends_with("\n200000 problems; the first 40 are shown\n"));
    let one_line = problems(&format!("[log]\npin = [{}]", "\"x\",".repeat(9)));
    assert_eq!(one_line.total(), 9);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn deep_files_do_not_overflow_the_stack() {
    for text in [
        format!("a{} = 1", ".a".repeat(200_000)),
        format!("[a{}]", ".a".repeat(200_000)),
        format!("a = {}{}", "[".repeat(200_000), "]".repeat(200_000)),
        format!("a = {}", "{a=".repeat(200_000)),
    ] {
        assert!(parse(&text).finish().is_err());
    }
}

/// A vertical tab behind a number is not TOML, but the parser recovers a number that has it.
#[test]
fn control_characters_of_numbers_are_escaped() {
    for text in ["[limits]\nlifetime = 1_000\u{b}", "[limits]\nlifetime = 1_00\u{b}0"] {
        assert!(!problems(text).to_string().contains('\u{b}'));
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_its_problems_can_be_shown(
        text in "[a-z_.=\\[\\]{}\"'# \\n\\t\\r0-9é\u{1b}]{0,200}",
        path in "[a-z.0-9]{0,12}",
        line in 0usize..20,
    ) {
        let printed = SCHEMA.print();
        let mut lines: Vec<_> = printed.lines().filter(|line| !line.starts_with("# ")).collect();
        lines.insert(line.min(lines.len()), &text);
        for text in [text.clone(), lines.join("\n")] {
            let mut document = parse(&text);
            document.set("--set", &path, &text);
            let _: Server = document.read();
            let Err(problems) = document.finish() else { continue };
            for problem in problems.iter() {
                let shown = problem.to_string();
                prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
                let mut place = shown.split(':').skip(1).map_while(|number| number.parse().ok());
                let (line, column): (usize, usize) =
                    (place.next().unwrap_or(1), place.next().unwrap_or(1));
                let width = text.split('\n').nth(line - 1).expect("a line").chars().count();
                prop_assert!((1..=width + 1).contains(&column), "{shown}");
            }
        }
    }
}
