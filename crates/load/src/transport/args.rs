//! The arguments of `onrush-load transport`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::echoes::Shape;
use super::stack::StackKind;
use crate::options::{ReportArgs, SOMETIMES, number, seconds};

/// The examples of the command.
pub(crate) const EXAMPLES: &str = "\
Examples:
  TCP and WebRTC as published: 10 connections of 1,000 streams
    onrush-load transport --stack tcp --preset 10x1000
    onrush-load transport --stack webrtc --preset 10x1000
  A short ramp, and a page with plots:
    onrush-load transport --stack tls --ramp-factor 20 --html report.html";

/// The exit status of the command.
const STATUS: &str = "\
Exit status:
  0  all echoes were right
  1  some echoes were wrong
  2  the arguments or this host are unusable
  3  a connection was not established, or no echo came
  4  more echoes did not come than --max-loss allows";

/// Connections, and streams of all of them, at most.
const MAX_CONNECTIONS: u32 = 500;
const MAX_STREAMS: u32 = 30_000;

/// A load that grows as in the published comparison.
const PUBLISHED: Shape = Shape { connections: 1, streams: 1, connect_rate: 1.0, open_rate: 10.0 };

/// Measures what a transport costs: CPU time and memory of a server and of a client.
///
/// The client starts a server process on this host. It establishes one connection per second, on
/// each of which ten streams open per second. Every stream writes 1,024 bytes twice per second,
/// which the server returns and the client compares. What is measured begins when all streams are
/// open.
#[derive(Args, Debug)]
#[command(
    next_help_heading = SOMETIMES,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{STATUS}")
)]
pub struct TransportArgs {
    /// The transport.
    #[arg(
        long, value_name = "NAME", required_unless_present = "serve", help_heading = None
    )]
    pub stack: Option<StackKind>,

    /// Connections x streams on each: 10x1000, 100x100 or other numbers; or `webtorrent`.
    ///
    /// `webtorrent` is 500x1, with 50 connections per second.
    #[arg(long, value_name = "NAME|CxS", default_value = "100x100", help_heading = None)]
    pub preset: Preset,

    /// Establish connections and open streams this many times faster.
    #[arg(
        long, value_name = "N", default_value = "1", value_parser = number(1.0..=1000.0, ""),
        help_heading = None
    )]
    pub ramp_factor: f64,

    /// Seconds that are measured.
    #[arg(
        long, value_name = "S", default_value = "30", value_parser = seconds(0.5..=1e5),
        help_heading = None
    )]
    pub seconds: Duration,

    /// Pin the processes to these vCPUs [default: the first two, where there are two].
    #[arg(
        long, value_name = "SERVER,CLIENT", value_delimiter = ',', num_args = 1,
        help_heading = None
    )]
    pub pin: Vec<usize>,

    /// Pass WebRTC's offers and answers on through this tracker (WebTorrent).
    ///
    /// Both processes join a swarm of the run. At most four offers wait for their answers, as
    /// trackers limit those of one peer. The tracker's certificate is not checked. Without this
    /// option the processes exchange them directly.
    #[arg(long, value_name = "URL", value_parser = signal, help_heading = None)]
    pub signal: Option<String>,

    /// Exit with status 4 where more of the due echoes did not come in time.
    #[arg(long, value_name = "%", value_parser = number(0.0..=100.0, ""), help_heading = None)]
    pub max_loss: Option<f64>,

    /// Write the report with its plots as one self-contained HTML page.
    #[arg(long, value_name = "FILE", help_heading = None)]
    pub html: Option<PathBuf>,

    /// The report.
    #[command(flatten, next_help_heading = None)]
    pub report: ReportArgs,

    /// Be the server of the client at the other end of standard input.
    #[arg(long, hide = true)]
    pub serve: bool,

    /// Start this command as the server, in place of this program: a faulty one of a test.
    #[arg(long, hide = true, value_delimiter = ' ', num_args = 1)]
    pub server: Vec<String>,
}

/// The size of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset(Shape);

impl Preset {
    /// The load whose connections begin, and whose streams open, `ramp_factor` times faster.
    pub fn shape(self, ramp_factor: f64) -> Shape {
        let Self(shape) = self;
        let [connect_rate, open_rate] =
            [shape.connect_rate, shape.open_rate].map(|rate| rate * ramp_factor);
        Shape { connect_rate, open_rate, ..shape }
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "webtorrent" {
            let shape = Shape { connections: MAX_CONNECTIONS, streams: 1, ..PUBLISHED };
            return Ok(Self(Shape { connect_rate: 50.0, ..shape }));
        }
        let sizes = text.split_once('x').and_then(|(connections, streams)| {
            Some((connections.parse().ok()?, streams.parse().ok()?))
        });
        let Some((connections, streams)) = sizes else {
            return Err(format!("`{text}` is neither like 10x1000 nor `webtorrent`"));
        };
        let all = u64::from(streams) * u64::from(connections);
        if !(1..=MAX_CONNECTIONS).contains(&connections)
            || !(1..=u64::from(MAX_STREAMS)).contains(&all)
        {
            return Err(format!(
                "`{text}` is not between 1x1 and {MAX_CONNECTIONS} connections, {MAX_STREAMS} \
                 streams in all"
            ));
        }
        Ok(Self(Shape { connections, streams, ..PUBLISHED }))
    }
}

/// The address of a tracker for WebTorrent.
fn signal(text: &str) -> Result<String, String> {
    match text.starts_with("wss://") || text.starts_with("ws://") {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not like wss://HOST:PORT/")),
    }
}

impl TransportArgs {
    /// Checks the arguments against each other.
    ///
    /// # Errors
    /// `--signal` without WebRTC.
    pub fn check(&self) -> Result<(), String> {
        if self.signal.is_some() && self.stack != Some(StackKind::Webrtc) {
            return Err("--signal is for --stack webrtc".into());
        }
        Ok(())
    }

    /// The load.
    pub fn shape(&self) -> Shape {
        self.preset.shape(self.ramp_factor)
    }

    /// The vCPUs of server and client, of the `allowed` ones.
    ///
    /// # Errors
    /// Where `--pin` names another number of them, one twice, or one that is not allowed.
    pub fn cpus(&self, allowed: &[usize]) -> Result<[Option<usize>; 2], String> {
        match self.pin[..] {
            [] => Ok(match *allowed {
                [server, client, ..] => [Some(server), Some(client)],
                _ => [None; 2],
            }),
            [server, client] if server == client => {
                Err("--pin: both processes on one vCPU would take its time from each other".into())
            }
            [server, client] => match self.pin.iter().find(|cpu| !allowed.contains(cpu)) {
                Some(cpu) => Err(format!("--pin: vCPU {cpu} is not one of {allowed:?}")),
                None => Ok([Some(server), Some(client)]),
            },
            _ => Err("--pin takes two vCPUs, like 0,1".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    fn args(line: &str) -> Result<TransportArgs, String> {
        let words = ["onrush-load", "transport"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Some(Command::Transport(args)) => args.check().map(|()| *args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn presets_are_sizes_and_rates() {
        let shape = args("--stack tcp --preset 10x1000 --ramp-factor 5").unwrap().shape();
        let wanted = Shape { connections: 10, streams: 1000, connect_rate: 5.0, open_rate: 50.0 };
        assert_eq!(shape, wanted);
        assert_eq!(args("--stack quic").unwrap().shape().due_rate(), 20_000.0);
        let shape = args("--stack webrtc --preset webtorrent").unwrap().shape();
        assert_eq!((shape.connections, shape.all_streams(), shape.ramp()), (500, 500, 9.98));
        assert!(args("--serve").unwrap().serve, "the server needs no other argument");
    }

    #[test]
    fn processes_are_pinned_to_two_vcpus() {
        let of = |line: &str, allowed: &[usize]| args(line).unwrap().cpus(allowed);
        assert_eq!(of("--stack tls", &[2, 5, 7]), Ok([Some(2), Some(5)]));
        assert_eq!(of("--stack tls", &[2]), Ok([None, None]));
        assert_eq!(of("--stack tls --pin 7,2", &[2, 5, 7]), Ok([Some(7), Some(2)]));
        assert!(of("--stack tls --pin 7", &[7]).unwrap_err().contains("two vCPUs"));
        assert!(of("--stack tls --pin 7,7", &[2, 7]).unwrap_err().contains("one vCPU"));
        assert!(of("--stack tls --pin 7,1", &[7]).unwrap_err().contains("vCPU 1"));
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (line, named) in [
            ("", "--stack <NAME>"),
            ("--stack udp", "tcp, tls, quic, webrtc"),
            ("--stack tcp --preset 10", "is neither like 10x1000 nor `webtorrent`"),
            ("--stack tcp --preset 0x5", "between 1x1 and"),
            ("--stack tcp --preset 501x1", "between 1x1 and"),
            ("--stack tcp --preset 500x61", "30000 streams"),
            ("--stack tcp --signal wss://t", "--signal is for --stack webrtc"),
            ("--stack webrtc --signal http://t", "is not like wss://"),
            ("--stack tcp --ramp-factor 0", "--ramp-factor"),
            ("--stack tcp --seconds 0", "--seconds"),
        ] {
            let error = args(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
