//! A run: workers on their vCPUs, warm-up, measured window, drain.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow};
use onrush_net::Socket;

use crate::cpu::{Cpu, Meter};
use crate::generator::flight::Nanos;
use crate::generator::{Generator, Next, Pace, Route, Settings, Window};
use crate::live::Live;
use crate::plan::Plan;
use crate::process::Process;
use crate::report::{HostMeasurements, Report, Setup, TrackerReport};
use crate::series::{Intervals, Recorder, Sample};
use crate::tally::Tally;

/// Interval at which the main thread makes samples while workers run.
const TICK: Duration = Duration::from_millis(50);

/// Delay before a run ends early, within which every worker reads the new end.
const NOTICE: Nanos = 60_000_000;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// The settings of each worker; the schedule of an open loop starts after the warm-up.
    pub worker: Settings,
    /// Duration of the load before the measured window.
    pub warmup: Duration,
    /// Duration of the measured window.
    pub duration: Duration,
    /// A vCPU per worker; empty for unpinned workers.
    pub pin: Vec<usize>,
    /// The process id of the tracker, which is observed.
    pub tracker: Option<u32>,
    /// Whether progress is hidden.
    pub quiet: bool,
    /// Ends the run early once it is set.
    pub stop: Arc<AtomicBool>,
}

/// Runs one worker per network and returns the report, with `warnings` first.
///
/// # Errors
/// When a worker cannot be pinned, a socket becomes unusable, the tracker's process does not exist,
/// or the run was interrupted before its measured window.
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
    let recorder = Recorder::new(Intervals::new(settings.warmup, settings.duration), workers);
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let span = Span { epoch: Instant::now(), start: window.start, end: AtomicU64::new(window.end) };
    let (done, results) = channel();
    let of = |pid| {
        Cpu::of_process(pid)
            .with_context(|| format!("cannot read the tracker's process {pid} (--tracker-pid)"))
    };
    settings.tracker.map(of).transpose()?;
    let (outcomes, series, tracker) = std::thread::scope(|scope| {
        for (number, (socket, routes)) in networks.into_iter().enumerate() {
            let (done, recorder, span) = (done.clone(), &recorder, &span);
            let of_worker = Settings { worker: number, workers, ..settings.worker.clone() };
            let pin = settings.pin.get(number).copied();
            let work = move || {
                let generator = Generator::new(socket, plan, routes, of_worker, window);
                let result = pin
                    .map_or(Ok(()), onrush_net::affinity::pin_current_thread)
                    .map_err(anyhow::Error::from)
                    .and_then(|()| work(generator, number, settings.tracker, span, recorder));
                // The receiver is closed once another worker has failed.
                let _ = done.send(result.with_context(|| format!("load worker {number}")));
            };
            let name = format!("load-{number}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, work)?;
        }
        drop(done);
        wait(&results, workers, settings, &span, &recorder)
    })?;
    let measured = Duration::from_nanos(span.end().saturating_sub(window.start));
    let mut warnings = warnings;
    if measured.is_zero() {
        return Err(anyhow!("interrupted before the measured window: nothing was measured"));
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

fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}

/// The time of a run.
struct Span {
    /// Its time 0.
    epoch: Instant,
    /// The start of the measured window.
    start: Nanos,
    /// The end of the measured window, which may be set to an earlier time.
    end: AtomicU64,
}

impl Span {
    fn end(&self) -> Nanos {
        self.end.load(Ordering::Relaxed)
    }

    /// Ends the window soon.
    fn shorten(&self) {
        self.end.fetch_min(nanos(self.epoch.elapsed()) + NOTICE, Ordering::Relaxed);
    }
}

/// The result of a worker.
struct WorkerOutcome {
    worker: usize,
    tally: Tally,
    /// Counters at the start and at the end of the window. The worker reads them itself, as the
    /// main thread may be late on a busy host.
    edges: Option<(Edge, Edge)>,
}

/// Counters at one edge of the window.
struct Edge {
    /// CPU time of the tracker; none where it is not observed, or has ended.
    tracker: Option<Cpu>,
    /// CPU time of its threads.
    threads: HashMap<u32, Cpu>,
    own: Option<Cpu>,
    thread: Option<Cpu>,
    /// Replies that the kernel dropped, and requests that it refused.
    dropped: u64,
    not_sent: u64,
}

impl Edge {
    fn read<S: Socket>(generator: &Generator<'_, S>, tracker: Option<u32>) -> Self {
        let sent = &generator.tally().sent;
        // First, as it takes a call per socket, whose time does not belong to the window.
        let dropped = generator.dropped();
        Self {
            // The results remain valid where the tracker has ended.
            tracker: tracker.and_then(|pid| Cpu::of_process(pid).ok()),
            threads: tracker.and_then(|pid| Cpu::of_threads(pid).ok()).unwrap_or_default(),
            own: Cpu::of_self().ok(),
            thread: Cpu::of_thread().ok(),
            dropped,
            not_sent: sent.unsent,
        }
    }
}

/// Runs a worker.
fn work<S: Socket>(
    mut generator: Generator<'_, S>,
    worker: usize,
    tracker: Option<u32>,
    span: &Span,
    recorder: &Recorder,
) -> anyhow::Result<WorkerOutcome> {
    let clock = || nanos(span.epoch.elapsed());
    // One worker's readings are enough.
    let tracker = tracker.filter(|_| worker == 0);
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
            // A late worker may be done before it has read the counters at the end.
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

/// Waits for the workers, makes samples of their counts, and shows progress.
fn wait(
    results: &Receiver<anyhow::Result<WorkerOutcome>>,
    workers: usize,
    settings: &RunSettings,
    span: &Span,
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
                // The other workers need not continue.
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
    outcomes.sort_by_key(|outcomes| outcomes.worker);
    let tracker = observed.tracker.as_mut().and_then(|process| process.report().ok());
    Ok((outcomes, series, tracker))
}

/// The phase of the run at `time` seconds after its start, with the end of the window at `end`.
fn phase(settings: &RunSettings, time: f64, end: f64) -> String {
    let measured = time - settings.warmup.as_secs_f64();
    match &settings.worker.pace {
        _ if measured < 0.0 => "warm-up".into(),
        _ if time >= end => "drain".into(),
        Pace::Open(schedule) if schedule.segments.len() > 1 => schedule.step(measured),
        _ => "measure".into(),
    }
}

/// The processes that are observed, once per sample.
struct Observed {
    tracker: Option<Process>,
    own: Option<Meter>,
}

impl Observed {
    fn new(tracker: Option<u32>) -> Self {
        let tracker = tracker.and_then(|pid| Process::observe(pid).ok());
        Self { tracker, own: Cpu::of_self().ok().map(Meter::new) }
    }

    /// Adds phase, CPU and memory to a sample.
    fn complete(&mut self, sample: Sample, settings: &RunSettings, end: Nanos) -> Sample {
        let tracker = self.tracker.as_mut().and_then(|process| process.sample().ok());
        let own = self.own.as_mut().zip(Cpu::of_self().ok());
        let own_cpu_percent = own.map(|(meter, cpu)| meter.percent(cpu));
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
    let busiest = || {
        let (start, end) = outcomes.first()?.edges.as_ref()?;
        let spent = |(id, cpu): (&u32, &Cpu)| Some((*cpu - *start.threads.get(id)?).total());
        end.threads.iter().filter_map(spent).reduce(f64::max)
    };
    let first = |pick| outcomes.first().and_then(|outcomes| between(outcomes, pick));
    let host = HostMeasurements {
        started,
        seconds: measured.as_secs_f64(),
        tracker_cpu: first(|edge| edge.tracker),
        tracker_busiest: busiest(),
        own_cpu: first(|edge| edge.own),
        worker_cpu: outcomes.iter().filter_map(|h| between(h, |edge| edge.thread)).collect(),
        dropped_here: grown(|edge| edge.dropped),
        not_sent: grown(|edge| edge.not_sent),
        warnings,
    };
    Report::new(setup, &tally, host)
}
