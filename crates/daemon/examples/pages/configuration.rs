//! onrush.toml(5), from the declaration of the keys.

use std::fs;
use std::io;
use std::path::Path;

use clap_mangen::roff::{Inline, Roff, bold, roman};
use onrush_config::keys::SCHEMA;

use crate::commands::{MANUAL, see_also};

/// Name and section of the page.
pub(crate) const PAGE: (&str, &str) = ("onrush.toml", "5");

/// Writes the page into `place`.
pub(crate) fn write(place: &Path) -> io::Result<()> {
    let (name, section) = PAGE;
    let source = format!("onrush {}", onrush_text::version::version());
    let mut roff = Roff::new();
    roff.control("TH", [&name.to_uppercase(), section, "", &source, MANUAL]);
    roff.control("SH", ["NAME"]).text([roman(format!("{name} - configuration of onrush"))]);
    roff.control("SH", ["DESCRIPTION"]);
    paragraph(
        &mut roff,
        "The tracker runs without a file; a file needs only the keys that differ from their \
         defaults. `onrush --print-config` writes a file with all keys and these texts, \
         `onrush --config FILE --check-config` checks a file and shows its effect on this host, \
         and variables and flags override the file.",
    );
    paragraph(&mut roff, onrush_config::FORMAT);
    for (table, keys) in SCHEMA.sections() {
        let mut before = String::new();
        match table {
            None => _ = roff.control("SH", ["TOP LEVEL"]),
            Some(table) => {
                roff.control("SH", [format!("[{}]", table.name).as_str()]);
                paragraph(&mut roff, table.doc);
                before = format!("{}.", table.name);
            }
        }
        for key in keys {
            roff.control("TP", []).text([bold(format!("{before}{}", key.name))]);
            roff.text(inlines(key.doc));
            for fact in key.facts() {
                roff.control("IP", []).text(inlines(&fact));
            }
        }
    }
    see_also(&mut roff, &[("onrush", "8"), ("onrush-ctl", "8")]);
    fs::write(place.join(format!("{name}.{section}")), roff.to_roff())
}

fn paragraph(roff: &mut Roff, text: &str) {
    roff.control("PP", []).text(inlines(text));
}

/// A text in which what is between backticks is bold. A page has no line breaks of its own.
fn inlines(text: &str) -> Vec<Inline> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = text.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { roman(part) } else { bold(part) }).collect()
}
