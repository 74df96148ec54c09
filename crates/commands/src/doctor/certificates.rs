//! Checks of the certificates of HTTPS.

use std::time::{SystemTime, UNIX_EPOCH};

use onrush_config::Refused;
use onrush_config::settings::HttpSettings;
use onrush_web::tls::certificates::{Certificates, Warning};

use super::{Facts, Finding};

const NAME: &str = "certificates";
/// The check as the user that matters.
const AS_TRACKER: &str =
    "run `onrush --check-config` as root to check that the tracker's user can read them";

/// Whether they can be used, and what should be done about them. A start reports the same.
pub(super) fn checks(facts: &Facts) -> Vec<Finding> {
    let HttpSettings { certificates: files, tls_listen, .. } = &facts.settings.http;
    if facts.quick || files.is_empty() {
        return Vec::new();
    }
    let certificates = match Certificates::load(files) {
        Ok(certificates) => certificates,
        Err(error) => {
            let Refused { what, remedy, .. } = Refused::new(NAME, &error);
            let finding = match error.is_unreadable {
                // The tracker may run as another user.
                true => Finding::note(NAME, format!("{what} (as this user)")).fix(AS_TRACKER),
                // They matter only if systemd passes a socket.
                false if tls_listen.is_empty() => Finding::note(NAME, what),
                false => Finding::problem(NAME, what),
            };
            return vec![remedy.into_iter().fold(finding, Finding::keep)];
        }
    };
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let warnings = certificates.warnings(unix);
    if warnings.is_empty() {
        let first = certificates.list().iter().min_by_key(|certificate| certificate.expiry);
        let date = first.map_or("-", |certificate| &certificate.expiry_date);
        let what = format!("the certificates are valid until {date}; {AS_TRACKER}");
        return vec![Finding::ok(NAME, what)];
    }
    let finding = |warning: Warning| match warning.is_refused_by_clients {
        true => Finding::problem(NAME, warning.text),
        false => Finding::note(NAME, warning.text),
    };
    warnings.into_iter().map(finding).collect()
}
