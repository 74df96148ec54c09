//! The format of an export: text or bencoded, plain or compressed.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use onrush_config::export_format::{Content, Packing};

use crate::export::count::SwarmCounts;

/// Writes swarms; bencoded ones sorted by info hash.
///
/// # Errors
/// When `to` cannot be written.
pub fn write(
    (content, packing): (Content, Packing),
    swarms: &mut [SwarmCounts],
    to: &mut impl Write,
) -> io::Result<()> {
    match packing {
        Packing::Plain => write_content(content, swarms, to),
        Packing::Gzip => {
            let mut packed = GzEncoder::new(to, Compression::default());
            write_content(content, swarms, &mut packed)?;
            packed.finish().map(drop)
        }
    }
}

fn write_content(
    content: Content,
    swarms: &mut [SwarmCounts],
    to: &mut impl Write,
) -> io::Result<()> {
    match content {
        Content::Text => swarms.iter().try_for_each(|swarm| text(swarm, to)),
        Content::Bencoded => {
            // The keys of a dictionary are sorted (BEP 3, "bencoding").
            swarms.sort_unstable();
            to.write_all(b"d5:filesd")?;
            swarms.iter().try_for_each(|swarm| bencoded(swarm, to))?;
            to.write_all(b"ee")
        }
    }
}

fn text(swarm: &SwarmCounts, to: &mut impl Write) -> io::Result<()> {
    let SwarmCounts { info_hash, seeders, leechers, completed } = swarm;
    writeln!(to, "{info_hash} {seeders} {leechers} {completed}")
}

fn bencoded(swarm: &SwarmCounts, to: &mut impl Write) -> io::Result<()> {
    let SwarmCounts { info_hash, seeders, leechers, completed } = swarm;
    to.write_all(b"20:")?;
    to.write_all(&info_hash.0)?;
    write!(to, "d8:completei{seeders}e10:downloadedi{completed}e10:incompletei{leechers}ee")
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_proto::InfoHash;

    #[test]
    fn text_and_bencoded_exports() {
        let swarm = |byte, seeders, leechers, completed| SwarmCounts {
            info_hash: InfoHash([byte; 20]),
            seeders,
            leechers,
            completed,
        };
        let mut swarms = [swarm(0x62, 1, 20, 300), swarm(0x61, 0, 4_294_967_295, 7)];
        let mut out = Vec::new();
        write_content(Content::Text, &mut swarms, &mut out).unwrap();
        let expected =
            format!("{} 1 20 300\n{} 0 4294967295 7\n", "62".repeat(20), "61".repeat(20));
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        write_content(Content::Bencoded, &mut swarms, &mut out).unwrap();
        let (a, b) = ("a".repeat(20), "b".repeat(20));
        let expected = format!(
            "d5:filesd20:{a}d8:completei0e10:downloadedi7e10:incompletei4294967295ee\
             20:{b}d8:completei1e10:downloadedi300e10:incompletei20eeee"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        write_content(Content::Bencoded, &mut [], &mut out).unwrap();
        assert_eq!(out, b"d5:filesdee");
    }
}
