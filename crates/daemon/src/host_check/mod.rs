//! Checks a configuration against this host: the user, addresses, files and directories that it
//! names. `--check-config` uses the functions of a start and a reload, so it finds the same
//! refusals, and the same features that they disable.
//!
//! | module | contents |
//! |---|---|
//! | [`refusals`] | errors as refused values of keys |
//! | `addresses` | whether addresses can be bound, or are those of the running tracker |

mod addresses;
pub mod refusals;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{Uid, User};
use onrush_config::settings::HttpSettings;
use onrush_config::{Refused, Settings};
use onrush_control::{TOKEN_KEY, Token};
use onrush_store::atomic_file::check_directory;
use onrush_store::lists::journal::Journal;
use onrush_store::state::State;
use onrush_tracker::access::Lists;
use onrush_tracker::clock::Clock;
use onrush_web::tls::certificates::Certificates;

use crate::access;
use crate::process::switch_user;
use crate::process::user::{self, UserError};
use crate::xdp::load;
use onrush_config::service_unit;
use onrush_config::state_dirs::{are_of_service, state_dirs};

/// The findings of a check.
pub struct Findings {
    /// Values that the tracker cannot use.
    pub refused: Vec<Refused>,
    /// Features that a start would disable, and facts that cannot be checked here.
    pub notes: Vec<String>,
    /// The lists, unless one of them is refused.
    pub lists: Option<Lists>,
    /// The user for whom files were tried, and the user that the service runs as.
    pub users: String,
}

/// The user that the service runs as, where it is not the current one.
struct ServiceUser {
    name: String,
    id: u32,
    /// The source of this knowledge: `user`, or the owner of a file.
    source: String,
}

/// Tries everything on this host that the settings name, as the user that the service runs as: root
/// becomes that user, so the process must exit afterwards. Nothing is left behind. `config` is the
/// file of the settings.
pub fn check(settings: &Settings, config: Option<&Path>) -> Findings {
    let (mut refused, mut notes) = (Vec::new(), Vec::new());
    let service = service_user(settings, config, Path::new("/")).unwrap_or_else(|error| {
        refused.push(refusals::user(&error));
        None
    });
    // As the user of the check. Root sees who holds an address, and a start by root creates the
    // state directory before it changes the user.
    let id = service.as_ref().map_or_else(|| Uid::effective().as_raw(), |service| service.id);
    let directories = state_dirs(settings, config);
    addresses::check(settings, &directories, id, &mut refused, &mut notes);
    let creation = State::check_creation(settings).map(|refused| refused.as_user(&user::current()));
    if let Some(service) = service.as_ref().filter(|_| user::is_root())
        && let Err(error) =
            switch_user::become_user(&service.name, settings.group.as_deref(), None, &[])
    {
        refused.push(refusals::user(&error));
    }
    let user = user::current();
    let unusable = State::check_use(settings).map(|refused| refused.as_user(&user));
    for found in creation.into_iter().chain(unusable) {
        // The tracker does without a directory that was not asked for.
        match settings.values.contains_key("state_dir") {
            true => refused.push(found),
            false => notes.push(found.to_string()),
        }
    }
    refused.extend(State::check(settings).into_iter().map(|refused| refused.as_user(&user)));
    refused.extend(export(settings));
    let token_file = settings.admin.token_file.as_deref();
    match Token::load(TOKEN_KEY, token_file) {
        Ok(_) => notes.extend(Token::warning(token_file)),
        Err(error) => refused.push(refusals::token(&error)),
    }
    certificates(&settings.http, &mut refused, &mut notes);
    let (without_program, of_program) = load::check(settings);
    notes.extend(of_program);
    match settings.xdp.required {
        true => refused.extend(without_program),
        false => notes.extend(without_program.iter().map(Refused::to_string)),
    }
    let lists = onrush_store::lists::load(settings, &mut || {});
    let mut lists = lists.map_err(|error| refused.push(refusals::list(&error, settings))).ok();
    let mut journals = directories.iter().map(|directory| Journal::new(directory));
    if let Some(lists) = &mut lists
        && let Some(journal) = journals.find(|journal| journal.length() > 0)
    {
        let replayed = journal.replay((*lists.access).clone());
        notes.extend(access::overrides(&replayed).map(|overrides| overrides.to_string()));
        notes.extend(replayed.warning);
        lists.access = replayed.list.into();
    }
    Findings { refused, notes, lists, users: users(&user, service.as_ref()) }
}

/// Reads every configured certificate. Without an address for HTTPS they matter only if systemd
/// passes a socket.
fn certificates(http: &HttpSettings, refused: &mut Vec<Refused>, notes: &mut Vec<String>) {
    if http.certificates.is_empty() {
        return;
    }
    let unix = Clock::start().now().unix;
    match Certificates::load(&http.certificates).map_err(|error| refusals::certificate(&error)) {
        Ok(read) => notes.extend(read.warnings(unix).into_iter().map(|warning| warning.text)),
        Err(error) if http.tls_listen.is_empty() => notes.push(error.to_string()),
        Err(error) => refused.push(error),
    }
}

/// The problem with the file of exports, if it cannot be written.
pub fn export(settings: &Settings) -> Option<Refused> {
    let path = settings.export.file.as_deref()?;
    let directory = path.parent()?;
    let error: io::Error = match path.is_dir() {
        true => io::ErrorKind::IsADirectory.into(),
        false => check_directory(directory).err()?,
    };
    let path = path.display();
    let error = format!(
        "exports to {path} will fail: {error}\n  create {} for the tracker's user, and under \
         systemd add it to ReadWritePaths= of the unit",
        directory.display()
    );
    Some(Refused::new("export.file", &error).as_user(&user::current()))
}

/// The user that the configuration names, else the owner of the state directory: a tracker of
/// another user refuses it. Before the first start of the service it is the user of the unit below
/// `root`. `None` if that is the current user.
fn service_user(
    settings: &Settings,
    config: Option<&Path>,
    root: &Path,
) -> Result<Option<ServiceUser>, UserError> {
    let directory = settings.state_dir.as_deref();
    let owned = directory.and_then(|path| Some((path, fs::metadata(path).ok()?.uid())));
    let found = match (&settings.user, owned) {
        (Some(name), _) => {
            let (account, _) = user::find(name, settings.group.as_deref())?;
            Some((account, "`user`".to_owned()))
        }
        (None, Some((directory, owner))) => {
            let account = User::from_uid(Uid::from_raw(owner)).ok().flatten();
            let source = format!("the owner of {}", directory.display());
            account.filter(|_| owner != 0).map(|account| (account, source))
        }
        (None, None) if are_of_service(settings, config) => service_unit::service_user(root)
            .and_then(|name| user::find(&name, None).ok())
            .map(|(account, _)| (account, "User= of onrush.service".to_owned())),
        (None, None) => None,
    };
    Ok(found.filter(|(account, _)| account.uid != Uid::effective()).map(|(account, source)| {
        ServiceUser { name: account.name, id: account.uid.as_raw(), source }
    }))
}

fn users(checked: &str, service: Option<&ServiceUser>) -> String {
    match service {
        None => format!("checked as user {checked}"),
        Some(ServiceUser { name, source, .. }) if name == checked => {
            format!("checked as user {checked}, as which the service runs ({source})")
        }
        Some(ServiceUser { name, source, .. }) => format!(
            "checked as user {checked}, but the service runs as {name} ({source}): check as root \
             to see what {name} may do"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its state directory does not exist yet.
    #[test]
    fn before_the_first_start_the_user_is_that_of_the_unit() {
        let root = tempfile::tempdir().unwrap();
        let units = root.path().join("usr/lib/systemd/system");
        fs::create_dir_all(&units).unwrap();
        fs::write(units.join("onrush.service"), "[Service]\nUser=nobody\n").unwrap();
        let settings = Settings::for_test("");
        let user = |config: &str| {
            let found = service_user(&settings, Some(Path::new(config)), root.path()).unwrap();
            found.map(|service| (service.name, service.source))
        };
        let (name, source) = user("/etc/onrush/onrush.toml").unwrap();
        assert_eq!((name.as_str(), source.as_str()), ("nobody", "User= of onrush.service"));
        assert_eq!(user("/srv/second.toml"), None);
    }
}
