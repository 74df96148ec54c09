//! Checks of the upgrade to WebSocket (RFC 6455, section 4).

use super::member::upgrade;
use super::{Check, Web};
use crate::check::{CheckResult, Group, Needs, demand, differs, prefer};
use crate::message::shown;
use crate::tcp::target::field;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Handshake, "upgrade", Needs::Nothing, plain)
        .expects("an upgrade gets status 101 with the accept key for its key")
        .source("RFC 6455, section 4.2.2"),
    Check::new(Group::Handshake, "upgrade-version", Needs::Nothing, version)
        .expects("an upgrade to another version than 13 gets status 426, which names version 13")
        .source("RFC 6455, section 4.4"),
    Check::new(Group::Handshake, "upgrade-without-key", Needs::Nothing, no_key)
        .expects("an upgrade without a key gets status 400")
        .source("RFC 6455, section 4.2.1"),
];

fn plain(web: &Web<'_>) -> CheckResult {
    web.member().map(drop)
}

/// Passes where an upgrade is refused with this status and, if given, version.
fn refused(web: &Web<'_>, request: &str, status: u16, version: Option<&str>) -> CheckResult {
    let mut connection = web.target.connect()?;
    connection.send(request.as_bytes());
    let open = "RFC 9110, section 15.5: other statuses of 400 to 499 are refusals, too";
    let Some((head, fields)) = connection.head()? else {
        return differs(open, "the connection is closed without a reply");
    };
    let seen = || shown(fields.as_bytes());
    demand(head.status != 101, seen)?;
    let names_version = field(&fields, "sec-websocket-version") == version;
    prefer(head.status == status && (version.is_none() || names_version), open, seen)
}

fn version(web: &Web<'_>) -> CheckResult {
    let request = upgrade(web.target).0.replace("Version: 13", "Version: 12");
    refused(web, &request, 426, Some("13"))
}

fn no_key(web: &Web<'_>) -> CheckResult {
    let (request, key) = upgrade(web.target);
    refused(web, &request.replace(&format!("Sec-WebSocket-Key: {key}\r\n"), ""), 400, None)
}
