//! The flags that override keys of the configuration file: the few things that people change on the spot.

use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};

use crate::file::keys::MAX_WORKERS;
use crate::file::{AdminAt, Config, Field, Item, Level, ListenAt, Origin, Problems, Shape, Words};
use crate::settings::{Host, Notice, Settings};

/// The flags. Each overrides its key in the file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Read this configuration file (TOML; see --print-config)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Listen here; may be given several times
    ///
    /// `:6969` or `6969` is this port on every address of both families; `192.0.2.1:6969` and
    /// `[2001:db8::1]:6969` are this address alone. Replaces the whole list of the file.
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<ListenAt>,

    /// Workers of all kinds together [default: one for each usable vCPU]
    #[arg(long, value_name = "N", value_parser = workers())]
    pub workers: Option<usize>,

    /// How the work is laid out over workers [default: auto]
    ///
    /// split: socket workers and swarm workers, for big hosts. colocated: every worker does both.
    /// auto: by the number of workers.
    #[arg(long, value_name = "SHAPE", value_parser = words::<Shape>())]
    pub placement: Option<Shape>,

    /// Keep the key of connection ids here [default: systemd's or the user's state directory]
    ///
    /// A relative path starts at the current directory.
    #[arg(long, value_name = "DIR", value_parser = directory())]
    pub state_dir: Option<PathBuf>,

    /// Serve metrics, health and the admin API here over HTTP, or `off` [default: 127.0.0.1:6970]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<AdminAt>,

    /// Write lines of this level and graver ones [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = words::<Level>())]
    pub log_level: Option<Level>,
}

impl Flags {
    /// Reads the file that is named, if one is, and settles what it and the flags mean on this host.
    ///
    /// # Errors
    /// Whatever is wrong with them, all of it.
    pub fn settings(&self, host: &Host) -> Result<(Settings, Vec<Notice>), Problems> {
        let config = match &self.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        Settings::resolve(config, self, host)
    }

    /// Replaces what the file says by what the flags say. Returns what is replaced although
    /// nobody named it.
    pub(crate) fn overlay(&self, config: &mut Config) -> Vec<Notice> {
        let written = &mut config.written;
        if !self.listen.is_empty() {
            let item = |value: &ListenAt| Item { value: *value, origin: Origin::Flag("--listen") };
            written.listen = Field::flag(self.listen.iter().map(item).collect(), "--listen");
        }
        if let Some(directory) = &self.state_dir {
            written.state_dir = Field::flag(Some(directory.clone()), "--state-dir");
        }
        if let Some(listen) = self.admin {
            written.admin_listen = Field::flag(Some(listen), "--admin");
        }
        if let Some(level) = self.log_level {
            written.log_level = Field::flag(level, "--log-level");
        }
        self.overlay_workers(config)
    }

    /// A flag about workers as a whole makes the file's numbers of each kind moot.
    fn overlay_workers(&self, config: &mut Config) -> Vec<Notice> {
        let written = &mut config.written;
        let by_kind = (written.workers_socket.value, written.workers_swarm.value);
        let has_kinds = by_kind != (None, None);
        let mut moot = None;
        if let Some(shape) = self.placement {
            moot = (has_kinds && shape != Shape::Split).then_some("--placement");
            written.placement = Field::flag(shape, "--placement");
            if let ((Some(socket), Some(swarm)), Some(_), None) =
                (by_kind, moot, written.workers_total.value)
            {
                written.workers_total.value = Some(socket + swarm);
            }
        }
        if let Some(workers) = self.workers {
            written.workers_total = Field::flag(Some(workers), "--workers");
            moot = has_kinds.then_some("--workers").or(moot);
        }
        let Some(flag) = moot else { return Vec::new() };
        written.workers_socket = Field::default();
        written.workers_swarm = Field::default();
        vec![Notice::new(format!(
            "{flag} replaces workers.socket and workers.swarm of {}",
            config.source.name()
        ))]
    }
}

/// The directory as it is meant from here on, wherever the process may go.
fn directory() -> impl TypedValueParser<Value = PathBuf> {
    NonEmptyStringValueParser::new().try_map(std::path::absolute)
}

fn workers() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u64).range(1..=MAX_WORKERS).map(|number| number as usize)
}

fn words<T: Words + Send + Sync>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::WORDS.iter().map(|(word, _)| *word))
        .map(|word| T::of_word(&word).expect("clap takes no other words"))
}
