//! List changes in a running tracker: they apply at once to announces, scrapes and stored swarms,
//! and persist over reloads and restarts.

use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use clap::Parser;
use crossbeam_channel::{Sender, unbounded};
use onrush::Tracker;
use onrush::cli::Cli;
use onrush::process::signals::Signal;
use onrush::supervise::reload::Reload;
use onrush::supervise::{End, Supervisor};
use onrush_config::{Host, Settings};
use onrush_control::api::admin::{ListUpdate, ReloadReport};
use onrush_control::request::{ListChangeError, Request, Responder};
use onrush_control::view::View;
use onrush_proto::{InfoHash, ScrapeCounts};
use onrush_tracker::access::overlay::ListChange;
use onrush_tracker::metrics::Summary;
use tempfile::TempDir;

use crate::harness::client::{Client, leecher, random_hash, seeder};
use crate::harness::process::TIMEOUT;

const REFUSED: &str = "info hash is not allowed on this tracker";
const ONE: ScrapeCounts = ScrapeCounts { seeders: 1, completed: 0, leechers: 0 };
const NONE: ScrapeCounts = ScrapeCounts { seeders: 0, completed: 0, leechers: 0 };

/// A tracker and its supervisor in this process.
struct InProcess {
    view: View,
    sender: Sender<Signal>,
    main: JoinHandle<()>,
}

impl InProcess {
    /// Starts in this directory, which holds the state, the configuration and the list.
    fn start(directory: &Path, placement: &str) -> Self {
        let config = directory.join("onrush.toml");
        let state = directory.join("state");
        let args = [
            "onrush".as_ref(),
            "--config".as_ref(),
            config.as_os_str(),
            "--state-dir".as_ref(),
            state.as_os_str(),
            "--workers".as_ref(),
            "2".as_ref(),
            "--placement".as_ref(),
            placement.as_ref(),
        ];
        let args = Cli::try_parse_from(args).unwrap();
        let host = Host { vcpus: vec![0, 1], ..Host::default() };
        let (settings, _) =
            Settings::load(&args.flags, &host).unwrap_or_else(|error| panic!("{error}"));
        let tracker = Tracker::start(&settings).unwrap();
        let mut supervisor = Supervisor::new(tracker, settings, Reload::new(args.flags, host));
        let view = supervisor.view().clone();
        let (sender, signals) = unbounded();
        let main = thread::spawn(move || {
            assert!(matches!(supervisor.run(&signals), End::Stopped));
            supervisor.into_tracker().stop();
        });
        Self { view, sender, main }
    }

    /// A client with a connection id.
    fn client(&self) -> Client {
        let mut client = Client::new(self.view.parts.addresses[0]);
        client.connect();
        client
    }

    fn change(&self, changes: &[(InfoHash, bool)]) -> Result<ListUpdate, ListChangeError> {
        let changes = changes
            .iter()
            .map(|(info_hash, listed)| ListChange { info_hash: *info_hash, listed: *listed });
        let (sender, receiver) = channel();
        let responder = Responder::new(move |result| sender.send(result).unwrap());
        self.view.request(Request::ChangeList(changes.collect(), responder)).unwrap();
        receiver.recv_timeout(TIMEOUT).unwrap()
    }

    fn reload(&self) -> Result<ReloadReport, String> {
        let (sender, receiver) = channel();
        let responder = Responder::new(move |result| sender.send(result).unwrap());
        self.view.request(Request::Reload(responder)).unwrap();
        receiver.recv_timeout(TIMEOUT).unwrap()
    }

    /// Waits until the tracker has this many swarms.
    fn until_swarms(&self, swarms: u64) {
        let deadline = Instant::now() + TIMEOUT;
        let current = || Summary::of(self.view.workers().map(|(_, metrics)| metrics)).swarms;
        while current() != swarms {
            let now = current();
            assert!(Instant::now() < deadline, "{now} swarms, not {swarms}");
            thread::yield_now();
        }
    }

    fn stop(self) {
        self.sender.send(Signal::Stop).unwrap();
        self.main.join().unwrap();
    }
}

fn directory(access: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    let access = access.replace("HERE", &path.to_string());
    let text =
        format!("listen = [\"127.0.0.1:0\"]\n[access]\n{access}\n[workers]\npin = \"off\"\n");
    fs::write(directory.path().join("onrush.toml"), text).unwrap();
    directory
}

fn in_both(access: &str, test: impl Fn(&Path, &str)) {
    for placement in ["colocated", "split"] {
        test(directory(access).path(), placement);
    }
}

#[test]
fn a_denied_hash_is_refused_and_purged_at_once() {
    in_both("mode = \"deny\"", |directory, placement| {
        let tracker = InProcess::start(directory, placement);
        let client = tracker.client();
        let (kept, denied) = (random_hash(), random_hash());
        for hash in [kept, denied] {
            client.announce(hash, seeder(4_001));
        }
        // Gauges are up to a second old.
        tracker.until_swarms(2);
        let changed = tracker.change(&[(denied, true), (random_hash(), false)]).unwrap();
        assert_eq!((changed.entries, changed.changed, changed.lasting), (1, 1, true));
        assert_eq!(client.announce_refused(denied, leecher(4_002)), REFUSED);
        assert_eq!(client.scrape(&[kept, denied]), [ONE, NONE]);
        tracker.until_swarms(1);
        let changed = tracker.change(&[(denied, false)]).unwrap();
        assert_eq!((changed.entries, changed.changed), (0, 1));
        assert_eq!(client.announce(denied, leecher(4_002)).peers, [], "the swarm starts empty");
        assert_eq!(client.scrape(&[kept])[0], ONE);
        tracker.stop();
    });
}

#[test]
fn changes_survive_a_reload_and_a_restart() {
    in_both("mode = \"deny\"\nfile = \"HERE/list\"", |directory, placement| {
        let (in_file, added) = (random_hash(), random_hash());
        fs::write(directory.join("list"), format!("{in_file}\n")).unwrap();
        let tracker = InProcess::start(directory, placement);
        tracker.change(&[(added, true), (in_file, false)]).unwrap();
        let holds = |tracker: &InProcess| {
            let client = tracker.client();
            assert_eq!(client.announce_refused(added, leecher(4_002)), REFUSED);
            client.announce(in_file, leecher(4_002));
        };
        holds(&tracker);
        let reloaded = tracker.reload().unwrap();
        assert_eq!(reloaded.changed, [""; 0], "the list is unchanged");
        holds(&tracker);
        tracker.stop();
        let tracker = InProcess::start(directory, placement);
        holds(&tracker);
        // The file now contains the changes, so the journal is empty.
        tracker.stop();
        fs::write(directory.join("list"), format!("{added}\n")).unwrap();
        let tracker = InProcess::start(directory, placement);
        holds(&tracker);
        assert_eq!(fs::read_to_string(directory.join("state/access.changes")).unwrap(), "");
        tracker.stop();
    });
}

/// A change applies until the list's file contains it; from then on only the file counts.
#[test]
fn a_change_expires_once_the_file_contains_it() {
    in_both("mode = \"deny\"\nfile = \"HERE/list\"", |directory, placement| {
        let (always, added) = (random_hash(), random_hash());
        let write = |hashes: &[InfoHash]| {
            let text: String = hashes.iter().map(|hash| format!("{hash}\n")).collect();
            fs::write(directory.join("list"), text).unwrap();
        };
        let journal = || fs::read_to_string(directory.join("state/access.changes")).unwrap();
        write(&[always]);
        let tracker = InProcess::start(directory, placement);
        for _ in 0..3 {
            tracker.change(&[(added, true), (always, true)]).unwrap();
        }
        assert_eq!(
            journal(),
            format!("deny + {added}\n"),
            "changes without effect are not journaled"
        );
        tracker.reload().unwrap();
        let client = tracker.client();
        assert_eq!(client.announce_refused(added, leecher(4_002)), REFUSED);
        write(&[always, added]);
        assert_eq!(tracker.reload().unwrap().changed, [""; 0]);
        assert_eq!(
            (journal().as_str(), client.announce_refused(added, leecher(4_002))),
            ("", REFUSED.into())
        );
        write(&[always]);
        assert_eq!(tracker.reload().unwrap().changed, ["access.file"]);
        client.announce(added, leecher(4_002));
        tracker.stop();
    });
}

#[test]
fn a_rejected_change_is_reported_and_has_no_effect() {
    let open = directory("mode = \"open\"");
    let tracker = InProcess::start(open.path(), "colocated");
    assert_eq!(tracker.change(&[(random_hash(), true)]), Err(ListChangeError::NoList));
    tracker.stop();

    let only = random_hash();
    let allow = directory(&format!("mode = \"allow\"\ninfo_hashes = [\"{only}\"]"));
    let tracker = InProcess::start(allow.path(), "split");
    assert_eq!(tracker.change(&[(only, false)]), Err(ListChangeError::NothingLeft));
    tracker.client().announce(only, leecher(4_002));
    // The journal cannot be written, so the change is rejected.
    let journal = allow.path().join("state/access.changes");
    fs::create_dir(&journal).unwrap();
    let other = random_hash();
    let error = tracker.change(&[(other, true)]).unwrap_err().to_string();
    assert!(error.contains("access.changes"), "{error}");
    assert_eq!(tracker.client().announce_refused(other, leecher(4_002)), REFUSED);
    tracker.stop();

    let full = directory("mode = \"deny\"\n[limits]\nlist_entries = 2");
    let tracker = InProcess::start(full.path(), "colocated");
    let three = [(random_hash(), true), (random_hash(), true), (random_hash(), true)];
    assert_eq!(tracker.change(&three), Err(ListChangeError::Full(2)));
    assert_eq!(tracker.change(&three[1..]).unwrap().entries, 2);
    tracker.stop();
}

/// More changes than the overlay holds are merged into the list while further changes are made.
#[test]
fn many_changes_are_merged() {
    let many = directory("mode = \"deny\"");
    let tracker = InProcess::start(many.path(), "colocated");
    let hashes: Vec<InfoHash> = (0..9_000).map(|_| random_hash()).collect();
    for some in hashes.chunks(1_500) {
        let changes: Vec<_> = some.iter().map(|hash| (*hash, true)).collect();
        tracker.change(&changes).unwrap();
        tracker.change(&[(some[0], false)]).unwrap();
    }
    let deadline = Instant::now() + TIMEOUT;
    let ragged = || {
        let access = tracker.view.in_force().lists.access;
        access.set().unwrap().should_merge()
    };
    while ragged() {
        assert!(Instant::now() < deadline, "the changes are not merged");
        thread::yield_now();
    }
    let access = tracker.view.in_force().lists.access;
    assert_eq!(access.len(), 9_000 - 6);
    for (at, hash) in hashes.iter().enumerate() {
        assert_eq!(access.permits(*hash), at % 1_500 == 0);
    }
    tracker.stop();
}
