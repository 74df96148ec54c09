//! The key that an unknown name may have meant.

use crate::key::{Key, Kind, Schema};
use crate::spelling::{nearest, plain};

impl Schema {
    /// The remedy for the unknown `name` in the table with these keys, which is called `table`.
    pub(crate) fn remedy(&self, keys: &[Key], table: &str, name: &str) -> String {
        let leaves = self.leaves();
        let places = |name: &str| {
            let named = leaves.iter().filter(|(_, key)| key.name == name);
            let tables =
                named.map(|(path, _)| path.rsplit_once('.').map_or("", |(table, _)| table));
            tables.map(place).collect::<Vec<_>>().join(" or ")
        };
        let known = plain(name);
        let is_here = keys.iter().any(|key| key.name == known);
        if !is_here && leaves.iter().any(|(_, key)| key.name == known) {
            return format!("this key belongs {}", places(&known));
        }
        if let Some((_, hint)) = self.hints.iter().find(|(names, _)| names.contains(&&*known)) {
            return (*hint).to_owned();
        }
        if let Some(near) = nearest(name, keys.iter().map(|key| key.name)) {
            return format!("did you mean `{near}`?");
        }
        if let Some(near) = nearest(name, leaves.iter().map(|(_, key)| key.name)) {
            return format!("did you mean `{near}`, which belongs {}?", places(near));
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
}

fn place(table: &str) -> String {
    match table {
        "" => "at the top of the file, above the first [table]".to_owned(),
        table => format!("in [{table}]"),
    }
}
