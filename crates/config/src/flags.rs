//! The flags that override keys of the configuration file.

use std::io;
use std::path::PathBuf;

use clap::builder::{
    NonEmptyStringValueParser, PossibleValuesParser, StringValueParser, TypedValueParser,
};
use onrush_toml_keys::{Document, parses};

use crate::environment::Environment;
use crate::keys::{LEVELS, LOG_FORMATS, MAX_WORKERS, PLACEMENTS, XDP_INTERFACES};
use crate::values::{ListenAt, is_admin_at, is_interface};

/// The flags. Each overrides its key in the file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Read this configuration file (TOML; see --print-config) [default: $ONRUSH_CONFIG, else
    /// /etc/onrush/onrush.toml if it exists]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Listen at this address; can be repeated
    ///
    /// `:6969` or `6969` is this port on all addresses of both families; `192.0.2.1:6969` and
    /// `[2001:db8::1]:6969` are single addresses. Replaces the whole list of the file.
    #[arg(long, value_name = "ADDR", value_parser = text(parses::<ListenAt>))]
    pub listen: Vec<String>,

    /// Serve announces over HTTP at this address, too; can be repeated [default: only over UDP]
    ///
    /// Written as for --listen; the port may be the same. Replaces the whole list of the file.
    #[arg(long, value_name = "ADDR", value_parser = text(parses::<ListenAt>))]
    pub http: Vec<String>,

    /// Serve announces over HTTPS at this address, too; can be repeated [default: none]
    ///
    /// Written as for --listen. It needs `http.certificates` and `http.keys` of the file. Replaces
    /// the whole list of the file.
    #[arg(long, value_name = "ADDR", value_parser = text(parses::<ListenAt>))]
    pub https: Vec<String>,

    /// Answer connects and drop invalid requests in the driver of this network interface by an XDP
    /// program; can be repeated [default: none]
    ///
    /// Replaces the whole list of the file. docs/XDP.md says what it needs.
    #[arg(long, value_name = "IFACE", value_parser = text(is_interface))]
    pub xdp: Vec<String>,

    /// Number of workers of all kinds [default: one per usable vCPU]
    #[arg(long, value_name = "N", value_parser = workers())]
    pub workers: Option<usize>,

    /// Placement of sockets and swarms on workers [default: auto]
    ///
    /// split: socket workers and swarm workers, for large hosts. colocated: each worker does both.
    /// auto: by the number of workers.
    #[arg(long, value_parser = PossibleValuesParser::new(PLACEMENTS.iter().copied()))]
    pub placement: Option<String>,

    /// Directory for persistent state [default: that of systemd or of the user]
    ///
    /// A relative path starts at the current directory.
    #[arg(long, value_name = "DIR", value_parser = directory())]
    pub state_dir: Option<String>,

    /// Address of the admin side (metrics, health, API), or `off` [default: 127.0.0.1:6970]
    #[arg(long, value_name = "ADDR", value_parser = text(is_admin_at))]
    pub admin: Option<String>,

    /// Lowest level that is logged [default: info]
    #[arg(long, value_name = "LEVEL",
          value_parser = PossibleValuesParser::new(LEVELS.iter().copied()))]
    pub log_level: Option<String>,

    /// Format of log entries; the journal of systemd gets neither [default: text]
    #[arg(long, value_name = "FORMAT",
          value_parser = PossibleValuesParser::new(LOG_FORMATS.iter().copied()))]
    pub log_format: Option<String>,

    /// The variables between the file and the flags.
    #[arg(skip = Environment::of_process())]
    pub environment: Environment,
}

impl Flags {
    /// No flags but the file, over which the variables of this process are.
    pub fn of_file(config: Option<PathBuf>) -> Self {
        Self { config, environment: Environment::of_process(), ..Self::default() }
    }

    /// Replaces values of the file by those of the environment, and these by the flags' own.
    pub(crate) fn apply(&self, document: &mut Document) {
        self.environment.apply(document);
        let list = |entries: &[String]| (!entries.is_empty()).then(|| entries.join(","));
        let [listen, http, https, xdp] =
            [&self.listen, &self.http, &self.https, &self.xdp].map(|it| list(it));
        let workers = self.workers.map(|number| number.to_string());
        for (flag, key, value) in [
            ("--listen", "listen", &listen),
            ("--http", "http.listen", &http),
            ("--https", "http.tls_listen", &https),
            ("--xdp", XDP_INTERFACES, &xdp),
            ("--workers", "workers.total", &workers),
            ("--placement", "workers.placement", &self.placement),
            ("--state-dir", "state_dir", &self.state_dir),
            ("--admin", "admin.listen", &self.admin),
            ("--log-level", "log.level", &self.log_level),
            ("--log-format", "log.format", &self.log_format),
        ] {
            if let Some(value) = value {
                document.set_plain(flag, key, value);
            }
        }
    }
}

/// A string that `check` accepts.
fn text(check: fn(&str) -> Result<(), String>) -> impl TypedValueParser<Value = String> {
    StringValueParser::new().try_map(move |text| check(&text).map(|()| text))
}

/// An absolute path, so that it does not depend on later changes of the current directory.
fn directory() -> impl TypedValueParser<Value = String> {
    NonEmptyStringValueParser::new().try_map(|text| {
        let path = std::path::absolute(text)?.into_os_string();
        path.into_string().map_err(|_| io::Error::other("the path is not UTF-8"))
    })
}

fn workers() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u64).range(1..=MAX_WORKERS as u64).map(|number| number as usize)
}
