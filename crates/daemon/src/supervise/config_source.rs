//! Reads the configuration, with the files that it names, again while the tracker runs.

use std::io;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::Sender;

use crate::certificate_files::{self, LoadedCertificates};
use crate::host_check::{self, refusals};
use crate::process::service_notify;
use onrush_config::reload::Changes;
use onrush_config::{Flags, Host, Refused, Settings};
use onrush_control::in_force::differences;
use onrush_control::view::Compare;
use onrush_control::{TOKEN_KEY, Token};
use onrush_store::lists::journal::{Journal, ReplayedList};
use onrush_tracker::access::Lists;

/// A configuration read without problems.
#[derive(Debug)]
pub struct LoadedConfig {
    /// Its settings on this host.
    pub settings: Settings,
    /// Notices for the operator.
    pub notices: Vec<String>,
    /// Its lists, with the changes of the journal.
    pub lists: Lists,
    /// The journal, and the list with its changes, not merged; `None` without a journal.
    pub replayed: Option<ReplayedList>,
    /// The token of the admin API.
    pub token: Option<Token>,
    /// The certificates of HTTPS, where it runs.
    pub certificates: Option<LoadedCertificates>,
}

/// The source of the configuration: the command line on this host.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    /// The flags of the command line, with the place of the file.
    pub flags: Flags,
    /// The host.
    pub host: Host,
}

impl ConfigSource {
    /// Reads the configuration on a thread of its own, since lists of millions of entries take
    /// seconds. `running` are the settings in force.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn load(
        &self,
        running: Arc<Settings>,
        journal: Option<&Journal>,
        to: Sender<Result<LoadedConfig, String>>,
    ) -> io::Result<()> {
        let (source, journal) = (self.clone(), journal.cloned());
        let load = move || {
            // The receiver lives as long as the process.
            let _ = to.send(source.read(&running, journal.as_ref()));
        };
        thread::Builder::new().name("reload".into()).spawn(load).map(drop)
    }

    /// Compares the configuration, read again, with settings.
    pub(crate) fn comparison(&self) -> Compare {
        let Self { flags, host } = self.clone();
        Box::new(move |running| differences(running, Settings::load(&flags, &host)?.0, &host))
    }

    /// The message for a value that the host refuses, with its place.
    pub(super) fn problem(&self, refused: Refused) -> String {
        self.flags.places().problems([refused]).to_string()
    }

    /// The certificates that are in force after a reload: with the running addresses, which stay.
    pub(super) fn certificates(
        &self,
        running: &Settings,
        read: &Settings,
    ) -> Result<Option<LoadedCertificates>, String> {
        let changes = Changes::new(running, read.clone(), &self.host)
            .map_err(|problems| problems.to_string())?;
        certificate_files::load(&changes.settings.http)
            .map_err(|error| self.problem(refusals::certificate(&error)))
    }

    fn read(&self, running: &Settings, journal: Option<&Journal>) -> Result<LoadedConfig, String> {
        let (settings, mut notices) =
            Settings::load(&self.flags, &self.host).map_err(|problems| problems.to_string())?;
        let token = Token::load(TOKEN_KEY, settings.admin.token_file.as_deref())
            .map_err(|error| self.problem(refusals::token(&error)))?;
        let certificates = self.certificates(running, &settings)?;
        let mut lists = onrush_store::lists::load(&settings, &mut service_notify::progress())
            .map_err(|error| self.problem(refusals::list(&error, &settings)))?;
        notices.extend(host_check::export(&settings).map(|refused| refused.to_string()));
        let replayed = journal.map(|journal| journal.replay((*lists.access).clone()));
        if let Some(replayed) = &replayed {
            if replayed.unreadable {
                return Err(replayed.warning.clone().unwrap_or_default());
            }
            notices.extend(replayed.warning.clone());
            lists.access = Arc::new(replayed.compacted());
        }
        Ok(LoadedConfig { settings, notices, lists, replayed, token, certificates })
    }
}
