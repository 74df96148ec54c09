//! A tracker with one web worker, and clients of it. The test takes the turns and sets the time.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use onrush_net::memory::{self, Endpoint};
use onrush_net::stream::Streams;
use onrush_net::stream::memory::{Backend, Client, Conditions, Listener, Network};
use onrush_testing::memory_tracker::{SPLIT, TestTracker, at, rules, secrets, settings};
use onrush_testing::tls::Issued;
use onrush_tracker::clock::Now;
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::front::Front;
use onrush_tracker::lanes::Waker;
use onrush_tracker::metrics::{Counter, HTTP_REFUSALS, WebCounters, WorkerMetrics};
use onrush_tracker::orders::Orders;
use onrush_tracker::rules::Rules;
use onrush_tracker::running::{Addresses, Scheme};
use onrush_web::WebWorker;
use onrush_web::tls::Tls;
use onrush_web::tls::certificates::Certificates;
use onrush_web::webtorrent::exchange::{Exchange, PARCELS};
use rand::RngExt;
use rand::rngs::SmallRng;

/// An announce of a leecher at port 6881 in the swarm of [`HASH`]; more keys may follow.
pub(crate) const ANNOUNCE: &str =
    "/announce?info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=-XX0001-000000000000&port=6881&left=1";
/// The info hash of [`ANNOUNCE`].
pub(crate) const HASH: &str = "aaaaaaaaaaaaaaaaaaaa";

/// The tracker, the network of its web worker, and the time.
pub(crate) struct World {
    pub(crate) tracker: TestTracker<Endpoint>,
    pub(crate) web: WebWorker<Backend>,
    pub(crate) network: Network,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// Further web workers, each with its counters.
    pub(crate) others: Vec<(WebWorker<Backend>, Arc<WorkerMetrics>)>,
    /// Those of each web worker: of HTTP, and of HTTPS.
    listeners: Vec<[Listener; 2]>,
    /// The address of the first.
    pub(crate) address: SocketAddr,
    second: u64,
}

/// The certificate of all trackers of this process, for the name `t`.
pub(crate) static CERTIFICATE: LazyLock<Issued> = LazyLock::new(|| Issued::of(&["t"]));

/// TLS with these certificates.
pub(crate) fn tls(certificates: &[&Issued]) -> Tls {
    Tls::new(loaded(certificates)).unwrap()
}

pub(crate) fn loaded(certificates: &[&Issued]) -> Arc<Certificates> {
    let directory = tempfile::tempdir().unwrap();
    let files = certificates.iter().enumerate().map(|(number, issued)| {
        issued.write(directory.path(), &number.to_string()).unwrap();
        let path = |ending: &str| directory.path().join(format!("{number}.{ending}"));
        (path("crt"), path("key"))
    });
    Certificates::load(&files.collect::<Vec<_>>()).unwrap().into()
}

/// A client's address.
pub(crate) fn source(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port)
}

/// Faults of the network, with this room for bytes.
pub(crate) fn faults(capacity: usize, rng: &mut SmallRng) -> Conditions {
    Conditions {
        short_reads: rng.random_range(0.0..0.8),
        short_writes: rng.random_range(0.0..0.8),
        stalls: rng.random_range(0.0..0.5),
        repeats: rng.random_range(0.0..1.0),
        capacity,
    }
}

/// A request that keeps its connection, with these fields.
pub(crate) fn request(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: t\r\n{fields}\r\n")
}

/// The same without further fields.
pub(crate) fn get(target: &str) -> String {
    request(target, "")
}

/// Runs a simulation for each seed.
pub(crate) fn for_each_seed<T>(seeds: u64, run: fn(u64) -> T) -> impl Iterator<Item = T> {
    let run = move |seed| std::panic::catch_unwind(|| run(seed));
    (0..seeds).map(move |seed| run(seed).unwrap_or_else(|_| panic!("seed {seed}")))
}

/// Whether a body has this part.
pub(crate) fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// A header of the PROXY protocol, version 2, that names this client of 192.0.2.1 or ::1.
pub(crate) fn binary_header(client: SocketAddr) -> Vec<u8> {
    let (family, addresses) = match client.ip() {
        IpAddr::V4(ip) => (0x11, [ip.octets(), [192, 0, 2, 1]].concat()),
        IpAddr::V6(ip) => (0x21, [ip.octets(), 1u128.to_be_bytes()].concat()),
    };
    let ports = [client.port(), 6969].map(u16::to_be_bytes).concat();
    let length = (addresses.len() + ports.len()) as u8;
    let head = [&b"\r\n\r\n\0\r\nQUIT\n\x21"[..], &[family, 0, length]].concat();
    [head, addresses, ports].concat()
}

impl World {
    /// A tracker in split placement with these tables in its configuration.
    pub(crate) fn new(config: &str) -> Self {
        Self::with(1, config, Conditions::default())
    }

    pub(crate) fn with(seed: u64, config: &str, conditions: Conditions) -> Self {
        Self::with_tls(seed, config, conditions, tls(&[&CERTIFICATE]))
    }

    pub(crate) fn with_tls(seed: u64, config: &str, conditions: Conditions, tls: Tls) -> Self {
        Self::with_workers(seed, config, conditions, tls, (1, PARCELS))
    }

    /// With so many web workers, and parcels of each for the others.
    pub(crate) fn with_workers(
        seed: u64,
        config: &str,
        conditions: Conditions,
        tls: Tls,
        (workers, parcels): (usize, usize),
    ) -> Self {
        let settings = settings(&format!("{SPLIT}[http]\nlisten = [\":0\"]\n{config}"));
        let datagrams = memory::Network::new(seed, memory::Conditions::default());
        let network = Network::new(seed, conditions);
        let backends: Vec<_> = (0..workers).map(|_| network.listen(2)).collect();
        let waker = |backend: &Backend| Arc::new(backend.waker()) as Arc<dyn Waker>;
        let (tracker, fronts) = TestTracker::with_fronts(
            &settings,
            &secrets(seed),
            &datagrams,
            |socket| socket,
            backends.iter().map(waker).collect(),
        );
        let mut exchanges = Exchange::connect(&fronts, &secrets(seed), parcels).into_iter();
        let rules = rules(&settings);
        let listeners = backends.iter().map(|it| [0, 1].map(|number| it.listener(number)));
        let listeners = listeners.collect();
        let address = backends[0].address(0).unwrap();
        let addresses = Addresses {
            udp: vec![source("192.0.2.1", 6969)],
            http: vec![source("192.0.2.1", 80)],
            https: vec![source("192.0.2.1", 443)],
        };
        let worker = |(front, streams): (Front, Backend)| {
            let metrics = front.metrics.clone();
            let streams = (streams, vec![Scheme::Http, Scheme::Https]);
            let web = WebWorker::new(front, &rules, streams, settings.http.limits, &addresses);
            let web = web.with_tls(tls.clone());
            let exchange = exchanges.next().filter(|_| settings.http.limits.webtorrent.is_some());
            let web = match exchange {
                Some(exchange) => web.with_exchange(exchange),
                None => web,
            };
            (web, metrics)
        };
        let mut others: Vec<_> = fronts.into_iter().zip(backends).map(worker).collect();
        let (web, metrics) = others.remove(0);
        Self { tracker, web, network, metrics, others, listeners, address, second: 1 }
    }

    /// The handle for orders to all members.
    pub(crate) fn orders(&self) -> Orders {
        let first = &self.tracker.workers[0];
        Orders::new(&first.mailboxes, self.tracker.workers.len(), first.owners.clone())
    }

    /// Gives these rules to all members.
    pub(crate) fn update_rules(&self, rules: Rules) {
        self.orders().update_rules(&Arc::new(rules)).unwrap();
    }

    pub(crate) fn now(&self) -> Now {
        at(self.second)
    }

    /// Lets seconds pass, one by one.
    pub(crate) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second += 1;
            self.settle();
        }
    }

    pub(crate) fn next_second(&mut self) {
        self.second += 1;
    }

    /// A second in which only the first web worker takes turns.
    pub(crate) fn second_of_first(&mut self) {
        self.next_second();
        self.turn_first();
    }

    /// Lets only the first web worker take turns, until nothing more happens.
    pub(crate) fn turn_first(&mut self) {
        while self.web.turn(self.now()).unwrap() {}
    }

    /// Lets all members take turns until nothing more happens.
    pub(crate) fn settle(&mut self) {
        let mut idle = 0;
        for _ in 0..100_000 {
            // Events may be late.
            idle = if self.turn() { 0 } else { idle + 1 };
            if idle == 20 {
                return;
            }
        }
        panic!("the web worker is still busy");
    }

    /// One turn of each member; whether the web worker was busy.
    pub(crate) fn turn(&mut self) -> bool {
        let now = self.now();
        let mut busy = self.web.turn(now).unwrap();
        for (web, _) in &mut self.others {
            busy |= web.turn(now).unwrap();
        }
        self.tracker.settle(now);
        busy
    }

    pub(crate) fn connect(&self, from: SocketAddr) -> Client {
        self.connect_to(0, 0, from)
    }

    /// Connects to the port for HTTPS.
    pub(crate) fn connect_tls(&self, from: SocketAddr) -> Client {
        self.connect_to(0, 1, from)
    }

    /// Connects to a listener of the web worker of this number.
    pub(crate) fn connect_to(&self, worker: usize, listener: usize, from: SocketAddr) -> Client {
        self.network.connect(self.listeners[worker][listener], from)
    }

    /// Sends bytes on a new connection; the reply, and whether the tracker has ended it.
    pub(crate) fn exchange(&mut self, request: &str) -> (String, bool) {
        let mut client = self.connect(source("198.51.100.1", 40_000));
        client.write_all(request.as_bytes()).unwrap();
        self.settle();
        let (bytes, end) = read_all(&mut client);
        (String::from_utf8_lossy(&bytes).into_owned(), end)
    }

    /// The body of the reply to a GET from an address.
    pub(crate) fn get(&mut self, ip: &str, target: &str) -> Vec<u8> {
        let mut client = self.connect(source(ip, 40_000));
        let (mut replies, end) = self.ask(&mut client, request(target, "Connection: close\r\n"));
        assert!(end && replies.len() == 1, "{replies:?}");
        replies.remove(0).body
    }

    /// Sends bytes of a client; the replies that it has not read yet, and whether the tracker has
    /// ended its connection.
    pub(crate) fn ask(
        &mut self,
        client: &mut Client,
        bytes: impl AsRef<[u8]>,
    ) -> (Vec<Reply>, bool) {
        client.write_all(bytes.as_ref()).unwrap();
        self.settle();
        let (bytes, ended) = read_all(client);
        (replies(&bytes), ended)
    }

    pub(crate) fn counters(&self) -> &WebCounters {
        &self.metrics.web
    }

    pub(crate) fn closed(&self, cause: CloseCause) -> u64 {
        self.counters().closed[cause as usize].get()
    }

    /// How many requests were refused for a reason.
    pub(crate) fn refused(&self, reason: &str) -> u64 {
        let at = HTTP_REFUSALS.iter().position(|name| *name == reason).expect("a reason");
        self.counters().refused().iter().map(|of| of[at].get()).sum()
    }

    /// The counters of all web workers.
    pub(crate) fn all_counters(&self) -> impl Iterator<Item = &WebCounters> {
        let others = self.others.iter().map(|(_, metrics)| &metrics.web);
        [self.counters()].into_iter().chain(others)
    }

    /// Checks the laws of the counters while nothing is in flight.
    pub(crate) fn check(&self) {
        self.all_counters().for_each(Self::check_counters);
    }

    fn check_counters(it: &WebCounters) {
        let sum = |counters: &[&Counter]| counters.iter().map(|it| it.get()).sum::<u64>();
        let all = |counters: &[Counter]| counters.iter().map(Counter::get).sum::<u64>();
        let open = sum(&[&it.open, &it.https_open, &it.ws_open, &it.wss_open]);
        assert_eq!(sum(&[&it.accepted, &it.https_accepted]), open + all(&it.closed));
        let requests = [&it.requests, &it.https_requests, &it.ws_requests, &it.wss_requests];
        let ended = sum(&[&it.answered, &it.abandoned])
            + it.refused().map(|of| all(of)).iter().sum::<u64>();
        assert_eq!(sum(&requests), ended);
        let handshakes = [&it.full_handshakes, &it.resumed_handshakes, &it.failed_handshakes];
        assert!(sum(&handshakes) <= it.https_accepted.get());
    }
}

/// Everything that has arrived, and whether the connection has ended or was reset.
pub(crate) fn read_all(client: &mut Client) -> (Vec<u8>, bool) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match client.read(&mut buffer) {
            Ok(0) => return (bytes, true),
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) => return (bytes, error.kind() != ErrorKind::WouldBlock),
        }
    }
}

/// A reply, as a strict client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) closes: bool,
    pub(crate) body: Vec<u8>,
}

/// All replies in these bytes; panics unless they are whole.
pub(crate) fn replies(bytes: &[u8]) -> Vec<Reply> {
    let (replies, rest) = whole_replies(bytes);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(rest));
    replies
}

/// The replies that are whole, and what follows them.
pub(crate) fn whole_replies(mut bytes: &[u8]) -> (Vec<Reply>, &[u8]) {
    let mut replies = Vec::new();
    while let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
        let (head, rest) = bytes.split_at(end + 4);
        let head = std::str::from_utf8(head).unwrap();
        let field = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find_map(|(key, value)| (key == name).then_some(value))
        };
        let len = field("Content-Length").expect("a length").parse().unwrap();
        let Some((body, rest)) = rest.split_at_checked(len) else { break };
        replies.push(Reply {
            status: head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap(),
            closes: field("Connection") == Some("close"),
            body: body.to_vec(),
        });
        bytes = rest;
    }
    (replies, bytes)
}
