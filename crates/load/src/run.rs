//! A run: workers on their vCPUs, warm-up, measured window, drain.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow};
use onrush_net::Socket;

use crate::check::Strictness;
use crate::cpu::Cpu;
use crate::generator::flight::Nanos;
use crate::generator::{Generator, Habits, Next, Pace, Route, Window};
use crate::plan::Plan;
use crate::progress::{Live, Progress};
use crate::report::{Report, Setup, Surroundings};
use crate::tally::Tally;

/// How often a worker tells how it goes.
const TELL_EVERY: Nanos = 200_000_000;
/// How often whoever waits for the workers looks at the clock.
const TICK: Duration = Duration::from_millis(50);

/// What to do.
#[derive(Clone, Debug)]
pub struct Course {
    /// When requests leave; an open loop's rate is that of all workers together.
    pub pace: Pace,
    /// Requests under way at most in an open loop, per worker.
    pub limit: usize,
    /// Requests through one socket at a time.
    pub burst: usize,
    /// Whether requests of one length are put next to each other.
    pub group: bool,
    /// After so long a request is lost.
    pub timeout: Duration,
    /// Before the measured window.
    pub warmup: Duration,
    /// The measured window.
    pub duration: Duration,
    /// How strict the checks are.
    pub strictness: Strictness,
    /// Decides transaction ids.
    pub seed: u64,
    /// A vCPU for each worker; empty for none.
    pub pin: Vec<usize>,
    /// The tracker's process, whose time is measured.
    pub tracker: Option<u32>,
    /// Whether no progress is shown.
    pub quiet: bool,
}

/// Runs one worker per network and reports. `warnings` come first in the report.
///
/// # Errors
/// When a worker cannot be pinned, a socket becomes unusable, or the tracker's process is gone.
pub fn run<S: Socket + Send>(
    plan: &Plan,
    networks: Vec<(S, Vec<Route>)>,
    course: &Course,
    setup: Setup,
    warnings: Vec<String>,
) -> anyhow::Result<Report> {
    let live = Live::default();
    let window =
        Window { start: nanos(course.warmup), end: nanos(course.warmup + course.duration) };
    let workers = networks.len();
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch = Instant::now();
    let (done, results) = channel();
    let mut watch = Watch::new(course, window, epoch)?;
    std::thread::scope(|scope| {
        for (number, (socket, routes)) in networks.into_iter().enumerate() {
            let (done, live) = (done.clone(), &live);
            let habits = habits(course, plan, number, workers);
            let pin = course.pin.get(number).copied();
            let work = move || {
                let generator = Generator::new(socket, plan, routes, habits, window);
                let result = pin
                    .map_or(Ok(()), onrush_net::affinity::pin_current_thread)
                    .map_err(anyhow::Error::from)
                    .and_then(|()| work(generator, epoch, window, live));
                // Nobody listens any more once another worker has failed.
                let _ = done.send(result.with_context(|| format!("load worker {number}")));
            };
            let name = format!("load-{number}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, work)?;
        }
        drop(done);
        watch.wait(&results, workers, &live)
    })?;
    Ok(watch.report(setup, started.as_secs(), warnings))
}

fn habits(course: &Course, plan: &Plan, worker: usize, workers: usize) -> Habits {
    Habits {
        pace: match course.pace {
            Pace::InFlight(count) => Pace::InFlight(count),
            Pace::Rate(rate) => Pace::Rate(rate / workers as f64),
        },
        limit: course.limit,
        burst: course.burst,
        group: course.group,
        timeout: nanos(course.timeout),
        v6: plan.profile().v6,
        strictness: course.strictness,
        seed: course.seed,
        worker,
    }
}

fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}

/// What a worker brings home.
struct Harvest {
    tally: Tally,
    cpu: Option<Cpu>,
    dropped: u64,
}

/// A worker's life.
fn work<S: Socket>(
    mut generator: Generator<'_, S>,
    epoch: Instant,
    window: Window,
    live: &Live,
) -> anyhow::Result<Harvest> {
    let clock = || nanos(epoch.elapsed());
    let (mut told, mut first, mut last) = (0, None, None);
    loop {
        match generator.turn(&clock)? {
            Next::Again => {}
            Next::Wait(timeout) => generator.wait(timeout)?,
            Next::Done => break,
        }
        let now = clock();
        if now - told >= TELL_EVERY {
            told = now;
            live.take(generator.recent());
        }
        if first.is_none() && now >= window.start {
            first = Some(Cpu::of_thread());
        }
        if last.is_none() && now >= window.end {
            last = Some(Cpu::of_thread());
        }
    }
    let cpu = match (first, last) {
        (Some(Ok(first)), Some(Ok(last))) => Some(last - first),
        _ => None,
    };
    Ok(Harvest { tally: generator.tally().clone(), cpu, dropped: generator.dropped() })
}

/// Waits for the workers and looks at the clock meanwhile.
struct Watch {
    window: Window,
    epoch: Instant,
    tracker: Option<u32>,
    progress: Option<Progress>,
    /// Processor time of the tracker and of this process when the window began and when it ended.
    start: Option<Times>,
    end: Option<Times>,
    harvest: Vec<Harvest>,
}

/// Processor time so far.
struct Times {
    tracker: Option<Cpu>,
    own: Option<Cpu>,
}

impl Watch {
    fn new(course: &Course, window: Window, epoch: Instant) -> anyhow::Result<Self> {
        let whole = course.warmup + course.duration;
        let progress = Some(Progress::new(whole, course.quiet));
        let (tracker, harvest) = (course.tracker, Vec::new());
        let watch = Self { window, epoch, tracker, progress, start: None, end: None, harvest };
        watch.look()?;
        Ok(watch)
    }

    fn wait(
        &mut self,
        results: &std::sync::mpsc::Receiver<anyhow::Result<Harvest>>,
        workers: usize,
        live: &Live,
    ) -> anyhow::Result<()> {
        while self.harvest.len() < workers {
            let now = nanos(self.epoch.elapsed());
            if self.start.is_none() && now >= self.window.start {
                self.start = Some(self.look()?);
            }
            if self.end.is_none() && now >= self.window.end {
                self.end = Some(self.look()?);
            }
            let phase = if self.start.is_none() { "warm-up" } else { "measure" };
            if let Some(progress) = &mut self.progress {
                progress.show(self.epoch.elapsed(), phase, live);
            }
            match results.recv_timeout(self.until_next(now)) {
                Ok(result) => self.harvest.push(result?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(anyhow!("a load worker ended without a result"));
                }
            }
        }
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
        Ok(())
    }

    /// A tick, or less when the window begins or ends before.
    fn until_next(&self, now: Nanos) -> Duration {
        let edges = [self.window.start, self.window.end];
        let next = edges.into_iter().filter(|edge| *edge > now).min().unwrap_or(Nanos::MAX);
        TICK.min(Duration::from_nanos(next.saturating_sub(now)))
    }

    fn look(&self) -> anyhow::Result<Times> {
        let tracker = match self.tracker {
            None => None,
            Some(pid) => Some(Cpu::of_process(pid).with_context(|| {
                format!("the tracker's process {pid} (--tracker-pid) cannot be looked at")
            })?),
        };
        Ok(Times { tracker, own: Cpu::of_self().ok() })
    }

    fn report(self, setup: Setup, started: u64, warnings: Vec<String>) -> Report {
        let mut tally = Tally::default();
        for harvest in &self.harvest {
            tally.add(&harvest.tally);
        }
        let between = |pick: fn(&Times) -> Option<Cpu>| {
            let (start, end) = (self.start.as_ref()?, self.end.as_ref()?);
            Some(pick(end)? - pick(start)?)
        };
        let around = Surroundings {
            started,
            seconds: (self.window.end - self.window.start) as f64 / 1e9,
            tracker_cpu: between(|seen| seen.tracker),
            own_cpu: between(|seen| seen.own),
            worker_cpu: self.harvest.iter().filter_map(|harvest| harvest.cpu).collect(),
            dropped_here: self.harvest.iter().map(|harvest| harvest.dropped).sum(),
            warnings,
        };
        Report::new(setup, &tally, around)
    }
}
