//! How `onrush ctl` and `onrush top` reach a tracker: at its control socket, else over HTTP.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use nix::unistd::{Uid, User};

use onrush_config::{Host, Settings};
use onrush_control::client::{Client, ClientError};
use onrush_control::{TOKEN_KEY, Token, TokenError};

use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::lock_holder::LockHolder;
use onrush_config::state_dirs::state_dirs;

/// The admin side of a tracker.
#[derive(Clone, Debug, Args)]
pub struct Admin {
    /// The URL of its admin side [default: its socket control.sock, else admin.listen of the
    /// configuration, else http://127.0.0.1:6970]
    #[arg(long, value_name = "URL", global = true)]
    pub url: Option<String>,

    /// Read state directory, address and token file from the tracker's configuration [default:
    /// $ONRUSH_CONFIG, else /etc/onrush/onrush.toml if it exists]
    #[arg(short = 'c', long = "config", id = "admin_config", value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

impl Admin {
    /// Reaches the tracker with the token in `token_file`, else with that of the configuration, and
    /// calls `run`. `fail` is the end after an error. Errors of the configuration are a warning
    /// behind both; where it does not say which tracker is meant, nothing is changed.
    pub fn reach(
        &self,
        only_reads: bool,
        token_file: Option<&Path>,
        timeout: Duration,
        run: impl FnOnce(Client) -> Result<Exit, ClientError>,
        fail: impl FnOnce(ClientError) -> Exit,
    ) -> Exit {
        let token = match Token::load("--token-file", token_file) {
            Ok(token) => token,
            Err(error) => return fail(usage(&error)),
        };
        if let (Some(url), None) = (&self.url, &self.config) {
            // A token of this host's tracker is not for another one.
            return Client::new(url, token, timeout).and_then(run).unwrap_or_else(fail);
        }
        let configuration = match Configuration::read(self.config.clone(), &Host::environment()) {
            Ok(configuration) => configuration,
            Err(problems) => return fail(ClientError::Usage(problems.to_string())),
        };
        let mut warning = configuration.warning.clone();
        let is_ambiguous = self.url.is_none() && configuration.is_ambiguous();
        let client = match is_ambiguous && !only_reads {
            true => Err(ClientError::Local(AMBIGUOUS.to_owned())),
            false => self.client(&configuration, token, timeout),
        };
        if let (true, Ok(client)) = (is_ambiguous, &client) {
            warning
                .push_str(&format!("onrush: warning: this is the tracker at {}\n", client.url()));
        }
        let result = client.and_then(run);
        if let (Err(ClientError::Refused(text)), Some(file)) = (&result, &configuration.file)
            && !is_ambiguous
            && text.contains(&format!("{}:", file.display()))
        {
            // The tracker has read the file, too, and has named the same errors.
            warning.clear();
        }
        let result = result.map_err(|error| match &self.url {
            Some(_) => error,
            None => explained(error, &configuration),
        });
        let mut exit = result.unwrap_or_else(fail);
        exit.text.push_str(&warning);
        exit
    }

    /// A client of the tracker with this configuration.
    fn client(
        &self,
        configuration: &Configuration,
        token: Option<Token>,
        timeout: Duration,
    ) -> Result<Client, ClientError> {
        let settings = &configuration.settings;
        if let Some(url) = &self.url {
            return over_http(url, settings, token, None, timeout);
        }
        let sockets = sockets(settings, configuration.deciding_file());
        let mut denied = None;
        for socket in &sockets {
            match Client::at_socket(socket, token.clone(), timeout) {
                Ok(client) => return Ok(client),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => denied = Some(socket),
                Err(_) => {}
            }
        }
        let cause = match denied {
            Some(socket) => as_other_user(socket),
            None => no_socket(&sockets, configuration),
        };
        match settings.admin.listen {
            // At the default address there may be the tracker of another state directory.
            Some(listen) if denied.is_some() || !is_only_at_its_socket(settings) => {
                let url = format!("http://{}", reachable(listen.address));
                over_http(&url, settings, token, Some(cause), timeout)
            }
            _ => Err(ClientError::Unreachable { url: joined(&sockets), cause }),
        }
    }
}

/// Why nothing is changed. The warning behind it names the file and its error.
const AMBIGUOUS: &str = "nothing is changed: the configuration cannot be read as far as its \
                         state_dir, so that the tracker found may be another one\n  mend the file, \
                         or name the tracker (--url)";

/// A client of `url` with this token, else with that of the settings. The remedies where the token
/// is missing are the `hint` and a token file that this user may not read.
fn over_http(
    url: &str,
    settings: &Settings,
    token: Option<Token>,
    hint: Option<String>,
    timeout: Duration,
) -> Result<Client, ClientError> {
    let token_file = settings.admin.token_file.as_deref().filter(|_| token.is_none());
    let (configured, unreadable) = match Token::load(TOKEN_KEY, token_file) {
        // Not every request needs it.
        Err(TokenError::Read { path, cause, .. })
            if cause.kind() == ErrorKind::PermissionDenied =>
        {
            (None, Some(as_other_user(&path)))
        }
        loaded => (loaded.map_err(|error| usage(&error))?, None),
    };
    let hint = hint.into_iter().chain(unreadable).reduce(|one, next| format!("{one}\n  {next}"));
    Ok(Client::new(url, token.or(configured), timeout)?.with_hint(hint))
}

fn usage(error: &TokenError) -> ClientError {
    ClientError::Usage(format!("onrush: {error}\n"))
}

/// Where the control socket may be.
fn sockets(settings: &Settings, config: Option<&Path>) -> Vec<PathBuf> {
    let at = |directory| Settings { state_dir: Some(directory), ..settings.clone() };
    let directories = state_dirs(settings, config).into_iter();
    directories.filter_map(|directory| at(directory).control_socket()).collect()
}

/// Whether the file names the state directory of a tracker, and no address of its admin side.
fn is_only_at_its_socket(settings: &Settings) -> bool {
    let named = |key| settings.values.contains_key(key);
    named("state_dir") && !named("admin.listen")
}

fn joined(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(" or ")
}

/// Which sockets were looked for, and by which file.
fn no_socket(sockets: &[PathBuf], configuration: &Configuration) -> String {
    let file = configuration.file.as_deref().unwrap_or(Path::new("the defaults"));
    format!(
        "no socket at {} (by {}); is this the tracker's configuration? (--config FILE)",
        joined(sockets),
        file.display()
    )
}

/// The error of a tracker that does not answer, with what the lock of its state directory says.
fn explained(error: ClientError, configuration: &Configuration) -> ClientError {
    let what = match &error {
        ClientError::Unreachable { url, cause } => format!("{url} cannot be reached: {cause}"),
        ClientError::Late { .. } => error.to_string(),
        _ => return error,
    };
    let directories = state_dirs(&configuration.settings, configuration.deciding_file());
    let holders: Vec<_> = directories.iter().map(|path| (path, LockHolder::of(path))).collect();
    let holder = holders.iter().find(|(_, holder)| matches!(holder, LockHolder::Process(..)));
    ClientError::Local(match holder {
        Some((directory, LockHolder::Process(process, state))) => format!(
            "{what}\n  process {process} holds {}/lock and does not answer (state {state})",
            directory.display()
        ),
        None if !holders.is_empty()
            && holders.iter().all(|(_, holder)| *holder == LockHolder::None) =>
        {
            let locks: Vec<_> = directories.iter().map(|path| path.join("lock")).collect();
            format!(
                "{what}\n  not running: nothing holds {}; see `systemctl status onrush`",
                joined(&locks)
            )
        }
        _ => return error,
    })
}

/// The remedy for a file or socket that this user may not use.
fn as_other_user(path: &Path) -> String {
    let owner = |path: &Path| Some(std::fs::metadata(path).ok()?.uid());
    // The path itself may be hidden by its directory.
    let owner = owner(path).or_else(|| owner(path.parent()?)).filter(|owner| *owner != 0);
    let user = owner.and_then(|owner| User::from_uid(Uid::from_raw(owner)).ok().flatten());
    let sudo = user.map_or_else(String::new, |user| format!(", or with sudo -u {}", user.name));
    let denied = format!("this user may not use {}", path.display());
    match Uid::effective().is_root() {
        true => denied,
        false => format!("{denied}: run the command as root{sudo}"),
    }
}

/// The address for a local client: an unspecified address becomes loopback.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_config::Flags;

    #[test]
    fn the_socket_of_the_service_is_that_of_the_packaged_file_only() {
        let of = |text: &str, config: Option<&str>| {
            let host = Host { home: Some("/home/op".into()), ..Host::default() };
            let (settings, _) =
                Settings::parse("test.toml", text, &Flags::default(), &host).unwrap();
            let paths = sockets(&settings, config.map(Path::new));
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        let (user, service) =
            ("/home/op/.local/state/onrush/control.sock", "/var/lib/onrush/control.sock");
        let packaged = Some("/etc/onrush/onrush.toml");
        assert_eq!(of("", None), [user, service]);
        assert_eq!(of("", packaged), [user, service]);
        assert_eq!(of("", Some("/etc/onrush/second.toml")), [user]);
        let named = "state_dir = \"/srv/state\"\n";
        for config in [None, packaged, Some("/srv/onrush.toml")] {
            assert_eq!(of(named, config), ["/srv/state/control.sock"]);
        }
    }

    #[test]
    fn the_remedy_for_a_denied_socket_names_a_user_other_than_root() {
        let hint = as_other_user(Path::new("/proc/1/none/control.sock"));
        assert!(!hint.contains("sudo -u root"), "{hint}");
        assert_ne!(hint.contains("as root"), Uid::effective().is_root(), "{hint}");
    }
}
