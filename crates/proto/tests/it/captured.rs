//! Datagrams of real clients, byte for byte: `packets/*.toml`, recorded by
//! `scripts/capture-clients`. Each datagram is parsed to exactly the fields that the recording
//! script read from it, and written back to the same bytes.

use onrush_proto::announce::REQUEST_LEN;
use onrush_proto::options::{END, Options};
use onrush_proto::{
    Announce, Connect, ConnectionId, Event, InfoHash, PeerId, Request, Scrape, TransactionId,
};
use serde::Deserialize;

const RECORDINGS: [&str; 3] = [
    include_str!("packets/libtorrent.toml"),
    include_str!("packets/transmission.toml"),
    include_str!("packets/aria2.toml"),
];

/// The path and query of the tracker's URL in the recordings whose name says `path`.
const PATH: &str = "/announce/abc?x=1";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording {
    client: String,
    version: String,
    packet: Vec<Packet>,
}

/// A datagram and its fields. Numbers beyond 63 bits and strings of bytes are in hexadecimal.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Packet {
    Connect {
        name: String,
        transaction_id: u32,
        trailing: String,
        hex: String,
    },
    Announce {
        name: String,
        connection_id: String,
        transaction_id: u32,
        info_hash: String,
        peer_id: String,
        downloaded: u64,
        left: u64,
        uploaded: u64,
        event: u32,
        ip: u32,
        key: u32,
        num_want: i32,
        port: u16,
        trailing: String,
        url: String,
        hex: String,
    },
    Scrape {
        name: String,
        connection_id: String,
        transaction_id: u32,
        info_hashes: Vec<String>,
        hex: String,
    },
}

impl Packet {
    fn name(&self) -> &str {
        match self {
            Self::Connect { name, .. }
            | Self::Announce { name, .. }
            | Self::Scrape { name, .. } => name,
        }
    }

    fn wire(&self) -> Vec<u8> {
        match self {
            Self::Connect { hex, .. } | Self::Announce { hex, .. } | Self::Scrape { hex, .. } => {
                bytes(hex)
            }
        }
    }
}

#[test]
fn connects_are_read_and_written() {
    let mut seen = 0;
    for packet in packets() {
        let Packet::Connect { name, transaction_id, trailing, hex } = packet else { continue };
        seen += 1;
        let connect = Connect { transaction_id: TransactionId(transaction_id) };
        let wire = bytes(&hex);
        assert_eq!(Request::parse(&wire), Ok(Request::Connect(connect)), "{name}");
        let mut written = [0xAA; 16];
        connect.write(&mut written);
        assert_eq!([&written[..], &bytes(&trailing)].concat(), wire, "{name}");
    }
    assert!(seen >= 8, "only {seen} connects");
}

#[test]
fn announces_are_read_and_written() {
    const EVENTS: [Event; 5] =
        [Event::None, Event::Completed, Event::Started, Event::Stopped, Event::Paused];
    let mut seen = 0;
    for packet in packets() {
        let Packet::Announce {
            name,
            connection_id,
            transaction_id,
            info_hash,
            peer_id,
            downloaded,
            left,
            uploaded,
            event,
            ip,
            key,
            num_want,
            port,
            trailing,
            url,
            hex,
        } = packet
        else {
            continue;
        };
        seen += 1;
        let (wire, trailing) = (bytes(&hex), bytes(&trailing));
        let announce = Announce {
            connection_id: connection(&connection_id),
            transaction_id: TransactionId(transaction_id),
            info_hash: info_hash.parse().unwrap(),
            peer_id: PeerId(bytes(&peer_id).try_into().unwrap()),
            downloaded,
            left,
            uploaded,
            event: EVENTS[event as usize],
            ip,
            key,
            num_want,
            port,
            options: Options(&trailing),
        };
        assert_eq!(Request::parse(&wire), Ok(Request::Announce(announce)), "{name}");
        let mut written = vec![0xAA; wire.len()];
        assert_eq!(announce.write(&mut written), wire.len(), "{name}");
        assert_eq!(written, wire, "{name}");
        let read = announce.options.url_data().collect::<Vec<_>>().concat();
        assert_eq!(String::from_utf8(read).unwrap(), url, "{name}");
    }
    assert!(seen >= 40, "only {seen} announces");
}

#[test]
fn scrapes_are_read_and_written() {
    let (mut seen, mut most) = (0, 0);
    for packet in packets() {
        let Packet::Scrape { name, connection_id, transaction_id, info_hashes, hex } = packet
        else {
            continue;
        };
        (seen, most) = (seen + 1, most.max(info_hashes.len()));
        let wire = bytes(&hex);
        let hashes: Vec<InfoHash> = info_hashes.iter().map(|hash| hash.parse().unwrap()).collect();
        let Ok(Request::Scrape(scrape)) = Request::parse(&wire) else { panic!("{name}") };
        assert_eq!(scrape.connection_id, connection(&connection_id), "{name}");
        assert_eq!(scrape.transaction_id, TransactionId(transaction_id), "{name}");
        assert!(scrape.info_hashes().eq(hashes.iter().copied()), "{name}");
        let mut written = vec![0xAA; wire.len()];
        let ids = (scrape.connection_id, scrape.transaction_id);
        assert_eq!(Scrape::write(ids.0, ids.1, &hashes, &mut written), wire.len(), "{name}");
        assert_eq!(written, wire, "{name}");
    }
    assert!(seen >= 6, "only {seen} scrapes");
    assert_eq!(most, 2, "transmission asks for both of its torrents at once");
}

/// The recordings have every event of every client, over every address family that it uses.
#[test]
fn the_recordings_are_complete() {
    for (client, family, more) in [
        ("libtorrent", "ipv4", &["scrape", "paused"][..]),
        ("libtorrent", "ipv6", &["scrape", "paused"]),
        ("transmission", "ipv4", &["scrape"]),
        ("aria2", "ipv4", &[]),
    ] {
        let kinds = ["connect", "started-as-seeder", "started", "completed", "none", "stopped"];
        for kind in kinds.iter().chain(more) {
            for path in ["", "-path"] {
                let name = format!("{client}-{family}{path}-{kind}");
                assert!(packets().any(|packet| packet.name() == name), "{name} is missing");
            }
        }
    }
    for recording in recordings() {
        assert!(!recording.version.is_empty());
        let client = recording.client;
        assert!(recording.packet.iter().all(|packet| packet.name().starts_with(&client)));
    }
}

/// The name of a recording is the event of the client: the datagram has the same event.
#[test]
fn events_match_the_names_of_the_recordings() {
    for packet in packets() {
        let wire = packet.wire();
        let Ok(Request::Announce(announce)) = Request::parse(&wire) else { continue };
        let name = packet.name();
        let (event, left) = match name.rsplit_once("-").unwrap().1 {
            "seeder" => (Event::Started, Some(0)),
            "started" => (Event::Started, Some(1_052_897)),
            "completed" => (Event::Completed, Some(0)),
            "stopped" => (Event::Stopped, None),
            // BEP 21: a partial seed wants nothing more, though all of the torrent is missing.
            "paused" => (Event::Paused, Some(1_052_897)),
            "none" => (Event::None, None),
            other => panic!("{name}: {other}"),
        };
        assert_eq!(announce.event, event, "{name}");
        assert_eq!(announce.left, left.unwrap_or(announce.left), "{name}");
        assert_eq!((announce.port, announce.ip), (16881, 0), "{name}");
    }
}

/// BEP 41, URLData: libtorrent sends it, and "/" where the URL has no path. aria2 ends every
/// announce with two end marks, whatever the URL. transmission sends nothing.
#[test]
fn options_behind_an_announce() {
    for packet in packets() {
        let wire = packet.wire();
        let Ok(Request::Announce(announce)) = Request::parse(&wire) else { continue };
        let name = packet.name();
        let url = announce.options.url_data().collect::<Vec<_>>().concat();
        match name.split('-').next() {
            Some("libtorrent") => {
                let path = if name.contains("-path-") { PATH } else { "/" };
                assert_eq!(url, path.as_bytes(), "{name}");
                assert_eq!(wire.len(), REQUEST_LEN + 2 + path.len(), "{name}");
            }
            Some("aria2") => assert_eq!(announce.options, Options(&[END, END]), "{name}"),
            _ => assert_eq!(announce.options, Options(&[]), "{name}"),
        }
    }
}

fn recordings() -> impl Iterator<Item = Recording> {
    RECORDINGS.iter().map(|text| toml::from_str(text).unwrap())
}

fn packets() -> impl Iterator<Item = Packet> {
    recordings().flat_map(|recording| recording.packet)
}

fn connection(hex: &str) -> ConnectionId {
    ConnectionId(u64::from_str_radix(hex, 16).unwrap())
}

fn bytes(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "{hex}");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
