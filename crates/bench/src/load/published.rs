//! `aquatic_udp_load_test`, the tool of the published comparisons. It
//! reports rates over its whole run, in steps of five seconds; CPU time of the tracker and of the
//! tool is measured here.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use onrush_load::cpu::Cpu;

use super::{Load, LoadSettings};
use crate::contender::{Launch, aquatic::set};
use crate::mix::Mix;
use crate::process::{Child, Stop};
use crate::record::Point;

/// Seconds between the tool's readings of its clock.
const STEP: u64 = 5;

/// aquatic_udp_load_test, if installed.
#[derive(Clone, Debug)]
pub struct Published {
    pub(super) program: PathBuf,
    defaults: String,
}

impl Published {
    /// The file name of its program.
    pub const PROGRAM: &'static str = "aquatic_udp_load_test";

    /// Reads the program's default configuration.
    ///
    /// # Errors
    /// When the program does not print it.
    pub fn new(program: PathBuf) -> anyhow::Result<Self> {
        let output = Command::new(&program).arg("-p").output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        let defaults = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Self { program, defaults })
    }

    /// Seconds of a run: the tool reads its clock every five seconds only.
    pub fn seconds(dose: &LoadSettings) -> u64 {
        ((dose.seconds + dose.warmup).ceil().max(1.0) as u64).next_multiple_of(STEP)
    }

    pub(super) fn run(&self, load: &Load, pid: u32, stop: &Stop) -> anyhow::Result<Point> {
        let seconds = Self::seconds(load.dose);
        let (config, file) = (self.config(load, seconds)?, ["-c", "aquatic_load.toml"]);
        let launch = Launch::configured(&self.program, load.directory, file, &config)?;
        let before = Cpu::of(pid).context("the tracker has ended")?;
        let mut child = Child::start(&launch, &load.seats.load, load.directory)?;
        let (own, mut busy) = (child.pid(), Busy::default());
        let status = child.wait(Duration::from_secs(seconds + 60), stop, || {
            busy.look(Instant::now(), Cpu::of(own).ok());
        })?;
        let used = Cpu::of(pid).context("the tracker has ended")? - before;
        if !status.success() {
            bail!("aquatic_udp_load_test ended ({status}): {}", child.output_tail());
        }
        let log = fs::read_to_string(load.directory.join(format!("{}.log", Self::PROGRAM)))?;
        let mut point = point(&log, used)
            .with_context(|| format!("aquatic_udp_load_test: {}", child.output_tail()))?;
        let workers = load.seats.load.len();
        point.load_percent = busy.percent(Duration::from_secs(seconds), workers);
        let share = point.load_percent.map(|percent| percent / 100.0 * workers as f64);
        point.load_per_reply = share.map(|share| share / point.rate * 1e6);
        Ok(point)
    }

    fn config(&self, load: &Load, duration: u64) -> anyhow::Result<String> {
        let mut text = self.defaults.clone();
        for (key, value) in [
            ("server_address", format!("\"127.0.0.1:{}\"", load.port)),
            ("workers", load.seats.load.len().to_string()),
            ("duration", duration.to_string()),
        ] {
            set(&mut text, key, &value)?;
        }
        if load.mix == Mix::FewPublished {
            set(&mut text, "extra_statistics", "false")?;
        }
        Ok(text)
    }
}

/// The number after `name` on a line of its own.
fn figure(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().rev().find_map(|line| line.trim().strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
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
    // Its replies include errors.
    let errors = figure(log, "- Error responses:").context("it reports no rate of errors")?;
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
    use crate::cpus::Assignment;

    #[test]
    fn the_rate_is_read_from_the_last_summary() {
        let text = "Average responses per second: 1.5\n# aquatic load test report\n\n\
                    Test ran for 3 seconds\nAverage responses per second: 201,\n";
        assert_eq!(figure(text, "Average responses per second:"), None);
        let text = text.replace("201,", "201.25");
        assert_eq!(figure(&text, "Average responses per second:"), Some(201.25));
        assert_eq!(figure(&text, "no such"), None);
    }

    #[test]
    fn its_cheapest_mode_has_no_extra_statistics() {
        let defaults = "server_address = \"x\"\nworkers = 1\nduration = 0\n\
                        extra_statistics = true\n";
        let tool = Published { program: "nowhere".into(), defaults: defaults.into() };
        let dose = LoadSettings { seconds: 5.0, warmup: 0.1, swarms: None };
        let of = |mix| {
            let seats = &Assignment::new(&[0, 1], 1, 1).unwrap();
            let (dose, directory) = (&dose, Path::new("/tmp"));
            let load = Load { mix, seats, dose, checked: true, seed: 1, port: 7000, directory };
            tool.config(&load, 10).unwrap()
        };
        let text = of(Mix::Published);
        assert!(text.contains("\"127.0.0.1:7000\"\nworkers = 1\nduration = 10\n"), "{text}");
        assert!(text.contains("extra_statistics = true"), "{text}");
        assert!(of(Mix::FewPublished).contains("extra_statistics = false"));
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
    }

    #[test]
    fn a_run_takes_whole_steps() {
        let of =
            |seconds, warmup| Published::seconds(&LoadSettings { seconds, warmup, swarms: None });
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
