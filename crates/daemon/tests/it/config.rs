//! The command line and the configuration file: exit codes, output, and what `--check-config` says
//! of a host. Keys and values have tests in onrush-config.

use std::fs;

use clap::{CommandFactory, Parser};
use onrush::cli::Cli;
use onrush_config::print_config;

use crate::harness::{Launch, assert_parts, in_own_network};

/// A file, a variable over it, and a flag over both.
#[test]
fn a_check_names_what_is_read_over_the_file() {
    let base = ["--listen", "127.0.0.1:0", "--check-config"];
    let check = |interval: &str, flags: &[&str]| {
        Launch::new(&[&base, flags].concat())
            .config("announce.interval = 900\nlog.level = 'error'\n")
            .environment("ONRUSH_ANNOUNCE__INTERVAL", interval)
            .environment("ONRUSH_PORT", "tcp://10.0.0.1:6969")
            .run()
    };
    let ended = check("20m", &["--log-level", "info"]);
    assert_eq!((ended.code, ended.text()), (Some(0), String::new()));
    let read = "/onrush.toml is valid. Over it: ONRUSH_ANNOUNCE__INTERVAL.";
    ended.prints(&[read, "every 1200 s", "127.0.0.1:0", "checked as user "]);
    check("lots", &[]).exits(2, &["ONRUSH_ANNOUNCE__INTERVAL: `announce.interval`: "]);
}

#[test]
fn invalid_flags_are_reported_with_the_remedy() {
    for (flags, part) in [
        (&["--listen", "1.2.3.4"][..], "`1.2.3.4:6969`"),
        (&["--workers", "0"], "1..=1024"),
        (&["--workers", "1025"], "1..=1024"),
        (&["--workers", "x"], "--workers"),
        (&["--placement", "spilt"], "auto, split, colocated"),
        (&["--log-level", "loud"], "off, error"),
        (&["--state-dir", ""], "--state-dir"),
        (&["--print-config", "--check-config"], "--print-config"),
        (&["--confg", "x"], "--config"),
    ] {
        let error = Cli::try_parse_from(["onrush"].iter().chain(flags)).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn help_has_examples_and_exit_status() {
    Cli::command().debug_assert();
    let help = Cli::command().term_width(100).render_long_help().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_parts(&help, &["udp://HOST:6969/announce", "`192.0.2.1:6969` and `[2001:db8::1]:6969`"]);
    assert_parts(&help, &["Examples:", "--print-config > onrush.toml", "Exit status:"]);
}

/// The text below the options is laid out by hand, in sections that are those of the manual too
/// (examples/pages): its lines fit a terminal of 80 columns, as clap would wrap longer ones.
#[test]
fn help_below_the_options_fits_80_columns() {
    fn check(command: &clap::Command) -> usize {
        let help = command.get_after_long_help().or_else(|| command.get_after_help());
        let text = help.map(ToString::to_string).unwrap_or_default();
        for section in text.split("\n\n").filter(|section| !section.is_empty()) {
            let (heading, lines) = section.split_once(":\n").expect(section);
            assert!(heading.chars().all(|c| c.is_alphabetic() || c == ' '), "{heading}");
            for line in lines.lines() {
                assert!(line.starts_with("  ") && line.chars().count() <= 80, "{line}");
            }
        }
        let of_subcommands = command.get_subcommands().map(check);
        usize::from(!text.is_empty()) + of_subcommands.sum::<usize>()
    }
    assert!(check(&Cli::command()) >= 5);
}

#[test]
fn a_wrong_file_exits_with_2_before_the_start() {
    for flags in [&[][..], &["--check-config"]] {
        let launch = Launch::new(flags).config("[announce]\n  intervall = 900\n");
        let place = format!("{}:2:3: `announce.intervall`", launch.config_path().display());
        let ended = launch.run();
        ended.exits(2, &[&place, "`interval`"]);
        assert_eq!(ended.output, "");
    }
}

#[test]
fn the_variable_names_the_file() {
    for command in ["--check-config", "doctor"] {
        let launch = Launch::new(&[command]).environment("ONRUSH_CONFIG", "/nonexistent/o.toml");
        launch.run().exits(2, &["/nonexistent/o.toml"]);
    }
    let config = "export.file = \"/tmp/scrape.csv\"\n";
    let ended = Launch::new(&["--check-config"]).config(config).run();
    ended.exits(2, &["`export.file`", ".bencode"]);
}

#[test]
fn an_invalid_list_fails_check_config_and_the_start() {
    let launch = |flags: &[&str], list: &str| {
        let config = "[access]\nmode = \"allow\"\nfiles = [\"HOME/list\"]\n";
        let launch = Launch::on_loopback().flags(flags).config(config);
        fs::write(launch.config_path().with_file_name("list"), list).unwrap();
        launch.run()
    };
    let checked = launch(&["--check-config"], &"ab".repeat(20));
    let listed = |line: &str| line.contains("list ") && line.contains(" 1 ");
    assert!(checked.output.lines().any(listed), "{}", checked.output);
    launch(&["--check-config"], "ab\n").exits(2, &["/list:1: \"ab\""]);
    launch(&[], "ab\n").exits(2, &["/list:1: \"ab\""]);
}

#[test]
fn the_output_of_print_config_is_valid() {
    let printed = Launch::new(&["--print-config"]).run();
    assert_eq!((printed.code, printed.text()), (Some(0), String::new()));
    assert_eq!(printed.output, print_config().trim_end());
    in_own_network(&[], || {
        let ended = Launch::new(&["--check-config"]).config(&printed.output).run();
        assert_eq!((ended.code, ended.text()), (Some(0), String::new()));
    });
}
