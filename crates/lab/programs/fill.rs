//! The memory cost of peers: fills any BEP 15 tracker with swarms of one size and prints by how
//! much its resident memory has grown.
//!
//! ```text
//! cargo run --release -p onrush-lab --bin fill -- --target 127.0.0.1:6969 \
//!     --tracker-pid PID --swarms 1000000 --peers 2
//! ```
//!
//! Every peer is an endpoint of its own: an address of 127/8 and a port. Every announce is sent
//! again until it is answered, so that all peers are stored. The last line is JSON.

#![forbid(unsafe_code)]

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use onrush_net::bind::{Buffers, bind_client};
use onrush_net::mio::{Backend, Options};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::announce::{self, REQUEST_LEN};
use onrush_proto::options::Options as NoOptions;
use onrush_proto::{Announce, Connect, ConnectionId, Event, InfoHash, PeerId, TransactionId};

/// Fills a tracker with peers and says what they cost in memory.
#[derive(Parser)]
struct Arguments {
    /// The tracker's address.
    #[arg(long, default_value = "127.0.0.1:6969")]
    target: SocketAddr,
    /// The process id of the tracker, whose memory is measured.
    #[arg(long)]
    tracker_pid: u32,
    /// Swarms to create.
    #[arg(long, default_value_t = 1_000_000)]
    swarms: u32,
    /// Peers in each, half of them seeders.
    #[arg(long, default_value_t = 2)]
    peers: u32,
}

/// Addresses of the peers. Each has more than 60,000 ports.
const SOURCES: usize = 16;
/// The ports of an address start at 1024.
const PORTS: u32 = 64_000;
/// Announces in flight.
const WINDOW: usize = 256;
/// Time after which an announce is sent again.
const PATIENCE: Duration = Duration::from_millis(200);
/// Time without any reply after which the program fails.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Connection ids are valid for two minutes (BEP 15, "Connect"); they are renewed before.
const RECONNECT: Duration = Duration::from_secs(60);

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let per_swarm = PORTS * SOURCES as u32;
    ensure!(arguments.peers <= per_swarm, "--peers is at most {per_swarm}");
    let mut filling = Filling::new(&arguments)?;
    filling.connect()?;
    let mut connected = Instant::now();
    let before = resident(arguments.tracker_pid)?;
    let start = Instant::now();
    let total = u64::from(arguments.swarms) * u64::from(arguments.peers);
    let mut next = 0;
    while next < total {
        if connected.elapsed() > RECONNECT {
            filling.connect()?;
            connected = Instant::now();
        }
        let group = next..(next + WINDOW as u64).min(total);
        filling.announce(group.clone())?;
        next = group.end;
    }
    let grown = resident(arguments.tracker_pid)?.saturating_sub(before);
    println!(
        "{} swarms of {}: {:.1} bytes per peer, {:.1} per swarm, in {:.0} s",
        arguments.swarms,
        arguments.peers,
        grown as f64 / total as f64,
        grown as f64 / f64::from(arguments.swarms),
        start.elapsed().as_secs_f64(),
    );
    let result = serde_json::json!({
        "swarms": arguments.swarms, "peers": total, "before": before, "grown": grown,
        "bytes_per_peer": grown as f64 / total as f64,
    });
    println!("{result}");
    Ok(())
}

struct Filling {
    backend: Backend,
    target: SocketAddr,
    peers: u32,
    ids: [ConnectionId; SOURCES],
    /// The transaction id of the next group's first request: no id is used twice, so a late reply
    /// never matches another request.
    first_id: u32,
}

impl Filling {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let mut sockets = Vec::with_capacity(SOURCES);
        for source in 1..=SOURCES {
            let address = SocketAddr::from(([127, 0, 3, source as u8], 0));
            // Space for the replies to a whole window.
            let buffers = Buffers { receive: 2 << 20, send: 2 << 20 };
            sockets.push(bind_client(address, buffers)?.0);
        }
        let options = Options { batch: WINDOW, ..Options::default() };
        let backend = Backend::new(sockets, options)?;
        let ids = [ConnectionId(0); SOURCES];
        Ok(Self { backend, target: arguments.target, peers: arguments.peers, ids, first_id: 0 })
    }

    /// Requests a connection id for each address.
    fn connect(&mut self) -> anyhow::Result<()> {
        let requests = (0..SOURCES)
            .map(|source| {
                let mut bytes = [0; REQUEST_LEN];
                let transaction_id = TransactionId(self.first_id.wrapping_add(source as u32));
                Connect { transaction_id }.write(bytes.first_chunk_mut().expect("is longer"));
                (source, 16, bytes)
            })
            .collect::<Vec<_>>();
        let mut ids = self.ids;
        self.exchange(&requests, |source, reply| {
            // An error may have the same length (BEP 15), but its text is not an id.
            ensure!(reply[3] == 0, "a connect was refused");
            let id = reply.get(8..16).and_then(|id| id.try_into().ok());
            ids[source] = ConnectionId(u64::from_be_bytes(id.context("a connect reply is short")?));
            Ok(())
        })?;
        self.ids = ids;
        Ok(())
    }

    /// Announces peers by their numbers, swarm by swarm.
    fn announce(&mut self, numbers: std::ops::Range<u64>) -> anyhow::Result<()> {
        let requests = numbers
            .enumerate()
            .map(|(place, number)| {
                let swarm = number / u64::from(self.peers);
                let peer = (number % u64::from(self.peers)) as u32;
                let source = (peer / PORTS) as usize;
                let mut bytes = [0; REQUEST_LEN];
                let mut info_hash = [0; 20];
                // Spread over all values, as real hashes are: some trackers shard by the first
                // byte.
                info_hash[..8]
                    .copy_from_slice(&swarm.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
                info_hash[8..16].copy_from_slice(&swarm.to_be_bytes());
                Announce {
                    connection_id: self.ids[source],
                    transaction_id: TransactionId(self.first_id.wrapping_add(place as u32)),
                    info_hash: InfoHash(info_hash),
                    peer_id: PeerId([b'-'; 20]),
                    downloaded: 0,
                    left: u64::from(peer % 2),
                    uploaded: 0,
                    event: Event::Started,
                    ip: 0,
                    key: peer,
                    num_want: 0,
                    port: (1024 + peer % PORTS) as u16,
                    options: NoOptions(&[]),
                }
                .write(&mut bytes);
                (source, REQUEST_LEN, bytes)
            })
            .collect::<Vec<_>>();
        self.exchange(&requests, |_, reply| {
            ensure!(reply.len() >= announce::HEAD_LEN && reply[3] == 1, "an announce was refused");
            Ok(())
        })
    }

    /// Sends requests, numbered from `first_id` on, until all are answered.
    fn exchange(
        &mut self,
        requests: &[(usize, usize, [u8; REQUEST_LEN])],
        mut answered: impl FnMut(usize, &[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut open = vec![true; requests.len()];
        let mut left = requests.len();
        let deadline = Instant::now() + GIVE_UP;
        while left > 0 {
            let ways: Vec<Return> =
                requests.iter().map(|it| Return::to(self.target, it.0 as u16)).collect();
            let again = requests.iter().zip(&ways).zip(&open).filter(|(_, open)| **open);
            self.backend
                .send(again.map(|(((_, len, bytes), to), _)| Reply { bytes: &bytes[..*len], to }));
            let patience = Instant::now() + PATIENCE;
            while left > 0 && Instant::now() < patience {
                let replies = self.backend.receive(WINDOW)?;
                if replies.is_empty() {
                    self.backend.wait(PATIENCE)?;
                    continue;
                }
                for (reply, _) in replies.iter() {
                    let id = reply.get(4..8).and_then(|id| id.try_into().ok());
                    let id = u32::from_be_bytes(id.context("a reply is short")?);
                    let place = id.wrapping_sub(self.first_id) as usize;
                    if open.get(place).copied().unwrap_or(false) {
                        open[place] = false;
                        left -= 1;
                        answered(requests[place].0, reply)?;
                    }
                }
            }
            if Instant::now() > deadline {
                bail!("{} does not answer", self.target);
            }
        }
        self.first_id = self.first_id.wrapping_add(requests.len() as u32);
        Ok(())
    }
}

/// Resident memory of a process, in bytes (proc_pid_smaps(5)).
fn resident(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = text.lines().find(|line| line.starts_with("Rss:")).context("no line Rss")?;
    let kib: u64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kib * 1024)
}
