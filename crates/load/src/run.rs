//! A run: workers on their vCPUs, warm-up, measured window, drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow};
use onrush_net::Socket;

use crate::check::Strictness;
use crate::cpu::Cpu;
use crate::generator::flight::Nanos;
use crate::generator::{Generator, Next, Pace, Route, Settings, Window};
use crate::live::Live;
use crate::plan::Plan;
use crate::process::Process;
use crate::report::{HostMeasurements, Report, Setup, TrackerReport};
use crate::series::{Intervals, Recorder, Sample};
use crate::tally::Tally;

/// How often whoever waits for the workers looks whether there is something to show.
const TICK: Duration = Duration::from_millis(50);

/// A run that is to end early ends this much later: by then every worker has heard of it.
const NOTICE: Nanos = 60_000_000;

/// What to do.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// When requests leave; a schedule is that of all workers together and begins after the
    /// warm-up.
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
    /// Whether what BEP 15 leaves open counts as wrong where it is done differently.
    pub strict: bool,
    /// Decides transaction ids.
    pub seed: u64,
    /// A vCPU for each worker; empty for none.
    pub pin: Vec<usize>,
    /// The tracker's process, whose time is measured.
    pub tracker: Option<u32>,
    /// Whether no progress is shown.
    pub quiet: bool,
    /// Once it is set, the run ends early.
    pub stop: Arc<AtomicBool>,
}

/// Runs one worker per network and reports. `warnings` come first in the report.
///
/// # Errors
/// When a worker cannot be pinned, a socket becomes unusable, there is no such process as the
/// tracker's, or the run was ended before its measured window began.
pub fn run<S: Socket + Send>(
    plan: &Plan,
    networks: Vec<(S, Vec<Route>)>,
    settings: &RunSettings,
    setup: Setup,
    warnings: Vec<String>,
) -> anyhow::Result<Report> {
    let window =
        Window { start: nanos(settings.warmup), end: nanos(settings.warmup + settings.duration) };
    let workers = networks.len();
    let end = AtomicU64::new(window.end);
    let recorder = Recorder::new(Intervals::new(settings.warmup, settings.duration), workers);
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch = Instant::now();
    let (done, results) = channel();
    let of = |pid| {
        Cpu::of_process(pid).with_context(|| {
            format!("the tracker's process {pid} (--tracker-pid) cannot be looked at")
        })
    };
    settings.tracker.map(of).transpose()?;
    let (outcomes, series, tracker) = std::thread::scope(|scope| {
        for (number, (socket, routes)) in networks.into_iter().enumerate() {
            let (done, recorder, end) = (done.clone(), &recorder, &end);
            let of_worker = generator_settings(settings, plan, number, workers);
            let pin = settings.pin.get(number).copied();
            let work = move || {
                let generator = Generator::new(socket, plan, routes, of_worker, window);
                let result = pin
                    .map_or(Ok(()), onrush_net::affinity::pin_current_thread)
                    .map_err(anyhow::Error::from)
                    .and_then(|()| {
                        let span = Span { epoch, start: window.start, end };
                        work(generator, number, settings.tracker, &span, recorder)
                    });
                // Nobody listens any more once another worker has failed.
                let _ = done.send(result.with_context(|| format!("load worker {number}")));
            };
            let name = format!("load-{number}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, work)?;
        }
        drop(done);
        wait(
            &results,
            workers,
            settings,
            &Span { epoch, start: window.start, end: &end },
            &recorder,
        )
    })?;
    let measured = Duration::from_nanos(end.into_inner().saturating_sub(window.start));
    let mut warnings = warnings;
    if measured.is_zero() {
        return Err(anyhow!("ended before the measured time began: nothing was measured"));
    }
    if measured < settings.duration {
        let (measured, whole) = (measured.as_secs_f64(), settings.duration.as_secs_f64());
        warnings.push(format!("ended early: measured {measured:.1} s of {whole:.1} s"));
    }
    if let Some(pid) = settings.tracker
        && Cpu::of_process(pid).is_err()
    {
        warnings.push(format!("the tracker's process {pid} ended during the run"));
    }
    let mut report = report(&outcomes, measured, started.as_secs(), setup, warnings);
    report.series = series;
    report.tracker = tracker;
    Ok(report)
}

fn generator_settings(
    settings: &RunSettings,
    plan: &Plan,
    worker: usize,
    workers: usize,
) -> Settings {
    Settings {
        pace: settings.pace.clone(),
        limit: settings.limit,
        burst: settings.burst,
        group: settings.group,
        timeout: nanos(settings.timeout),
        v6: plan.profile().v6,
        strictness: settings.strictness,
        strict: settings.strict,
        seed: settings.seed,
        worker,
        workers,
    }
}

fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}

/// When a run begins to count and when it ends.
struct Span<'r> {
    /// Its time 0.
    epoch: Instant,
    /// The measured window's beginning.
    start: Nanos,
    /// And its end, which may be set to an earlier time.
    end: &'r AtomicU64,
}

impl Span<'_> {
    fn end(&self) -> Nanos {
        self.end.load(Ordering::Relaxed)
    }

    /// Has it end soon, as somebody has had enough.
    fn shorten(&self) {
        self.end.fetch_min(nanos(self.epoch.elapsed()) + NOTICE, Ordering::Relaxed);
    }
}

/// What a worker brings home.
struct WorkerOutcome {
    worker: usize,
    tally: Tally,
    /// When the window began and when it ended. The worker itself looks: it knows when its counts
    /// begin, and whoever watches may come late on a busy host.
    edges: Option<(Edge, Edge)>,
}

/// What has come together so far.
#[derive(Clone, Copy)]
struct Edge {
    /// Processor time of the tracker; none where it is not looked at, or has ended.
    tracker: Option<Cpu>,
    own: Option<Cpu>,
    thread: Option<Cpu>,
    /// Replies that the kernel dropped, and requests that it did not take.
    dropped: u64,
    not_sent: u64,
}

impl Edge {
    fn read<S: Socket>(generator: &Generator<'_, S>, tracker: Option<u32>) -> Self {
        let sent = &generator.tally().sent;
        // One call per socket: before the clock of the window's processor time begins.
        let dropped = generator.dropped();
        Self {
            // A tracker that dies is no reason to throw away what was measured of it.
            tracker: tracker.and_then(|pid| Cpu::of_process(pid).ok()),
            own: Cpu::of_self().ok(),
            thread: Cpu::of_thread().ok(),
            dropped,
            not_sent: sent.blocked + sent.failed,
        }
    }
}

/// A worker's life.
fn work<S: Socket>(
    mut generator: Generator<'_, S>,
    worker: usize,
    tracker: Option<u32>,
    span: &Span<'_>,
    recorder: &Recorder,
) -> anyhow::Result<WorkerOutcome> {
    let clock = || nanos(span.epoch.elapsed());
    let (mut interval, mut start, mut end) = (0, None, None);
    loop {
        let now = clock();
        generator.end_at(span.end());
        if start.is_none() && now >= span.start {
            start = Some(Edge::read(&generator, tracker));
        }
        if end.is_none() && now >= span.end() {
            end = Some(Edge::read(&generator, tracker));
        }
        match generator.turn(&clock)? {
            Next::Again => {}
            Next::Wait(timeout) => generator.wait(timeout)?,
            // A worker that was held up may find all done before it has looked.
            Next::Done if end.is_none() => {}
            Next::Done => break,
        }
        if now >= recorder.intervals().end(interval) {
            recorder.add(worker, interval, generator.recent());
            interval = recorder.intervals().number(now);
        }
    }
    recorder.add(worker, interval, generator.recent());
    Ok(WorkerOutcome { worker, tally: generator.tally().clone(), edges: start.zip(end) })
}

/// Waits for the workers, makes samples of what they tell meanwhile, and shows how it goes.
fn wait(
    results: &Receiver<anyhow::Result<WorkerOutcome>>,
    workers: usize,
    settings: &RunSettings,
    span: &Span<'_>,
    recorder: &Recorder,
) -> anyhow::Result<(Vec<WorkerOutcome>, Vec<Sample>, Option<TrackerReport>)> {
    let mut live = Live::new(settings.warmup + settings.duration, settings.quiet);
    let mut outcomes = Vec::with_capacity(workers);
    let mut observed = Observed::new(settings.tracker);
    let mut series = Vec::new();
    while outcomes.len() < workers {
        let now = span.epoch.elapsed();
        if settings.stop.load(Ordering::Relaxed) {
            span.shorten();
        }
        while let Some(sample) = recorder.next(nanos(now)) {
            let sample = observed.complete(sample, settings, span.end());
            live.show(now, &sample);
            series.push(sample);
        }
        match results.recv_timeout(TICK) {
            Ok(Ok(result)) => outcomes.push(result),
            Ok(Err(error)) => {
                // What the others measure has no use any more.
                span.shorten();
                return Err(error);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(anyhow!("a load worker ended without a result"));
            }
        }
    }
    let now = nanos(span.epoch.elapsed());
    while let Some(sample) = recorder.next(now).or_else(|| recorder.last(now)) {
        series.push(observed.complete(sample, settings, span.end()));
    }
    live.finish();
    outcomes.sort_by_key(|outcomes| outcomes.worker);
    Ok((outcomes, series, observed.tracker()))
}

/// What the run does `time` seconds after its begin, when it is measured until `end`.
fn phase(settings: &RunSettings, time: f64, end: f64) -> String {
    let measured = time - settings.warmup.as_secs_f64();
    match &settings.pace {
        _ if measured < 0.0 => "warm-up".into(),
        _ if time >= end => "drain".into(),
        Pace::Open(schedule) if schedule.segments.len() > 1 => schedule.step(measured),
        _ => "measure".into(),
    }
}

/// The processes that are looked at once per sample.
struct Observed {
    tracker: Option<Process>,
    own: Option<(Instant, Cpu)>,
}

impl Observed {
    fn new(tracker: Option<u32>) -> Self {
        let tracker = tracker.and_then(|pid| Process::observe(pid).ok());
        Self { tracker, own: Self::own() }
    }

    fn own() -> Option<(Instant, Cpu)> {
        Some((Instant::now(), Cpu::of_self().ok()?))
    }

    /// What the tracker's process has come to; none when it has ended.
    fn tracker(&mut self) -> Option<TrackerReport> {
        let process = self.tracker.as_mut()?;
        let memory = process.memory().ok()?;
        let drops = process.drops();
        let (rss, peak_rss) = (memory.rss, memory.peak);
        Some(TrackerReport { pid: process.pid(), rss, peak_rss, drops })
    }

    /// A process that has ended is no longer looked at: the window's edges tell of it.
    fn complete(&mut self, sample: Sample, settings: &RunSettings, end: Nanos) -> Sample {
        let tracker = self.tracker.as_mut().and_then(|process| process.sample().ok());
        let before = std::mem::replace(&mut self.own, Self::own());
        let own_cpu_percent = before.zip(self.own).map(|((then, before), (now, own))| {
            (own - before).total() / (now - then).as_secs_f64().max(1e-9) * 100.0
        });
        let phase = phase(settings, sample.time - sample.seconds / 2.0, end as f64 / 1e9);
        Sample { phase, tracker, own_cpu_percent, ..sample }
    }
}

fn report(
    outcomes: &[WorkerOutcome],
    measured: Duration,
    started: u64,
    setup: Setup,
    warnings: Vec<String>,
) -> Report {
    let mut tally = Tally::default();
    for outcomes in outcomes {
        tally.add(&outcomes.tally);
    }
    let between = |outcomes: &WorkerOutcome, pick: fn(&Edge) -> Option<Cpu>| {
        let (start, end) = outcomes.edges.as_ref()?;
        Some(pick(end)? - pick(start)?)
    };
    let grown = |count: fn(&Edge) -> u64| {
        let edges = outcomes.iter().filter_map(|outcomes| outcomes.edges.as_ref());
        edges.map(|(start, end)| count(end) - count(start)).sum()
    };
    let first = |pick| outcomes.first().and_then(|outcomes| between(outcomes, pick));
    let host = HostMeasurements {
        started,
        seconds: measured.as_secs_f64(),
        tracker_cpu: first(|edge| edge.tracker),
        own_cpu: first(|edge| edge.own),
        worker_cpu: outcomes.iter().filter_map(|h| between(h, |edge| edge.thread)).collect(),
        dropped_here: grown(|edge| edge.dropped),
        not_sent: grown(|edge| edge.not_sent),
        warnings,
    };
    Report::new(setup, &tally, host)
}
