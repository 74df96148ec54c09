//! Split and colocated placement give the same replies to the same traffic.

use std::net::SocketAddr;

use onrush_net::Socket;
use onrush_proto::{
    Announce, Connect, ConnectionId, Event, Family, InfoHash, PeerId, Response, Scrape,
    TransactionId,
};
use onrush_testing::memory_tracker::{COLOCATED, SPLIT, TestTracker, announce, at, send};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const CLIENTS: usize = 60;
const REQUESTS: u64 = 6_000;
const HASHES: u8 = 20;
const FORBIDDEN: u8 = 7;

/// Without jitter, so that intervals can be compared, and with lists longer than any swarm here, so
/// that they contain the same peers whatever the sampling is.
fn text(placement: &str) -> String {
    format!(
        "{placement}\n[announce]\ninterval = 600\ninterval_jitter_percent = 0\n\
         peer_lifetime = 1200\nmax_peers_v6 = 67\n\
         [access]\nmode = \"deny\"\ninfo_hashes = [\"{}\"]\n",
        InfoHash([FORBIDDEN; 20])
    )
}

/// Sends one request at a time; the reply to each.
fn replies(placement: &str, seed: u64) -> Vec<Option<Vec<u8>>> {
    let (mut world, mut clients) = TestTracker::with_clients(&text(placement), &addresses());
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut ids = vec![ConnectionId(0); CLIENTS];
    let mut all = Vec::new();
    for n in 0..REQUESTS {
        let client = rng.random_range(0..CLIENTS);
        let request = request(&mut rng, &ids, client, TransactionId(n as u32));
        send(&mut clients, client as u16, &request);
        // Five requests a second, so that peers without an announce for long enough expire
        // meanwhile.
        world.settle(at(n / 5));
        let reply = clients.receive(8).unwrap().iter().next().map(|(bytes, _)| bytes.to_vec());
        if let Some(reply) = &reply
            && let Ok(Response::Connect(response)) = Response::parse(reply, family(client))
        {
            ids[client] = response.connection_id;
        }
        all.push(reply.map(|reply| sorted(reply, family(client))));
    }
    all
}

fn addresses() -> Vec<SocketAddr> {
    let address = |client| match family(client) {
        Family::V4 => format!("198.51.100.{}:2000", client + 1).parse().unwrap(),
        Family::V6 => format!("[2001:db8:1::{:x}]:2000", client + 1).parse().unwrap(),
    };
    (0..CLIENTS).map(address).collect()
}

fn family(client: usize) -> Family {
    if client.is_multiple_of(3) { Family::V6 } else { Family::V4 }
}

fn request(rng: &mut SmallRng, ids: &[ConnectionId], client: usize, id: TransactionId) -> Vec<u8> {
    let mut bytes = [0; 2048];
    let connection_id = match rng.random_range(0..20) {
        0 => ConnectionId(rng.random()),
        _ => ids[client],
    };
    let hash = |rng: &mut SmallRng| InfoHash([rng.random_range(0..HASHES); 20]);
    let len = match rng.random_range(0..10) {
        0..2 => {
            Connect { transaction_id: id }.write(bytes.first_chunk_mut().unwrap());
            16
        }
        2 => {
            let hashes: Vec<_> = (0..rng.random_range(0..80)).map(|_| hash(rng)).collect();
            Scrape::write(connection_id, id, &hashes, &mut bytes)
        }
        _ => {
            let info_hash = hash(rng);
            Announce {
                transaction_id: id,
                peer_id: PeerId([client as u8; 20]),
                left: rng.random_range(0..2),
                event: Event::from_wire(rng.random_range(0..6)),
                num_want: rng.random_range(190..210),
                port: [0, 1, 6881, 6882][rng.random_range(0..4)],
                ..announce(connection_id, info_hash)
            }
            .write(&mut bytes)
        }
    };
    bytes[..len].to_vec()
}

/// The reply with its peers sorted, as their order depends on the sampling.
fn sorted(mut reply: Vec<u8>, family: Family) -> Vec<u8> {
    if reply.starts_with(&[0, 0, 0, 1]) {
        let mut peers: Vec<_> =
            reply[20..].chunks_exact(family.peer_len()).map(<[u8]>::to_vec).collect();
        peers.sort_unstable();
        reply.truncate(20);
        reply.extend(peers.concat());
    }
    reply
}

#[test]
fn both_placements_give_the_same_replies() {
    for seed in 1..=3 {
        let split = replies(SPLIT, seed);
        let colocated = replies(COLOCATED, seed);
        let unsteered = replies(&format!("{COLOCATED}[socket]\nsteering = false\n"), seed);
        let kinds = |action: u8| {
            split.iter().flatten().filter(|reply| reply[..4] == [0, 0, 0, action]).count()
        };
        // The traffic must contain enough replies of every kind, and requests without a reply.
        for (action, least) in [(0, 500), (1, 1_000), (2, 200), (3, 300)] {
            assert!(kinds(action) > least, "{} replies of action {action}", kinds(action));
        }
        assert!(split.iter().filter(|reply| reply.is_none()).count() > 100);
        for (n, ((a, b), c)) in split.iter().zip(&colocated).zip(&unsteered).enumerate() {
            assert_eq!(a, b, "seed {seed}, request {n}: split and colocated differ");
            assert_eq!(a, c, "seed {seed}, request {n}: split and unsteered differ");
        }
    }
}
