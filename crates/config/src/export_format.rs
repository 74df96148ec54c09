//! The format of an export, by the name of its file: text or bencoded, plain or compressed.

use std::path::Path;

/// The contents of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// One line per swarm: info hash in hexadecimal, seeders, leechers, completed.
    Text,
    /// The bencoded reply of a full scrape over HTTP (BEP 48).
    Bencoded,
}

/// The compression of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// None.
    Plain,
    /// gzip (RFC 1952).
    Gzip,
}

/// The endings of file names, for errors.
pub const NAMES: &str = ".txt, .bencode or .benc, each with or without .gz";

/// Contents and compression of a file by the ending of its name; `None` for other endings.
pub fn of_name(path: &Path) -> Option<(Content, Packing)> {
    let name = path.file_name()?.to_str()?;
    let (name, packing) = match name.rsplit_once('.')? {
        (name, "gz") => (name, Packing::Gzip),
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
    fn the_ending_of_a_name_gives_contents_and_compression() {
        let of = |name: &str| of_name(Path::new(name));
        assert_eq!(of("/a/scrape.txt"), Some((Content::Text, Packing::Plain)));
        assert_eq!(of("scrape.txt.gz"), Some((Content::Text, Packing::Gzip)));
        assert_eq!(of("a.b.benc.gz"), Some((Content::Bencoded, Packing::Gzip)));
        assert_eq!(of("full.bencode"), Some((Content::Bencoded, Packing::Plain)));
        for name in
            ["scrape", "scrape.gz", "scrape.csv", "scrape.txt.bz2", "scrape.txt.zst", "", "txt"]
        {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
