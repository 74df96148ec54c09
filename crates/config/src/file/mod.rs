//! The configuration as written: what a file and the command line say, key by key, with the place
//! where each was said. What it means on this host is [`crate::settings`]' question.
//!
//! One table ([`keys::TABLES`]) says which keys there are: type, unit, range, default and text.
//! Reading, its error messages, the suggestions in them and the printed defaults all follow it.
//!
//! | room | what is in it |
//! |---|---|
//! | [`keys`] | the table of keys |
//! | `read` | a TOML document, key by key, into [`Config`] |
//! | `value` | which texts are good for which type |
//! | `listen` | the ways to write an address to listen on |
//! | `admin_at` | the ways to write where HTTP listens |
//! | `suggest` | what somebody may have meant by an unknown key |
//! | `source` | lines and columns of a file |
//! | `problem` | what is wrong, where, and what would be right |
//! | `print` | the defaults as a file with comments |

pub mod keys;

mod admin_at;
mod listen;
mod print;
mod problem;
mod read;
mod source;
mod suggest;
mod value;

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use onrush_proto::InfoHash;

use onrush_tracker::access::blocks::AddressBlock;

pub use admin_at::{AdminAt, InvalidAdminAt};
pub use listen::{InvalidListen, ListenAt};
pub use print::print_config;
pub use problem::{Problem, Problems};
pub use value::{AccessMode, Level, Pin, Shape, Words};

pub(crate) use problem::Findings;
use source::Source;

/// Bytes of a configuration file at most. A list of 100,000 info hashes takes about 5 MB.
pub const MAX_FILE_LEN: u64 = 16 << 20;

/// A configuration as written. It may be wrong: its problems are kept until
/// [`Settings::resolve`](crate::settings::Settings::resolve) has found the rest of them.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) source: Source,
    pub(crate) findings: Findings,
    pub(crate) written: Written,
}

impl Config {
    /// Reads a TOML text; `name` stands for it in messages.
    pub fn parse(name: &str, text: &str) -> Self {
        let mut config = Self { source: Source::new(name, text), ..Self::default() };
        read::document(&mut config);
        config
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is longer than [`MAX_FILE_LEN`] or is not UTF-8.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let name = path.display().to_string();
        let whole = |what: String| Problems::one(Problem::in_file(&name, what));
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE_LEN + 1).read_to_end(&mut bytes))
            .map_err(|error| whole(format!("the file cannot be read: {error}")))?;
        if bytes.len() as u64 > MAX_FILE_LEN {
            return Err(whole(format!("the file is longer than {MAX_FILE_LEN} bytes")));
        }
        match str::from_utf8(&bytes) {
            Ok(text) => Ok(Self::parse(&name, text)),
            Err(error) => {
                let start = error.valid_up_to();
                let source = Source::new(&name, &String::from_utf8_lossy(&bytes));
                let what = format!("byte {:#04x} is not UTF-8, as TOML must be", bytes[start]);
                Err(Problems::one(Problem::at(source.place(start..start + 1), "", what, None)))
            }
        }
    }
}

impl Default for Config {
    /// What an empty file says.
    fn default() -> Self {
        let mut written = Written::default();
        read::defaults(&mut written);
        Self { source: Source::new("", ""), findings: Findings::default(), written }
    }
}

/// The value of every key and where it comes from. Its own `Default` is blank; the defaults that
/// count are in the table of keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) listen: Field<Vec<Item<ListenAt>>>,
    pub(crate) state_dir: Field<Option<PathBuf>>,
    pub(crate) user: Field<Option<String>>,
    pub(crate) group: Field<Option<String>>,
    pub(crate) placement: Field<Shape>,
    pub(crate) workers_total: Field<Option<usize>>,
    pub(crate) workers_socket: Field<Option<usize>>,
    pub(crate) workers_swarm: Field<Option<usize>>,
    pub(crate) pin: Field<Pin>,
    pub(crate) spin: Field<Option<u32>>,
    pub(crate) receive_buffer: Field<usize>,
    pub(crate) send_buffer: Field<usize>,
    pub(crate) batch: Field<usize>,
    pub(crate) steering: Field<bool>,
    pub(crate) interval: Field<u32>,
    pub(crate) interval_jitter_percent: Field<u32>,
    pub(crate) default_peers: Field<u16>,
    pub(crate) max_peers_v4: Field<u16>,
    pub(crate) max_peers_v6: Field<u16>,
    pub(crate) peer_lifetime: Field<Option<u32>>,
    pub(crate) completed_retention: Field<u32>,
    pub(crate) max_hashes: Field<usize>,
    pub(crate) validity: Field<u32>,
    pub(crate) key_file: Field<Option<PathBuf>>,
    pub(crate) drop_share: Field<u32>,
    pub(crate) longest_interval: Field<Option<u32>>,
    pub(crate) peers: Field<Option<u64>>,
    pub(crate) idle_swarms: Field<u64>,
    pub(crate) batches_in_flight: Field<Option<usize>>,
    pub(crate) batch_requests: Field<usize>,
    pub(crate) scrapes_in_flight: Field<usize>,
    pub(crate) warnings_per_minute: Field<u32>,
    pub(crate) list_entries: Field<usize>,
    pub(crate) access_mode: Field<AccessMode>,
    pub(crate) info_hashes: Field<Vec<Item<InfoHash>>>,
    pub(crate) access_file: Field<Option<PathBuf>>,
    pub(crate) blocked: Field<Vec<Item<AddressBlock>>>,
    pub(crate) blocked_file: Field<Option<PathBuf>>,
    pub(crate) refuse_bogons: Field<bool>,
    pub(crate) snapshot_enabled: Field<bool>,
    pub(crate) snapshot_every: Field<u32>,
    pub(crate) export_file: Field<Option<PathBuf>>,
    pub(crate) export_every: Field<u32>,
    pub(crate) admin_listen: Field<Option<AdminAt>>,
    pub(crate) admin_token_file: Field<Option<PathBuf>>,
    pub(crate) admin_publish_lists: Field<bool>,
    pub(crate) admin_connections: Field<usize>,
    pub(crate) admin_max_body: Field<usize>,
    pub(crate) admin_timeout: Field<u32>,
    pub(crate) log_level: Field<Level>,
    pub(crate) totals_every: Field<u32>,
    pub(crate) log_addresses: Field<bool>,
}

/// A value and where it comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Field<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Field<T> {
    /// A value given by a flag.
    pub(crate) fn flag(value: T, flag: &'static str) -> Self {
        Self { value, origin: Origin::Flag(flag) }
    }
}

/// An entry of a list.
#[derive(Clone, Debug)]
pub(crate) struct Item<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody gave it.
    #[default]
    Default,
    /// These bytes of the file.
    File(Range<usize>),
    /// This flag of the command line.
    Flag(&'static str),
    /// The file gave something that is wrong and already reported: the value is the default, and
    /// says nothing about what was meant.
    Broken,
}

impl Origin {
    /// Whether somebody gave a value that can be relied on.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self, Self::File(_) | Self::Flag(_))
    }
}
