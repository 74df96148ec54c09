//! A run: workers on their vCPUs, warm-up, measured window, drain.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow};
use onrush_net::mio::Options;
use onrush_proto::Family;

use crate::cpu::{Cpu, Meter};
use crate::http::Target;
use crate::live::Live;
use crate::plan::Plan;
use crate::process::{Memory, Process, with_workers};
use crate::report::{IdleReport, Report, Setup, TrackerReport};
use crate::series::{Intervals, Recorder, Sample};
use crate::sources::Network;
use crate::tally::Tally;
use crate::worker::{LoadSettings, Nanos, Next, Pace, Prepared, Window, Worker};
use crate::xdp::XdpSettings;
use crate::{ws, xdp};

/// Interval at which the main thread makes samples while workers run.
const TICK: Duration = Duration::from_millis(50);

/// Delay before a run ends early, within which every worker reads the new end.
const NOTICE: Nanos = 60_000_000;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// The settings of the load.
    pub load: LoadSettings,
    /// Duration of the measured window.
    pub duration: Duration,
    /// The process ids of the tracker, which are observed with their descendants.
    pub tracker: Vec<u32>,
    /// Whether progress is hidden.
    pub quiet: bool,
    /// The queues that a load over UDP uses.
    pub xdp: Option<XdpSettings>,
}

impl RunSettings {
    /// Duration of the load before the measured window.
    fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.load.warmup)
    }
}

/// Work beside the load on a thread of its own, with the name of the thread. It ends with the span.
pub type Beside<'a> = (&'static str, Box<dyn FnOnce(&RunClock) -> anyhow::Result<()> + Send + 'a>);

/// A [`run`] over UDP, with sockets of its own, so that late replies do not reach the next run.
///
/// # Errors
/// As [`run`], and when a socket or a queue cannot be opened.
pub fn over_udp(
    plan: &Plan,
    targets: &[SocketAddr],
    settings: &RunSettings,
    stop: &AtomicBool,
    beside: Vec<Beside<'_>>,
    mut warnings: Vec<String>,
) -> anyhow::Result<Report> {
    let options =
        Options { segmentation: settings.load.bursts, coalesced: true, ..Options::default() };
    let share_ports = settings.xdp.is_some();
    let open = |_| Network::open(&plan.population.addresses, targets, options, share_ports);
    let networks: Vec<_> = (0..settings.load.workers).map(open).collect::<anyhow::Result<_>>()?;
    let notices = networks.last().map(|network| network.notices.iter().map(ToString::to_string));
    warnings.extend(notices.into_iter().flatten());
    let sockets = networks.first().map_or(0, |network| network.sockets);
    let names = targets.iter().map(ToString::to_string).collect();
    let setup = setup(plan, names, settings, sockets);
    let Some(queues) = &settings.xdp else {
        return run(plan, networks, setup, settings, stop, beside, warnings);
    };
    let (networks, _program) = xdp::open(queues, networks, targets).context("--xdp")?;
    run(plan, networks, setup, settings, stop, beside, warnings)
}

/// A [`run`] over HTTP.
///
/// # Errors
/// As [`run`].
pub fn over_http(
    plan: &Plan,
    target: &Target,
    settings: &RunSettings,
    stop: &AtomicBool,
    warnings: Vec<String>,
) -> anyhow::Result<Report> {
    let count = settings.load.workers;
    let urls = target.urls.iter().map(ToString::to_string).collect();
    let connections = target.settings.connections_of(0, count);
    let setup = setup(plan, urls, settings, connections);
    let setup = Setup { http: Some(target.settings.clone()), ..setup };
    run(plan, vec![target.clone(); count], setup, settings, stop, Vec::new(), warnings)
}

/// A [`run`] over WebSocket.
///
/// # Errors
/// As [`run`].
pub fn over_ws(
    plan: &Plan,
    target: &ws::Target,
    settings: &RunSettings,
    stop: &AtomicBool,
    warnings: Vec<String>,
) -> anyhow::Result<Report> {
    let count = settings.load.workers;
    let urls = target.urls.iter().map(ToString::to_string).collect();
    let connections = target.settings.connections.div_ceil(count);
    let setup = setup(plan, urls, settings, connections);
    let sources = [Family::V4, Family::V6].map(|family| target.sources.count(family));
    let setup = Setup { sources, ws: Some(target.settings.clone()), ..setup };
    run(plan, ws::all(target, &settings.load), setup, settings, stop, Vec::new(), warnings)
}

/// Runs the workers and the work `beside` them, until the end or until `stop` is set. Returns the
/// report, which begins its warnings with `warnings`.
///
/// # Errors
/// When a socket becomes unusable, a worker cannot be pinned, the tracker's process does not exist,
/// or the run was interrupted before its measured window.
pub fn run(
    plan: &Plan,
    workers: Vec<impl Prepared>,
    setup: Setup,
    settings: &RunSettings,
    stop: &AtomicBool,
    beside: Vec<Beside<'_>>,
    mut warnings: Vec<String>,
) -> anyhow::Result<Report> {
    let tracker = with_workers(&settings.tracker);
    let settings = &RunSettings { tracker, ..settings.clone() };
    let warmup = settings.warmup();
    let intervals = Intervals::new(warmup, settings.duration);
    let recorder = Mutex::new(Recorder::new(intervals, workers.len()));
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    for pid in &settings.tracker {
        Cpu::of(pid)
            .with_context(|| format!("cannot read the tracker's process {pid} (--tracker-pid)"))?;
    }
    let end = AtomicU64::new(nanos(warmup + settings.duration));
    let span = RunClock { epoch: Instant::now(), start: nanos(warmup), end };
    let (outcomes, series, tracker) = std::thread::scope(|scope| {
        let (span, recorder) = (&span, &recorder);
        let (done, results) = channel();
        let count = workers.len() + beside.len();
        for (number, prepared) in workers.into_iter().enumerate() {
            let work = move || {
                let result = work(plan, prepared, number, settings, span, recorder);
                result.map(Some).with_context(|| format!("load worker {number}"))
            };
            spawn(scope, format!("load-{number}"), &done, span, work)?;
        }
        for (name, work) in beside {
            let work = move || work(span).map(|()| None).context(name);
            spawn(scope, name.into(), &done, span, work)?;
        }
        drop(done);
        wait(&results, count, settings, stop, span, recorder)
    })?;
    let measured = Duration::from_nanos(span.end().saturating_sub(span.start));
    if measured.is_zero() {
        return Err(anyhow!("interrupted before the measured window: nothing was measured"));
    }
    if measured < settings.duration {
        let (measured, whole) = (measured.as_secs_f64(), settings.duration.as_secs_f64());
        warnings.push(format!("ended early: measured {measured:.1} s of {whole:.1} s"));
    }
    for pid in settings.tracker.iter().filter(|pid| Cpu::of(pid).is_err()) {
        warnings.push(format!("the tracker's process {pid} ended during the run"));
    }
    let started = started.as_secs();
    let report = report(&outcomes, setup, measured.as_secs_f64());
    let mut report = Report { started, series, tracker, warnings, ..report };
    report.warn();
    Ok(report)
}

/// The report's settings of a run whose workers have this number of sockets each.
fn setup(plan: &Plan, targets: Vec<String>, settings: &RunSettings, sockets: usize) -> Setup {
    let population = &plan.population;
    let families = [Family::V4, Family::V6];
    Setup {
        targets,
        sources: families.map(|family| population.addresses.count(family)),
        sockets,
        load: settings.load.clone(),
        profile: plan.profile.clone(),
        swarms: population.swarms,
        peers: families.map(|family| population.peers(family)),
        xdp: settings.xdp.as_ref().map(|queues| queues.interface.clone()),
        live_frames: settings.xdp.as_ref().is_some_and(|queues| queues.live_frames),
        http: None,
        ws: None,
    }
}

fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}

/// The clock of a run, and its measured window.
pub struct RunClock {
    /// Its time 0.
    epoch: Instant,
    /// The start of the measured window.
    pub start: Nanos,
    /// The end of the measured window, which may be set to an earlier time.
    end: AtomicU64,
}

impl RunClock {
    /// The time since the start of the run.
    pub fn now(&self) -> Nanos {
        nanos(self.epoch.elapsed())
    }

    /// The end of the measured window.
    pub fn end(&self) -> Nanos {
        self.end.load(Ordering::Relaxed)
    }

    /// Whether the measured window has ended.
    pub fn is_over(&self) -> bool {
        self.now() >= self.end()
    }

    /// Ends the window soon.
    fn shorten(&self) {
        self.end.fetch_min(self.now() + NOTICE, Ordering::Relaxed);
    }
}

/// The end of a thread of the run. Work beside the load has no outcome here.
type End = anyhow::Result<Option<WorkerOutcome>>;

/// Starts a thread of the run; if there is none, the others end soon.
fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    done: &Sender<End>,
    span: &RunClock,
    work: impl FnOnce() -> End + Send + 'scope,
) -> io::Result<()> {
    let done = done.clone();
    // The receiver is closed once another worker has failed.
    let work = move || drop(done.send(work()));
    let spawned = std::thread::Builder::new().name(name).spawn_scoped(scope, work);
    spawned.map(drop).inspect_err(|_| span.shorten())
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
    /// Resident memory of the tracker.
    rss: Option<u64>,
    /// Replies that the kernel dropped, and requests that it refused.
    dropped: u64,
    not_sent: u64,
}

impl Edge {
    fn read(worker: &mut impl Worker, tracker: Option<&[u32]>) -> Self {
        // First, as it takes a call per socket, whose time does not belong to the window.
        let dropped = worker.dropped();
        let sent = &worker.counts().tally.sent;
        let threads = |pid: &u32| Cpu::of_threads(*pid).ok();
        Self {
            // The results remain valid where the tracker has ended.
            tracker: tracker.and_then(|pids| Cpu::of_all(pids).ok()),
            threads: tracker.iter().copied().flatten().filter_map(threads).flatten().collect(),
            own: Cpu::of("self").ok(),
            thread: Cpu::of("thread-self").ok(),
            rss: tracker.and_then(|pids| Memory::of_all(pids).ok()).map(|memory| memory.rss),
            dropped,
            not_sent: sent.unsent,
        }
    }
}

/// Runs a worker.
fn work(
    plan: &Plan,
    prepared: impl Prepared,
    number: usize,
    settings: &RunSettings,
    span: &RunClock,
    recorder: &Mutex<Recorder>,
) -> anyhow::Result<WorkerOutcome> {
    let (load, window) = (settings.load.clone(), Window { start: span.start, end: span.end() });
    let mut worker = prepared.start(plan, load, number, window)?;
    if let Some(&cpu) = settings.load.pin.get(number) {
        onrush_net::affinity::pin_current_thread(cpu)?;
    }
    let clock = || span.now();
    // One worker's readings are enough.
    let tracker = (number == 0 && !settings.tracker.is_empty()).then_some(&settings.tracker[..]);
    let intervals = Intervals::new(settings.warmup(), settings.duration);
    let (mut interval, mut start, mut end) = (0, None, None);
    loop {
        let now = clock();
        worker.end_at(span.end());
        if start.is_none() && now >= span.start {
            start = Some(Edge::read(&mut worker, tracker));
        }
        if end.is_none() && now >= span.end() {
            end = Some(Edge::read(&mut worker, tracker));
        }
        match worker.turn(&clock)? {
            Next::Again => {}
            Next::Wait(timeout) => worker.wait(timeout)?,
            // A late worker may be done before it has read the counters at the end.
            Next::Done if end.is_none() => {}
            Next::Done => break,
        }
        if now >= intervals.end(interval) {
            lock(recorder).add(number, interval, &mut worker.counts().recent);
            interval = intervals.number(now);
        }
    }
    lock(recorder).add(number, interval, &mut worker.counts().recent);
    let tally = Tally { queues: worker.queues(), ..worker.counts().tally.clone() };
    Ok(WorkerOutcome { worker: number, tally, edges: start.zip(end) })
}

/// Waits for the workers, makes samples of their counts, and shows progress.
fn wait(
    results: &Receiver<End>,
    mut running: usize,
    settings: &RunSettings,
    stop: &AtomicBool,
    span: &RunClock,
    recorder: &Mutex<Recorder>,
) -> anyhow::Result<(Vec<WorkerOutcome>, Vec<Sample>, Option<TrackerReport>)> {
    let mut live = Live::new(settings.warmup() + settings.duration, settings.quiet);
    let mut outcomes = Vec::new();
    let mut observed = Observed::new(&settings.tracker);
    let mut series = Vec::new();
    while running > 0 {
        let now = span.epoch.elapsed();
        if stop.load(Ordering::Relaxed) {
            span.shorten();
        }
        // The recorder is locked for the sample alone, as workers wait for it.
        let next = || lock(recorder).next(nanos(now));
        while let Some(sample) = next() {
            let sample = observed.complete(sample, settings, span.end());
            live.show(now, &sample);
            series.push(sample);
        }
        match results.recv_timeout(TICK) {
            Ok(Ok(outcome)) => {
                running -= 1;
                outcomes.extend(outcome);
            }
            Ok(Err(error)) => {
                // The other workers need not continue.
                span.shorten();
                return Err(error);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(anyhow!("a thread of the run ended without a result"));
            }
        }
    }
    let now = span.now();
    let mut recorder = lock(recorder);
    while let Some(sample) = recorder.next(now).or_else(|| recorder.last(now)) {
        series.push(observed.complete(sample, settings, span.end()));
    }
    outcomes.sort_by_key(|outcomes| outcomes.worker);
    let tracker = observed.tracker.as_ref().and_then(|process| process.report().ok());
    Ok((outcomes, series, tracker))
}

fn lock(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The phase of the run at `time` seconds after its start, with the end of the window at `end`.
fn phase(settings: &RunSettings, time: f64, end: f64) -> String {
    let measured = time - settings.load.warmup;
    match &settings.load.pace {
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
    fn new(tracker: &[u32]) -> Self {
        let tracker = (!tracker.is_empty()).then(|| Process::observe(tracker).ok()).flatten();
        Self { tracker, own: Cpu::of("self").ok().map(Meter::new) }
    }

    /// Adds phase, CPU and memory to a sample.
    fn complete(&mut self, sample: Sample, settings: &RunSettings, end: Nanos) -> Sample {
        let tracker = self.tracker.as_mut().and_then(|process| process.sample().ok());
        let own = self.own.as_mut().zip(Cpu::of("self").ok());
        let own_cpu_percent = own.map(|(meter, cpu)| meter.percent(cpu));
        let phase = phase(settings, sample.time - sample.seconds / 2.0, end as f64 / 1e9);
        Sample { phase, tracker, own_cpu_percent, ..sample }
    }
}

/// The report on a window of this length.
fn report(outcomes: &[WorkerOutcome], setup: Setup, seconds: f64) -> Report {
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
    let mut report = Report::new(setup, &tally, seconds);
    let rss = || {
        let (start, end) = outcomes.first()?.edges.as_ref()?;
        start.rss.zip(end.rss)
    };
    if let (Some(ws), Some(tally)) = (&mut report.ws, &tally.ws)
        && report.setup.ws.as_ref().is_some_and(|ws| ws.is_idle)
    {
        ws.idle = Some(IdleReport::new(tally.held, rss()));
    }
    let percent = |time: f64| time / seconds * 100.0;
    let threads = outcomes.iter().filter_map(|outcome| between(outcome, |edge| edge.thread));
    Report {
        tracker_cpu: first(|edge| edge.tracker).map(|time| report.cpu(time)),
        tracker_busiest_percent: busiest().map(percent),
        own_cpu: first(|edge| edge.own).map(|time| report.cpu(time)),
        worker_percent: threads.map(|time| percent(time.total())).collect(),
        dropped_here: grown(|edge| edge.dropped),
        not_sent: grown(|edge| edge.not_sent),
        ..report
    }
}
