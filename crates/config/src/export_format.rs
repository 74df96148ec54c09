//! The format of an export, by the name of its file: text or bencoded, plain or compressed.

use std::path::Path;

/// What stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A line for each swarm: its info hash in hexadecimal, seeders, leechers, completed.
    Text,
    /// What a full scrape over HTTP gives (BEP 48), bencoded.
    Bencoded,
}

/// How it is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// By gzip.
    Gzip,
    /// By zstd.
    Zstd,
}

/// What a name can end with, for people.
pub const NAMES: &str = ".txt, .bencode or .benc, each with .gz or .zst behind it or not";

/// What a file of this name is to have, if its name says so.
pub fn of_name(path: &Path) -> Option<(Content, Packing)> {
    let name = path.file_name()?.to_str()?;
    let (name, packing) = match name.rsplit_once('.')? {
        (name, "gz") => (name, Packing::Gzip),
        (name, "zst") => (name, Packing::Zstd),
        _ => (name, Packing::Plain),
    };
    let content = match name.rsplit_once('.')?.1 {
        "txt" => Content::Text,
        "bencode" | "benc" => Content::Bencoded,
        _ => return None,
    };
    Some((content, packing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_what_is_in_it() {
        let of = |name: &str| of_name(Path::new(name));
        assert_eq!(of("/a/scrape.txt"), Some((Content::Text, Packing::Plain)));
        assert_eq!(of("scrape.txt.gz"), Some((Content::Text, Packing::Gzip)));
        assert_eq!(of("a.b.benc.zst"), Some((Content::Bencoded, Packing::Zstd)));
        assert_eq!(of("full.bencode"), Some((Content::Bencoded, Packing::Plain)));
        for name in ["scrape", "scrape.gz", "scrape.csv", "scrape.txt.bz2", "", "txt"] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
