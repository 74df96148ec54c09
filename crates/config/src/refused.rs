//! Values that the host refuses: found once the configuration has been read, and reported with
//! their place in it.

use std::fmt::{self, Display};

use onrush_toml_keys::{Document, Problems};

use crate::flags::Flags;
use crate::keys::SCHEMA;

/// A value that the host refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The path of its key, or of an entry of a list (`listen.0`).
    pub key: String,
    /// The problem.
    pub what: String,
    /// The remedy.
    pub remedy: Option<String>,
}

impl Refused {
    /// From the text of an error: lines with two spaces before them are the remedy. The key may
    /// begin the text.
    pub fn new(key: impl Into<String>, error: &impl Display) -> Self {
        let (key, text) = (key.into(), error.to_string());
        let text = text.strip_prefix(&format!("{key}: ")).unwrap_or(&text);
        let (what, remedy) = match text.split_once("\n  ") {
            Some((what, remedy)) => (what, Some(remedy.replace("\n  ", " "))),
            None => (text, None),
        };
        Self { what: what.to_owned(), key, remedy }
    }

    /// The same problem with the user for whom it was found.
    #[must_use]
    pub fn as_user(mut self, user: &str) -> Self {
        self.what += &format!(" (as user {user})");
        self
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
    }
}

/// The places of values in the file and in the variables and flags over it.
pub struct Places(Document);

impl Places {
    /// Problems with their places.
    pub fn problems(self, refused: impl IntoIterator<Item = Refused>) -> Problems {
        let Self(mut document) = self;
        for Refused { key, what, remedy } in refused {
            document.problem(&key, what, remedy.as_deref());
        }
        document.finish().err().unwrap_or_default()
    }
}

impl Flags {
    /// The places of all values. Settings do not keep them, so the file is read once more; if that
    /// fails, problems name the file alone.
    pub fn places(&self) -> Places {
        let mut document = self.document();
        // These were given when the configuration was read.
        document.forget_problems();
        self.apply(&mut document);
        Places(document)
    }

    /// The file that `--config` names, or the defaults.
    pub(crate) fn document(&self) -> Document {
        match &self.config {
            Some(path) => Document::load(&SCHEMA, SCHEMA.defaults(), path),
            None => Document::parse(&SCHEMA, SCHEMA.defaults(), "the defaults", ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_value_is_reported_at_its_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "listen = [\n  ':80',\n  ':81',\n]\n").unwrap();
        let name = file.path().display().to_string();
        let mut flags = Flags { config: Some(file.path().into()), ..Flags::default() };
        let shown = |flags: &Flags, key: &str| {
            let error = format!("{key}: it is taken\n  stop the other one");
            flags.places().problems([Refused::new(key, &error)]).to_string()
        };
        let entry = shown(&flags, "listen.1");
        assert!(entry.starts_with(&format!("{name}:3:3: `listen.1`: it is taken\n")), "{entry}");
        assert!(entry.contains("  help: stop the other one\n"), "{entry}");
        let derived = shown(&flags, "state_dir");
        assert!(derived.starts_with(&format!("{name}: `state_dir`: it is taken")), "{derived}");
        flags.state_dir = Some("/x".into());
        assert!(shown(&flags, "state_dir").starts_with("--state-dir: `state_dir`: "));
        flags.config = Some("/nonexistent/file".into());
        let lost = shown(&flags, "listen.1");
        assert!(lost.starts_with("/nonexistent/file: `listen.1`: it is taken"), "{lost}");
        flags.config = None;
        assert!(shown(&flags, "listen.0").starts_with("the defaults: `listen.0`: "));
    }
}
