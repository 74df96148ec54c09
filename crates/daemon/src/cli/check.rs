//! `--check-config`: the settings on this host, or their problems.

use onrush_commands::exit::{Exit, GOOD, print};
use onrush_config::settings::Access;
use onrush_config::{Flags, Host, Settings, regular_file};
use onrush_text::numbers::grouped;

use crate::host_check::{self, Findings};

/// Checks the settings against this host, as the user that the service runs as, and prints them.
pub fn run(flags: &Flags, settings: &Settings, mut notices: Vec<String>, host: &Host) -> Exit {
    // Before the change of user: the file may be root's alone.
    let places = flags.places();
    let mut findings = host_check::check(settings, flags.config.as_deref());
    if !findings.refused.is_empty() {
        let problems = places.problems(std::mem::take(&mut findings.refused));
        return Exit::wrong(format!("{problems}{}\n", findings.users));
    }
    notices.append(&mut findings.notes);
    // As the user who reloads it.
    if let Some(file) = &flags.config
        && let Err(error) = regular_file::open(file)
    {
        notices.push(format!(
            "{}: {error}: a reload cannot read the configuration again: {}",
            file.display(),
            findings.users
        ));
    }
    print(&report(flags, settings, &findings, &notices, host), GOOD)
}

fn report(
    flags: &Flags,
    settings: &Settings,
    findings: &Findings,
    notices: &[String],
    host: &Host,
) -> String {
    let what = match &flags.config {
        Some(path) => format!("{} is valid.", path.display()),
        None => "No --config: the defaults.".to_owned(),
    };
    let over: Vec<_> = flags.environment.names().collect();
    let over =
        if over.is_empty() { String::new() } else { format!(" Over it: {}.", over.join(", ")) };
    let mut report = format!("{what}{over} Settings on this host:\n\n{}", settings.summary(host));
    let lists = findings.lists.as_ref();
    if let Some(lists) = lists {
        if settings.access != Access::Open {
            let listed = grouped(lists.access.len());
            report.push_str(&format!("  list      {listed} info hashes\n"));
        }
        if !lists.blocked.is_empty() {
            let ranges = grouped(lists.blocked.len());
            report.push_str(&format!("  blocked   {ranges} address ranges\n"));
        }
    }
    report.push_str(&format!("  user      {}\n", findings.users));
    let notices = notices.iter().map(String::as_str);
    for notice in notices.chain(lists.and_then(|lists| lists.access.warning())) {
        report.push_str(&format!("\nNote: {notice}\n"));
    }
    report
}
