//! Client software by the prefix of the peer id (BEP 20). Clients may claim anything, so this is
//! for statistics only.

use onrush_proto::PeerId;

/// One announce in this many is sampled, per worker and family: the first, then every 64th.
pub const SAMPLE: u64 = 64;

/// The names of known software; the first is for all other.
pub const NAMES: [&str; 33] = [
    OTHER,
    "anacrolix/torrent",
    "aria2",
    "Baidu Netdisk",
    "BiglyBT",
    "BitComet",
    "BitLord",
    "BitSpirit",
    "BitTorrent",
    "Deluge",
    "Folx",
    "Free Download Manager",
    "FrostWire",
    "KTorrent",
    "LibreTorrent",
    "libtorrent (Rasterbar)",
    "MediaGet",
    "onrush-load",
    "PicoTorrent",
    "qBittorrent",
    "QQDownload",
    "rqbit",
    "rTorrent",
    "Tixati",
    "Transmission",
    "Tribler",
    "\u{b5}Torrent",
    "\u{b5}Torrent Web",
    "Vuze",
    "WebTorrent",
    "Xfplay",
    "Xunlei",
    "Zona",
];

/// The name of unknown software.
pub const OTHER: &str = "other";

/// Azureus style, `-XX####-`: two characters for the software, then its version. Frequent software
/// comes first, as the table is searched in this order.
const AZUREUS: [([u8; 2], &str); 38] = [
    (*b"qB", "qBittorrent"),
    (*b"TR", "Transmission"),
    (*b"UT", "\u{b5}Torrent"),
    (*b"lt", "rTorrent"),
    (*b"LT", "libtorrent (Rasterbar)"),
    (*b"DE", "Deluge"),
    (*b"BI", "BiglyBT"),
    (*b"UM", "\u{b5}Torrent"),
    (*b"UE", "\u{b5}Torrent"),
    (*b"UW", "\u{b5}Torrent Web"),
    (*b"XL", "Xunlei"),
    (*b"SD", "Xunlei"),
    (*b"BC", "BitComet"),
    (*b"BT", "BitTorrent"),
    (*b"BE", "BitTorrent"),
    (*b"AZ", "Vuze"),
    (*b"GT", "anacrolix/torrent"),
    (*b"FD", "Free Download Manager"),
    (*b"BN", "Baidu Netdisk"),
    (*b"Lr", "LibreTorrent"),
    (*b"WW", "WebTorrent"),
    (*b"WD", "WebTorrent"),
    (*b"rQ", "rqbit"),
    (*b"KT", "KTorrent"),
    (*b"KG", "KTorrent"),
    (*b"FW", "FrostWire"),
    (*b"FL", "Folx"),
    (*b"MG", "MediaGet"),
    (*b"PI", "PicoTorrent"),
    (*b"BL", "BitLord"),
    (*b"SP", "BitSpirit"),
    (*b"QD", "QQDownload"),
    (*b"TL", "Tribler"),
    (*b"XF", "Xfplay"),
    (*b"ZO", "Zona"),
    (*b"OL", "onrush-load"),
    (*b"OR", "onrush-load"),
    (*b"oR", "onrush-load"),
];

/// Prefixes in other styles.
const PREFIXES: [(&[u8], &str); 5] = [
    (b"TIX", "Tixati"),
    (b"A2-", "aria2"),
    (b"aria2-", "aria2"),
    (b"M7-", "BitTorrent"),
    (b"exbc", "BitComet"),
];

// The two tables, with indices into NAMES instead of names.
const BY_CODE: [([u8; 2], usize); AZUREUS.len()] = {
    let mut indices = [([0; 2], 0); AZUREUS.len()];
    let mut at = 0;
    while at < AZUREUS.len() {
        indices[at] = (AZUREUS[at].0, index_of_name(AZUREUS[at].1));
        at += 1;
    }
    indices
};
const BY_PREFIX: [(&[u8], usize); PREFIXES.len()] = {
    let mut indices: [(&[u8], usize); PREFIXES.len()] = [(&[], 0); PREFIXES.len()];
    let mut at = 0;
    while at < PREFIXES.len() {
        indices[at] = (PREFIXES[at].0, index_of_name(PREFIXES[at].1));
        at += 1;
    }
    indices
};

/// The index in [`NAMES`] of the software of a peer id.
pub fn index_of(peer_id: &PeerId) -> usize {
    match peer_id.0 {
        [b'-', a, b, ..] => {
            let known = BY_CODE.iter().find(|(code, _)| *code == [a, b]);
            known.map_or(0, |(_, index)| *index)
        }
        ref id => {
            let known = BY_PREFIX.iter().find(|(prefix, _)| id.starts_with(prefix));
            known.map_or(0, |(_, index)| *index)
        }
    }
}

/// The index of a name in [`NAMES`]; a name that is missing there does not compile.
const fn index_of_name(name: &str) -> usize {
    let mut at = 0;
    while at < NAMES.len() {
        if same(NAMES[at].as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
    panic!("a name of the tables is not in NAMES")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
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
    fn every_name_has_a_prefix_and_every_code_is_unique() {
        let indices = BY_CODE.iter().map(|(_, index)| *index);
        let indices = indices.chain(BY_PREFIX.iter().map(|(_, index)| *index));
        let reached: std::collections::BTreeSet<usize> = indices.collect();
        assert_eq!(reached, (1..NAMES.len()).collect());
        let codes: std::collections::BTreeSet<_> = BY_CODE.iter().map(|(code, _)| code).collect();
        assert_eq!(codes.len(), BY_CODE.len());
    }
}
