//! What somebody may have meant by a key that does not exist.

use super::keys::{self, Key, TABLES, Table};

/// A suggestion for key `name` in the table called `table`.
pub(crate) fn for_key(table: &Table, name: &str) -> String {
    let elsewhere: Vec<_> = keys::all()
        .filter(|(other, key)| other.name != table.name && plain(key.name) == plain(name))
        .map(|(other, _)| place_of(other))
        .collect();
    if !elsewhere.is_empty() {
        return format!("this key belongs {}", elsewhere.join(" or "));
    }
    if let Some((_, hint)) = keys::HINTS.iter().find(|(known, _)| *known == plain(name)) {
        return (*hint).to_owned();
    }
    if let Some(near) = nearest(name, table.keys.iter().map(|key| key.name)) {
        return format!("did you mean `{near}`?");
    }
    if let Some(near) = nearest(name, keys::all().map(|(_, key)| key.name)) {
        let places: Vec<_> =
            keys::all().filter(|(_, key)| key.name == near).map(|(t, _)| place_of(t)).collect();
        return format!("did you mean `{near}`, which belongs {}?", places.join(" or "));
    }
    if TABLES.iter().any(|known| !known.name.is_empty() && known.name == name) {
        return format!("[{name}] is a table of its own and stands in no other");
    }
    format!("the keys {} are {}", place_of(table), names(table.keys))
}

/// The table that may be meant by one that does not exist.
pub(crate) fn for_table(name: &str) -> Option<&'static Table> {
    let near =
        nearest(name, TABLES.iter().map(|table| table.name).filter(|name| !name.is_empty()))?;
    TABLES.iter().find(|table| table.name == near)
}

/// Where the keys of a table stand in a file.
pub(crate) fn place_of(table: &Table) -> String {
    match table.name {
        "" => "at the top of the file, above the first [table]".to_owned(),
        name => format!("in [{name}]"),
    }
}

/// The word that is nearest to `text`, if one is near: at most one edit in three characters.
pub(crate) fn nearest(
    text: &str,
    words: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    // Far longer texts are near to nothing, and the distance takes their length squared.
    if text.len() > 64 {
        return None;
    }
    let text = plain(text);
    words
        .map(|word| (strsim::damerau_levenshtein(&text, word), word))
        .filter(|(distance, word)| *distance <= (word.len() / 3).max(1))
        .min()
        .map(|(_, word)| word)
}

/// A name without what people mix up: case, and dashes for underscores.
fn plain(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

fn names(keys: &[Key]) -> String {
    keys.iter().map(|key| format!("`{}`", key.name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggest(table: &str, name: &str) -> String {
        for_key(TABLES.iter().find(|known| known.name == table).unwrap(), name)
    }

    #[test]
    fn mistyped_keys_find_their_neighbour() {
        assert_eq!(suggest("announce", "intervall"), "did you mean `interval`?");
        assert_eq!(suggest("announce", "Interval"), "did you mean `interval`?");
        assert_eq!(suggest("announce", "max-peers-v4"), "did you mean `max_peers_v4`?");
        assert_eq!(suggest("announce", "max_peer_v6"), "did you mean `max_peers_v6`?");
    }

    #[test]
    fn keys_in_the_wrong_table_are_sent_home() {
        assert_eq!(suggest("", "interval"), "this key belongs in [announce]");
        assert_eq!(
            suggest("announce", "listen"),
            "this key belongs at the top of the file, above the first [table] or in [admin]"
        );
        assert_eq!(
            suggest("scrape", "max_peer_v4"),
            "did you mean `max_peers_v4`, which belongs in [announce]?"
        );
    }

    #[test]
    fn names_from_other_trackers_are_translated_and_nonsense_gets_the_list() {
        assert!(suggest("", "port").contains("listen"));
        assert_eq!(suggest("scrape", "zzzzzzzzzzzz"), "the keys in [scrape] are `max_hashes`");
        assert_eq!(for_table("anounce").unwrap().name, "announce");
        assert!(for_table("zzzzzzzz").is_none());
    }
}
