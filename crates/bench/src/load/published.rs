//! `aquatic_udp_load_test`, the tool of the published comparisons, in its default configuration. It
//! tells a rate; what the tracker used meanwhile is looked at here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use onrush_load::cpu::Cpu;

use super::Load;
use crate::contender::Launch;
use crate::process::{Child, Stop};
use crate::record::Point;

/// aquatic_udp_load_test, which was found.
#[derive(Clone, Debug)]
pub struct Published {
    program: PathBuf,
    defaults: String,
}

impl Published {
    /// The file name of its program.
    pub const PROGRAM: &'static str = "aquatic_udp_load_test";

    /// Asks the program for its default configuration.
    ///
    /// # Errors
    /// When it does not tell.
    pub fn new(program: PathBuf) -> anyhow::Result<Self> {
        let output = Command::new(&program).arg("-p").output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        let defaults = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Self { program, defaults })
    }

    pub(super) fn run(&self, load: &Load, pid: u32, stop: &Stop) -> anyhow::Result<Point> {
        let seconds = (load.dose.seconds + load.dose.warmup).ceil().max(1.0) as u64;
        let file = load.directory.join("aquatic_load.toml");
        fs::write(&file, self.config(load, seconds)?)?;
        let launch = launch(&self.program, &file);
        let before = Cpu::of_process(pid).context("the tracker is gone")?;
        let mut child = Child::start(&launch, &load.seats.load, load.directory)?;
        let status = child.wait(Duration::from_secs(seconds + 60), stop, || Ok(()))?;
        let used = Cpu::of_process(pid).context("the tracker is gone")? - before;
        if !status.success() {
            bail!("aquatic_udp_load_test ended ({status}): {}", child.said());
        }
        let log = fs::read_to_string(load.directory.join(format!("{}.log", Self::PROGRAM)))?;
        point(&log, used).with_context(|| format!("aquatic_udp_load_test: {}", child.said()))
    }

    fn config(&self, load: &Load, duration: u64) -> anyhow::Result<String> {
        let mut text = self.defaults.clone();
        for (key, value) in [
            ("server_address", format!("\"127.0.0.1:{}\"", load.port)),
            ("workers", load.seats.load_workers.to_string()),
            ("duration", duration.to_string()),
        ] {
            crate::contender::aquatic::set(&mut text, key, &value)?;
        }
        Ok(text)
    }
}

fn launch(program: &Path, config: &Path) -> Launch {
    let arguments = vec!["-c".into(), config.display().to_string()];
    Launch { program: program.to_owned(), arguments, environment: Vec::new() }
}

/// The number behind `name` on a line of its own.
fn figure(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().rev().find_map(|line| line.trim().strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// From what the tool printed and the CPU time that the tracker used from its start to its end. It
/// summarizes all of its run, so what it does before and after costs the tracker nothing and is in
/// neither; a warm-up is in both.
fn point(log: &str, used: Cpu) -> anyhow::Result<Point> {
    let rate = figure(log, "Average responses per second:").context("it tells no rate")?;
    let seconds = figure(log, "Test ran for").context("it does not tell how long it ran")?;
    if rate <= 0.0 || seconds <= 0.0 {
        bail!("no reply came");
    }
    let share = used.total() / seconds;
    Ok(Point {
        rate,
        right: (rate * seconds) as u64,
        cpu_percent: share * 100.0,
        cpu_per_reply: share / rate * 1e6,
        ..Point::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn cpu_time_is_that_of_the_whole_run() {
        let log = "Test ran for 4 seconds\nAverage responses per second: 100000.00\n";
        let used = Cpu { user: 1.0, system: 2.0 };
        let of = |log: &str| point(log, used);
        let point = of(log).unwrap();
        assert_eq!((point.cpu_percent, point.cpu_per_reply, point.right), (75.0, 7.5, 400_000));
        assert!(of("Test ran for 4 seconds\n").is_err());
        assert!(of("Test ran for 4 seconds\nAverage responses per second: 0\n").is_err());
    }
}
