//! The admin server of a start.

use super::StartError;
use crate::process::switch_user::drop_capabilities;
use crate::upgrade::successor;
use onrush_config::Settings;
use onrush_config::settings::Listen;
use onrush_control::server::{self, Bound};
use onrush_control::{AdminError, Server, TOKEN_KEY, Token};

/// Binds the admin address. If the predecessor may have it, it is bound once that has exited.
pub(super) fn bind_or_wait(settings: &Settings, listen: Listen) -> Result<Bound, AdminError> {
    match server::bind(listen) {
        Err(AdminError::Taken(address)) => {
            // Without a predecessor the start fails at the handoff, with a better message.
            let held =
                successor::inspect(settings).is_none_or(|handoff| handoff.may_hold_admin(address));
            if held { Ok(server::bind_later(address)) } else { Err(AdminError::Taken(address)) }
        }
        bound => bound,
    }
}

/// Starts the admin server, as the user that reloads its token later.
pub(super) fn start(
    settings: &Settings,
    bind: impl FnOnce(Listen) -> Result<Bound, AdminError>,
    warnings: &mut Vec<String>,
) -> Result<Server, StartError> {
    let token_file = settings.admin.token_file.as_deref();
    let token = Token::load(TOKEN_KEY, token_file)?;
    warnings.extend(Token::warning(token_file));
    let bound = match settings.admin.listen.map(|listen| (listen.optional, bind(listen))) {
        None => None,
        Some((true, Err(error))) => {
            warnings.push(format!("no metrics, health and admin API over HTTP: {error}"));
            None
        }
        Some((_, bound)) => Some(bound?),
    };
    // An address that the predecessor has is bound by the thread of the server, later.
    let binds_later = bound.as_ref().is_some_and(Bound::is_later);
    let begin: fn() = match settings.user.is_some() && !binds_later {
        true => drop_capabilities,
        false => || (),
    };
    Ok(Server::start(bound, &settings.admin, token, begin)?)
}
