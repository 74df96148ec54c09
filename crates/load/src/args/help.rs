//! `-h` and `--help`: options grouped by how often they are needed, and examples.
//!
//! Lines of examples have at most 80 columns, as clap would wrap longer ones once more.

use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};

use super::Args;

/// The examples of the command.
pub(super) const EXAMPLES: &str = "\
Examples:
  onrush-load                                  closed loop, 10 s, 127.0.0.1:6969
  onrush-load -t [::1]:6969 --rate 5000        open loop, 5,000 requests/s
  onrush-load --find-max --tracker-pid 4711    the highest rate within bounds
  onrush-load http -t https://[::1]/announce   the same over HTTP and HTTPS
  onrush-load ws -t wss://127.0.0.1/           WebTorrent over WebSocket
  onrush-load verify tracker.example.org:6969  conformance, check by check
  onrush-load attack random-hashes             what clients get in an attack";

/// The examples of `http`.
pub(super) const HTTP_EXAMPLES: &str = "\
Examples:
  onrush-load http -t http://127.0.0.1:6969/announce
  onrush-load http -t https://tracker.example.org/announce --rate 500
  onrush-load http -t https://127.0.0.1/announce --keep-alive off --find-max
  onrush-load http -t https://127.0.0.1/announce --preset published-2022";

/// The examples of `ws`.
pub(super) const WS_EXAMPLES: &str = "\
Examples:
  onrush-load ws -t ws://127.0.0.1:6969/
  onrush-load ws -t wss://tracker.example.org/ --connections 500 --rate 2000
  onrush-load ws -t wss://127.0.0.1/ --answers 50 --disconnects 2 --workers 2
  onrush-load ws -t wss://127.0.0.1/ --idle 20000 --tracker-pid 4711";

/// The exit status of the command.
pub(super) const STATUS: &str = "\
Exit status:
  0  all replies were right
  1  some replies were wrong
  2  the arguments or this host are unusable
  3  the tracker does not answer
  4  more requests were lost than --max-loss allows, or --find-max held no rate
     within its bounds";

/// The exit status of `verify`.
pub(super) const VERIFY_STATUS: &str = "\
Exit status:
  0  no check fails
  1  a check fails
  2  the tracker does not answer or the arguments are unusable";

/// The arguments of this process; ends it where they are wrong, or ask for help.
pub fn parse() -> Args {
    Args::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit())
}

/// The command line, with options under a heading in `--help` alone.
fn command() -> Command {
    let command = Args::command().mut_args(short);
    ["http", "ws", "attack", "transport"].into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |subcommand| subcommand.mut_args(short))
    })
}

/// An option that `-h` leaves out where it is under a heading. The manual needs its text too, which
/// clap_mangen takes from `-h`.
fn short(arg: Arg) -> Arg {
    let hidden = arg.get_help_heading().is_some();
    arg.hide_short_help(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The subcommands, and the command itself.
    const NAMES: [&str; 6] = ["", "http", "ws", "verify", "attack", "transport"];

    /// `-h` and `--help` in a terminal of 80 columns.
    fn helps(name: &str) -> [String; 2] {
        let mut command = command().term_width(80);
        command.build();
        let command = match name {
            "" => &mut command,
            name => command.find_subcommand_mut(name).unwrap(),
        };
        [command.render_help().to_string(), command.render_long_help().to_string()]
    }

    fn options(help: &str) -> usize {
        help.lines().filter(|line| line.trim_start().starts_with('-')).count()
    }

    #[test]
    fn the_short_help_has_about_a_dozen_options() {
        for name in NAMES {
            let [short, long] = helps(name);
            assert!((8..=14).contains(&options(&short)), "{} options:\n{short}", options(&short));
            assert!(short.lines().count() <= 56, "{} lines:\n{short}", short.lines().count());
            let at = |heading: &str| long.find(heading);
            assert!(
                ["verify", "transport"].contains(&name)
                    || at("Sometimes needed:") < at("Rarely needed:"),
                "{long}"
            );
        }
        let all = Args::command();
        let [short, long] = helps("");
        for (profile, ..) in crate::plan::profile::BUILT_IN {
            assert!(short.contains(&format!("{profile},")), "{profile}: {short}");
        }
        for option in all.get_arguments().filter_map(|arg| arg.get_long()) {
            assert!(long.contains(&format!("--{option}")), "{option}");
        }
        assert!(short.contains("--find-max") && !short.contains("--no-bursts"), "{short}");
    }

    #[test]
    fn lines_fit_80_columns_and_are_wrapped_once() {
        for name in NAMES {
            for help in helps(name) {
                let long = help.lines().find(|line| line.chars().count() > 80);
                assert_eq!(long, None, "{name}: {help}");
            }
        }
        for (name, examples) in [
            ("", EXAMPLES),
            ("http", HTTP_EXAMPLES),
            ("ws", WS_EXAMPLES),
            ("attack", crate::attack::EXAMPLES),
            ("transport", crate::transport::EXAMPLES),
        ] {
            for help in helps(name) {
                assert!(help.contains(examples), "{help}");
            }
        }
    }
}
