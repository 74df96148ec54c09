//! Findings as text, as JSON, and as one line of the log.

use std::fmt::Write;

use onrush_text::numbers::plural;
use serde_json::json;

use super::{Finding, Severity};
use crate::format::escaped;

/// Findings as text: problems first, then notes, then, if `all` are wanted, the rest.
pub(super) fn text(findings: &[Finding], unreadable: &[String], all: bool) -> String {
    let mut findings: Vec<_> = findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let mut text = String::new();
    for finding in findings.iter().filter(|it| all || it.severity != Severity::Ok) {
        let word = match finding.severity {
            Severity::Problem => "problem",
            Severity::Note => "note",
            Severity::Ok => "ok",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{word:<8} {:<12} {}", finding.name, escaped(&finding.what));
        for (label, line) in [("fix:", &finding.fix), ("permanent:", &finding.keep)] {
            if let Some(line) = line {
                let _ = writeln!(text, "         {label:<12} {}", escaped(line));
            }
        }
    }
    for what in unreadable {
        let _ = writeln!(text, "unreadable {}", escaped(what));
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let problems = plural(count(Severity::Problem), "problem");
    let notes = plural(count(Severity::Note), "note");
    let gap = if text.is_empty() { "" } else { "\n" };
    let rest = if all { "" } else { " (--all shows them)" };
    let _ = writeln!(text, "{gap}{problems}, {notes}, {} ok{rest}", count(Severity::Ok));
    text
}

/// Findings as JSON.
pub(super) fn json(findings: &[Finding], unreadable: &[String]) -> String {
    let problems = names(findings).len();
    let report = json!({ "problems": problems, "findings": findings, "unreadable": unreadable });
    escaped(&format!("{report:#}\n")).into_owned()
}

/// A line of the log that names the problems; `None` without any.
pub(super) fn line(findings: &[Finding]) -> Option<String> {
    let names = names(findings);
    (!names.is_empty()).then(|| {
        let problems = plural(names.len(), "problem");
        format!("{problems} of this host ({}): run `onrush doctor`", names.join(", "))
    })
}

fn names(findings: &[Finding]) -> Vec<&'static str> {
    let problems = findings.iter().filter(|finding| finding.severity == Severity::Problem);
    problems.map(|finding| finding.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        vec![
            Finding::ok("clock", "it is tsc"),
            Finding::problem("rmem_max", "it is small").sysctl("net.core.rmem_max", 7),
            Finding::note("swap", "there is some"),
        ]
    }

    #[test]
    fn problems_come_first() {
        let plain = text(&findings(), &["/proc/irq: denied".into()], true);
        let expected = "problem  rmem_max     it is small\n         fix:         sysctl -w \
                        net.core.rmem_max=7\n         permanent:   the line `net.core.rmem_max = \
                        7` in /etc/sysctl.d/61-onrush-local.conf\nnote     swap         there is \
                        some\nok       clock        it is tsc\nunreadable /proc/irq: denied\n\n1 \
                        problem, 1 note, 1 ok\n";
        assert_eq!(plain, expected);
    }

    #[test]
    fn only_findings_are_printed_unless_all_are_wanted() {
        let some = text(&findings(), &[], false);
        assert!(!some.contains("tsc") && some.contains("1 ok (--all"), "{some}");
        let nothing = text(&findings()[..1], &[], false);
        assert_eq!(nothing, "0 problems, 0 notes, 1 ok (--all shows them)\n");
    }

    /// Names of processes are chosen by other users of the host.
    #[test]
    fn findings_do_not_control_the_terminal() {
        let findings =
            [Finding::problem("ports", "held by \u{1b}]0;x\u{7}\u{9b}2J").fix("\u{1b}c")];
        let unreadable = ["/proc/\u{202e}".to_owned()];
        for shown in [text(&findings, &unreadable, true), json(&findings, &unreadable)] {
            let escapes = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
            assert!(!shown.contains(escapes), "{shown:?}");
        }
    }

    #[test]
    fn json_has_severity_and_fix() {
        let read: serde_json::Value = serde_json::from_str(&json(&findings(), &[])).unwrap();
        assert_eq!(read["problems"], 1);
        assert_eq!(read["findings"][1]["severity"], "problem");
        assert_eq!(read["findings"][1]["fix"], "sysctl -w net.core.rmem_max=7");
        assert!(read["findings"][0].get("fix").is_none());
    }

    #[test]
    fn the_log_line_names_the_problems() {
        let said = "1 problem of this host (rmem_max): run `onrush doctor`";
        assert_eq!(line(&findings()).as_deref(), Some(said));
        assert_eq!(line(&findings()[..1]), None);
    }
}
