//! The key that an unknown name may have meant.

use crate::key::{Key, Kind, Schema};
use crate::spelling::{nearest, plain};

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

fn place(table: &str) -> String {
    match table {
        "" => "at the top of the file, above the first [table]".to_owned(),
        table => format!("in [{table}]"),
    }
}
