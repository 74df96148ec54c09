//! The supervisor as a whole: each key that a reload changes has an effect by its owner, reloads
//! among requests and signals, and what is logged for whom.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::certificate_files;
use config_source::LoadedConfig;
use onrush_config::host::QuotaPeriods;
use onrush_config::{Flags, Host, keys, keys::owner};
use onrush_control::api::Problem;
use onrush_control::api::blocks::BlockRequest;
use onrush_control::request::Responder;
use onrush_proto::InfoHash;
use onrush_store::lists;
use onrush_testing::tls::Issued;
use onrush_tracker::access::Lists;
use onrush_tracker::access::overlay::ListChange;
use onrush_tracker::metrics::Summary;
use reload::ReloadResult;
use std::sync::mpsc::channel;

/// A supervisor of two members, whose effects and clock the test has.
struct Fixture {
    supervisor: Supervisor,
    members: Arc<[Member]>,
    time: Time,
    suspended: Duration,
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (settings, now) = (parse(text, &directory), Instant::now());
        let time = Time { now, unix: 1_000 };
        let lists = lists::load(&settings, &mut || {}).unwrap();
        let role = onrush_tracker::member::Role::Both;
        let members: Arc<[Member]> =
            [0, 1].map(|nth| Member::new(role, nth, Arc::default())).into();
        let certificates = certificate_files::load(&settings.http).unwrap();
        let owners = Owners {
            access: AccessControl::new(lists, 2),
            overload: Overload::new(&settings, now),
            upgrade: Upgrade::new(true, now),
            certificates: CertificateControl::new(certificates, time),
        };
        let source = ConfigSource { flags: Flags::default(), host: Host::default() };
        let settings = (Arc::new(settings), source);
        let supervisor =
            Supervisor::new(owners, settings, members.clone(), (&Addresses::default(), None), time);
        Self { supervisor, members, time, suspended: Duration::ZERO, directory }
    }

    fn tick(&mut self) -> Effects {
        let summary = Summary::of(self.members.iter().map(|member| &*member.metrics));
        let state = ProcessState {
            summary,
            quota: QuotaPeriods::default(),
            reasons_known: true,
            has_program: false,
            is_steering: false,
            suspended: self.suspended,
        };
        self.on(Event::Tick(Box::new(state)))
    }

    fn on(&mut self, event: Event) -> Effects {
        self.supervisor.on(event, self.time)
    }

    /// A second in which busy workers lose this many of 10,000 datagrams.
    fn second(&mut self, lost: u64) -> Effects {
        self.time.now += Duration::from_secs(1);
        for Member { metrics, .. } in &*self.members {
            metrics.turns.add(1);
            metrics.turn_times.observe(900_000_000);
            metrics.incoming.v4.datagrams.add((10_000 - lost) / 2);
            metrics.kernel_drops.add(lost / 2);
        }
        self.tick()
    }

    fn reload(&mut self, text: &str) -> Effects {
        let settings = parse(text, &self.directory);
        let lists = lists::load(&settings, &mut || {}).unwrap();
        let token_file = settings.admin.token_file.as_deref();
        let token = onrush_control::Token::load(onrush_control::TOKEN_KEY, token_file).unwrap();
        let Supervisor { source, settings: running, .. } = &self.supervisor;
        let certificates = source.certificates(running, &settings).unwrap();
        let (notices, replayed) = (Vec::new(), None);
        let loaded = LoadedConfig { settings, notices, lists, replayed, token, certificates };
        self.on(Event::Loaded(Ok(Box::new(loaded))))
    }

    /// The names of the files of certificates and keys, which are looked at every minute.
    fn certificate_files(&mut self) -> Vec<String> {
        self.time.now += Duration::from_secs(60);
        let effects = self.tick();
        self.on(Event::Certificates(None));
        let looks = effects.0.into_iter().filter_map(|effect| match effect {
            Effect::LookAtCertificates(known) => Some(known.files),
            _ => None,
        });
        let files = looks.flatten().flat_map(|(certificate, key)| [certificate, key]);
        files.map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    /// Makes a request of 127.0.0.1. Returns its response, and the other effects; a response that
    /// does not come with them is `None`.
    fn request<T: Send + 'static>(
        &mut self,
        request: impl FnOnce(Caller, Responder<T>) -> Request,
    ) -> (Option<T>, Effects) {
        let (to, response) = channel();
        let responder = Responder::new(move |response| drop(to.send(response)));
        let caller = Caller::Address("127.0.0.1:9".parse().unwrap());
        let others = self.on(Event::Request(request(caller, responder))).send_replies();
        (response.try_recv().ok(), Effects(others))
    }

    /// Whether the list could be changed.
    fn change_list(&mut self, changes: Vec<ListChange>) -> bool {
        let change = |caller, responder| Request::ChangeList { changes, caller, responder };
        self.request(change).0.unwrap().is_ok()
    }

    /// Reloads on request a list with this many entries in its file.
    fn reload_list(&mut self, entries: usize, force: bool) -> ReloadResult {
        let lines: String = (0..entries).map(|n| format!("{n:040x}\n")).collect();
        std::fs::write(self.directory.path().join("list"), lines).unwrap();
        let (to, result) = channel();
        let responder = Responder::new(move |result| to.send(result).unwrap());
        let caller = Caller::Address("127.0.0.1:9".parse().unwrap());
        self.on(Event::Request(Request::Reload { force, caller, responder }));
        self.reload(LISTED).send_replies();
        result.recv().unwrap()
    }
}

/// The settings of a text, in which `DIR` is a directory with some files.
fn parse(text: &str, directory: &tempfile::TempDir) -> Settings {
    let path = directory.path();
    let hash = "0123456789abcdef0123456789abcdef01234567";
    for (name, text) in [("hashes", hash), ("blocked", "192.0.2.7"), ("token", "0123456789abcdef")]
    {
        std::fs::write(path.join(name), text).unwrap();
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path.join(name), mode).unwrap();
    }
    if !path.join("t.crt").exists() {
        let issued = Issued::of(&["t"]);
        ["t", "u"].iter().for_each(|name| issued.write(path, name).unwrap());
    }
    Settings::for_test(&text.replace("DIR", path.to_str().unwrap()))
}

/// The state of an owner that operators and clients can see after a reload with these effects.
fn visible(owner: &str, fixture: &mut Fixture, effects: &Effects) -> String {
    let find = |is: fn(&Effect) -> bool| format!("{:?}", effects.0.iter().find(|it| is(it)));
    match owner {
        owner::RULES => format!("{:?}", fixture.supervisor.rules()),
        owner::ACCESS => {
            let lists = format!("{:?}", fixture.supervisor.access().lists());
            let ten = (0..10).map(|n| ListChange::new(InfoHash([n; 20]), true));
            format!("{lists} {}", fixture.change_list(ten.collect()))
        }
        owner::OVERLOAD => {
            for _ in 0..20 {
                fixture.second(600);
            }
            let mut rules = fixture.supervisor.rules();
            // Draws of the list's counters are not of this owner.
            rules.forbidden = Lists::open().forbidden;
            format!("{rules:?}")
        }
        owner::FILES => match effects.0.iter().find(|it| matches!(it, Effect::ReconfigureFiles(_)))
        {
            Some(Effect::ReconfigureFiles(settings)) => {
                format!("{:?} {:?}", settings.snapshot, settings.export)
            }
            _ => String::new(),
        },
        owner::LOG => {
            let control = effects.0.iter().rfind(|effect| matches!(effect, Effect::SetLog(_)));
            let lines = (0..30).map(|_| {
                let effects = fixture.second(0);
                let is_info = |it: &&Effect| match it {
                    Effect::Notice(notice) => notice.level == log::Level::Info,
                    _ => false,
                };
                effects.0.iter().filter(is_info).count()
            });
            format!("{control:?} {}", lines.sum::<usize>())
        }
        owner::CERTIFICATES => {
            let replaces = |effect: &Effect| matches!(effect, Effect::ReplaceCertificates(_));
            assert!(effects.0.iter().any(replaces), "{effects:?}");
            format!("{:?}", fixture.certificate_files())
        }
        owner::ADMIN => {
            let token = find(|effect| matches!(effect, Effect::SetToken(_)));
            let published = effects.0.iter().any(|effect| matches!(effect, Effect::Publish));
            let shown = fixture.supervisor.in_force().settings.admin.clone();
            format!("{token} {published} {shown:?}")
        }
        other => panic!("no owner {other}"),
    }
}

/// A value of each key, beside what it needs.
const VALUES: [(&str, &str); 34] = [
    ("http.proxies", "[http]\nproxies = [\"192.0.2.9\"]\n"),
    ("http.client_address", "[http]\nclient_address = \"forwarded\"\n"),
    ("announce.interval", "[announce]\ninterval = 900\n"),
    ("announce.interval_jitter_percent", "[announce]\ninterval_jitter_percent = 9\n"),
    ("announce.default_peers", "[announce]\ndefault_peers = 9\n"),
    ("announce.max_peers_v4", "[announce]\nmax_peers_v4 = 99\n"),
    ("announce.max_peers_v6", "[announce]\nmax_peers_v6 = 9\n"),
    ("announce.peer_lifetime", "[announce]\npeer_lifetime = 4000\n"),
    ("announce.completed_retention", "[announce]\ncompleted_retention = 9\n"),
    ("scrape.max_hashes", "[scrape]\nmax_hashes = 9\n"),
    ("access.mode", "[access]\nmode = \"open\"\n"),
    (
        "access.info_hashes",
        "[access]\ninfo_hashes = [\"ffffffffffffffffffffffffffffffffffffffff\"]\n",
    ),
    ("access.files", "[access]\nfiles = [\"DIR/hashes\"]\n"),
    ("access.error", "[access]\nerror = \"no\"\n"),
    ("access.blocked", "[access]\nblocked = [\"192.0.2.9\"]\n"),
    ("access.blocked_file", "[access]\nblocked_file = \"DIR/blocked\"\n"),
    ("access.refuse_bogons", "[access]\nrefuse_bogons = true\n"),
    ("overload.drop_share", "[overload]\ndrop_share = 10\n"),
    ("overload.longest_interval", "[overload]\nlongest_interval = 9000\n"),
    ("limits.trusted_sources", "[limits]\ntrusted_sources = [\"192.0.2.9\"]\n"),
    ("limits.warnings_per_minute", "[limits]\nwarnings_per_minute = 9\n"),
    ("limits.list_entries", "[limits]\nlist_entries = 5\n"),
    ("snapshot.every", "[snapshot]\nevery = 9\n"),
    // The other file of each pair is the one in force (`HTTPS`).
    (
        "http.certificates",
        "[http]\ntls_listen = [\":1\"]\ncertificates = [\"DIR/u.crt\"]\nkeys = [\"DIR/t.key\"]\n",
    ),
    (
        "http.keys",
        "[http]\ntls_listen = [\":1\"]\ncertificates = [\"DIR/t.crt\"]\nkeys = [\"DIR/u.key\"]\n",
    ),
    ("admin.hosts", "[admin]\nhosts = [\"tracker.example\"]\n"),
    ("admin.token_file", "[admin]\ntoken_file = \"DIR/token\"\n"),
    ("admin.publish_lists", "[admin]\npublish_lists = true\n"),
    ("export.file", "[export]\nfile = \"DIR/scrape.txt.gz\"\n"),
    ("export.every", "[export]\nevery = 9\n"),
    ("log.level", "[log]\nlevel = \"warn\"\n"),
    ("log.format", "[log]\nformat = \"json\"\n"),
    ("log.totals_every", "[log]\ntotals_every = 9\n"),
    ("log.addresses", "[log]\naddresses = true\n"),
];

/// HTTPS with a certificate and its key.
const HTTPS: &str =
    "[http]\ntls_listen = [\":1\"]\ncertificates = [\"DIR/t.crt\"]\nkeys = [\"DIR/t.key\"]\n";
/// A deny list, so that lists may change; no swarm of it is named.
const BASE: &str = "[access]\nmode = \"deny\"\n";
/// The same with a file.
const LISTED: &str = "[access]\nmode = \"deny\"\nfiles = [\"DIR/list\"]\n";

#[test]
fn every_key_that_a_reload_changes_has_an_effect_by_its_owner() {
    let keys = keys::SCHEMA.leaves().into_iter().map(|(path, key)| (path, key.owner));
    let owners: BTreeMap<String, &str> = keys.filter(|(_, owner)| !owner.is_empty()).collect();
    let known: BTreeMap<&str, &str> = VALUES.into();
    let differing: Vec<_> = owners.keys().filter(|key| !known.contains_key(key.as_str())).collect();
    assert!(differing.is_empty() && owners.len() == VALUES.len(), "without a value: {differing:?}");
    for (key, text) in VALUES {
        let text = match text.strip_prefix("[access]\n") {
            Some(rest) if key == "access.mode" => format!("[access]\n{rest}"),
            Some(rest) => format!("{BASE}{rest}"),
            None => format!("{BASE}{text}"),
        };
        let running = match owners[key] {
            owner::CERTIFICATES => format!("{BASE}{HTTPS}"),
            _ => BASE.to_owned(),
        };
        let after = |text: &str| {
            let mut fixture = Fixture::new(&running);
            let effects = fixture.reload(text);
            visible(owners[key], &mut fixture, &effects)
        };
        assert_ne!(after(BASE), after(&text), "{key} of {}", owners[key]);
    }
}

#[test]
fn https_that_is_turned_off_keeps_its_certificates_until_a_restart() {
    let mut fixture = Fixture::new(HTTPS);
    let effects = fixture.reload("announce.interval = 900");
    effects.assert_logged(&["reloaded by", "announce.interval: 1800 -> 900"]);
    effects.assert_logged(&["or a restart", "http.tls_listen", "http.certificates", "http.keys"]);
    assert_eq!(fixture.certificate_files(), ["t.crt", "t.key"]);
    // The address alone.
    let pair = "http = { certificates = ['DIR/u.crt'], keys = ['DIR/u.key'] }";
    fixture.reload(pair).assert_logged(&["or a restart", "http.tls_listen"]);
    assert_eq!(fixture.certificate_files(), ["u.crt", "u.key"]);
    assert_eq!(fixture.supervisor.in_force().certificates.len(), 1);
}

#[test]
fn certificates_are_not_read_until_https_is_turned_on_by_a_restart() {
    let mut fixture = Fixture::new("");
    let effects = fixture.reload(&HTTPS.replace("t.crt", "none"));
    effects.assert_logged(&["or a restart", "http.tls_listen"]);
    assert!(fixture.certificate_files().is_empty());
}

#[test]
fn a_stalled_member_is_named() {
    let mut fixture = Fixture::new("");
    fixture.second(0);
    for second in 1..=5 {
        fixture.time.now += Duration::from_secs(1);
        fixture.members[0].metrics.turns.add(1);
        let shown = format!("{:?}", fixture.tick());
        for part in ["\"worker-1 has not taken a turn for 5 s", "Limited(\"stall\")"] {
            assert_eq!(shown.contains(part), second == 5, "{shown}");
        }
    }
}

/// Drops of a pause, which are counted up to some seconds after it, are no reason for larger
/// buffers.
#[test]
fn a_pause_of_the_process_is_named_and_explains_its_drops() {
    const DROPS: &str = "the kernel dropped 2,000 datagrams ";
    let mut fixture = Fixture::new("");
    fixture.second(2_000).assert_logged(&[DROPS, "net.core.rmem_max"]);
    fixture.time.now += Duration::from_secs(36);
    fixture.time.unix += 36;
    // The workers did not run either.
    let text = format!("{:?}", fixture.tick().notices());
    assert!(
        text.contains("this process did not run for 36 s")
            && !text.contains("has not taken a turn"),
        "{text}"
    );
    fixture.time.now += Duration::from_secs(36);
    fixture.time.unix += 37;
    let resumed = fixture.second(2_000);
    resumed.assert_logged(&["this process did not run for 37 s", "SIGSTOP"]);
    for effects in [resumed, fixture.second(2_000)] {
        effects.assert_logged(&[DROPS, "while this process did not run"]);
        let text = format!("{:?}", effects.notices());
        assert!(!text.contains("rmem_max") && !text.contains("wall clock"), "{text}");
    }
    for _ in 0..6 {
        fixture.second(0);
    }
    fixture.second(2_000).assert_logged(&[DROPS, "net.core.rmem_max"]);
}

/// The monotonic clock does not advance while the host is suspended, and never jumps.
#[test]
fn a_wall_clock_that_is_set_is_told_from_a_host_that_was_suspended() {
    let mut fixture = Fixture::new("");
    fixture.time.unix = 1_000_000;
    fixture.second(0);
    // Seconds of the wall clock and of a suspension in a second of the monotonic clock.
    for (wall, suspended, expected) in [
        (1, 0, None),
        (10, 0, None),
        (7_201, 0, Some("the wall clock jumped by +2 h: ")),
        (-17_999, 0, Some("the wall clock jumped by -5 h: ")),
        (3_601, 3_600, Some("this process did not run for 1 h ")),
        (1, 0, None),
    ] {
        fixture.time.unix = fixture.time.unix.saturating_add_signed(wall);
        fixture.suspended += Duration::from_secs(suspended);
        let notices = fixture.second(0).notices();
        assert_eq!(notices.len(), usize::from(expected.is_some()), "{notices:?}");
        expected.into_iter().for_each(|text| assert!(notices[0].text.starts_with(text)));
    }
}

/// The tracker stops as at any other time if the outcome stays unknown.
#[test]
fn a_stop_waits_five_seconds_while_the_sockets_change_hands() {
    let mut fixture = Fixture::new("");
    let commitment = crossbeam_channel::bounded(1).0;
    let ready = HandoffEvent::Ready { process: 7, version: "1".to_owned(), commitment };
    fixture.on(Event::Handoff(ready));
    fixture.time.now += Duration::from_secs(7_200);
    let signal = Signal::Stop("SIGTERM of process 1, user 0".to_owned());
    let mut seconds = vec![fixture.on(Event::Signal(signal))];
    seconds[0].assert_logged(&["stopping after 2 h: SIGTERM of process 1, user 0"]);
    seconds.extend((1..=5).map(|_| fixture.second(0)));
    let stops = |effects: Effects| {
        let last = effects.0.iter().rev().take(3).map(|it| format!("{it:?}")).collect::<String>();
        last.starts_with("End(Stopped)StoreCommitment") && last.ends_with("Notify(Stopping)")
    };
    assert!(seconds.into_iter().map(stops).eq([false, false, false, false, false, true]));
}

/// The successor may have read another file.
#[test]
fn a_configuration_that_was_being_read_when_an_upgrade_began_is_rejected() {
    let mut fixture = Fixture::new("");
    fixture.on(Event::Signal(Signal::Reload));
    let (current, _to_successor) = crossbeam_channel::bounded(1);
    fixture.on(Event::Handoff(HandoffEvent::Requested { process: 7, inherited: current }));
    let effects = format!("{:?}", fixture.reload("[announce]\ninterval = 900\n"));
    assert!(effects.contains("rejected: an upgrade is under way"), "{effects}");
    assert!(!effects.contains("Publish"), "{effects}");
    // A further one is refused before it reads anything, and not called wrong.
    fixture.time.unix += 1;
    let refused_at = LastReload { successful: false, time: fixture.time.unix };
    let request = |caller, responder| Request::Reload { force: false, caller, responder };
    let (refused, effects) = fixture.request(request);
    let upgrading = "an upgrade is under way: reload when it is over";
    assert_eq!(refused, Some(Err(Problem::conflict(upgrading))));
    effects.assert_logged(&["requested by 127.0.0.1:9", upgrading]);
    let shown = effects.0.iter().any(|effect| matches!(effect, Effect::Show));
    assert!(shown && fixture.supervisor.in_force().last_reload == refused_at);
    fixture.on(Event::Handoff(HandoffEvent::Failed));
    let effects = format!("{:?}", fixture.reload("[announce]\ninterval = 900\n"));
    assert!(effects.contains("announce.interval") && effects.contains("Publish"), "{effects}");
}

#[test]
fn the_log_has_what_a_reload_changes_and_for_whom() {
    let mut fixture = Fixture::new(BASE);
    fixture.on(Event::Signal(Signal::Reload));
    let listed = "[access]\nmode = \"deny\"\nfiles = [\"DIR/hashes\"]\n";
    let keys = "[announce]\ninterval = 2400\n[socket]\nbatch = 64\n";
    let effects = fixture.reload(&format!("{listed}{keys}"));
    effects.assert_logged(&["reloaded by SIGHUP", "announce.interval: 1800 -> 2400"]);
    effects.assert_logged(&["info hashes: 0 entries", "1 now", "added 0123456789abcdef"]);
    effects.assert_logged(&["onrush ctl upgrade", "socket.batch"]);

    let request = |caller, responder| Request::Reload { force: true, caller, responder };
    let (_, effects) = fixture.request(request);
    effects.assert_logged(&["requested by 127.0.0.1:9", "with force"]);
    let rejected = fixture.on(Event::Loaded(Err("onrush.toml:2:1: why".to_owned())));
    rejected.assert_logged(&["reload by 127.0.0.1:9 ", "was rejected", "onrush.toml:2:1: why"]);
    assert!(format!("{rejected:?}").contains("Notify(Ready"), "{rejected:?}");
    assert_eq!(fixture.supervisor.rules().announce.interval, 2400, "it stays in force");
}

/// An alert tells from it that the file on the disk is not in force.
#[test]
fn the_last_reload_is_shown_with_its_result_and_time() {
    let mut fixture = Fixture::new(BASE);
    let shown = |fixture: &Fixture| {
        let LastReload { successful, time } = fixture.supervisor.in_force().last_reload;
        (successful, time)
    };
    assert_eq!(shown(&fixture), (true, 1_000), "the start");
    fixture.time.unix = 2_000;
    let rejected = fixture.on(Event::Loaded(Err("onrush.toml:2:1: why".to_owned())));
    assert!(rejected.0.iter().any(|effect| matches!(effect, Effect::Show)), "{rejected:?}");
    assert_eq!(shown(&fixture), (false, 2_000));
    fixture.time.unix = 3_000;
    fixture.reload(BASE);
    assert_eq!(shown(&fixture), (true, 3_000));
}

/// The file may have changed since the reading began. The service manager waits for the last one.
#[test]
fn reloads_requested_while_the_file_is_read_are_one_more_and_end_once() {
    let mut fixture = Fixture::new("");
    let mut seen = Vec::from([(); 3].map(|()| fixture.on(Event::Signal(Signal::Reload))));
    seen.extend([900, 600].map(|n| fixture.reload(&format!("announce.interval = {n}\n"))));
    let shown = seen.iter().map(|effects| {
        let count = |begin| {
            effects.0.iter().filter(|effect| format!("{effect:?}").starts_with(begin)).count()
        };
        ["Load", "Notify(Reloading", "Notify(Ready"].map(count)
    });
    assert!(shown.eq([[1, 1, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]), "{seen:?}");
    assert_eq!(fixture.supervisor.rules().announce.interval, 600);
}

/// A file that is read while it is written may lack most of its entries.
#[test]
fn a_list_that_lost_most_of_its_entries_needs_force() {
    let mut fixture = Fixture::new(BASE);
    for (entries, force, accepted) in [
        (300, false, true),
        (0, false, false),
        (150, false, true),
        // Half of a half is compared with the whole.
        (80, false, false),
        (0, true, true),
        // The next list is compared with the forced one.
        (20, false, true),
    ] {
        let reloaded = fixture.reload_list(entries, force);
        assert_eq!(reloaded.is_ok(), accepted, "{entries}: {reloaded:?}");
        if let Err(Problem { error, .. }) = reloaded {
            let numbers = [" 300 ".to_owned(), format!(" {entries} ")];
            assert!(numbers.iter().all(|part| error.contains(part)), "{error}");
            assert!(error.contains("reload --force"), "{error}");
        }
    }
    // An entry that was removed on request stays removed, and is named.
    let first = InfoHash([0; 20]);
    assert!(fixture.change_list(vec![ListChange::new(first, false)]));
    let notices = fixture.reload_list(20, false).unwrap().notices;
    let parts = ["1 entry of", &first.to_string(), "by 127.0.0.1:9 "];
    assert!(parts.iter().all(|part| notices[0].contains(part)), "{notices:?}");
    // Changes on request do not count.
    let added = (8..90).map(|n| ListChange::new(InfoHash([n; 20]), true));
    assert!(fixture.change_list(added.collect()));
    let accepted = [20, 9, 0, 10].map(|entries| fixture.reload_list(entries, false).is_ok());
    assert_eq!(accepted, [true, false, false, true]);
}

/// The entries about the level that pass the level at that moment, and the level in the end.
fn written_of_level(effects: &Effects) -> (Vec<&str>, LevelFilter) {
    let (mut written, mut level) = (Vec::new(), LevelFilter::Off);
    for effect in &effects.0 {
        match effect {
            Effect::SetLog(control) => level = control.level,
            Effect::Notice(notice) if notice.level <= level && notice.text.contains("level") => {
                written.push(notice.text.as_str());
            }
            _ => {}
        }
    }
    (written, level)
}

/// Each change is one entry, also one that turns the log off, and is shown as in force.
#[test]
fn the_level_of_the_log_lasts_until_the_next_reload() {
    use LevelFilter::{Debug, Error, Info, Off, Warn};
    let mut fixture = Fixture::new("");
    let shown = |fixture: &Fixture| {
        let InForce { settings, log_level_by, .. } = fixture.supervisor.in_force();
        (settings.log.level, settings.values["log.level"].clone(), log_level_by.is_some())
    };
    let mut former = Info;
    for (level, change) in [
        (Debug, "info -> debug"),
        (Warn, "debug -> warn"),
        (Error, "warn -> error"),
        (Off, "error -> off"),
    ] {
        let request = |caller, responder| Request::LogLevel { level, caller, responder };
        let (replied, effects) = fixture.request(request);
        assert_eq!(replied, Some(former));
        let entry =
            format!("log level: {change} until the next reload, by 127.0.0.1:9 (admin API)");
        assert_eq!(written_of_level(&effects), (vec![entry.as_str()], level));
        assert!(effects.0.iter().any(|effect| matches!(effect, Effect::Show)), "{effects:?}");
        let word = keys::level_word(level);
        assert_eq!(shown(&fixture), (level, word.into(), true));
        former = level;
    }
    let returned = fixture.reload("");
    returned.assert_logged(&["log.level: \"off\" -> \"info\""]);
    assert_eq!(shown(&fixture), (Info, "info".into(), false));
    // A file that turns the log off.
    let effects = fixture.reload("[log]\nlevel = \"off\"\n");
    let (written, level) = written_of_level(&effects);
    assert!(written.len() == 1 && written[0].contains("\"info\" -> \"off\""), "{written:?}");
    assert_eq!(level, Off);
}

#[test]
fn a_block_is_logged_replaced_and_ends_by_itself_beside_the_list() {
    let listed = "[access]\nblocked = [\"192.0.2.7\"]\n";
    let mut fixture = Fixture::new("");
    let mut block = |seconds, reason: &str| {
        let (prefix, reason) = ("198.51.100.0/24".to_owned(), reason.to_owned());
        let block = Box::new(BlockRequest { prefix, seconds, reason, force: false });
        let request = |caller, responder| Request::Block { block, caller, responder };
        let (update, effects) = fixture.request(request);
        (update.unwrap().unwrap(), effects)
    };
    let (_, effects) = block(Some(9), "");
    effects.assert_logged(&["198.51.100.0/24 blocked by 127.0.0.1:9", "for 9 s"]);
    let (update, effects) = block(Some(2), "a \u{202e}flood");
    assert_eq!(update.replaced.unwrap().seconds, Some(9));
    effects.assert_logged(&["for 2 s", r#""a \u{202e}flood""#, "before: for 9 s"]);
    fixture.on(Event::Signal(Signal::Reload));
    fixture.reload(listed);
    let blocks = |fixture: &Fixture| {
        let refused = fixture.supervisor.access().lists().refused();
        ["198.51.100.9", "192.0.2.7"].map(|ip| refused.contains_v4(ip.parse().unwrap()))
    };
    assert_eq!(blocks(&fixture), [true, true]);
    fixture.second(0);
    fixture.second(0).assert_logged(&["198.51.100.0/24 is no longer blocked"]);
    assert_eq!(blocks(&fixture), [false, true]);

    let (prefix, reason) = ("198.51.100.0/24".to_owned(), String::new());
    let block = Box::new(BlockRequest { prefix, seconds: None, reason, force: false });
    fixture.request(|caller, responder| Request::Block { block, caller, responder });
    let (_, effects) = fixture.request(|caller, responder| Request::Unblock {
        prefix: "198.51.100.0/24".to_owned(),
        caller,
        responder,
    });
    let unblocked = "198.51.100.0/24 unblocked by 127.0.0.1:9";
    effects.assert_logged(&[unblocked, "until it is unblocked"]);
    assert_eq!(blocks(&fixture), [false, true]);
}
