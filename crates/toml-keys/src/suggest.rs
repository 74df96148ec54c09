//! The key that an unknown name may have meant.

use crate::key::{Key, Schema};
use crate::kind::Kind;

/// Longer names are near to no key, and the time for a distance grows with their square.
const LONGEST: usize = 64;

impl Schema {
    /// The remedy for the unknown `name` in the table with these keys, which is called `table`.
    pub(crate) fn remedy(&self, keys: &[Key], table: &str, name: &str) -> String {
        let places = self.places(|other, key| other != table && key == plain(name));
        if !places.is_empty() {
            return format!("this key belongs {places}");
        }
        if let Some((_, hint)) = self.hints.iter().find(|(known, _)| *known == plain(name)) {
            return (*hint).to_owned();
        }
        if let Some(near) = nearest(name, keys.iter().map(|key| key.name)) {
            return format!("did you mean `{near}`?");
        }
        let leaves = self.leaves();
        if let Some(near) = nearest(name, leaves.iter().map(|(_, key)| key.name)) {
            let places = self.places(|_, key| key == near);
            return format!("did you mean `{near}`, which belongs {places}?");
        }
        if self.keys.iter().any(|key| key.name == name && !key.keys().is_empty()) {
            return format!("[{name}] is a table at the top level");
        }
        let names: Vec<_> = keys.iter().map(|key| format!("`{}`", key.name)).collect();
        format!("the keys {} are {}", place(table), names.join(", "))
    }

    /// The remedy for the unknown table `name` at the top level, and the table that it may mean.
    pub(crate) fn table_remedy(&self, name: &str) -> (String, Option<&'static Key>) {
        let tables = self.keys.iter().filter(|key| matches!(key.kind, Kind::Table(_)));
        let near = nearest(name, tables.clone().map(|key| key.name));
        match tables.clone().find(|key| Some(key.name) == near) {
            Some(key) => (format!("did you mean [{}]?", key.name), Some(key)),
            None => {
                let names: Vec<_> = tables.map(|key| format!("[{}]", key.name)).collect();
                (format!("the tables are {}", names.join(", ")), None)
            }
        }
    }

    /// The places of all keys whose table and name fulfil a condition.
    fn places(&self, is_meant: impl Fn(&str, &str) -> bool) -> String {
        let leaves = self.leaves();
        let tables = leaves.iter().map(|(path, key)| {
            let table = path.strip_suffix(key.name).unwrap_or_default();
            (table.trim_end_matches('.'), key.name)
        });
        let found = tables.filter(|(table, key)| is_meant(table, key));
        found.map(|(table, _)| place(table)).collect::<Vec<_>>().join(" or ")
    }
}

/// The word that is nearest to `text`, if any is within one edit per three characters.
pub(crate) fn nearest<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    if text.len() > LONGEST {
        return None;
    }
    let text = plain(text);
    words
        .map(|word| (strsim::damerau_levenshtein(&text, &plain(word)), word))
        .filter(|(distance, word)| *distance <= (word.len() / 3).max(1))
        .min()
        .map(|(_, word)| word)
}

/// A name without the differences that users overlook: case, and dashes for underscores.
fn plain(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

fn place(table: &str) -> String {
    match table {
        "" => "at the top of the file, above the first [table]".to_owned(),
        table => format!("in [{table}]"),
    }
}
