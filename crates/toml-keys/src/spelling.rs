//! The nearest of some words to a misspelled one.

/// Longer names are near to no key, and the time for a distance grows with their square.
const LONGEST: usize = 64;

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
pub(crate) fn plain(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}
