//! A worker that dies takes the process down with its name and cause. No backend of the real
//! network fails on demand, so these workers stand on sockets that do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{never, unbounded};
use onrush::cli::Cli;
use onrush::snapshots::Snapshots;
use onrush::supervise::reload::Reload;
use onrush::supervise::{End, Supervisor};
use onrush::{Tracker, process::signals::Signal};
use onrush_config::{Host, Settings};
use onrush_net::{Received, Reply, Sent, Socket, Waker};
use onrush_swarm::ShardMap;
use onrush_tracker::access::Lists;
use onrush_tracker::assemble::{Secrets, assemble};
use onrush_tracker::clock::Clock;
use onrush_tracker::connection::Keys;
use onrush_tracker::running::{Running, WorkerFailure};

use crate::harness::process::PATIENCE;

#[test]
fn a_socket_that_fails_ends_its_worker_by_name() {
    let (settings, running, alive) = launched("colocated", &[Fate::Fine, Fate::Error, Fate::Fine]);
    let expected = death("worker-1", "its socket failed: the cable is cut");
    assert_eq!(running.failures().recv_timeout(PATIENCE).unwrap(), expected);
    assert_all_stop(&settings, running, &alive);
}

#[test]
fn a_worker_that_panics_is_caught_by_name() {
    let (settings, running, alive) = launched("split", &[Fate::Fine, Fate::Fine, Fate::Panic]);
    let expected = death("socket-2", "it panicked: a bug on receive 3");
    assert_eq!(running.failures().recv_timeout(PATIENCE).unwrap(), expected);
    assert_all_stop(&settings, running, &alive);
}

#[test]
fn a_wait_that_fails_is_a_death_too() {
    let (settings, running, alive) = launched("colocated", &[Fate::Wait, Fate::Fine]);
    let expected = death("worker-0", "its socket failed: no more waiting");
    assert_eq!(running.failures().recv_timeout(PATIENCE).unwrap(), expected);
    assert_all_stop(&settings, running, &alive);
}

#[test]
fn the_watch_ends_with_the_death() {
    let (settings, running, alive) = launched("colocated", &[Fate::Fine, Fate::Panic]);
    let mut supervisor = Supervisor::new(tracker(running), settings, nothing_to_read());
    let (sender, signals) = unbounded();
    let (over, watched) = channel::<()>();
    // Who waits in vain for a death is asked to stop in the end.
    let patience = thread::spawn(move || {
        if watched.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            sender.send(Signal::Stop).unwrap();
        }
        sender
    });
    let end = supervisor.run(&signals);
    drop(over);
    patience.join().unwrap();
    let expected = death("worker-1", "it panicked: a bug on receive 3");
    assert!(matches!(&end, End::WorkerFailed(failure) if *failure == expected), "{end:?}");
    // The daemon drops a tracker that is not whole; its workers end with it.
    drop(supervisor.into_tracker());
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn without_a_death_the_watch_goes_on_until_it_is_asked_to_end() {
    let (settings, running, alive) = launched("colocated", &[Fate::Fine, Fate::Fine]);
    let mut supervisor = Supervisor::new(tracker(running), settings, nothing_to_read());
    let (sender, signals) = unbounded();
    for signal in [Signal::Reload, Signal::Export, Signal::Stop, Signal::Reload] {
        sender.send(signal).unwrap();
    }
    assert!(matches!(supervisor.run(&signals), End::Stopped));
    assert_eq!(signals.len(), 1, "signals after a stop are not handled");
    assert_eq!(alive.load(Ordering::SeqCst), 2);
    supervisor.into_tracker().stop();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// A tracker of these workers and nothing else.
fn tracker(running: Running) -> Tracker {
    let (lists, clock, snapshots) = (Lists::open(), Clock::start(), Snapshots::disabled());
    Tracker {
        running,
        steering: None,
        warnings: Vec::new(),
        lists,
        journal: None,
        map: ShardMap::new([1; 5], 1),
        admin: None,
        lock: None,
        clock,
        snapshots,
        upgrade: never(),
        commitment: None,
        commitment_file: None,
        replaced_list: None,
        merging: Default::default(),
    }
}

/// A configuration without a file.
fn nothing_to_read() -> Reload {
    Reload::new(Cli::default().flags, Host::default())
}

fn death(name: &str, cause: &str) -> WorkerFailure {
    WorkerFailure { name: name.to_owned(), cause: cause.to_owned() }
}

/// Nobody else died, and everybody can be stopped.
fn assert_all_stop(settings: &Settings, running: Running, alive: &AtomicUsize) {
    assert!(running.failures().is_empty());
    assert_eq!(running.workers().count(), settings.placement.workers());
    running.stop();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// A tracker with a worker on a socket of each of these fates.
fn launched(placement: &str, fates: &[Fate]) -> (Settings, Running, Arc<AtomicUsize>) {
    let total = match placement {
        "split" => format!("socket = {}\nswarm = 2", fates.len()),
        _ => format!("total = {}", fates.len()),
    };
    let config = format!("[workers]\nplacement = \"{placement}\"\n{total}\npin = \"off\"\n");
    let settings = Settings::for_test(&config);
    let alive = Arc::new(AtomicUsize::new(0));
    let sockets = fates.iter().map(|fate| Doomed::new(*fate, &alive)).collect();
    let secrets = Secrets::random(Keys::random());
    let lists = onrush_store::lists::load(&settings, &mut || {}).unwrap();
    let workers = assemble(&settings.workers(), &secrets, sockets, &settings.rules(&lists));
    let running =
        Running::launch(&settings.workers(), Vec::new(), workers, Clock::start()).unwrap();
    (settings, running, alive)
}

/// What becomes of a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nothing ever arrives.
    Fine,
    /// The third receive fails.
    Error,
    /// The third receive panics.
    Panic,
    /// The second wait fails.
    Wait,
}

/// A socket with a fate.
struct Doomed {
    fate: Fate,
    receives: u32,
    waits: u32,
    bell: Bell,
    rings: Receiver<()>,
    alive: Arc<AtomicUsize>,
}

impl Doomed {
    fn new(fate: Fate, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        let (bell, rings) = channel();
        Self { fate, receives: 0, waits: 0, bell: Bell(bell), rings, alive: alive.clone() }
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Socket for Doomed {
    type Waker = Bell;

    fn waker(&self) -> Bell {
        self.bell.clone()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.waits += 1;
        if self.fate == Fate::Wait && self.waits == 2 {
            return Err(io::Error::other("no more waiting"));
        }
        let rung = self.rings.recv_timeout(timeout);
        assert_ne!(rung, Err(RecvTimeoutError::Disconnected));
        Ok(())
    }

    fn receive(&mut self, _: usize) -> io::Result<Received<'_>> {
        self.receives += 1;
        match (self.fate, self.receives) {
            (Fate::Error, 3) => Err(io::Error::other("the cable is cut")),
            (Fate::Panic, count @ 3) => panic!("a bug on receive {count}"),
            _ => Ok(Received::new(&[], &[])),
        }
    }

    fn send<'b>(&mut self, _: impl Iterator<Item = Reply<'b>>) -> Sent {
        Sent::default()
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// Rings a [`Doomed`] socket.
#[derive(Clone)]
struct Bell(Sender<()>);

impl Waker for Bell {
    fn wake(&self) {
        // Nobody hears it at a socket that is gone.
        let _ = self.0.send(());
    }
}
