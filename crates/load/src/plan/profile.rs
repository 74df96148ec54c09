//! What peers send, and how often: every number of a mix in one place. Profiles are written in
//! TOML; those that come with the program are in `crates/load/profiles`, with a comment on every
//! number, and what is wrong with one is told by [`read`].

pub mod limits;
pub mod read;
mod text;

use onrush_proto::announce::REQUEST_LEN;
use serde::{Deserialize, Serialize};

pub use super::tail::Tail;

/// The profiles that come with the program: name, what it is in a few words, text.
pub const BUILT_IN: [(&str, &str, &str); 6] = [
    ("real", "what public trackers see", include_str!("../../profiles/real.toml")),
    ("classic", "what published comparisons send", include_str!("../../profiles/classic.toml")),
    (
        "seeding-heavy",
        "seed boxes: many torrents each, hardly anybody to give to",
        include_str!("../../profiles/seeding-heavy.toml"),
    ),
    ("ipv6", "real traffic, most of it over IPv6", include_str!("../../profiles/ipv6.toml")),
    (
        "scrape-heavy",
        "indexers that watch the counts of many swarms",
        include_str!("../../profiles/scrape-heavy.toml"),
    ),
    ("abuse", "attackers and broken clients", include_str!("../../profiles/abuse.toml")),
];

/// A mix of requests and the shape of the population that sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Weights of the kinds of requests.
    pub mix: Mix,
    /// Share of peers that miss nothing, 0 to 1.
    pub seeders: f64,
    /// Share of traffic and peers over IPv6, 0 to 1, where both families have a target.
    pub v6: f64,
    /// How peers come, go and change.
    pub events: Events,
    /// Announces that are not like the others.
    pub odd: Odd,
    /// What is wrong with unusable connection ids.
    pub unusable: Unusable,
    /// What is wrong with junk.
    pub junk: Junk,
    /// Connects of a few addresses that do nothing else.
    pub flood: Flood,
    /// What sends announces.
    pub clients: Vec<Client>,
    /// How many swarms a scrape asks for.
    pub scrapes: Vec<ScrapeSize>,
    /// How many swarms there are and how large they are.
    pub swarms: Swarms,
}

/// Weights of the kinds of requests; only their ratios matter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Connects.
    pub connect: f64,
    /// Announces with a good id.
    pub announce: f64,
    /// Scrapes with a good id.
    pub scrape: f64,
    /// Announces with an id that nobody gave out.
    pub unusable: f64,
    /// Datagrams that are no request.
    pub junk: f64,
}

/// How peers come, go and change, as shares of all announces with a good id. What remains carries
/// no event. As many arrive as leave: the share of `started` is `stopped` and `vanished` together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Share of `stopped`: the peer leaves and says so.
    pub stopped: f64,
    /// Share of plain announces after which the peer leaves without a word.
    pub vanished: f64,
    /// Share of `completed`: a leecher becomes a seeder.
    pub completed: f64,
    /// Share of 4: a partial seed (BEP 21).
    pub paused: f64,
}

/// Announces that are not like the others, as shares of all announces with a good id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Odd {
    /// Share with port 0. An error reply to it is right.
    pub port_zero: f64,
    /// Share that goes to the largest swarm, on top of what its size brings it.
    pub hot: f64,
}

/// What is wrong with unusable ids; only ratios matter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unusable {
    /// Never given out: a random number.
    pub unknown: f64,
    /// Given to another source address.
    pub foreign: f64,
    /// 0, as of a client that did not wait for its connect.
    pub zero: f64,
}

/// What is wrong with junk; only ratios matter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Junk {
    /// Fewer than 16 bytes.
    pub short: f64,
    /// A connect without its magic number.
    pub magic: f64,
    /// An action that does not exist.
    pub action: f64,
    /// An announce that ends before its 98 bytes.
    pub cut: f64,
}

/// Connects of a few addresses that do nothing else, in the middle of everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flood {
    /// Share of all bursts, 0 to 0.95.
    pub share: f64,
    /// How many addresses of each family they come from, at least 1.
    pub addresses: u32,
}

/// A client software as a tracker sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// Share of the peers; only ratios matter.
    pub weight: f64,
    /// The first eight characters of its peer ids (BEP 20).
    #[serde(with = "text::prefix")]
    pub prefix: [u8; 8],
    /// How many peers it asks for.
    pub num_want: i32,
    /// What it appends to an announce (BEP 41). In TOML and JSON a character stands for the byte
    /// of its number.
    #[serde(with = "text::bytes")]
    pub options: Vec<u8>,
}

/// A size of scrapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrapeSize {
    /// Share of the scrapes; only ratios matter.
    pub weight: f64,
    /// Info hashes in one request, 0 to 100. Trackers answer 74, and none with an error.
    pub hashes: u8,
}

/// How many swarms there are and how large they are, at least 1 peer each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swarms {
    /// How many swarms.
    pub count: u32,
    /// Peers per swarm on average, at least 1.
    pub mean: f64,
    /// How sizes fall from the largest to the smallest.
    pub tail: Tail,
    /// How steeply: what it is depends on the [`Tail`].
    pub exponent: f64,
}

impl Swarms {
    /// Swarms whose sizes follow Zipf's law with this exponent.
    pub const fn zipf(count: u32, mean: f64, exponent: f64) -> Self {
        Self { count, mean, tail: Tail::Zipf, exponent }
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
    /// The share of announces with which a peer leaves, and of those with which one comes.
    pub const fn turnover(&self) -> f64 {
        self.stopped + self.vanished
    }
}

impl Client {
    /// Bytes of its announces.
    pub fn announce_len(&self) -> usize {
        REQUEST_LEN + self.options.len()
    }
}

impl Profile {
    /// A profile that comes with the program; `None` when none has this name.
    pub fn named(name: &str) -> Option<Self> {
        let (_, _, text) = BUILT_IN.iter().find(|(known, ..)| *known == name)?;
        Some(read::complete(text).expect("a test reads every profile that comes along"))
    }

    /// What public trackers see.
    pub fn real() -> Self {
        Self::named("real").expect("it comes along")
    }

    /// What the published comparisons of trackers send.
    pub fn classic() -> Self {
        Self::named("classic").expect("it comes along")
    }

    /// Another share of seeders, 0 to 1. Where so few or so many leave no room for as many
    /// `completed` or paused peers as there were, these become as many as there is room for.
    pub fn set_seeders(&mut self, seeders: f64) {
        self.seeders = seeders;
        let events = &mut self.events;
        events.completed = events.completed.min(events.turnover() * seeders);
        let room = limits::leechers_that_stay(seeders, events);
        events.completed = events.completed.min(room);
        events.paused = events.paused.min(room - events.completed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announces_of_the_real_mix_have_the_sizes_seen_in_the_wild() {
        let mut sizes: Vec<_> = Profile::real().clients.iter().map(Client::announce_len).collect();
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes, [98, 100, 109, 130]);
    }

    #[test]
    fn the_published_numbers_are_those_of_the_profiles() {
        let real = Profile::real();
        assert_eq!(real.mix.weights(), [22.0, 70.0, 2.0, 4.0, 2.0]);
        assert_eq!((real.seeders, real.v6, real.swarms.mean), (0.35, 0.2, 1.3));
        let classic = Profile::classic();
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
    fn any_share_of_seeders_can_be_had() {
        for percent in 0..=100 {
            for (name, ..) in BUILT_IN {
                let mut profile = Profile::named(name).unwrap();
                profile.set_seeders(f64::from(percent) / 100.0);
                assert_eq!(limits::together(&profile), [], "{name} with {percent} % seeders");
            }
        }
    }
}
