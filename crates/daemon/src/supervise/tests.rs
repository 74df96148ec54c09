//! Each key that a reload changes has an effect, by its owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use onrush_config::{Flags, Host, keys, keys::owner};
use onrush_control::request::Responder;
use onrush_store::lists;
use onrush_tracker::access::Lists;
use onrush_tracker::access::overlay::ListChange;
use onrush_tracker::metrics::Summary;
use reload::Loaded;
use std::sync::mpsc::channel;

/// A supervisor of two members, whose effects and clock the test has.
struct Fixture {
    supervisor: Supervisor,
    members: Arc<[Member]>,
    time: Time,
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (settings, now) = (parse(text, &directory), Instant::now());
        let lists = lists::load(&settings, &mut || {}).unwrap();
        let role = onrush_tracker::member::Role::Both;
        let members: Arc<[Member]> =
            [0, 1].map(|nth| Member::new(role, nth, Arc::default())).into();
        let owners = Owners {
            access: AccessControl::new(lists, 2),
            overload: Overload::new(&settings, now),
            upgrade: Upgrade::new(true, now),
        };
        let source = ConfigSource { flags: Flags::default(), host: Host::default() };
        let settings = (Arc::new(settings), source);
        let supervisor =
            Supervisor::new(owners, settings, members.clone(), Service::default(), now);
        Self { supervisor, members, time: Time { now, unix: 1_000 }, directory }
    }

    fn tick(&mut self) -> Effects {
        let summary = Summary::of(self.members.iter().map(|member| &*member.metrics));
        let tick = Tick { summary, reasons_known: true, is_steering: false };
        self.on(Event::Tick(Box::new(tick)))
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
        let loaded = Loaded { settings, notices: Vec::new(), lists, replayed: None, token };
        self.on(Event::Loaded(Ok(Box::new(loaded))))
    }

    /// Whether a list may have 10 entries more.
    fn has_room(&mut self) -> bool {
        let changes = (0..10).map(|n| ListChange::new(onrush_proto::InfoHash([n; 20]), true));
        let (to, result) = channel();
        let responder = Responder::new(move |result| to.send(result).unwrap());
        let caller = Caller::Address("127.0.0.1:9".parse().unwrap());
        let changes = changes.collect();
        let request = Request::ChangeList { changes, caller, responder };
        let effects = self.on(Event::Request(request));
        for effect in effects.0 {
            if let Effect::Reply(reply) = effect {
                reply.send();
            }
        }
        result.recv().unwrap().is_ok()
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
    Settings::for_test(&text.replace("DIR", path.to_str().unwrap()))
}

/// The state of an owner that operators and clients can see after a reload with these effects.
fn visible(owner: &str, fixture: &mut Fixture, effects: &Effects) -> String {
    let find = |is: fn(&Effect) -> bool| format!("{:?}", effects.0.iter().find(|it| is(it)));
    match owner {
        owner::RULES => format!("{:?}", fixture.supervisor.rules()),
        owner::ACCESS => {
            let lists = format!("{:?}", fixture.supervisor.access().lists());
            format!("{lists} {}", fixture.has_room())
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
            let control = find(|effect| matches!(effect, Effect::SetLog(_)));
            let lines = (0..30).map(|_| {
                let effects = fixture.second(0);
                let is_info = |it: &&Effect| match it {
                    Effect::Notice(notice) => notice.level == log::Level::Info,
                    _ => false,
                };
                effects.0.iter().filter(is_info).count()
            });
            format!("{control} {}", lines.sum::<usize>())
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
const VALUES: [(&str, &str); 30] = [
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

/// A deny list, so that lists may change; no swarm of it is named.
const BASE: &str = "[access]\nmode = \"deny\"\n";

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
        let after = |text: &str| {
            let mut fixture = Fixture::new(BASE);
            let effects = fixture.reload(text);
            visible(owners[key], &mut fixture, &effects)
        };
        assert_ne!(after(BASE), after(&text), "{key} of {}", owners[key]);
    }
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

/// The tracker stops as at any other time if the outcome stays unknown.
#[test]
fn a_stop_waits_five_seconds_while_the_sockets_change_hands() {
    let mut fixture = Fixture::new("");
    let commitment = crossbeam_channel::bounded(1).0;
    let ready = HandoffEvent::Ready { process: 7, version: "1".to_owned(), commitment };
    fixture.on(Event::Handoff(ready));
    let mut seconds = vec![fixture.on(Event::Signal(Signal::Stop))];
    seconds.extend((1..=5).map(|_| fixture.second(0)));
    let stops = |effects: Effects| {
        let last = effects.0.iter().rev().take(3).map(|it| format!("{it:?}")).collect::<String>();
        last.starts_with("End(Stopped)StoreCommitment") && last.ends_with("Notify(Stopping)")
    };
    assert!(seconds.into_iter().map(stops).eq([false, false, false, false, false, true]));
}
