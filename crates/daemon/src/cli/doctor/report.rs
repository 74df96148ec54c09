//! Findings for people, for programs, and in one line for the log.

use std::fmt::Write;

use serde::Serialize;

use super::{Finding, Severity};

/// What people read: what hurts most first, then what is worth knowing, then what is fine.
pub(super) fn text(findings: &[Finding], unseen: &[String], colours: bool) -> String {
    let mut findings: Vec<_> = findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let mut text = String::new();
    for finding in &findings {
        let (word, colour) = match finding.severity {
            Severity::Problem => ("problem", "31"),
            Severity::Note => ("note", "33"),
            Severity::Ok => ("ok", "32"),
        };
        let word = format!("{word:<8}");
        let word = if colours { format!("\x1b[{colour}m{word}\x1b[0m") } else { word };
        // Nothing can go wrong with writing to a string.
        let _ = writeln!(text, "{word} {:<12} {}", finding.name, finding.what);
        for (label, line) in [("mend it:", &finding.fix), ("to last:", &finding.keep)] {
            if let Some(line) = line {
                let _ = writeln!(text, "         {label:<12} {line}");
            }
        }
    }
    for what in unseen {
        let _ = writeln!(text, "not seen {what}");
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let counted = |severity, word| match count(severity) {
        1 => format!("1 {word}"),
        number => format!("{number} {word}s"),
    };
    let (problems, notes) =
        (counted(Severity::Problem, "problem"), counted(Severity::Note, "note"));
    let _ = writeln!(text, "\n{problems}, {notes}, {} fine", count(Severity::Ok));
    text
}

/// The same for programs.
pub(super) fn json(findings: &[Finding], unseen: &[String]) -> String {
    #[derive(Serialize)]
    struct Report<'a> {
        problems: usize,
        findings: &'a [Finding],
        unseen: &'a [String],
    }
    let problems = names(findings).len();
    let report = Report { problems, findings, unseen };
    let text = serde_json::to_string_pretty(&report).expect("findings are strings");
    text + "\n"
}

/// A line for the log, where something will hurt.
pub(super) fn line(findings: &[Finding]) -> Option<String> {
    let names = names(findings);
    let things = match names.len() {
        0 => return None,
        1 => "1 thing".to_owned(),
        number => format!("{number} things"),
    };
    Some(format!("{things} on this host will hurt ({}): run onrush doctor", names.join(", ")))
}

fn names(findings: &[Finding]) -> Vec<&'static str> {
    let problems = findings.iter().filter(|finding| finding.severity == Severity::Problem);
    problems.map(|finding| finding.name).collect()
}

/// What was found, in short.
#[cfg(test)]
pub(super) fn severities(findings: &[Finding]) -> Vec<(&'static str, Severity)> {
    findings.iter().map(|finding| (finding.name, finding.severity)).collect()
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
    fn what_hurts_comes_first_and_colours_are_for_terminals() {
        let plain = text(&findings(), &["/proc/irq: denied".into()], false);
        let expected = "problem  rmem_max     it is small\n         mend it:     sysctl -w net.core.rmem_max=7\n         \
                        to last:     the line `net.core.rmem_max = 7` in /etc/sysctl.d/60-onrush.conf\nnote     swap         \
                        there is some\nok       clock        it is tsc\nnot seen /proc/irq: denied\n\n\
                        1 problem, 1 note, 1 fine\n";
        assert_eq!(plain, expected);
        assert!(text(&findings(), &[], true).starts_with("\x1b[31mproblem"));
    }

    #[test]
    fn programs_get_the_same() {
        let read: serde_json::Value = serde_json::from_str(&json(&findings(), &[])).unwrap();
        assert_eq!(read["problems"], 1);
        assert_eq!(read["findings"][1]["severity"], "problem");
        assert_eq!(read["findings"][1]["fix"], "sysctl -w net.core.rmem_max=7");
        assert!(read["findings"][0].get("fix").is_none());
    }

    #[test]
    fn the_log_gets_a_line_when_something_hurts() {
        let said = "1 thing on this host will hurt (rmem_max): run onrush doctor";
        assert_eq!(line(&findings()).as_deref(), Some(said));
        assert_eq!(line(&findings()[..1]), None);
    }
}
