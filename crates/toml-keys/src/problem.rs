//! Problems of a file, flags and variables, each with its place and a remedy.

use std::fmt;

use crate::source::Place;

/// Problems that are printed; of a long faulty list the first are enough.
const PRINTED: usize = 40;

/// Problems that are kept; the others are only counted.
const KEPT: usize = 200;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    at: At,
    key: String,
    what: String,
    remedy: Option<String>,
}

/// Where a problem is. The order is that of the report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum At {
    /// In a file as a whole, or in what follows from it.
    File(String),
    /// At a place in a file.
    Place(Box<Place>),
    /// In the value of the flag or variable with this name.
    Named(String),
}

impl Problem {
    /// `key` is the path of a key, or empty.
    pub(crate) fn new(at: At, key: &str, what: String, remedy: Option<String>) -> Self {
        Self { at, key: key.to_owned(), what, remedy }
    }

    /// A problem with a flag or a variable.
    pub fn in_named(name: &str, key: &str, what: String) -> Self {
        Self::new(At::Named(name.to_owned()), key, what, None)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::Place(place) => write!(f, "{}:{}:{}: ", place.file, place.line, place.column)?,
            At::File(name) | At::Named(name) => write!(f, "{name}: ")?,
        }
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        writeln!(f, "{}", self.what)?;
        if let At::Place(place) = &self.at {
            f.write_str(&place.excerpt)?;
        }
        match &self.remedy {
            Some(remedy) => writeln!(f, "  help: {remedy}"),
            None => Ok(()),
        }
    }
}

/// All problems of a document, in the order of the file. Not empty when returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    kept: Vec<Problem>,
    total: usize,
}

impl Problems {
    /// Adds a problem, which is only made if it is kept.
    pub(crate) fn add(&mut self, problem: impl FnOnce() -> Problem) {
        self.total += 1;
        if self.kept.len() < KEPT {
            self.kept.push(problem());
        }
    }

    /// An error if there are any.
    pub(crate) fn into_result(mut self) -> Result<(), Self> {
        self.kept.sort_by(|one, other| one.at.cmp(&other.at));
        if self.total == 0 { Ok(()) } else { Err(self) }
    }

    /// Each problem, in the order of the file; those of flags and variables come last. At most 200.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.kept.iter()
    }

    /// How many there are.
    pub fn total(&self) -> usize {
        self.total
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self { kept: vec![problem], total: 1 }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.kept.iter().take(PRINTED) {
            writeln!(f, "{problem}")?;
        }
        write!(f, "{} problem{}", self.total, if self.total == 1 { "" } else { "s" })?;
        match self.total > PRINTED {
            true => writeln!(f, "; the first {PRINTED} are shown"),
            false => writeln!(f),
        }
    }
}

impl std::error::Error for Problems {}
