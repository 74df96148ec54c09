//! Memory of peers is returned to the system: when all peers have left, a daemon is as small as
//! after its start, except for the minimum size of its tables.

use std::time::{Duration, Instant};

use onrush_proto::options::Options;
use onrush_proto::{Announce, Event, InfoHash, PeerId, TransactionId};

use crate::harness::client::Client;
use crate::harness::process::{Daemon, Launch};

/// Two per swarm. Their memory is more than ten times what the daemon may keep.
const PEERS: u32 = 300_000;
/// Peers announced first, so that the daemon makes its one-time allocations.
const WARM_UP: u32 = 5_000;
/// Datagrams between two requests whose replies are awaited, so that the receive buffer does not
/// overflow.
const BURST: u32 = 64;
/// Deadline. The allocator returns memory that is unused for ten seconds, in steps.
const LONGEST: Duration = Duration::from_secs(60);

#[test]
fn memory_is_returned_when_all_peers_have_left() {
    // jemalloc keeps some megabytes in caches of idle threads (docs/benchmarks/allocators.md);
    // these are disabled to measure the memory of the daemon's own data.
    let mut daemon = Launch::new(&["--listen", "127.0.0.1:0", "--workers", "1"])
        .environment("_RJEM_MALLOC_CONF", "tcache:false")
        .start();
    let address = daemon.serving()[0];
    let mut client = Client::new(address);
    client.connect();
    announce(&mut client, WARM_UP, Event::Started);
    announce(&mut client, WARM_UP, Event::Stopped);
    let idle = resident(&daemon);

    announce(&mut client, PEERS, Event::Started);
    let full = resident(&daemon);
    announce(&mut client, PEERS, Event::Stopped);

    let enough = idle + idle / 4;
    assert!(full > enough + 5 * 1024, "from {idle} kB to {full} kB: no memory to return");
    let deadline = Instant::now() + LONGEST;
    while resident(&daemon) > enough {
        let left = resident(&daemon);
        assert!(Instant::now() < deadline, "{left} kB of {full} kB, {idle} kB at the start");
        // The client stays active meanwhile.
        client.connect();
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("{idle} kB, {full} kB, {} kB", resident(&daemon));
    daemon.stop();
}

/// Announces the first `peers` peers with this event.
fn announce(client: &mut Client, peers: u32, event: Event) {
    let mut bytes = [0; 128];
    for number in 0..peers {
        if number % BURST == 0 {
            client.connect();
        }
        let announce = Announce {
            connection_id: client.id,
            transaction_id: TransactionId(number),
            info_hash: info_hash(number / 2),
            peer_id: PeerId([1; 20]),
            downloaded: 0,
            left: 1,
            uploaded: 0,
            event,
            ip: 0,
            key: 0,
            num_want: 0,
            port: 2 + (number % 2) as u16,
            options: Options(&[]),
        };
        let len = announce.write(&mut bytes);
        client.send(&bytes[..len]);
    }
    client.connect();
}

fn info_hash(number: u32) -> InfoHash {
    let mut hash = [0x5A; 20];
    hash[..4].copy_from_slice(&number.to_be_bytes());
    InfoHash(hash)
}

/// Resident memory in kB.
fn resident(daemon: &Daemon) -> u64 {
    daemon.status("VmRSS").trim_end_matches(" kB").trim().parse().expect("a number of kB")
}
