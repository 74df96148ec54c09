//! Client software by the prefix of the peer id (BEP 20). Clients may claim anything, so this is
//! for statistics only.

use onrush_proto::PeerId;

/// One announce in this many is sampled, per worker and family: the first, then every 256th.
pub const SAMPLE: u64 = 256;

/// The name of unknown software.
pub const OTHER: &str = "other";

/// Software: its name, its codes in Azureus style (`-XX####-`: two characters for the software,
/// then its version), and its prefixes in other styles.
type Software = (&'static str, &'static [[u8; 2]], &'static [&'static [u8]]);

/// Known software; the first is for all other.
const SOFTWARE: [Software; 33] = [
    (OTHER, &[], &[]),
    ("anacrolix/torrent", &[*b"GT"], &[]),
    ("aria2", &[], &[b"A2-", b"aria2-"]),
    ("Baidu Netdisk", &[*b"BN"], &[]),
    ("BiglyBT", &[*b"BI"], &[]),
    ("BitComet", &[*b"BC"], &[b"exbc"]),
    ("BitLord", &[*b"BL"], &[]),
    ("BitSpirit", &[*b"SP"], &[]),
    ("BitTorrent", &[*b"BT", *b"BE"], &[b"M7-"]),
    ("Deluge", &[*b"DE"], &[]),
    ("Folx", &[*b"FL"], &[]),
    ("Free Download Manager", &[*b"FD"], &[]),
    ("FrostWire", &[*b"FW"], &[]),
    ("KTorrent", &[*b"KT", *b"KG"], &[]),
    ("LibreTorrent", &[*b"Lr"], &[]),
    ("libtorrent (Rasterbar)", &[*b"LT"], &[]),
    ("MediaGet", &[*b"MG"], &[]),
    ("onrush-load", &[*b"OL", *b"OR", *b"oR"], &[]),
    ("PicoTorrent", &[*b"PI"], &[]),
    ("qBittorrent", &[*b"qB"], &[]),
    ("QQDownload", &[*b"QD"], &[]),
    ("rqbit", &[*b"rQ"], &[]),
    ("rTorrent", &[*b"lt"], &[]),
    ("Tixati", &[], &[b"TIX"]),
    ("Transmission", &[*b"TR"], &[]),
    ("Tribler", &[*b"TL"], &[]),
    ("\u{b5}Torrent", &[*b"UT", *b"UM", *b"UE"], &[]),
    ("\u{b5}Torrent Web", &[*b"UW"], &[]),
    ("Vuze", &[*b"AZ"], &[]),
    ("WebTorrent", &[*b"WW", *b"WD"], &[]),
    ("Xfplay", &[*b"XF"], &[]),
    ("Xunlei", &[*b"XL", *b"SD"], &[]),
    ("Zona", &[*b"ZO"], &[]),
];

/// The names of known software; the first is for all other.
pub const NAMES: [&str; SOFTWARE.len()] = {
    let mut names = [OTHER; SOFTWARE.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = SOFTWARE[at].0;
        at += 1;
    }
    names
};

/// The index in [`NAMES`] of the software of a peer id.
pub fn index_of(peer_id: &PeerId) -> usize {
    let is_known = |(_, codes, prefixes): &Software| match peer_id.0 {
        [b'-', a, b, ..] => codes.contains(&[a, b]),
        ref id => prefixes.iter().any(|prefix| id.starts_with(prefix)),
    };
    SOFTWARE.iter().position(is_known).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(peer_id: &[u8; 20]) -> &'static str {
        NAMES[index_of(&PeerId(*peer_id))]
    }

    #[test]
    fn peer_ids_of_known_clients_are_recognised() {
        assert_eq!(name(b"-qB5050-1a2b3c4d5e6f"), "qBittorrent");
        assert_eq!(name(b"-TR4060-1a2b3c4d5e6f"), "Transmission");
        assert_eq!(name(b"-lt0D80-1a2b3c4d5e6f"), "rTorrent");
        assert_eq!(name(b"-LT20B0-1a2b3c4d5e6f"), "libtorrent (Rasterbar)");
        assert_eq!(name(b"-UT355W-1a2b3c4d5e6f"), "\u{b5}Torrent");
        assert_eq!(name(b"A2-1-36-0-1a2b3c4d5e"), "aria2");
        assert_eq!(name(b"TIX0289-1a2b3c4d5e6f"), "Tixati");
        assert_eq!(name(b"M7-11-0-1a2b3c4d5e6f"), "BitTorrent");
    }

    #[test]
    fn unknown_peer_ids_are_other() {
        for id in [b"-ZZ0000-1a2b3c4d5e6f", b"--------------------", &[0; 20], &[0xFF; 20]] {
            assert_eq!(name(id), OTHER);
        }
        assert_eq!(NAMES[0], OTHER);
    }

    #[test]
    fn names_and_codes_are_unique_and_every_name_has_a_prefix() {
        assert_eq!(NAMES.iter().collect::<std::collections::BTreeSet<_>>().len(), NAMES.len());
        assert!(SOFTWARE[1..].iter().all(|(_, codes, prefixes)| codes.len() + prefixes.len() > 0));
        let codes: Vec<_> = SOFTWARE.iter().flat_map(|(_, codes, _)| *codes).collect();
        assert_eq!(codes.iter().collect::<std::collections::BTreeSet<_>>().len(), codes.len());
    }
}
