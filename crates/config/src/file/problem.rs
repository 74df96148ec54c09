//! What is wrong with a configuration, where, and what would be right.

use std::fmt;

use super::source::Place;

/// Problems that are printed at most; of a list gone wrong, the first few are enough.
const SHOWN: usize = 40;

/// Problems that are kept at most; the rest is counted.
const KEPT: usize = 200;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    at: At,
    key: String,
    what: String,
    help: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    Place(Place),
    File(String),
    Flag(&'static str),
    /// Follows from this host and the defaults.
    Host,
}

impl Problem {
    /// About a place in a file. `key` is the path of a key, or empty.
    pub(crate) fn at(place: Place, key: &str, what: String, help: Option<String>) -> Self {
        Self { at: At::Place(place), key: key.to_owned(), what, help }
    }

    /// About a flag, and the key that it overrides.
    pub fn at_flag(flag: &'static str, key: &str, what: String, help: Option<String>) -> Self {
        Self { at: At::Flag(flag), key: key.to_owned(), what, help }
    }

    /// About something that nobody wrote.
    pub fn on_host(key: &str, what: String, help: Option<String>) -> Self {
        Self { at: At::Host, key: key.to_owned(), what, help }
    }

    /// About a file as a whole.
    pub fn in_file(name: &str, what: String) -> Self {
        Self { at: At::File(name.to_owned()), key: String::new(), what, help: None }
    }

    /// The path of the key that it is about; empty when it is about no key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Line and column in the file, counted from 1, where it is about one place in it.
    pub fn position(&self) -> Option<(usize, usize)> {
        match &self.at {
            At::Place(place) => Some((place.line, place.column)),
            _ => None,
        }
    }

    /// Files before flags, in the order of reading.
    fn order(&self) -> (usize, usize, usize) {
        match &self.at {
            At::File(_) => (0, 0, 0),
            At::Place(place) => (1, place.line, place.column),
            At::Flag(_) => (2, 0, 0),
            At::Host => (3, 0, 0),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::Place(place) => write!(f, "{}:{}:{}: ", place.file, place.line, place.column)?,
            At::File(name) => write!(f, "{name}: ")?,
            At::Flag(flag) => write!(f, "{flag}: ")?,
            At::Host => write!(f, "on this host: ")?,
        }
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        writeln!(f, "{}", self.what)?;
        if let At::Place(place) = &self.at {
            place.write_excerpt(f)?;
        }
        match &self.help {
            Some(help) => writeln!(f, "  help: {help}"),
            None => Ok(()),
        }
    }
}

/// Problems as they are found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    kept: Vec<Problem>,
    total: usize,
}

impl Findings {
    /// Adds a problem; it is made only when there is room for it.
    pub(crate) fn add(&mut self, problem: impl FnOnce() -> Problem) {
        self.total += 1;
        if self.kept.len() < KEPT {
            self.kept.push(problem());
        }
    }

    /// The problems in order, if there are any.
    pub(crate) fn into_problems(mut self) -> Option<Problems> {
        self.kept.sort_by_key(Problem::order);
        (self.total > 0).then_some(Problems { kept: self.kept, total: self.total })
    }
}

/// Everything that is wrong, in the order of the file. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    kept: Vec<Problem>,
    total: usize,
}

impl Problems {
    /// One problem alone.
    pub fn one(problem: Problem) -> Self {
        Self { kept: vec![problem], total: 1 }
    }

    /// Each problem, in the order of the file; those about flags come last. Of very many, the
    /// first that were found.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.kept.iter()
    }

    /// How many there are.
    pub fn total(&self) -> usize {
        self.total
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.kept.iter().take(SHOWN) {
            writeln!(f, "{problem}")?;
        }
        let problems = if self.total == 1 { "problem" } else { "problems" };
        write!(f, "{} {problems} in the configuration", self.total)?;
        if self.total > SHOWN {
            write!(f, ", {SHOWN} of them are shown")?;
        }
        writeln!(f, "; nothing of it is in force.")
    }
}

impl std::error::Error for Problems {}
