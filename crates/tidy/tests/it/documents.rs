//! Rules for documents: what they point at is there.

use std::collections::BTreeSet;
use std::path::Path;

use onrush_tidy::{demand, files, root, sources, text};

/// Pages that a program writes from its own tables.
const GENERATED: [&str; 3] = ["docs/CONFIGURATION.md", "docs/CONFORMANCE.md", "docs/METRICS.md"];

#[test]
fn links_in_documents_resolve() {
    let documents = documents();
    assert!(!documents.is_empty(), "no document found");
    let mut broken = Vec::new();
    for document in &documents {
        for link in links(&text(document)) {
            if let Err(why) = resolve(document, &link) {
                broken.push(format!("{document}: ({link}) {why}"));
            }
        }
    }
    demand("a link in a document leads somewhere", broken);
}

/// Sources, manifests and scripts name documents and sources; those have to be there as well.
#[test]
fn paths_in_comments_exist() {
    let mut paths = vec!["Cargo.toml".to_owned()];
    for directory in ["crates", "fuzz", "scripts", "config", ".ci"] {
        if root().join(directory).is_dir() {
            paths.extend(files(directory, ""));
        }
    }
    let mut broken = Vec::new();
    for path in paths.iter().filter(|path| !path.starts_with("crates/tidy/")) {
        let Ok(text) = std::fs::read_to_string(root().join(path)) else { continue };
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c))) {
            let word = word.trim_end_matches('.');
            let named = ["docs/", "crates/"].iter().any(|start| word.starts_with(start));
            if named && is_file_name(word) && !root().join(word).exists() {
                broken.push(format!("{path}: {word}"));
            }
        }
    }
    demand("a path named in a comment exists", broken);
}

#[test]
fn words_of_the_glossary_are_used_by_the_code() {
    let document = text("docs/ARCHITECTURE.md");
    let (_, glossary) = document.split_once("\n## Glossary\n").expect("a glossary");
    let section = glossary.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let words: Vec<&str> = rows.collect();
    assert!(words.len() > 20, "only {} words found", words.len());
    let tokens = || sources().iter().flat_map(|source| &source.tokens);
    let is_used = |word: &&str| tokens().any(|token| token.text.to_lowercase().contains(word));
    let broken = words.into_iter().filter(|word| !is_used(word)).map(str::to_owned).collect();
    demand("a word of the glossary in docs/ARCHITECTURE.md is part of a name in the code", broken);
}

/// A terminal of 120 columns and a side-by-side diff show a line of this length unbroken.
#[test]
fn lines_of_documents_fit_the_width() {
    let mut broken = Vec::new();
    for document in documents().iter().filter(|document| !is_generated(document)) {
        let text = text(document);
        let long = prose(&text).filter(|line| width(line) > WIDTH);
        broken.extend(long.map(|line| format!("{document}: {line}")));
    }
    demand("a line of a document has at most 120 columns, tables and links excepted", broken);
}

/// Columns of a line in a document.
const WIDTH: usize = 120;

/// Pages that a program writes, and reports that stay as they were measured.
fn is_generated(document: &str) -> bool {
    document.starts_with("docs/benchmarks/20") || GENERATED.contains(&document)
}

/// Columns of a line of prose: without the targets of links and without URLs, which cannot be
/// broken. Rows of tables and lines of HTML have none.
fn width(line: &str) -> usize {
    if line.trim_start().starts_with(['|', '<']) {
        return 0;
    }
    let mut parts = line.split("](");
    let mut text = parts.next().expect("split gives one").to_owned();
    for part in parts {
        text.push_str(part.split_once(')').map_or(part, |(_, after)| after));
    }
    let words = text.split(' ').filter(|word| !word.contains("://"));
    words.map(|word| word.chars().count() + 1).sum::<usize>().saturating_sub(1)
}

/// A record that the index lacks is not found; a gap in the numbers looks like a lost record.
#[test]
fn decision_records_are_numbered_dated_and_indexed() {
    let decisions: Vec<(String, String)> = files("docs/decisions", ".md")
        .into_iter()
        .filter_map(|path| Some((path.rsplit_once('/')?.1.to_owned(), text(&path))))
        .filter(|(name, _)| name.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert!(!decisions.is_empty(), "no decision found");
    demand(
        "decision records have consecutive numbers, title, date, status and a row in the index",
        faulty_decisions(&decisions, &text("docs/decisions/README.md")),
    );
}

/// Faults of decision records, given as file names and texts in the order of their names.
///
/// A record is named `NNNN-slug.md` and begins with `# N. Title`, `- Date: YYYY-MM-DD` and
/// `- Status: ...`; its row in the index is `| [N](file) | title | date | status |`.
fn faulty_decisions(decisions: &[(String, String)], index: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, (name, record)) in (1..).zip(decisions) {
        if !name.starts_with(&format!("{number:04}-")) {
            faults.push(format!("{name}: the number after the previous record is {number:04}"));
            continue;
        }
        let field = |start: &str| record.lines().find_map(|line| line.strip_prefix(start));
        let title = field(&format!("# {number}. "));
        let (Some(title), Some(date), Some(status)) =
            (title, field("- Date: "), field("- Status: "))
        else {
            faults
                .push(format!("{name}: `# {number}. Title`, `- Date:` or `- Status:` is missing"));
            continue;
        };
        // The status may link to the record that supersedes this one.
        let status: String = status.chars().take_while(|c| *c != '[').collect();
        let row = format!("| [{number}]({name}) | {title} | {date} | {status}");
        if !index.lines().any(|line| line.starts_with(&row)) {
            faults.push(format!("{name}: the index has no row `{row}`"));
        }
    }
    faults
}

/// Every Markdown file that belongs to people.
fn documents() -> Vec<String> {
    let mut documents = files("docs", ".md");
    documents.extend(files("fuzz", ".md"));
    documents.extend(files("crates", ".md"));
    let top = std::fs::read_dir(root()).expect("the root can be read");
    let names = top.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    documents.extend(names.filter(|name| name.ends_with(".md")));
    documents
}

/// The targets of `[text](target)` outside of code.
fn links(markdown: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(markdown) {
        // Inline code: every second piece between back-ticks.
        let outside: String = line.split('`').step_by(2).collect();
        for after in outside.split("](").skip(1) {
            if let Some((target, _)) = after.split_once(')') {
                links.push(target.split(' ').next().expect("split gives one").to_owned());
            }
        }
    }
    links
}

/// The lines outside of fenced code.
fn prose(markdown: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    markdown.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn resolve(document: &str, link: &str) -> Result<(), String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let directory = Path::new(document).parent().expect("a file lies in a directory");
    let target = if path.is_empty() { document.into() } else { directory.join(path) };
    if !root().join(&target).exists() {
        return Err("does not exist".to_owned());
    }
    if !anchor.is_empty() && target.extension().is_some_and(|extension| extension == "md") {
        let anchors = anchors(&text(&target.to_string_lossy()));
        if !anchors.contains(anchor) {
            return Err(format!("has no heading #{anchor}"));
        }
    }
    Ok(())
}

/// The anchors that a forge makes of a document's headings.
fn anchors(markdown: &str) -> BTreeSet<String> {
    prose(markdown)
        .filter_map(|line| line.strip_prefix('#'))
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// Whether a word ends in a name with an extension of ours.
fn is_file_name(word: &str) -> bool {
    [".md", ".rs", ".toml", ".json", ".svg"].iter().any(|extension| word.ends_with(extension))
}

/// README quotes instructions per request; the file that CI compares with is the truth.
#[test]
fn counts_in_the_readme_are_those_of_the_baseline() {
    let quoted = quoted_counts(&text("docs/benchmarks/instructions.toml"));
    let there = text("README.md").contains(&quoted);
    let broken = if there { vec![] } else { vec![format!("it should say: {quoted}")] };
    demand("README.md quotes the counts of docs/benchmarks/instructions.toml", broken);
}

/// The sentence that README must have by a baseline.
fn quoted_counts(baseline: &str) -> String {
    let counts: toml::Table = baseline.parse().expect("the baseline is TOML");
    let of = |kind: &str| {
        let count = counts["tracker"][kind].as_integer().expect("a count is a whole number");
        match (count / 1_000, count % 1_000) {
            (0, count) => count.to_string(),
            (thousands, rest) => format!("{thousands},{rest:03}"),
        }
    };
    format!(
        "a connect takes {} instructions, an announce with 30 peers {}, a scrape of ten {}",
        of("connect"),
        of("announce"),
        of("scrape")
    )
}

/// A promise without its test is a claim.
#[test]
fn tests_of_promises_exist() {
    let document = text("docs/PROMISES.md");
    let (mut broken, mut seen) = (Vec::new(), 0);
    for name in document.split('`').skip(1).step_by(2) {
        let (path, test) = name.split_once("::").unwrap_or((name, ""));
        if !["crates/", "fuzz/", "scripts/"].iter().any(|start| path.starts_with(start)) {
            continue;
        }
        seen += usize::from(!test.is_empty());
        if let Some(why) = missing_test(path, test) {
            broken.push(format!("docs/PROMISES.md: {name} {why}"));
        }
    }
    assert!(seen > 10, "only {seen} tests found");
    demand("a test that a promise names exists", broken);
}

/// Why a file, or a test in it, is not there.
fn missing_test(path: &str, test: &str) -> Option<&'static str> {
    if !root().join(path).exists() {
        return Some("does not exist");
    }
    if test.is_empty() {
        // It may be a directory.
        return None;
    }
    let (source, function) = (text(path), format!("fn {test}("));
    let lines = source.lines().map(str::trim_start);
    let mut pairs = lines.clone().zip(lines.skip(1));
    let is_there = pairs.any(|(first, next)| first == "#[test]" && next.starts_with(&function));
    (!is_there).then_some("has no such test")
}

#[test]
fn the_rules_bite() {
    assert_eq!(
        links("[a](x.md) `[no](y)` [b](z.md#q \"t\")\n```\n[c](n)\n```"),
        ["x.md", "z.md#q"]
    );
    assert!(resolve("docs/x.md", "nowhere.md").is_err());
    assert!(resolve("docs/x.md", "../Cargo.toml").is_ok());
    let record = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let good = record("0001-a.md", "# 1. A\n\n- Date: 2026-11-20\n- Status: accepted\n");
    let index = "| [1](0001-a.md) | A | 2026-11-20 | accepted |\n";
    assert_eq!(faulty_decisions(std::slice::from_ref(&good), index), [""; 0]);
    for (records, index) in [
        (vec![good.clone()], ""),
        (vec![good.clone()], "| [1](0001-a.md) | B | 2026-11-20 | accepted |\n"),
        (vec![good.clone(), record("0003-b.md", "# 3. B\n")], index),
        (vec![record("0001-a.md", "# 1. A\n\n- Status: accepted\n")], index),
    ] {
        assert_eq!(faulty_decisions(&records, index).len(), 1, "{records:?}");
    }
    assert_eq!(
        quoted_counts("[tracker]\nconnect = 1\nannounce = 1002\nscrape = 30"),
        "a connect takes 1 instructions, an announce with 30 peers 1,002, a scrape of ten 30"
    );
    assert_eq!(width("| a row |"), 0);
    assert_eq!(width("see [it](https://example.org/long) and ä"), "see [it and a".len());
    let this = "crates/tidy/tests/it/documents.rs";
    assert_eq!(missing_test(this, "tests_of_promises_exist"), None);
    assert!(missing_test(this, "no_such_test").is_some());
    assert!(missing_test("crates/nowhere.rs", "").is_some());
    assert_eq!(missing_test("crates/tidy", ""), None);
    assert!(anchors("# One `two`, three\n").contains("one-two-three"));
}
