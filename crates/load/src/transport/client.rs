//! The client's process: it starts the server, writes what is due, checks what returns, and
//! observes both processes.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, bail};

use super::control::{Control, Message, Sender};
use super::echoes::{Action, Echoes, Shape};
use super::open_client;
use super::pattern::BLOCK;
use super::report::{Interval, Observed, SideCounts};
use super::signal::{Swarm, Tracker};
use super::stack::{Arrivals, Stack, StackKind, wait_until};
use crate::cpu::Cpu;
use crate::latency::{Latency, Nanos};
use crate::live::Live;
use crate::process::Process;
use crate::series::ProcessSample;

/// Time that a connection may take.
const CONNECT_TIMEOUT: Nanos = 20 * SECOND;
/// Time from the opening of the last stream to the measured window.
const SETTLE: Nanos = SECOND;
/// Time that echoes may take after the measured window.
const DRAIN: Nanos = 2 * SECOND;
/// Time that the server may take to answer over the control connection.
const ANSWER: Duration = Duration::from_secs(20);
/// Longest wait without input.
const IDLE: Duration = Duration::from_millis(50);
/// Samples of a measured window, where each then has at least [`SHORTEST`] and at most a second:
/// the kernel reports CPU time in hundredths of a second.
const SAMPLES: u32 = 30;
pub(super) const SHORTEST: Duration = Duration::from_millis(200);
const SECOND: Nanos = 1_000_000_000;

/// The load of a client.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) stack: StackKind,
    /// The words of the command that is started as the server; none for this program.
    pub(super) server: Vec<String>,
    pub(super) shape: Shape,
    /// Length of the measured window.
    pub(super) seconds: Duration,
    /// The vCPU of the server.
    pub(super) server_cpu: Option<usize>,
    /// The swarm in which descriptions are exchanged, where that is not the control connection.
    pub(super) swarm: Option<Swarm>,
    /// Whether to show no progress.
    pub(super) quiet: bool,
}

/// The measurements of a client.
pub(super) struct Outcome {
    pub(super) echoes: Echoes,
    /// Seconds of the measured window.
    pub(super) seconds: f64,
    pub(super) series: Vec<Interval>,
    /// Server and client.
    pub(super) sides: [SideCounts; 2],
}

/// Runs a load against a server of its own. The error of the inner result is why no connection
/// came about.
///
/// # Errors
/// When a process or a socket cannot be opened, the server ends, or `stop` is set before the
/// measured window.
pub(super) fn run(task: &Task, stop: &AtomicBool) -> anyhow::Result<Result<Outcome, String>> {
    let Server { mut child, mut control } = Server::start(&task.server)?;
    let Task { stack, shape, server_cpu: pin, ref swarm, .. } = *task;
    control.send(&Message::Start { stack, streams: shape.streams, pin, swarm: swarm.clone() })?;
    let ready = control.receive().context("the server's process ended")?;
    let mut stack = open_client(stack, shape, &ready)?;
    let tracker = match swarm {
        Some(swarm) => Some(Tracker::join(swarm, false, stack.wake()?)?),
        None => None,
    };
    let (sender, messages) = control.background(stack.wake()?);
    let link = ServerLink { sender, messages, tracker };
    let mut client = Client::new(task, link, &mut *stack, child.0.id())?;
    let mut block = [0; BLOCK];
    loop {
        if let Some(reason) = client.echoes.unestablished(client.now(), CONNECT_TIMEOUT) {
            return Ok(Err(reason));
        }
        client.interrupt(stop)?;
        client.write(&mut block)?;
        client.pass_on()?;
        client.observe()?;
        if client.is_done() {
            break;
        }
        client.read()?;
    }
    let outcome = client.finish()?;
    child.0.wait().context("the server's process")?;
    Ok(Ok(outcome))
}

/// The server's process, which ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended where the run was complete.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

struct Server {
    child: Running,
    control: Control,
}

impl Server {
    fn start(words: &[String]) -> anyhow::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let this = std::env::current_exe().context("cannot find this program's file")?;
        let (program, arguments) = match words {
            [] => (this.as_os_str(), vec!["transport", "--serve"]),
            [program, rest @ ..] => (program.as_ref(), rest.iter().map(String::as_str).collect()),
        };
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // Ctrl-C is for the client, which ends the server.
            .process_group(0)
            .spawn()
            .context("cannot start the server's process")?;
        Ok(Self { child: Running(child), control: Control::new(ours)? })
    }
}

struct ServerLink {
    sender: Sender,
    messages: Receiver<Message>,
    tracker: Option<Tracker>,
}

/// CPU time of both processes at one edge of the measured window.
type Edge = [Cpu; 2];

struct Client<'a> {
    task: &'a Task,
    link: ServerLink,
    stack: &'a mut dyn Stack,
    epoch: Instant,
    echoes: Echoes,
    arrivals: Arrivals,
    window: Option<(Nanos, Nanos)>,
    edges: Vec<Edge>,
    /// Server and client.
    processes: [Process; 2],
    pid: u32,
    length: Nanos,
    sampled: Nanos,
    series: Vec<Interval>,
    live: Live,
}

impl<'a> Client<'a> {
    fn new(
        task: &'a Task,
        link: ServerLink,
        stack: &'a mut dyn Stack,
        pid: u32,
    ) -> anyhow::Result<Self> {
        let whole = Duration::from_secs_f64(task.shape.ramp()) + task.seconds;
        let whole = whole + Duration::from_nanos(SETTLE);
        let length = (task.seconds / SAMPLES).clamp(SHORTEST, Duration::from_secs(1));
        Ok(Self {
            task,
            link,
            stack,
            epoch: Instant::now(),
            echoes: Echoes::new(task.shape),
            arrivals: Arrivals::default(),
            window: None,
            edges: Vec::new(),
            processes: [Process::observe(&[pid])?, Process::observe(&[std::process::id()])?],
            pid,
            length: length.as_nanos() as Nanos,
            sampled: 0,
            series: Vec::new(),
            live: Live::new(whole, task.quiet),
        })
    }

    fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos
    }

    fn at(&self, time: Nanos) -> Instant {
        self.epoch + Duration::from_nanos(time)
    }

    /// Ends the measured window early where `stop` is set.
    fn interrupt(&mut self, stop: &AtomicBool) -> anyhow::Result<()> {
        if !stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let now = self.now();
        match &mut self.window {
            Some((start, end)) if *start < now => {
                *end = now.min(*end);
                self.echoes.measure(*start, *end);
                Ok(())
            }
            _ => bail!("interrupted before the measured window: nothing was measured"),
        }
    }

    /// Passes descriptions on, and notices the end of the server.
    fn pass_on(&mut self) -> anyhow::Result<()> {
        let ServerLink { sender, tracker, .. } = &mut self.link;
        for (connection, text) in self.stack.descriptions() {
            match tracker {
                Some(tracker) => tracker.send(connection, text)?,
                None => sender.send(&Message::Description { connection, text })?,
            }
        }
        while let Some(tracker) = tracker
            && let Some((connection, text)) = tracker.receive().map_err(Error::msg)?
        {
            self.stack.describe(connection, &text, Instant::now()).map_err(Error::msg)?;
        }
        loop {
            match self.link.messages.try_recv() {
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => bail!("the server's process ended"),
                Ok(Message::Description { connection, text }) => {
                    let described = self.stack.describe(connection, &text, Instant::now());
                    described.map_err(Error::msg)?;
                }
                Ok(Message::Ended { connection, reason }) => {
                    self.echoes.ended(connection, format!("the server: {reason}"));
                }
                Ok(other) => bail!("the server sent {other:?}"),
            }
        }
    }

    /// Writes what is due.
    fn write(&mut self, block: &mut [u8; BLOCK]) -> io::Result<()> {
        let now = self.now();
        // Blocks that are due before the end of the window are written, even in a late turn.
        let until = self.window.map_or(now, |(_, end)| now.min(end - 1));
        while let Some(action) = self.echoes.next(until) {
            match action {
                Action::Connect(number) => self.stack.connect(number, self.at(now))?,
                Action::Write(due) => {
                    self.echoes.write(&due, block);
                    let to = due.block;
                    let accepted = self.stack.send(to.connection, to.stream, block);
                    self.echoes.written(&due, accepted, now);
                }
            }
        }
        self.stack.flush(self.at(now))
    }

    /// Waits for input until something is due, and reads it.
    fn read(&mut self) -> io::Result<()> {
        let now = self.now();
        let due = self.at(self.echoes.deadline().min(now + IDLE.as_nanos() as Nanos));
        let until = self.stack.timeout().map_or(due, |timeout| timeout.min(due));
        self.stack.wait(wait_until(Some(until), self.at(now), IDLE))?;
        let now = self.now();
        self.arrivals.clear();
        self.stack.receive(self.at(now), &mut self.arrivals)?;
        let Self { echoes, arrivals, .. } = self;
        for &connection in &arrivals.opened {
            echoes.connected(connection, now);
        }
        for (connection, stream, bytes) in arrivals.chunks() {
            echoes.received(connection, stream, bytes, now);
        }
        for (connection, reason) in arrivals.closed.drain(..) {
            echoes.ended(connection, reason);
        }
        Ok(())
    }

    /// Begins the measured window, reads CPU times at its edges, and makes samples.
    fn observe(&mut self) -> anyhow::Result<()> {
        let now = self.now();
        if self.window.is_none() && self.echoes.is_complete() {
            let start = now + SETTLE;
            let end = start + self.task.seconds.as_nanos() as Nanos;
            self.window = Some((start, end));
            self.echoes.measure(start, end);
        }
        let (start, end) = self.window.unwrap_or((Nanos::MAX, Nanos::MAX));
        let edge = [start, end].get(self.edges.len()).is_some_and(|edge| now >= *edge);
        if edge || now >= self.sampled + self.length {
            self.sample(now);
        }
        if edge {
            self.edges.push([Cpu::of(self.pid)?, Cpu::of("self")?]);
        }
        Ok(())
    }

    fn sample(&mut self, now: Nanos) {
        let phase = ["ramp", "measure", "drain"][self.edges.len()];
        let counts = self.echoes.take_recent();
        let [connections, streams] = self.echoes.progress();
        let of = |process: &mut Process| process.sample().unwrap_or_default();
        let [server, client]: [ProcessSample; 2] = self.processes.each_mut().map(of);
        let interval = Interval {
            time: now as f64 / 1e9,
            seconds: (now - self.sampled) as f64 / 1e9,
            phase: phase.into(),
            connections,
            streams,
            due: counts.due,
            refused: counts.refused,
            right: counts.right,
            wrong: counts.wrong,
            round_trip: Latency::of(&counts.round_trip.0),
            server,
            client,
        };
        self.live.show(Duration::from_nanos(now), &interval.to_sample());
        self.series.push(interval);
        self.sampled = now;
    }

    fn is_done(&self) -> bool {
        let Some((_, end)) = self.window else { return false };
        let now = self.now();
        self.edges.len() == 2 && now >= end && (self.echoes.pending() == 0 || now >= end + DRAIN)
    }

    /// Ends the server.
    fn finish(mut self) -> anyhow::Result<Outcome> {
        let reports = self.processes.each_ref().map(Process::report);
        self.link.sender.send(&Message::Finish)?;
        let (refused, unsent) = loop {
            match self.link.messages.recv_timeout(ANSWER) {
                Ok(Message::Finished { refused, unsent }) => break (refused, unsent),
                // It was on the way.
                Ok(Message::Ended { .. }) => {}
                Ok(other) => bail!("the server sent {other:?}"),
                Err(RecvTimeoutError::Timeout) => bail!("the server did not end"),
                Err(RecvTimeoutError::Disconnected) => bail!("the server's process ended"),
            }
        };
        let (start, end) = self.window.expect("the run is done");
        let [server, client] = reports;
        let cpu = |side: usize| self.edges[1][side] - self.edges[0][side];
        let server = SideCounts { observed: Observed::new(server?, cpu(0)), refused, unsent };
        let unsent = self.stack.unsent();
        let client = SideCounts { observed: Observed::new(client?, cpu(1)), refused: 0, unsent };
        Ok(Outcome {
            echoes: self.echoes,
            seconds: (end - start) as f64 / 1e9,
            series: self.series,
            sides: [server, client],
        })
    }
}
