//! How `onrush ctl` and `onrush top` reach a tracker: at its control socket, else over HTTP.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use nix::unistd::{Uid, User};

use onrush_config::config_file::config_file;
use onrush_config::{Flags, Host, Settings};
use onrush_control::client::{Client, ClientError};
use onrush_control::{TOKEN_KEY, Token, TokenError};

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
    /// A client with the token in `token_file`, else in that of the configuration.
    ///
    /// # Errors
    /// When the URL, the configuration or the token file is wrong.
    pub fn client(
        &self,
        token_file: Option<&Path>,
        timeout: Duration,
    ) -> Result<Client, ClientError> {
        let token = Token::load("--token-file", token_file).map_err(|error| usage(&error))?;
        if let (Some(url), None) = (&self.url, &self.config) {
            // A token of this host's tracker is not for another one.
            return Client::new(url, token, timeout);
        }
        let config = config_file(self.config.clone());
        let (settings, wrong) = self.settings(config.as_deref())?;
        let mut denied = None;
        let sockets = sockets(&settings, config.as_deref());
        for socket in sockets.iter().filter(|_| self.url.is_none()) {
            match Client::at_socket(socket, token.clone(), timeout) {
                Ok(client) => return Ok(client),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => denied = Some(socket),
                Err(_) => {}
            }
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let url = match (&self.url, settings.admin.listen) {
            (Some(url), _) => url.clone(),
            // At the default address there may be the tracker of another state directory.
            (None, Some(listen)) if denied.is_some() || !is_only_at_its_socket(&settings) => {
                format!("http://{}", reachable(listen.address))
            }
            (None, _) => return Err(absent(&sockets, denied)),
        };
        over_http(&url, &settings, token, denied, timeout)
    }

    /// The settings of the configuration. A tracker whose next configuration is wrong can still be
    /// found at its default place: then they are the defaults, with the error.
    fn settings(
        &self,
        config: Option<&Path>,
    ) -> Result<(Settings, Option<ClientError>), ClientError> {
        let load = |config: Option<&Path>| {
            let flags = Flags::of_file(config.map(Path::to_owned));
            let loaded = Settings::load(&flags, &Host::environment());
            loaded.map_err(|problems| ClientError::Usage(problems.to_string()))
        };
        match load(config) {
            Ok((settings, _)) => Ok((settings, None)),
            Err(wrong) if self.config.is_some() => Err(wrong),
            Err(wrong) => Ok((load(None)?.0, Some(wrong))),
        }
    }
}

/// A client of `url` with this token, else with that of the settings. A socket that is `denied` to
/// this user is the remedy where the token is missing.
fn over_http(
    url: &str,
    settings: &Settings,
    token: Option<Token>,
    denied: Option<&PathBuf>,
    timeout: Duration,
) -> Result<Client, ClientError> {
    let token_file = settings.admin.token_file.as_deref().filter(|_| token.is_none());
    let (configured, unreadable) = match Token::load(TOKEN_KEY, token_file) {
        // Not every request needs it.
        Err(TokenError::Read { path, cause, .. })
            if cause.kind() == ErrorKind::PermissionDenied =>
        {
            (None, Some(path))
        }
        loaded => (loaded.map_err(|error| usage(&error))?, None),
    };
    let client = Client::new(url, token.or(configured), timeout)?;
    Ok(match denied.or(unreadable.as_ref()) {
        Some(path) => client.with_hint(as_other_user(path)),
        None => client,
    })
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

/// The error of a tracker that is not found at its socket, and is not to be looked for elsewhere.
fn absent(sockets: &[PathBuf], denied: Option<&PathBuf>) -> ClientError {
    let paths: Vec<_> = sockets.iter().map(|path| path.display().to_string()).collect();
    let cause =
        denied.map_or_else(|| "no tracker listens there".to_owned(), |path| as_other_user(path));
    ClientError::Unreachable { url: paths.join(" or "), cause }
}

/// The remedy for a file or socket that this user may not use.
fn as_other_user(path: &Path) -> String {
    let owner = |path: &Path| Some(std::fs::metadata(path).ok()?.uid());
    // The path itself may be hidden by its directory.
    let owner = owner(path).or_else(|| owner(path.parent()?)).filter(|owner| *owner != 0);
    let user = owner.and_then(|owner| User::from_uid(Uid::from_raw(owner)).ok().flatten());
    let sudo = user.map_or_else(String::new, |user| format!(", or with sudo -u {}", user.name));
    format!("this user may not use {}: run the command as root{sudo}", path.display())
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
        assert!(hint.contains("as root") && !hint.contains("sudo -u root"), "{hint}");
    }
}
