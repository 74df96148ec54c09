//! What peers send, and how often: every number of a mix in one place.

use onrush_proto::announce::REQUEST_LEN;
use serde::{Deserialize, Serialize};

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
    /// How often an announce carries an event.
    pub events: Events,
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

/// Shares of announces that carry an event; the rest carries none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Share of `started`.
    pub started: f64,
    /// Share of `stopped`.
    pub stopped: f64,
    /// Share of `completed`.
    pub completed: f64,
    /// Share of 4: a partial seed (BEP 21).
    pub paused: f64,
}

/// A client software as a tracker sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// Share of the peers; only ratios matter.
    pub weight: f64,
    /// The first eight characters of its peer ids (BEP 20).
    pub prefix: [u8; 8],
    /// How many peers it asks for.
    pub num_want: i32,
    /// What it appends to an announce (BEP 41).
    pub options: Vec<u8>,
}

/// A size of scrapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrapeSize {
    /// Share of the scrapes; only ratios matter.
    pub weight: f64,
    /// Info hashes in one request, 1 to 74.
    pub hashes: u8,
}

/// How many swarms there are and how large they are: the swarm of rank k has a size that is
/// proportional to k to the power of `-zipf`, and at least 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swarms {
    /// How many swarms.
    pub count: u32,
    /// Peers per swarm on average, at least 1.
    pub mean: f64,
    /// The tail's exponent: 1 is Zipf's law; smaller makes the largest swarms smaller.
    pub zipf: f64,
}

impl Mix {
    /// In the order of [`Kind`](super::Kind).
    pub const fn weights(&self) -> [f64; 5] {
        [self.connect, self.announce, self.scrape, self.unusable, self.junk]
    }
}

impl Events {
    /// Started, stopped, completed, paused.
    pub const fn shares(&self) -> [f64; 4] {
        [self.started, self.stopped, self.completed, self.paused]
    }
}

impl Client {
    /// Bytes of its announces.
    pub fn announce_len(&self) -> usize {
        REQUEST_LEN + self.options.len()
    }
}

impl Profile {
    /// What public trackers see.
    pub fn real() -> Self {
        let client = |weight, prefix: &[u8; 8], num_want, options: &[u8]| Client {
            weight,
            prefix: *prefix,
            num_want,
            options: options.to_vec(),
        };
        Self {
            name: "real".into(),
            mix: Mix { connect: 22.0, announce: 70.0, scrape: 2.0, unusable: 4.0, junk: 2.0 },
            seeders: 0.35,
            v6: 0.2,
            events: Events { started: 0.03, stopped: 0.02, completed: 0.01, paused: 0.01 },
            clients: vec![
                // libtorrent appends the path of the URL (BEP 41), here of two lengths.
                client(30.0, b"-qB5000-", 200, b"\x02\x09/announce"),
                client(15.0, b"-LT20B0-", 200, b"\x02\x1e/announce?passkey=0123456789ab"),
                client(25.0, b"-TR4060-", 80, b""),
                // aria2 sends two more bytes, which are zero.
                client(5.0, b"A2-1-37-", 50, b"\0\0"),
                client(20.0, b"-UT3550-", -1, b""),
                client(5.0, b"-lt0F00-", 0, b""),
            ],
            scrapes: vec![
                ScrapeSize { weight: 70.0, hashes: 1 },  // libtorrent
                ScrapeSize { weight: 30.0, hashes: 60 }, // transmission
            ],
            swarms: Swarms { count: 1_000_000, mean: 1.3, zipf: 1.0 },
        }
    }

    /// What the published comparisons of trackers send: connect, announce and scrape 50/50/1,
    /// 75 % seeders, 30 peers wanted, no bad ids.
    pub fn classic() -> Self {
        let client =
            Client { weight: 1.0, prefix: *b"-OR0100-", num_want: 30, options: Vec::new() };
        Self {
            name: "classic".into(),
            mix: Mix { connect: 50.0, announce: 50.0, scrape: 1.0, unusable: 0.0, junk: 0.0 },
            seeders: 0.75,
            v6: 0.2,
            events: Events { started: 0.0, stopped: 0.0, completed: 0.0, paused: 0.0 },
            clients: vec![client],
            scrapes: vec![ScrapeSize { weight: 1.0, hashes: 10 }],
            swarms: Swarms { count: 1_000_000, mean: 2.0, zipf: 1.0 },
        }
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
}
