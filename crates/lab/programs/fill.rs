//! The memory cost of peers: fills any BEP 15 tracker with swarms of one size and prints by how
//! much its resident memory has grown.
//!
//! ```text
//! cargo run --release -p onrush-lab --bin fill -- --target 127.0.0.1:6969 \
//!     --tracker-pid PID --swarms 1000000 --peers 2
//! ```
//!
//! Every peer of a swarm is a port of its own at one address. Every announce is sent again until it
//! is answered, so that all peers are stored. The last line is JSON.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use onrush_lab::allocator::resident_of;
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
    /// The process id of the tracker, whose memory is measured. It should have one worker: all
    /// announces come from one socket, and the kernel delivers them to one worker's.
    #[arg(long)]
    tracker_pid: u32,
    /// Swarms to create.
    #[arg(long, default_value_t = 1_000_000)]
    swarms: u32,
    /// Peers in each, half of them seeders.
    #[arg(long, default_value_t = 2)]
    peers: u32,
}

/// The address of the peers.
const SOURCE: [u8; 4] = [127, 0, 3, 1];
/// Their ports: from 1024 on.
const PORTS: u32 = 64_000;
/// Announces in flight.
const WINDOW: usize = 256;
/// Time after which an announce is sent again.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Time without any reply after which the program fails.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Connection ids are valid for two minutes (BEP 15, "Connect"); they are renewed before.
const RECONNECT: Duration = Duration::from_secs(60);

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.peers <= PORTS, "--peers is at most {PORTS}");
    let mut filling = Filling::new(&arguments)?;
    filling.connect()?;
    let mut connected = Instant::now();
    let before = resident_of(arguments.tracker_pid)?;
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
    let grown = resident_of(arguments.tracker_pid)?.saturating_sub(before);
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
    id: ConnectionId,
    /// The transaction id of the next group's first request: no id is used twice, so a late reply
    /// never matches another request.
    first_id: u32,
}

impl Filling {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        // Space for the replies to a whole window.
        let buffers = Buffers { receive: 2 << 20, send: 2 << 20 };
        let (socket, _) = bind_client((SOURCE, 0).into(), buffers)?;
        let options = Options { batch: WINDOW, ..Options::default() };
        let backend = Backend::new(vec![socket], options)?;
        let (target, peers) = (arguments.target, arguments.peers);
        Ok(Self { backend, target, peers, id: ConnectionId(0), first_id: 0 })
    }

    /// Requests a connection id.
    fn connect(&mut self) -> anyhow::Result<()> {
        let mut request = [0; 16];
        Connect { transaction_id: TransactionId(self.first_id) }.write(&mut request);
        let mut id = None;
        self.exchange(&[request], |reply| {
            // An error may have the same length (BEP 15), but its text is not an id.
            ensure!(reply[3] == 0, "a connect was refused");
            id = reply.get(8..16).and_then(|id| id.try_into().ok());
            Ok(())
        })?;
        self.id = ConnectionId(u64::from_be_bytes(id.context("a connect reply is short")?));
        Ok(())
    }

    /// Announces peers by their numbers, swarm by swarm.
    fn announce(&mut self, numbers: std::ops::Range<u64>) -> anyhow::Result<()> {
        let announce = |(number, id): (u64, u32)| {
            let (swarm, peer) = (number / u64::from(self.peers), number % u64::from(self.peers));
            let mut info_hash = [0; 20];
            // Spread over all values, as real hashes are: some trackers shard by the first byte.
            info_hash[..8]
                .copy_from_slice(&swarm.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
            info_hash[8..16].copy_from_slice(&swarm.to_be_bytes());
            let mut bytes = [0; REQUEST_LEN];
            Announce {
                connection_id: self.id,
                transaction_id: TransactionId(self.first_id.wrapping_add(id)),
                info_hash: InfoHash(info_hash),
                peer_id: PeerId([b'-'; 20]),
                downloaded: 0,
                left: peer % 2,
                uploaded: 0,
                event: Event::Started,
                ip: 0,
                key: peer as u32,
                num_want: 0,
                port: 1024 + peer as u16,
                options: NoOptions(&[]),
            }
            .write(&mut bytes);
            bytes
        };
        let requests: Vec<_> = numbers.zip(0..).map(announce).collect();
        self.exchange(&requests, |reply| {
            ensure!(reply.len() >= announce::HEAD_LEN && reply[3] == 1, "an announce was refused");
            Ok(())
        })
    }

    /// Sends requests, numbered from `first_id` on, until all are answered.
    fn exchange<const LEN: usize>(
        &mut self,
        requests: &[[u8; LEN]],
        mut answered: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let to = Return::to(self.target, 0);
        let mut open = vec![true; requests.len()];
        let mut left = requests.len();
        let end = Instant::now() + GIVE_UP;
        while left > 0 {
            let again = requests.iter().zip(&open).filter(|(_, open)| **open);
            self.backend.send(again.map(|(bytes, _)| Reply { bytes, to: &to }));
            let deadline = Instant::now() + TIMEOUT;
            while left > 0 && Instant::now() < deadline {
                let replies = self.backend.receive(WINDOW)?;
                if replies.is_empty() {
                    self.backend.wait(TIMEOUT)?;
                    continue;
                }
                for (reply, _) in replies.iter() {
                    let id = reply.get(4..8).and_then(|id| id.try_into().ok());
                    let id = u32::from_be_bytes(id.context("a reply is short")?);
                    let place = id.wrapping_sub(self.first_id) as usize;
                    if open.get(place).copied().unwrap_or(false) {
                        open[place] = false;
                        left -= 1;
                        answered(reply)?;
                    }
                }
            }
            if Instant::now() > end {
                bail!("{} does not answer", self.target);
            }
        }
        self.first_id = self.first_id.wrapping_add(requests.len() as u32);
        Ok(())
    }
}
