//! The table of keys: what may stand in a configuration file, in the order in which it is
//! printed. Whoever adds a key adds it here and to `Written`, and nowhere else.

use std::ops::RangeInclusive;

use onrush_swarm::shard::{MAX_PEER_LIFETIME, MAX_SWARMS};

use super::Written;
use super::value::Slot;

/// Workers at most, of all kinds together.
pub const MAX_WORKERS: u64 = 1024;

/// What `limits.peers` and `limits.idle_swarms` go up to: a single shard must be able to hold both,
/// every peer in a swarm of its own.
const MAX_PEERS: u64 = 4_000_000_000;
const MAX_IDLE_SWARMS: u64 = 200_000_000;
const _: () = assert!(MAX_PEERS + MAX_IDLE_SWARMS <= MAX_SWARMS);

/// A table of the file.
#[derive(Debug)]
pub struct Table {
    /// What stands in the brackets; empty for the keys above the first of them.
    pub name: &'static str,
    /// What it is about.
    pub doc: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// A key: all that is known of it.
pub struct Key {
    /// Its name in its table.
    pub name: &'static str,
    /// What its number counts; empty where that is plain.
    pub unit: &'static str,
    /// The least and the greatest number; for a list, of its entries.
    pub range: Option<RangeInclusive<u64>>,
    /// What is taken when it is absent.
    pub default: Standard,
    /// What it is for.
    pub doc: &'static str,
    /// What happens at the limit that it sets, or why its range ends where it does.
    pub limit: &'static str,
    pub(crate) field: fn(&mut Written) -> &mut dyn Slot,
}

impl Key {
    /// The key with its table: `announce.interval`.
    pub fn path(&self, table: &Table) -> String {
        match table.name {
            "" => self.name.to_owned(),
            table => format!("{table}.{}", self.name),
        }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.name)
    }
}

/// What is taken when a key is absent.
#[derive(Clone, Copy, Debug)]
pub enum Standard {
    /// This value, in TOML.
    Is(&'static str),
    /// No value of its own.
    Absent {
        /// What happens then.
        means: &'static str,
        /// A value that somebody may want, in TOML.
        example: &'static str,
    },
}

impl Standard {
    /// The last line of an error.
    pub(crate) fn help(&self) -> Option<String> {
        Some(match self {
            Self::Is(text) => format!("the default is {text}"),
            Self::Absent { means, example } => {
                format!("without this key: {means}; an example is {example}")
            }
        })
    }
}

/// Every key with its table.
pub fn all() -> impl Iterator<Item = (&'static Table, &'static Key)> {
    TABLES.iter().flat_map(|table| table.keys.iter().map(move |key| (table, key)))
}

/// Names that people bring along from other trackers, and what to write here.
pub(crate) const HINTS: &[(&str, &str)] = &[
    (
        "address",
        "addresses and ports are written as `listen = [\":6969\"]`, at the top of the file",
    ),
    ("allow", "write `mode = \"allow\"` and `info_hashes = [...]` or `file = \"...\"` in [access]"),
    ("bind", "addresses and ports are written as `listen = [\":6969\"]`, at the top of the file"),
    (
        "blacklist",
        "write `mode = \"deny\"` and `info_hashes = [...]` or `file = \"...\"` in [access]",
    ),
    ("deny", "write `mode = \"deny\"` and `info_hashes = [...]` in [access]"),
    ("log_level", "write `level = \"info\"` in [log]"),
    ("max_peers", "write `max_peers_v4` and `max_peers_v6` in [announce], or `peers` in [limits]"),
    ("max_response_peers", "write `max_peers_v4` and `max_peers_v6` in [announce]"),
    ("peer_announce_interval", "write `interval` in [announce]"),
    ("port", "addresses and ports are written as `listen = [\":6969\"]`, at the top of the file"),
    ("ports", "addresses and ports are written as `listen = [\":6969\"]`, at the top of the file"),
    ("socket_workers", "write `socket` in [workers]"),
    ("swarm_workers", "write `swarm` in [workers]"),
    ("threads", "write `total` in [workers]"),
    (
        "whitelist",
        "write `mode = \"allow\"` and `info_hashes = [...]` or `file = \"...\"` in [access]",
    ),
];

/// The file. The first table is the one without a name.
pub static TABLES: &[Table] = &[
    Table { name: "", doc: "", keys: TOP },
    Table {
        name: "workers",
        doc: "How many threads do what. Split: socket workers talk to the kernel, swarm workers own \
              the peers. Colocated: every worker does both, for its share of the swarms.",
        keys: WORKERS,
    },
    Table { name: "socket", doc: "What is asked of the kernel, for each socket.", keys: SOCKET },
    Table { name: "announce", doc: "What an announce gets.", keys: ANNOUNCE },
    Table { name: "scrape", doc: "What a scrape gets.", keys: SCRAPE },
    Table {
        name: "connection",
        doc: "Connection ids: the proof that a client's address is its own (BEP 15).",
        keys: CONNECTION,
    },
    Table { name: "access", doc: "Who and what is served.", keys: ACCESS },
    Table {
        name: "overload",
        doc: "What happens when there is more to do than the host can.",
        keys: OVERLOAD,
    },
    Table { name: "limits", doc: "What there may be at most.", keys: LIMITS },
    Table {
        name: "snapshot",
        doc: "The peers in a file of the state directory, from which the next start goes on.",
        keys: SNAPSHOT,
    },
    Table {
        name: "admin",
        doc: "Control and observation over HTTP, for people and programs of the operator: metrics, health, \
              statistics, the admin API. On a thread of its own, out of the workers' way.",
        keys: ADMIN,
    },
    Table {
        name: "export",
        doc: "The full scrape in a file: every swarm with its seeders, leechers and completed downloads.",
        keys: EXPORT,
    },
    Table { name: "log", doc: "What is written to standard error.", keys: LOG },
];

/// What most keys have in common; each entry says the rest.
const fn key(
    name: &'static str,
    default: Standard,
    field: fn(&mut Written) -> &mut dyn Slot,
) -> Key {
    Key { name, unit: "", range: None, default, doc: "", limit: "", field }
}

const TOP: &[Key] = &[
    Key {
        range: Some(1..=64),
        doc: "Where to listen. \":6969\" is port 6969 on every address, IPv4 and IPv6; a host \
              without IPv6 gets a warning and serves IPv4. An address that is named, like \
              \"192.0.2.1:6969\", \"[2001:db8::1]:6969\" or \"[::]:6969\", is required: without it \
              the tracker does not start. Flag: --listen.",
        limit: "Each worker with sockets opens one for each address.",
        ..key("listen", Standard::Is("[\":6969\"]"), |w| &mut w.listen)
    },
    Key {
        doc: "Where the key of connection ids is kept, so that ids stay good over a restart. Made \
              if missing. If it cannot be written, the key lives in memory and a warning says so. \
              Flag: --state-dir.",
        ..key(
            "state_dir",
            Standard::Absent {
                means: "$STATE_DIRECTORY (set by systemd), else $XDG_STATE_HOME/onrush, else \
                        $HOME/.local/state/onrush",
                example: "\"/var/lib/onrush\"",
            },
            |w| &mut w.state_dir,
        )
    },
    Key {
        doc: "The user to become before any socket is opened. Only root can change.",
        ..key(
            "user",
            Standard::Absent { means: "whoever started it", example: "\"onrush\"" },
            |w| &mut w.user,
        )
    },
    Key {
        doc: "The group to become with it.",
        ..key(
            "group",
            Standard::Absent { means: "the user's own group", example: "\"onrush\"" },
            |w| &mut w.group,
        )
    },
];

const WORKERS: &[Key] = &[
    Key {
        doc: "The layout. \"auto\" takes colocated below 14 workers, else split with a swarm \
              worker for every seven workers (docs/benchmarks/scaling-model.md). Flag: --placement.",
        ..key("placement", Standard::Is("\"auto\""), |w| &mut w.placement)
    },
    Key {
        unit: "workers",
        range: Some(1..=MAX_WORKERS),
        doc: "Workers of all kinds together. Flag: --workers.",
        limit: "More workers than vCPUs only get in each other's way.",
        ..key(
            "total",
            Standard::Absent {
                means: "`socket` and `swarm` together where they are given, else one for each \
                        vCPU that this process may use",
                example: "4",
            },
            |w| &mut w.workers_total,
        )
    },
    Key {
        unit: "workers",
        range: Some(1..=MAX_WORKERS - 1),
        doc: "Workers with sockets, when the placement is split.",
        ..key(
            "socket",
            Standard::Absent {
                means: "`total` without `swarm`, or what is left of one in seven",
                example: "3",
            },
            |w| &mut w.workers_socket,
        )
    },
    Key {
        unit: "workers",
        range: Some(1..=MAX_WORKERS - 1),
        doc: "Workers that own the peers, when the placement is split.",
        ..key(
            "swarm",
            Standard::Absent { means: "`total` without `socket`, or one in seven", example: "1" },
            |w| &mut w.workers_swarm,
        )
    },
    Key {
        range: Some(1..=MAX_WORKERS),
        doc: "Whether each worker stays on one vCPU. \"auto\" pins when every worker can have one of \
              its own and no CPU quota is set; \"on\" insists; both take one vCPU of every core \
              before second ones. A list names the vCPUs, those of socket workers first.",
        ..key("pin", Standard::Is("\"auto\""), |w| &mut w.pin)
    },
    Key {
        unit: "microseconds",
        range: Some(0..=1000),
        doc: "How long a worker that has nothing to do looks on before it sleeps. Waking a sleeper \
              costs the worker that rings it some microseconds; looking on costs the vCPU, and \
              shows as load when there is little. 0 sleeps at once.",
        limit: "More only heats the room.",
        ..key(
            "spin",
            Standard::Absent {
                means: "20 for 14 workers or more that are pinned and split, else 0",
                example: "20",
            },
            |w| &mut w.spin,
        )
    },
];

const SOCKET: &[Key] = &[
    Key {
        unit: "bytes",
        range: Some(0..=(1 << 30) - 1),
        doc: "Receive buffer to ask for (SO_RCVBUF); 0 leaves the system's default. The kernel cuts \
              it to net.core.rmem_max, which is warned of at start; not with CAP_NET_ADMIN, as root has.",
        limit: "When it is full the kernel drops datagrams, which is counted; clients ask again.",
        ..key("receive_buffer", Standard::Is("4_194_304"), |w| &mut w.receive_buffer)
    },
    Key {
        unit: "bytes",
        range: Some(0..=(1 << 30) - 1),
        doc: "Send buffer to ask for (SO_SNDBUF); 0 leaves the system's default. The kernel cuts it \
              to net.core.wmem_max, which is warned of at start; not with CAP_NET_ADMIN, as root has.",
        limit: "When it is full replies are dropped, which is counted; clients ask again.",
        ..key("send_buffer", Standard::Is("1_048_576"), |w| &mut w.send_buffer)
    },
    Key {
        unit: "datagrams",
        range: Some(1..=1024),
        doc: "Datagrams taken from a socket by one system call at most.",
        limit: "The rest waits for the next call. The kernel takes no more than 1024 (UIO_MAXIOV).",
        ..key("batch", Standard::Is("128"), |w| &mut w.batch)
    },
    Key {
        doc: "Whether the kernel hands an announce to the worker that owns its swarm (classic BPF \
              on the group of sockets). Only colocated workers have a use for it.",
        ..key("steering", Standard::Is("true"), |w| &mut w.steering)
    },
];

const ANNOUNCE: &[Key] = &[
    Key {
        unit: "seconds",
        range: Some(60..=43_200),
        doc: "How long a client is told to wait until its next announce. The load falls as this \
              grows, and lists grow older.",
        ..key("interval", Standard::Is("1800"), |w| &mut w.interval)
    },
    Key {
        unit: "percent",
        range: Some(0..=50),
        doc: "How far the interval strays in each reply, up and down, so that a swarm that came at \
              once does not come back at once.",
        ..key("interval_jitter_percent", Standard::Is("5"), |w| &mut w.interval_jitter_percent)
    },
    Key {
        unit: "peers",
        range: Some(0..=200),
        doc: "Peers for a client that leaves the number to the tracker (num_want below 0).",
        limit: "No reply has more than max_peers_v4 or max_peers_v6.",
        ..key("default_peers", Standard::Is("50"), |w| &mut w.default_peers)
    },
    Key {
        unit: "peers",
        range: Some(1..=200),
        doc: "Peers in a reply over IPv4 at most; who asks for more gets this many.",
        limit: "200 fill the 1232 bytes that pass everywhere without being fragmented.",
        ..key("max_peers_v4", Standard::Is("200"), |w| &mut w.max_peers_v4)
    },
    Key {
        unit: "peers",
        range: Some(1..=67),
        doc: "Peers in a reply over IPv6 at most; who asks for more gets this many.",
        limit: "67 fill the 1232 bytes that pass everywhere without being fragmented.",
        ..key("max_peers_v6", Standard::Is("67"), |w| &mut w.max_peers_v6)
    },
    Key {
        unit: "seconds",
        range: Some(60..=MAX_PEER_LIFETIME as u64),
        doc: "How long after its last announce a peer is forgotten. Has to exceed the interval and \
              its jitter, or peers vanish between two announces.",
        limit: "The stored age of a peer ends there.",
        ..key(
            "peer_lifetime",
            Standard::Absent { means: "twice the interval, 65536 at most", example: "3600" },
            |w| &mut w.peer_lifetime,
        )
    },
    Key {
        unit: "seconds",
        range: Some(0..=604_800),
        doc: "How long a swarm's count of completed downloads outlives its last peer.",
        limit: "See also limits.idle_swarms.",
        ..key("completed_retention", Standard::Is("86_400"), |w| &mut w.completed_retention)
    },
];

const SCRAPE: &[Key] = &[Key {
    unit: "info hashes",
    range: Some(1..=74),
    doc: "Info hashes answered in one scrape at most; of a longer one, the first.",
    limit: "74 are what BEP 15 lets into one datagram.",
    ..key("max_hashes", Standard::Is("74"), |w| &mut w.max_hashes)
}];

const CONNECTION: &[Key] = &[
    Key {
        unit: "seconds",
        range: Some(120..=3600),
        doc: "How long an id is good at least; it may be good for twice as long. BEP 15 says two \
              minutes; some clients reuse ids for longer.",
        limit: "An id that is too old is met with silence, and the client connects again.",
        ..key("validity", Standard::Is("120"), |w| &mut w.validity)
    },
    Key {
        doc: "The file with the key of the ids. Hosts with the same file accept each other's ids.",
        ..key(
            "key_file",
            Standard::Absent {
                means: "connection.key in the state directory",
                example: "\"/etc/onrush/connection.key\"",
            },
            |w| &mut w.key_file,
        )
    },
];

const ACCESS: &[Key] = &[
    Key {
        doc: "What `info_hashes` means: nothing (\"open\": every swarm is served), the only ones \
              that are served (\"allow\"), or the ones that are not (\"deny\"). An announce for any \
              other gets an error reply, a scrape gets zeros.",
        ..key("mode", Standard::Is("\"open\""), |w| &mut w.access_mode)
    },
    Key {
        range: Some(0..=100_000),
        doc: "The list for \"allow\" or \"deny\".",
        ..key("info_hashes", Standard::Is("[]"), |w| &mut w.info_hashes)
    },
    Key {
        doc: "A file with more of the list: an info hash a line, 40 hexadecimal digits or 32 base32 \
              characters; what follows a # is a comment. Read at start and again with SIGHUP, as the \
              user that the tracker has become. A line that is none refuses the whole file.",
        limit: "limits.list_entries says how long it may be.",
        ..key(
            "file",
            Standard::Absent {
                means: "the list is what stands in info_hashes",
                example: "\"/etc/onrush/denied.txt\"",
            },
            |w| &mut w.access_file,
        )
    },
    Key {
        range: Some(0..=100_000),
        doc: "Sources that are not served: addresses, blocks like \"192.0.2.0/24\" or \
              \"2001:db8::/32\", and ranges like \"192.0.2.1-192.0.2.9\". They are met with silence.",
        ..key("blocked", Standard::Is("[]"), |w| &mut w.blocked)
    },
    Key {
        doc: "A file with more of them, one a line; what follows a # or a ; is a comment. Read at start \
              and again with SIGHUP. A line that is none refuses the whole file.",
        limit: "limits.list_entries says how long it may be.",
        ..key(
            "blocked_file",
            Standard::Absent {
                means: "what stands in blocked is not served",
                example: "\"/etc/onrush/blocked.txt\"",
            },
            |w| &mut w.blocked_file,
        )
    },
    Key {
        doc: "Whether to refuse clients whose address cannot be one on the internet (private, \
              loopback, multicast, reserved). Right for a public host; wrong for a laptop or a LAN.",
        ..key("refuse_bogons", Standard::Is("false"), |w| &mut w.refuse_bogons)
    },
];

const OVERLOAD: &[Key] = &[
    Key {
        unit: "percent",
        range: Some(0..=100),
        doc: "The share of datagrams that the kernel may drop. Beyond it, step by step, clients are told \
              to come back later, and connects of sources that have not shown a good id since then are \
              answered in a part of the time only, so that the announces of those who have one get through.",
        limit: "0 never minds. When hardly any is dropped, it goes back step by step.",
        ..key("drop_share", Standard::Is("5"), |w| &mut w.drop_share)
    },
    Key {
        unit: "seconds",
        range: Some(60..=43_200),
        doc: "The interval under the hardest pressure, which takes eight steps. Peers are then remembered \
              for longer in the same proportion.",
        ..key(
            "longest_interval",
            Standard::Absent { means: "twice announce.interval, 43200 at most", example: "3600" },
            |w| &mut w.longest_interval,
        )
    },
];

const LIMITS: &[Key] = &[
    Key {
        unit: "peers",
        range: Some(1_000..=MAX_PEERS),
        doc: "Peers in all. A peer takes 8 bytes over IPv4 and 20 over IPv6, but most swarms have one \
              or two, so that the swarm's own entry counts: reckon with 64 bytes for a peer.",
        limit: "Beyond, who is new gets peers and counts but is not stored; this is counted.",
        ..key(
            "peers",
            Standard::Absent {
                means: "20000000, or as many as half of this host's memory holds if that is fewer",
                example: "20_000_000",
            },
            |w| &mut w.peers,
        )
    },
    Key {
        unit: "swarms",
        range: Some(0..=MAX_IDLE_SWARMS),
        doc: "Swarms without peers that are kept for their count of completed downloads, about 100 \
              bytes each.",
        limit: "Beyond, the oldest leave before their time.",
        ..key("idle_swarms", Standard::Is("1_000_000"), |w| &mut w.idle_swarms)
    },
    Key {
        unit: "batches",
        range: Some(2..=65_536),
        doc: "Batches of requests that a worker with sockets may have under way to the owners of the \
              swarms: an equal share for each of these, two at least. A batch is made when it is \
              first needed and may take 64 KiB and more.",
        limit: "When a share is used up, requests for its swarms are dropped, which is counted; clients \
                ask again.",
        ..key(
            "batches_in_flight",
            Standard::Absent {
                means: "8 for each worker that owns swarms, 32 at least",
                example: "96",
            },
            |w| &mut w.batches_in_flight,
        )
    },
    Key {
        unit: "requests",
        range: Some(1..=4096),
        doc: "Requests in a batch at most.",
        limit: "A full batch is sent on, and another is opened.",
        ..key("batch_requests", Standard::Is("128"), |w| &mut w.batch_requests)
    },
    Key {
        unit: "scrapes",
        range: Some(1..=65_536),
        doc: "Scrapes that a worker with sockets may have under way, about 1 KB each.",
        limit: "Beyond, scrapes are dropped, which is counted; clients ask again.",
        ..key("scrapes_in_flight", Standard::Is("1024"), |w| &mut w.scrapes_in_flight)
    },
    Key {
        unit: "lines",
        range: Some(0..=6000),
        doc: "Warnings of one kind in a minute.",
        limit: "Beyond, they are only counted, and their number is logged.",
        ..key("warnings_per_minute", Standard::Is("10"), |w| &mut w.warnings_per_minute)
    },
    Key {
        unit: "entries",
        range: Some(1..=500_000_000),
        doc: "Entries that the file of a list may have.",
        limit: "An info hash takes 23 to 24 bytes, and 20 more while it is read; while a list is read again there \
                are two. A longer file is refused.",
        ..key("list_entries", Standard::Is("20_000_000"), |w| &mut w.list_entries)
    },
];

const SNAPSHOT: &[Key] = &[
    Key {
        doc: "Whether peers are written to onrush.snapshot in the state directory, and read from there at \
              start. One that was damaged is set aside, and a warning says so.",
        ..key("enabled", Standard::Is("true"), |w| &mut w.snapshot_enabled)
    },
    Key {
        unit: "seconds",
        range: Some(0..=86_400),
        doc: "How often they are written while the tracker runs, for the case that it ends without being \
              asked to; 0 for only at the end. It takes some 0.2 us of a worker's time for each swarm, in small steps \
              between requests, and some 16 to 24 bytes of disk for each IPv4 peer.",
        ..key("every", Standard::Is("600"), |w| &mut w.snapshot_every)
    },
];

const EXPORT: &[Key] = &[
    Key {
        doc: "The file, written beside and renamed. Its name says what is in it: .txt for a line per swarm (info \
              hash in hexadecimal, seeders, leechers, completed), .bencode or .benc for what a full scrape over \
              HTTP gives (BEP 48), and .gz behind that for gzip.",
        limit: "While it is written every swarm takes 32 bytes.",
        ..key(
            "file",
            Standard::Absent {
                means: "nothing is exported",
                example: "\"/var/lib/onrush/scrape.txt.gz\"",
            },
            |w| &mut w.export_file,
        )
    },
    Key {
        unit: "seconds",
        range: Some(0..=604_800),
        doc: "How often; 0 for only when it is asked for (SIGUSR1, `onrush ctl export`).",
        ..key("every", Standard::Is("3600"), |w| &mut w.export_every)
    },
];

const ADMIN: &[Key] = &[
    Key {
        doc: "Where to listen (TCP). An address that is named is required: without it the tracker does not \
              start. Beyond loopback put a proxy with TLS in front: what is said here is not encrypted. \
              \"off\" switches it off. Flag: --admin.",
        ..key(
            "listen",
            Standard::Absent {
                means: "127.0.0.1:6970; where that is taken, a warning, and no HTTP",
                example: "\"127.0.0.1:6970\"",
            },
            |w| &mut w.admin_listen,
        )
    },
    Key {
        doc: "The file with the token of the admin API (/api/v1): 16 characters or more in one line, for no \
              other eyes (chmod 600). Who sends it as `Authorization: Bearer TOKEN` may reload, change lists \
              and look at swarms. Read at start and again with SIGHUP, as the user that the tracker has \
              become. `head -c24 /dev/urandom | base64` makes one.",
        ..key(
            "token_file",
            Standard::Absent {
                means: "the admin API refuses everybody",
                example: "\"/etc/onrush/admin.token\"",
            },
            |w| &mut w.admin_token_file,
        )
    },
    Key {
        doc: "Whether anybody who can reach this address may read the list of info hashes in force, at \
              /lists: some operators publish what they deny.",
        ..key("publish_lists", Standard::Is("false"), |w| &mut w.admin_publish_lists)
    },
    Key {
        unit: "connections",
        range: Some(1..=4096),
        doc: "Connections at once.",
        limit: "Who comes then is told to try again (503) and hung up on.",
        ..key("connections", Standard::Is("64"), |w| &mut w.admin_connections)
    },
    Key {
        unit: "bytes",
        range: Some(1_024..=64 << 20),
        doc: "The body of a request at most.",
        limit: "A longer one is refused (413).",
        ..key("max_body", Standard::Is("1_048_576"), |w| &mut w.admin_max_body)
    },
    Key {
        unit: "seconds",
        range: Some(1..=300),
        doc: "How long a client may take to send a request, an answer to be made, and a client to read it.",
        limit: "Then the connection is closed.",
        ..key("timeout", Standard::Is("10"), |w| &mut w.admin_timeout)
    },
];

const LOG: &[Key] = &[
    Key {
        doc: "The least grave lines that are written. \"debug\" and \"trace\" write lines for single \
              packets: not under load. Flag: --log-level.",
        ..key("level", Standard::Is("\"info\""), |w| &mut w.log_level)
    },
    Key {
        unit: "seconds",
        range: Some(0..=86_400),
        doc: "How often totals are written, at info; 0 for never.",
        ..key("totals_every", Standard::Is("60"), |w| &mut w.totals_every)
    },
    Key {
        doc: "Whether clients' addresses may be written, at debug and trace.",
        ..key("addresses", Standard::Is("false"), |w| &mut w.log_addresses)
    },
];
