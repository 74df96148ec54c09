//! `aquatic_udp_load_test`, the tool of the published comparisons, in its default configuration. It
//! tells a rate; what the tracker used meanwhile is looked at here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

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
        let seconds = load.dose.seconds.ceil().max(1.0) as u64;
        let warmup = load.dose.warmup.ceil() as u64;
        let file = load.directory.join("aquatic_load.toml");
        fs::write(&file, self.config(load, seconds + warmup, seconds)?)?;
        let launch = launch(&self.program, &file);
        let mut child = Child::start(&launch, &load.seats.load, load.directory)?;
        // Its own start takes a while, so what counts is the end: the last `seconds` before it.
        let mut looks = Vec::new();
        let limit = Duration::from_secs(seconds + warmup + 60);
        let status = child.wait(limit, stop, || {
            looks.push((Instant::now(), Cpu::of_process(pid).context("the tracker is gone")?));
            Ok(())
        })?;
        let said = child.said();
        if !status.success() {
            bail!("aquatic_udp_load_test ended ({status}): {said}");
        }
        let log = fs::read_to_string(load.directory.join(format!("{}.log", Self::PROGRAM)))?;
        let rate = figure(&log, "Average responses per second:").context("it tells no rate")?;
        point(rate, &looks, seconds as f64)
            .with_context(|| format!("aquatic_udp_load_test: {said}"))
    }

    fn config(&self, load: &Load, duration: u64, last: u64) -> anyhow::Result<String> {
        let mut text = self.defaults.clone();
        for (key, value) in [
            ("server_address", format!("\"127.0.0.1:{}\"", load.port)),
            ("workers", load.seats.load_workers.to_string()),
            ("duration", duration.to_string()),
            ("summarize_last", last.to_string()),
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

fn point(rate: f64, looks: &[(Instant, Cpu)], seconds: f64) -> anyhow::Result<Point> {
    let (end, used) = looks.last().context("it ended at once")?;
    let from = end.checked_sub(Duration::from_secs_f64(seconds));
    let first = looks.iter().find(|(at, _)| from.is_none_or(|from| *at >= from));
    let (start, before) = first.context("it ended at once")?;
    let wall = (*end - *start).as_secs_f64();
    if rate <= 0.0 || wall <= 0.0 {
        bail!("no reply came");
    }
    let share = (*used - *before).total() / wall;
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
    fn time_is_counted_over_the_last_seconds() {
        let epoch = Instant::now();
        let look = |second: f64, used: f64| {
            (epoch + Duration::from_secs_f64(second), Cpu { user: used / 2.0, system: used / 2.0 })
        };
        // Busy only in the last two seconds.
        let looks = [look(0.0, 0.0), look(1.0, 0.0), look(2.0, 1.0), look(3.0, 2.0)];
        let point = point(100_000.0, &looks, 2.0).unwrap();
        assert_eq!((point.cpu_percent, point.cpu_per_reply), (100.0, 10.0));
        assert!(super::point(1.0, &[], 2.0).is_err());
        assert!(super::point(0.0, &looks, 2.0).is_err());
    }
}
