//! `aquatic_udp_load_test`, the tool of the published comparisons, and its siblings for HTTP and
//! WebSocket. They report rates over their whole run, in steps of five seconds; CPU time of the
//! tracker and of the tool is measured here.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use onrush_load::cpu::Cpu;
use onrush_load::process::with_workers;

use super::{Load, LoadSettings, per_message};
use crate::contender::{Launch, aquatic::set};
use crate::mix::Mix;
use crate::process::{Child, Stop};
use crate::record::Point;

/// Seconds between the tool's readings of its clock.
const STEP: u64 = 5;
/// Changes to the defaults of aquatic_http_load_test: the appendix of the comparison of 2022.
const OF_2022: &[(&str, &str)] = &[
    ("num_workers", "64"),
    ("num_connections", "1024"),
    ("connection_creation_interval_ms", "0"),
    ("keep_alive", "false"),
    ("number_of_torrents", "10000"),
    ("peer_seeder_probability", "0.25"),
    ("weight_announce", "99"),
    ("weight_scrape", "0"),
];
/// Changes to the defaults of aquatic_http_load_test: the connections of http-keep-alive.
const KEPT: &[(&str, &str)] = &[("num_connections", "64"), ("enable_tls", "false")];
/// Changes to the defaults of aquatic_ws_load_test: connections as onrush-load has them, and rates
/// from the start, as its window would begin at any time.
const OVER_WEBSOCKET: &[(&str, &str)] =
    &[("num_connections_per_worker", "64"), ("measure_after_max_connections_reached", "false")];

/// A tool of published comparisons that is installed.
#[derive(Clone, Debug)]
pub struct Published {
    /// The file name of its program, which the mixes name.
    pub name: &'static str,
    pub(super) program: PathBuf,
    defaults: String,
}

impl Published {
    /// The file names of their programs.
    pub const PROGRAMS: [&'static str; 3] =
        ["aquatic_udp_load_test", "aquatic_http_load_test", "aquatic_ws_load_test"];

    /// Reads the program's default configuration.
    ///
    /// # Errors
    /// When the program does not print it.
    pub fn new(name: &'static str, program: PathBuf) -> anyhow::Result<Self> {
        let output = Command::new(&program).arg("-p").output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        let defaults = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Self { name, program, defaults })
    }

    /// Seconds of a run: the tool reads its clock every five seconds only.
    pub fn seconds(dose: &LoadSettings) -> u64 {
        ((dose.seconds + dose.warmup).ceil().max(1.0) as u64).next_multiple_of(STEP)
    }

    pub(super) fn run(&self, load: &Load, pids: &[u32], stop: &Stop) -> anyhow::Result<Point> {
        let seconds = Self::seconds(load.dose);
        let (config, file) = (self.config(load, seconds)?, ["-c", "aquatic_load.toml"]);
        let launch = Launch::configured(&self.program, load.directory, file, &config)?;
        let tracker = with_workers(pids);
        let before = Cpu::of_all(&tracker).context("the tracker has ended")?;
        let mut child = Child::start(&launch, &load.seats.load, load.directory)?;
        let (own, mut busy) = (child.pid(), Busy::default());
        let status = child.wait(Duration::from_secs(seconds + 60), stop, || {
            busy.look(Instant::now(), Cpu::of(own).ok());
        })?;
        let used = Cpu::of_all(&tracker).context("the tracker has ended")? - before;
        let name = self.name;
        if !status.success() {
            bail!("{name} ended ({status}): {}", child.output_tail());
        }
        let log = fs::read_to_string(load.directory.join(format!("{name}.log")))?;
        let mut point =
            point(&log, used).with_context(|| format!("{name}: {}", child.output_tail()))?;
        if load.mix == Mix::PublishedWss {
            let sent = mean(&log, "Requests out:").context("it reports no requests")?;
            let messages = point.rate + sent;
            point = per_message(point, messages);
        }
        let workers = load.seats.load.len();
        point.load_percent = busy.percent(Duration::from_secs(seconds), workers);
        let share = point.load_percent.map(|percent| percent / 100.0 * workers as f64);
        point.load_cpu_percent = share.map(|share| share * 100.0);
        point.load_per_reply = share.map(|share| share / point.rate * 1e6);
        Ok(point)
    }

    fn config(&self, load: &Load, duration: u64) -> anyhow::Result<String> {
        let mut text = self.defaults.clone();
        set(&mut text, "server_address", &format!("\"{}\"", load.address))?;
        set(&mut text, "duration", &duration.to_string())?;
        let workers = load.seats.load.len().to_string();
        let (key, more) = match load.mix {
            Mix::PublishedHttp => ("num_workers", KEPT),
            Mix::PublishedHttps => ("num_workers", OF_2022),
            Mix::PublishedWss => ("num_workers", OVER_WEBSOCKET),
            Mix::FewPublished => ("workers", &[("extra_statistics", "false")][..]),
            _ => ("workers", &[][..]),
        };
        for (key, value) in [(key, &*workers)].iter().chain(more) {
            set(&mut text, key, value)?;
        }
        Ok(text)
    }
}

/// The number after `name` on a line of its own.
fn figure(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().rev().find_map(|line| line.trim().strip_prefix(name))?;
    line.split_whitespace().next()?.trim_end_matches("/second").parse().ok()
}

/// The mean of the readings of a rate.
fn mean(text: &str, name: &str) -> Option<f64> {
    let readings: Vec<f64> = text.lines().filter_map(|line| figure(line, name)).collect();
    let sum: f64 = readings.iter().sum();
    (!readings.is_empty()).then(|| sum / readings.len() as f64)
}

/// The rate of error replies, which the rate of replies includes: that of the summary or, where
/// it has none, the mean of all readings.
fn errors(log: &str) -> Option<f64> {
    let summary = &log[log.find("Test ran for")?..];
    let of = |name| figure(summary, name).or_else(|| mean(log, name));
    of("- Error responses:").or_else(|| of("- Failure responses:"))
}

/// The tool's CPU time over its run.
#[derive(Debug, Default)]
struct Busy(Vec<(Instant, f64)>);

impl Busy {
    fn look(&mut self, now: Instant, used: Option<Cpu>) {
        self.0.extend(used.map(|used| (now, used.total())));
    }

    /// CPU time in percent of the vCPUs of `workers` over the last `run`. The process ends with the
    /// run; before it, one thread makes the population, which is no load.
    fn percent(&self, run: Duration, workers: usize) -> Option<f64> {
        let (end, used) = *self.0.last()?;
        let (start, before) =
            *self.0.iter().rev().find(|(at, _)| end.duration_since(*at) >= run)?;
        let share = (used - before) / end.duration_since(start).as_secs_f64();
        Some(share / workers as f64 * 100.0)
    }
}

/// The result by the tool's output and the tracker's CPU time from the tool's start to its end. It
/// summarizes all of its run; before and after it causes no load, so neither is in
/// the figures. A warm-up is in both.
fn point(log: &str, used: Cpu) -> anyhow::Result<Point> {
    let rate = figure(log, "Average responses per second:").context("it reports no rate")?;
    let seconds = figure(log, "Test ran for").context("it reports no duration")?;
    let errors = errors(log).context("it reports no rate of errors")?;
    let (all, rate) = (rate, rate - errors);
    let some = all > 0.0 && seconds > 0.0; // false for NaN
    if !some {
        bail!("no reply arrived");
    }
    // Both figures are rounded to hundredths.
    if rate < 0.01 {
        bail!("all replies were errors, {errors} per second");
    }
    let share = used.total() / seconds;
    let wrong = (errors * seconds).round() as u64;
    Ok(Point {
        rate,
        right: (rate * seconds) as u64,
        wrong,
        findings: if wrong > 0 { vec![format!("error responses: {wrong}")] } else { Vec::new() },
        cpu_percent: share * 100.0,
        cpu_per_reply: share / rate * 1e6,
        peers_per_reply: figure(log, "Peers per announce response:").filter(|n| n.is_finite()),
        ..Point::default()
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::load::tests::load;

    #[test]
    fn the_rate_is_read_from_the_last_summary() {
        let text = "Average responses per second: 1.5\n# aquatic load test report\n\n\
                    Test ran for 3 seconds\nAverage responses per second: 201,\n";
        assert_eq!(figure(text, "Average responses per second:"), None);
        let text = text.replace("201,", "201.25");
        assert_eq!(figure(&text, "Average responses per second:"), Some(201.25));
        assert_eq!(figure(&text, "no such"), None);
        let text = "Requests out: 10.00/second\nRequests out: 30.00/second\n";
        assert_eq!((mean(text, "Requests out:"), mean(text, "no such")), (Some(20.0), None));
    }

    #[test]
    fn its_cheapest_mode_has_no_extra_statistics() {
        let defaults = "server_address = \"x\"\nworkers = 1\nduration = 0\n\
                        extra_statistics = true\n";
        let tool = |name, defaults: &str| Published {
            name,
            program: "nowhere".into(),
            defaults: defaults.into(),
        };
        let dose = LoadSettings { seconds: 5.0, warmup: 0.1, ..Default::default() };
        let config = |tool: &Published, mix| {
            let load = Load { mix, dose: &dose, ..load(Path::new("/tmp")) };
            tool.config(&load, 10).unwrap()
        };
        let of = |mix| config(&tool(Published::PROGRAMS[0], defaults), mix);
        let text = of(Mix::Published);
        assert!(text.contains("\"127.0.0.1:7000\"\nworkers = 2\nduration = 10\n"), "{text}");
        assert!(text.contains("extra_statistics = true"), "{text}");
        assert!(of(Mix::FewPublished).contains("extra_statistics = false"));

        let defaults = |keys: &[(&str, &str)]| {
            let keys: String = keys.iter().map(|(key, _)| format!("{key} = 1\n")).collect();
            format!("server_address = \"x\"\nduration = 0\nnum_workers = 1\n{keys}")
        };
        let websocket = tool(Published::PROGRAMS[2], &defaults(OVER_WEBSOCKET));
        let text = config(&websocket, Mix::PublishedWss);
        assert!(text.contains("num_workers = 2\nnum_connections_per_worker = 64\n"), "{text}");
        let text = config(&tool(Published::PROGRAMS[1], &defaults(OF_2022)), Mix::PublishedHttps);
        for line in ["num_workers = 64\n", "keep_alive = false\n", "weight_scrape = 0\n"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.starts_with("server_address = \"127.0.0.1:7000\"\nduration = 10\n"), "{text}");
        let text = config(&tool(Published::PROGRAMS[1], &defaults(KEPT)), Mix::PublishedHttp);
        assert!(text.contains("num_workers = 2\nnum_connections = 64\nenable_tls = false\n"));
    }

    #[test]
    fn cpu_time_is_that_of_the_whole_run() {
        let log = "Test ran for 4 seconds\nAverage responses per second: 100000.00\n\
                     \x20 - Error responses:    0.00\n";
        let used = Cpu { user: 1.0, system: 2.0 };
        let of = |log: &str| point(log, used);
        let point = of(log).unwrap();
        assert_eq!((point.cpu_percent, point.cpu_per_reply, point.right), (75.0, 7.5, 400_000));
        assert!(of("Test ran for 4 seconds\n").is_err());
        assert!(of("Test ran for 4 seconds\nAverage responses per second: 0\n").is_err());
        assert!(of(&log.replace("100000.00", "NaN")).is_err());
        assert_eq!((point.wrong, point.findings.len()), (0, 0));
    }

    #[test]
    fn errors_are_wrong_replies() {
        let log = "Responses in: 7\n  - Error responses:    7.00\n\nTest ran for 5 seconds \n\
                   Average responses per second: 1000.00\n  - Connect responses:  5.00\n  \
                   - Error responses:    250.00\n";
        let of = |log: &str| point(log, Cpu { user: 0.75, system: 0.0 });
        let found = of(log).unwrap();
        assert_eq!((found.rate, found.right, found.wrong), (750.0, 3750, 1250));
        assert_eq!(found.findings, ["error responses: 1250"]);
        assert!((found.cpu_per_reply - 200.0).abs() < 1e-9, "{found:?}");
        let error = of(&log.replace("250.00", "1000.00")).unwrap_err().to_string();
        assert!(error.contains("all replies were errors"), "{error}");
        // aquatic_http_load_test, whose summary has the rate only.
        let log = "  - Failure responses:  100.00\n  - Failure responses:  400.00\n\n\
                   Test ran for 5 seconds.\nAverage responses per second: 1000.00\n";
        assert_eq!((of(log).unwrap().rate, of(log).unwrap().wrong), (750.0, 1250));
    }

    #[test]
    fn a_run_takes_whole_steps() {
        let of = |seconds, warmup| {
            Published::seconds(&LoadSettings { seconds, warmup, ..Default::default() })
        };
        assert_eq!((of(0.4, 0.2), of(2.0, 1.0), of(4.0, 1.0), of(5.0, 0.5)), (5, 5, 5, 10));
        assert_eq!(of(90.0, 0.1), 95);
    }

    #[test]
    fn cpu_time_of_the_preparation_is_not_load() {
        let (start, mut busy) = (Instant::now(), Busy::default());
        let at = |ms| start + Duration::from_millis(ms);
        let cpu = |user| Some(Cpu { user, system: 0.0 });
        assert_eq!(busy.percent(Duration::from_secs(5), 2), None);
        // A second of preparation by one thread, then five seconds of two workers.
        for (ms, user) in [(0, 0.0), (1000, 1.0), (3000, 4.9), (6000, 10.8)] {
            busy.look(at(ms), cpu(user));
        }
        busy.look(at(6010), None);
        let percent = busy.percent(Duration::from_secs(5), 2).unwrap();
        assert!((percent - 98.0).abs() < 1e-9, "{percent}");
        assert_eq!(busy.percent(Duration::from_secs(7), 2), None);
    }
}
