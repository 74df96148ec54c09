//! A worker that fails ends the process, with the worker's name and the cause. Real sockets do not
//! fail on demand, so these tests use sockets that do.

use std::env;
use std::io::{self, Read, Write, pipe};
use std::process::{self, Command, Stdio};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{never, unbounded};
use nix::fcntl::{FcntlArg, fcntl};
use onrush::Tracker;
use onrush::access::AccessControl;
use onrush::cli::Cli;
use onrush::effect::End;
use onrush::overload::Overload;
use onrush::process::{exit, logging, signals::Signal};
use onrush::serve::Serving;
use onrush::state_files::StateFiles;
use onrush::supervise::config_source::ConfigSource;
use onrush::upgrade::progress::Upgrade;
use onrush_commands::exit::{Exit, FAILED};
use onrush_config::{Host, Settings};
use onrush_control::Server;
use onrush_control::history::History;
use onrush_net::memory::{Conditions, Endpoint, Network, Options};
use onrush_net::mio::drops::DropReasons;
use onrush_net::{Drops, Received, Reply, Sent, Socket};
use onrush_swarm::ShardMap;
use onrush_testing::memory_tracker::{endpoints, rules, secrets};
use onrush_tracker::access::Lists;
use onrush_tracker::assemble::assemble;
use onrush_tracker::clock::Clock;
use onrush_tracker::running::{Addresses, Running, WorkerFailure};
use onrush_tracker::worker::Worker;

use crate::harness::TIMEOUT;

#[test]
fn a_failing_worker_ends_by_name_with_its_cause() {
    use Failure::{Error, Never, Panic, Wait};
    for (placement, sockets, name, cause) in [
        (
            "colocated",
            &[Never, Error, Never][..],
            "worker-1",
            "its socket failed: injected receive failure",
        ),
        ("split", &[Never, Never, Panic], "socket-2", "it panicked: injected panic on receive 3"),
        ("colocated", &[Wait, Never], "worker-0", "its socket failed: injected wait failure"),
    ] {
        let (settings, running, alive) = launched(placement, sockets);
        let failure = WorkerFailure { name: name.to_owned(), cause: cause.to_owned() };
        assert_eq!(running.failures().recv_timeout(TIMEOUT).unwrap(), failure);
        // No other worker failed, and all can be stopped.
        assert!(running.failures().is_empty());
        assert_eq!(running.members().len(), settings.placement.workers());
        match placement {
            "split" => drop(running.stop_and_take_shards()),
            _ => drop(running),
        }
        assert_eq!(alive.strong_count(), 0);
    }
}

/// The report of a panic precedes the final message. Neither of them is waited for where the log is
/// not read.
#[test]
fn a_panic_ends_the_process_whether_its_log_is_read_or_not() {
    if env::var_os(PANICS).is_some() {
        end_by_panic();
    }
    for is_read in [true, false] {
        let (mut log, mut to) = pipe().unwrap();
        if !is_read {
            let size = fcntl(&to, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
            to.write_all(&vec![b'.'; size as usize]).unwrap();
        }
        let limit = TIMEOUT.as_secs().to_string();
        let mut child = Command::new("timeout")
            .args(["--signal", "KILL", &limit])
            .arg(env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("worker_failure::a_panic_ends_the_process_whether_its_log_is_read_or_not")
            .env(PANICS, "1")
            .stdout(Stdio::null())
            .stderr(to)
            .spawn()
            .unwrap();
        let mut text = String::new();
        if is_read {
            log.read_to_string(&mut text).unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(FAILED.into()), "{text}");
        let report = text.find("injected panic on receive 3");
        let message =
            text.find("\nonrush: worker-1 failed: it panicked: injected panic on receive 3");
        assert!(report.is_some() == is_read && report <= message, "{text}");
    }
}

/// In the environment of a process in which a worker is to panic.
const PANICS: &str = "ONRUSH_TEST_PANICS";

/// Logs, runs and ends as the daemon does.
fn end_by_panic() -> ! {
    logging::start(log::LevelFilter::Info).unwrap();
    log::info!("a worker is about to panic");
    let (settings, running, _) = launched("colocated", &[Failure::Never, Failure::Panic]);
    let mut serving = serving(running, settings);
    let End::WorkerFailed(failure) = serving.run(&never()) else { panic!("no failure") };
    let exit = Exit::failed(failure);
    let code = exit.code;
    exit::report(exit);
    process::exit(code.into())
}

#[test]
fn without_a_failure_the_supervisor_runs_until_a_stop_signal() {
    let (settings, running, alive) = launched("colocated", &[Failure::Never, Failure::Never]);
    let mut serving = serving(running, settings);
    let (sender, signals) = unbounded();
    for signal in [Signal::Reload, Signal::Export, Signal::Stop(String::new()), Signal::Reload] {
        sender.send(signal).unwrap();
    }
    assert!(matches!(serving.run(&signals), End::Stopped));
    assert_eq!(signals.len(), 1, "signals after a stop are not handled");
    assert_eq!(alive.strong_count(), 2);
    serving.stop().1.unwrap();
    assert_eq!(alive.strong_count(), 0);
}

/// A tracker with these workers and no other part, and without a configuration file.
fn serving(running: Running, settings: Settings) -> Serving {
    let (clock, now) = (Clock::start(), Instant::now());
    let tracker = Tracker {
        running,
        steering: None,
        warnings: Vec::new(),
        access: AccessControl::new(Lists::open(), 1),
        files: StateFiles::new(&settings, None, now),
        tls: None,
        certificates: None,
        map: ShardMap::new([1; 5], 1),
        admin: Server::start(None, &Settings::for_test("").admin, None, || ()).unwrap(),
        clock,
        upgrade: Upgrade::new(false, now),
        handoffs: never(),
        overload: Overload::new(&settings, now),
        drop_reasons: DropReasons::of_namespace(),
        xdp: None,
        spawn_thread: None,
        history: Arc::new(History::new(now)),
    };
    let source = ConfigSource { flags: Cli::default().flags, host: Host::default() };
    Serving::new(tracker, settings, source, None)
}

/// A tracker with a worker for each of these sockets, and the share of each socket that lives.
fn launched(placement: &str, failures: &[Failure]) -> (Settings, Running, Weak<()>) {
    let total = match placement {
        "split" => format!("socket = {}\nswarm = 2", failures.len()),
        _ => format!("total = {}", failures.len()),
    };
    let config = format!("[workers]\nplacement = \"{placement}\"\n{total}\npin = \"off\"\n");
    let settings = Settings::for_test(&config);
    let options = Options { blocking: true, ..Options::default() };
    let network = Network::with_options(1, Conditions::default(), options);
    let share = Arc::new(());
    let socket = |(failure, inner): (&Failure, Endpoint)| {
        let (failure, _share) = (*failure, share.clone());
        FailingSocket { failure, receives: 0, waits: 0, inner, _share }
    };
    let endpoints = endpoints(&settings, &secrets(1), &network);
    let sockets = failures.iter().zip(endpoints).map(socket).collect();
    let workers = assemble(&settings.workers(), &secrets(1), sockets, &rules(&settings));
    let (clock, fronts) = (Clock::start(), Vec::<Worker<FailingSocket>>::new());
    let running =
        Running::prepare(&settings.workers(), Addresses::default(), workers, fronts, clock);
    let mut running = running.unwrap();
    running.begin();
    (settings, running, Arc::downgrade(&share))
}

/// How a socket fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// No failure; nothing is received.
    Never,
    /// The third receive fails.
    Error,
    /// The third receive panics.
    Panic,
    /// The second wait fails.
    Wait,
}

/// A socket that fails as configured.
struct FailingSocket {
    failure: Failure,
    receives: u32,
    waits: u32,
    inner: Endpoint,
    /// Shows how many sockets are open.
    _share: Arc<()>,
}

impl Socket for FailingSocket {
    type Waker = <Endpoint as Socket>::Waker;

    fn waker(&self) -> Self::Waker {
        self.inner.waker()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.waits += 1;
        if self.failure == Failure::Wait && self.waits == 2 {
            return Err(io::Error::other("injected wait failure"));
        }
        self.inner.wait(timeout)
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        self.receives += 1;
        match (self.failure, self.receives) {
            (Failure::Error, 3) => Err(io::Error::other("injected receive failure")),
            (Failure::Panic, count @ 3) => panic!("injected panic on receive {count}"),
            _ => self.inner.receive(limit),
        }
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        self.inner.send(replies)
    }

    fn dropped(&self) -> Drops {
        self.inner.dropped()
    }
}
