//! The loads that trackers are compared under.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::Display;

/// A protocol that trackers serve, each on a port of its own under the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
pub enum Protocol {
    /// BEP 15.
    Udp,
    /// BEP 15 over veth devices between two network namespaces (`scripts/bench-xdp`).
    Veth,
    /// Announces over HTTP (BEP 3).
    Http,
    /// The same, by TLS.
    Https,
    /// WebTorrent over WebSocket.
    Ws,
    /// The same, by TLS.
    Wss,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 6] =
        [Self::Udp, Self::Veth, Self::Http, Self::Https, Self::Ws, Self::Wss];

    /// Whether it is BEP 15.
    pub fn is_udp(self) -> bool {
        matches!(self, Self::Udp | Self::Veth)
    }

    /// The same protocol without TLS; `None` where this one has no TLS.
    pub fn in_tls(self) -> Option<Self> {
        match self {
            Self::Https => Some(Self::Http),
            Self::Wss => Some(Self::Ws),
            Self::Udp | Self::Veth | Self::Http | Self::Ws => None,
        }
    }

    /// Whether it is of WebTorrent.
    pub fn is_webtorrent(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }
}

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Mix {
    /// The classic mix (connect, announce, scrape 50/50/1) from 1,000 addresses, each datagram by
    /// itself, no client twice in a batch, as on the internet; every reply is checked.
    Spread,
    /// The classic mix from 64 addresses in bursts (UDP_SEGMENT), where replies to a client can
    /// leave together; every reply is checked.
    Bursts,
    /// The traffic of public trackers, junk and unusable ids included, from 1,000 addresses; every
    /// reply is checked.
    Real,
    /// aquatic_udp_load_test, which published comparisons used, in its default configuration: 4
    /// sockets per worker, errors counted as wrong, nothing else checked, no latency; its
    /// population is the same in every round, its rate the mean of a whole run, warm-up included.
    Published,
    /// The classic mix from 4 addresses, as many as aquatic_udp_load_test has, each datagram by
    /// itself, for the cost of the load testers; every reply is checked.
    Few,
    /// The classic mix from 4 addresses in bursts of 64; every reply is checked.
    FewBursts,
    /// aquatic_udp_load_test without its extra statistics, where it costs least.
    FewPublished,
    /// The load of the comparison of 2022: announces over TLS 1.3 on 64 connections from as many
    /// addresses, 10,000 swarms, 25 % seeders, a connection with a full handshake for each
    /// request; every reply is checked.
    Https,
    /// The same on connections that are kept.
    HttpsKeepAlive,
    /// The same without TLS, a connection for each request.
    Http,
    /// The same without TLS on connections that are kept.
    HttpKeepAlive,
    /// WebTorrent over WebSocket: members announce with offers and answer those that they get;
    /// every offer and answer is checked; in a process of its own, memory of idle connections.
    Ws,
    /// The same by TLS.
    Wss,
    /// The same by TLS with ten offers per announce and session descriptions of 47 bytes, as
    /// aquatic_ws_load_test sends them, for the cost of the load testers.
    FewWss,
    /// aquatic_http_load_test with the settings of the comparison of 2022 (64 workers, TLS, no
    /// keep-alive). Each worker has one connection at a time and writes a request in parts, which
    /// wait for delayed acknowledgements: some 40 to 53 ms of most connections pass with both
    /// sides idle, and the rate is bounded by these stalls. Version 0.9.0 draws torrents by a
    /// Gamma distribution, that of 2022 by Pareto's.
    PublishedHttps,
    /// aquatic_ws_load_test on 64 connections per worker, otherwise in its default configuration:
    /// ten offers per announce, session descriptions of 47 bytes, an answer in place of an
    /// announce; errors counted as wrong, nothing else checked, no latency.
    PublishedWss,
    /// aquatic_http_load_test without TLS on 64 connections per worker that are kept, otherwise in
    /// its default configuration, for the cost of the load testers: http-keep-alive checks each
    /// reply.
    PublishedHttp,
    /// The announces of http-keep-alive, eight of a connection in one write, for the cost of the
    /// load testers; every reply is checked.
    FewHttp,
    /// Announces alone, over veth devices from 1,000 addresses by AF_XDP, with 30 peers in each
    /// reply once the swarms are filled; every reply is checked.
    VethAnnounces,
    /// Connects alone, in the same way.
    VethConnects,
    /// The classic mix, in the same way.
    VethClassic,
    /// 600,000 announces with random connection ids per second, in the same way, beside 3,000
    /// requests per second that are answered; a refused datagram counts as a reply.
    VethForged,
    /// 1,000,000 random ids beside 5,000 requests per second: how many of those are answered.
    VethFlood,
}

impl Mix {
    /// The protocol of its requests.
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Https | Self::HttpsKeepAlive | Self::PublishedHttps => Protocol::Https,
            Self::Http | Self::HttpKeepAlive => Protocol::Http,
            Self::FewHttp | Self::PublishedHttp => Protocol::Http,
            Self::Ws => Protocol::Ws,
            Self::Wss | Self::FewWss | Self::PublishedWss => Protocol::Wss,
            Self::VethAnnounces | Self::VethConnects | Self::VethClassic => Protocol::Veth,
            Self::VethForged | Self::VethFlood => Protocol::Veth,
            _ => Protocol::Udp,
        }
    }

    /// The arguments of onrush-load; `None` for another load tester.
    pub fn arguments(self) -> Option<&'static str> {
        match self {
            Self::Spread => Some("--profile classic --sources 1000 --burst 1 --no-bursts"),
            Self::Bursts => Some("--profile classic --sources 64"),
            Self::Real => Some("--profile real --sources 1000 --burst 1 --no-bursts"),
            Self::Few => Some("--profile classic --sources 4 --no-bursts"),
            Self::FewBursts => Some("--profile classic --sources 4 --burst 64"),
            Self::Https => Some("http --preset published-2022"),
            Self::HttpsKeepAlive => Some("http --preset published-2022 --keep-alive on"),
            Self::Http => Some("http --profile published-2022 --lists 0 --keep-alive off"),
            Self::HttpKeepAlive => Some("http --profile published-2022 --lists 0 --keep-alive on"),
            Self::FewHttp => Some("http --profile published-2022 --lists 0 --pipeline 8"),
            Self::Ws | Self::Wss => Some("ws"),
            Self::FewWss => Some("ws --offers 10 --sdp 47-47"),
            // Seeders get leechers only, of which each swarm has 75.
            Self::VethAnnounces => Some(
                "--profile classic --set mix.connect=0 --set mix.scrape=0 --seeders 25 --set \
                 swarms.count=1000 --set swarms.mean=100 --set swarms.tail=zipf --set \
                 swarms.exponent=0.1",
            ),
            Self::VethConnects => Some("--profile classic --set mix.announce=0 --set mix.scrape=0"),
            Self::VethClassic => Some("--profile classic"),
            Self::VethForged | Self::VethFlood => Some(
                "--profile classic --set mix.connect=1 --set mix.announce=1 --set mix.scrape=0 \
                 --set mix.unusable=400 --in-flight 8192",
            ),
            Self::Published | Self::FewPublished => None,
            Self::PublishedHttp | Self::PublishedHttps | Self::PublishedWss => None,
        }
    }

    /// The program that makes this load where it is not onrush-load.
    pub fn published_tool(self) -> Option<&'static str> {
        match self {
            Self::Published | Self::FewPublished => Some("aquatic_udp_load_test"),
            Self::PublishedHttp | Self::PublishedHttps => Some("aquatic_http_load_test"),
            Self::PublishedWss => Some("aquatic_ws_load_test"),
            _ => None,
        }
    }

    /// Whether a tool of published comparisons makes this load.
    pub fn is_published(self) -> bool {
        self.published_tool().is_some()
    }

    /// Whether connections are kept for further requests.
    pub fn keeps_alive(self) -> bool {
        let kept = [Self::HttpsKeepAlive, Self::HttpKeepAlive, Self::FewHttp, Self::PublishedHttp];
        kept.contains(&self) || self.protocol().is_webtorrent()
    }

    /// Whether memory of idle connections is measured.
    pub fn has_idle(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }

    /// Requests in flight per worker in a closed loop; `None` for the load tester's default. In an
    /// open loop onrush-load computes this limit by itself.
    pub fn in_flight(self) -> Option<u32> {
        match self {
            Self::Spread | Self::Real | Self::FewBursts => Some(512),
            // A veth device queues 256 frames and drops more.
            Self::VethAnnounces | Self::VethConnects | Self::VethClassic => Some(240),
            _ => None,
        }
    }

    /// Datagrams per second in place of a closed loop where most of them are refused.
    pub fn refused_rate(self) -> Option<f64> {
        match self {
            Self::VethForged => Some(603_000.0),
            Self::VethFlood => Some(1_005_000.0),
            _ => None,
        }
    }

    /// Its description in the report, as in `--help`.
    pub fn about(self) -> String {
        let value = self.to_possible_value().expect("no mix is hidden");
        value.get_help().map(ToString::to_string).unwrap_or_default()
    }

    /// Whether the report has its latency: not for bursts, where it would be that of a burst.
    pub fn has_latency(self) -> bool {
        match self {
            Self::FewHttp | Self::FewWss => false,
            Self::Spread | Self::Real => true,
            _ if self.protocol() == Protocol::Veth => self.refused_rate().is_none(),
            _ => !self.protocol().is_udp() && !self.is_published(),
        }
    }
}
