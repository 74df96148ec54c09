//! Manual pages of a command and its subcommands (man-pages(7)), and completions. The load tester's
//! are made by this module too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// The manual's name, in the header of each page.
pub(crate) const MANUAL: &str = "onrush";

/// A directory in the one that the command line names.
pub(crate) fn place(name: &str) -> io::Result<PathBuf> {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("pages: name the directory to write to");
        std::process::exit(2);
    };
    let place = Path::new(&directory).join(name);
    fs::create_dir_all(&place).map(|()| place)
}

/// Writes the completions of a command.
pub(crate) fn complete(mut command: Command, name: &str) -> io::Result<()> {
    let place = place("completions")?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, name, &place)?;
    }
    Ok(())
}

/// Settings that all pages of a command share.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'a> {
    /// Section of the manual: 1 for users, 8 for administrators.
    pub(crate) section: &'a str,
    /// Pages that each of them refers to, by name and section.
    pub(crate) related: &'a [(&'a str, &'a str)],
    /// The directory that they are written to.
    pub(crate) place: &'a Path,
}

impl Pages<'_> {
    /// Writes the pages of a command and its subcommands.
    pub(crate) fn write(&self, command: Command) -> io::Result<()> {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        self.page(&command, None, command.get_version().unwrap_or_default())
    }

    /// Writes the page of a command, below that of its parent, and those of its subcommands.
    fn page(&self, command: &Command, parent: Option<&str>, version: &str) -> io::Result<()> {
        let (name, section) = (name(command), self.section);
        let visible = || command.get_subcommands().filter(|below| !below.is_hide_set());
        let mut related = self.related.to_vec();
        related.extend(
            parent.into_iter().chain(visible().map(self::name)).map(|name| (name, section)),
        );
        let source = format!("onrush {version}");
        let man = Man::new(command.clone()).section(section).source(source).manual(MANUAL);
        let man = man.title(name.to_uppercase());
        let mut page = Vec::new();
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if visible().next().is_some() {
            man.render_subcommands_section(&mut page)?;
        }
        let help = command.get_after_long_help().or_else(|| command.get_after_help());
        let mut roff = Roff::new();
        if let Some(help) = help {
            sections(&mut roff, &help.to_string());
        }
        see_also(&mut roff, &related);
        roff.to_writer(&mut page)?;
        fs::write(self.place.join(man.get_filename()), page)?;
        visible().try_for_each(|below| self.page(below, Some(name), version))
    }
}

/// The name of a page: `onrush-ctl-list` for `onrush ctl list`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The sections below the options of `--help`: each begins with its name and a colon in a line of
/// its own. Its lines stay as they are.
fn sections(roff: &mut Roff, help: &str) {
    for section in help.split("\n\n") {
        let (heading, lines) = section.split_once(":\n").expect("a section begins with its name");
        roff.control("SH", [heading.to_uppercase().as_str()]).control("nf", []);
        for line in lines.lines() {
            let line = line.strip_prefix("  ").expect("lines of a section are indented");
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
}

/// The last section, with references to pages by name and section.
pub(crate) fn see_also(roff: &mut Roff, pages: &[(&str, &str)]) {
    roff.control("SH", ["SEE ALSO"]);
    let mut inlines = Vec::new();
    for (name, section) in pages {
        let comma = if inlines.is_empty() { "" } else { ", " };
        inlines.extend([roman(comma), bold(*name), roman(format!("({section})"))]);
    }
    roff.text(inlines);
}
