//! The request mix and the population of a run: every number in one place. Profiles are TOML
//! files; the built-in ones are in `crates/load/profiles`, with a comment on every key.
//! [`read`] reads them, [`consistency`] checks the keys against each other.

pub mod consistency;
pub mod read;
mod text;

use onrush_toml_keys::{Key, integer, keys, number, table, tables, text as characters, word};
use serde::{Deserialize, Serialize};

pub use super::tail::Tail;

/// The built-in profiles: name, description, text.
pub const BUILT_IN: [(&str, &str, &str); 8] = [
    ("real", "what public trackers see", include_str!("../../profiles/real.toml")),
    ("classic", "what published comparisons send", include_str!("../../profiles/classic.toml")),
    (
        "seeding-heavy",
        "seed boxes: many torrents per peer, few leechers",
        include_str!("../../profiles/seeding-heavy.toml"),
    ),
    ("ipv6", "real traffic, most of it over IPv6", include_str!("../../profiles/ipv6.toml")),
    (
        "scrape-heavy",
        "indexers that watch the counts of many swarms",
        include_str!("../../profiles/scrape-heavy.toml"),
    ),
    ("abuse", "attackers and broken clients", include_str!("../../profiles/abuse.toml")),
    (
        "published-2022",
        "what the comparison of trackers over HTTPS of 2022 sent",
        include_str!("../../profiles/published-2022.toml"),
    ),
    (
        "webtorrent",
        "clients of WebTorrent, which `ws` sends by default",
        include_str!("../../profiles/webtorrent.toml"),
    ),
];

/// Info hashes per scrape: more than the 74 that trackers answer; a request of 2016 bytes.
pub const MAX_HASHES: u8 = 100;
/// Bytes of options: an announce with this many is as long as a scrape of 74 info hashes.
pub const MAX_OPTIONS: usize = 1398;
/// Entries of a list of tables.
const MAX_ENTRIES: usize = 64;

const NAMES: [&str; BUILT_IN.len()] = {
    let (mut names, mut nth) = ([""; BUILT_IN.len()], 0);
    while nth < names.len() {
        names[nth] = BUILT_IN[nth].0;
        nth += 1;
    }
    names
};
const SHARE: Key = number(0.0..=1.0);
const WEIGHT: Key = number(0.0..=1_000_000.0);

keys! {
    /// A request mix and the shape of the population that sends it.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Profile {
        /// The built-in profile that a file is based on: its keys hold where the file has none.
        #[serde(default, skip_serializing)]
        pub base: String = word(&NAMES),
        /// The name in reports.
        pub name: String = characters("1 to 40 characters, in quotes", text::has_length::<1, 40>),
        /// Weights of the kinds of requests.
        pub mix: Mix = table(Mix::KEYS),
        /// Share of peers that have everything, 0 to 1.
        pub seeders: f64 = SHARE,
        /// Share of traffic and peers over IPv6, 0 to 1, when both families have a target.
        pub v6: f64 = SHARE,
        /// Arrivals, departures and state changes of peers.
        pub events: Events = table(Events::KEYS),
        /// Announces with unusual properties.
        pub odd: Odd = table(Odd::KEYS),
        /// Kinds of unusable connection ids.
        pub unusable: Unusable = table(Unusable::KEYS),
        /// Kinds of malformed datagrams.
        pub junk: Junk = table(Junk::KEYS),
        /// The client software of the peers.
        pub clients: Vec<Client> = tables(Client::KEYS, MAX_ENTRIES),
        /// The sizes of scrapes.
        pub scrapes: Vec<ScrapeSize> = tables(ScrapeSize::KEYS, MAX_ENTRIES),
        /// Number and sizes of swarms.
        pub swarms: Swarms = table(Swarms::KEYS),
    }

    /// Weights of the kinds of requests; only their ratios matter.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Mix {
        /// Connects.
        pub connect: f64 = WEIGHT,
        /// Announces with a valid connection id.
        pub announce: f64 = WEIGHT,
        /// Scrapes with a valid connection id.
        pub scrape: f64 = WEIGHT,
        /// Announces with an invalid connection id.
        pub unusable: f64 = WEIGHT,
        /// Malformed datagrams.
        pub junk: f64 = WEIGHT,
    }

    /// Arrivals, departures and state changes of peers, as shares of all announces with a valid
    /// connection id. The other announces carry no event. As many peers arrive as leave: the
    /// share of `started` is the sum of `stopped` and `vanished`.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Events {
        /// Share of `stopped`.
        pub stopped: f64 = SHARE,
        /// Share of announces without an event after which the peer leaves without `stopped`.
        pub vanished: f64 = SHARE,
        /// Share of `completed`: a leecher becomes a seeder.
        pub completed: f64 = SHARE,
        /// Share of event 4, `paused`: a partial seed (BEP 21).
        pub paused: f64 = SHARE,
    }

    /// Announces with unusual properties, as shares of all announces with a valid connection id.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Odd {
        /// Share with port 0, for which an error reply is correct.
        pub port_zero: f64 = SHARE,
        /// Additional share for the largest swarm.
        pub hot: f64 = SHARE,
    }

    /// Kinds of invalid connection ids; only their ratios matter.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Unusable {
        /// Random ids.
        pub unknown: f64 = WEIGHT,
        /// Ids that were issued to another source address.
        pub foreign: f64 = WEIGHT,
        /// Id 0, as sent by clients that do not wait for the connect reply.
        pub zero: f64 = WEIGHT,
    }

    /// Kinds of malformed datagrams; only their ratios matter.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Junk {
        /// Fewer than 16 bytes.
        pub short: f64 = WEIGHT,
        /// A connect with a wrong magic number.
        pub magic: f64 = WEIGHT,
        /// An unknown action.
        pub action: f64 = WEIGHT,
        /// An announce of fewer than 98 bytes.
        pub cut: f64 = WEIGHT,
    }

    /// Client software as a tracker sees it.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Client {
        /// Share of the peers; only the ratios of weights matter.
        pub weight: f64 = WEIGHT,
        /// The first eight characters of the peer ids (BEP 20).
        #[serde(with = "text")]
        pub prefix: [u8; 8] = characters("8 characters, in quotes", text::has_length::<8, 8>),
        /// Number of peers requested; -1 leaves it to the tracker.
        pub num_want: i32 = integer(i32::MIN as i64..=i32::MAX as i64, ""),
        /// Options behind the announce (BEP 41). In TOML and JSON, a character stands for the
        /// byte of its number.
        #[serde(with = "text")]
        pub options: Vec<u8> =
            characters("0 to 1398 characters, in quotes", text::has_length::<0, MAX_OPTIONS>),
    }

    /// A size of scrapes.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct ScrapeSize {
        /// Share of the scrapes; only the ratios of weights matter.
        pub weight: f64 = WEIGHT,
        /// Info hashes per request, 0 to 100. Trackers answer up to 74; 0 is malformed.
        pub hashes: u8 = integer(0..=MAX_HASHES as i64, ""),
    }

    /// Number and sizes of swarms. Each has at least one peer.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Swarms {
        /// Number of swarms.
        pub count: u32 = integer(1..=500_000_000, ""),
        /// Mean number of peers per swarm, at least 1.
        pub mean: f64 = number(1.0..=10_000.0),
        /// The law by which sizes fall from the largest to the smallest.
        pub tail: Tail = word(&Tail::WORDS),
        /// The parameter of that law, see [`Tail`].
        pub exponent: f64 = number(0.1..=100_000.0),
    }
}

impl Mix {
    /// In the order of [`Kind`](super::Kind).
    pub const fn weights(&self) -> [f64; 5] {
        [self.connect, self.announce, self.scrape, self.unusable, self.junk]
    }
}

impl Unusable {
    /// Unknown, foreign, zero.
    pub const fn weights(&self) -> [f64; 3] {
        [self.unknown, self.foreign, self.zero]
    }
}

impl Junk {
    /// Short, magic, action, cut.
    pub const fn weights(&self) -> [f64; 4] {
        [self.short, self.magic, self.action, self.cut]
    }
}

impl Events {
    /// The share of announces with which a peer leaves, which is that with which one arrives.
    pub const fn turnover(&self) -> f64 {
        self.stopped + self.vanished
    }
}

impl Profile {
    /// The built-in profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        let (_, _, text) = BUILT_IN.iter().find(|(known, ..)| *known == name)?;
        Some(toml::from_str(text).expect("a test reads every built-in profile"))
    }

    /// The mix of public trackers.
    pub fn real() -> Self {
        Self::named("real").expect("it is built in")
    }

    /// Changes the share of seeders, 0 to 1. Reduces the shares of `completed` and `paused` to
    /// what is consistent with it.
    pub fn set_seeders(&mut self, seeders: f64) {
        self.seeders = seeders;
        let events = &mut self.events;
        events.completed = events.completed.min(events.turnover() * seeders);
        let available = consistency::remaining_leechers(seeders, events);
        events.completed = events.completed.min(available);
        events.paused = events.paused.min(available - events.completed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_proto::announce::REQUEST_LEN;

    #[test]
    fn announces_of_the_real_mix_have_the_sizes_seen_in_the_wild() {
        let clients = Profile::real().clients;
        let mut sizes: Vec<_> =
            clients.iter().map(|client| REQUEST_LEN + client.options.len()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes, [98, 100, 109, 130]);
    }

    #[test]
    fn the_published_numbers_are_those_of_the_profiles() {
        let real = Profile::real();
        assert_eq!(real.mix.weights(), [22.0, 70.0, 2.0, 4.0, 2.0]);
        assert_eq!((real.seeders, real.v6, real.swarms.mean), (0.35, 0.2, 1.3));
        let classic = Profile::named("classic").unwrap();
        assert_eq!(classic.mix.weights(), [50.0, 50.0, 1.0, 0.0, 0.0]);
        assert_eq!((classic.seeders, classic.clients[0].num_want), (0.75, 30));
    }

    #[test]
    fn options_are_well_formed() {
        for client in Profile::real().clients {
            let url: Vec<u8> = onrush_proto::options::Options(&client.options)
                .url_data()
                .flatten()
                .copied()
                .collect();
            let bare = client.options.iter().all(|byte| *byte == 0);
            assert!(bare || url.len() == client.options.len() - 2, "{client:?}");
        }
    }

    #[test]
    fn every_share_of_seeders_is_possible() {
        for percent in 0..=100 {
            for name in NAMES {
                let mut profile = Profile::named(name).unwrap();
                profile.set_seeders(f64::from(percent) / 100.0);
                let found = consistency::contradictions(&profile);
                assert_eq!(found, [], "{name} with {percent} % seeders");
            }
        }
    }
}
